/* Gelu: y = x * Phi(x), Phi the normal distribution function, exact by erf or
 * approximated by tanh; and com.microsoft's forms of it:
 *
 *     Gelu       exact
 *     QuickGelu  x * sigmoid(alpha x)
 *     BiasGelu   exact, of x + bias
 *     FastGelu   by tanh, of x + optional bias
 */
#include <math.h>
#include <string.h>

#include "dnn/vec_math.h"
#include "ops/elementwise/elementwise.h"

SB_VEC_INLINE float gelu_erf1(float x)
{
    return 0.5f * x * (1.0f + sb_vec_erff(x * 0.70710678f));
}

static inline double gelu_erf1_f64(double x)
{
    return 0.5 * x * (1.0 + erf(x * 0.70710678118654752440));
}

/* sqrt(2/pi) (x + 0.044715 x^3) */
SB_VEC_INLINE float gelu_tanh1(float x)
{
    float inner = 0.79788456f * (x + 0.044715f * x * x * x);

    return 0.5f * x * (1.0f + sb_vec_tanhf(inner));
}

static inline double gelu_tanh1_f64(double x)
{
    double inner = 0.79788456080286535588 * (x + 0.044715 * x * x * x);

    return 0.5 * x * (1.0 + tanh(inner));
}

SB_STRIP1(gelu_erf_f32, float, float, gelu_erf1(x))
SB_STRIP1(gelu_erf_f64, double, double, gelu_erf1_f64(x))
SB_STRIP1(gelu_tanh_f32, float, float, gelu_tanh1(x))
SB_STRIP1(gelu_tanh_f64, double, double, gelu_tanh1_f64(x))
SB_STRIP2(bias_gelu_f32, float, float, gelu_erf1(a + b))
SB_STRIP2(bias_fast_gelu_f32, float, float, gelu_tanh1(a + b))

/* Phi(x) + x phi(x).  Beyond |x|, Phi leaves exp(-x^2 / 2) times a polynomial
 * of 1 / (1 + 0.33 |x|), fitted for least error (1e-7): one exp serves both. */
SB_VEC_INLINE float gelu_erf1_slope(float x)
{
    float e = sb_vec_expf(-0.5f * x * x), t = 1.0f / (1.0f + 0.33f * fabsf(x));
    float p = -0.22135468f;

    p = p * t + 0.75859445f;
    p = p * t - 0.19251241f;
    p = p * t + 0.41247908f;
    p = p * t + 0.24279361f;
    float tail = 0.5f * e * t * p;
    return (x < 0 ? tail : 1.0f - tail) + x * 0.39894228f * e;
}

/* With t the hyperbolic tangent of the inner polynomial:
 * (1 + t) / 2 + x (1 - t^2) / 2 times the slope of the polynomial. */
SB_VEC_INLINE float gelu_tanh1_slope(float x)
{
    float t = sb_vec_tanhf(0.79788456f * (x + 0.044715f * x * x * x));
    float inner = 0.79788456f * (1.0f + 0.134145f * x * x);

    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner;
}

SB_STRIP_GRAD(gelu_erf_grad, dy *gelu_erf1_slope(v))
SB_STRIP_GRAD(gelu_tanh_grad, dy *gelu_tanh1_slope(v))

static const sb_ew_def gelu_erf = {
    .f32 = gelu_erf_f32, .f64 = gelu_erf_f64, .grad = gelu_erf_grad};
static const sb_ew_def gelu_tanh = {
    .f32 = gelu_tanh_f32, .f64 = gelu_tanh_f64, .grad = gelu_tanh_grad};
static const sb_ew_def bias_gelu = {.f32 = bias_gelu_f32};
static const sb_ew_def bias_fast_gelu = {.f32 = bias_fast_gelu_f32};

typedef struct {
    const char *approximate;
} gelu_attrs;

static const sb_attr_def gelu_table[] = {
    {"approximate", SB_ATTR_STRING, offsetof(gelu_attrs, approximate),
     .s = "none"},
    {0},
};

/* The gradient of either form; the functions themselves are picked below. */
static void gelu_grad(const sb_strip *s)
{
    const gelu_attrs *a = s->param;

    (a->approximate[0] == 't' ? gelu_tanh_grad : gelu_erf_grad)(s);
}

static const sb_ew_def gelu_any = {.grad = gelu_grad};

/* Runs `def` over all present inputs. */
static sb_status gelu_run(sb_kernel *k, const sb_ew_def *def)
{
    sb_dtype as = SB_DTYPE_NONE;
    sb_ew_call call = {.fn = sb_ew_pick(def, k->in[0]->dtype, &as),
                       .n_in = sb_kernel_in(k, 1) ? 2 : 1,
                       .in = {k->in[0], sb_kernel_in(k, 1)},
                       .in_as = {as, as},
                       .out = k->out[0],
                       .out_as = as};

    return sb_ew_run(k, &call);
}

static sb_status gelu_check(sb_kernel *k)
{
    const sb_tensor *bias = sb_kernel_in(k, 1);

    if (!sb_dtype_is_float(k->in[0]->dtype) ||
        (bias && bias->dtype != k->in[0]->dtype))
        return sb_kernel_fail(k, SB_UNSUPPORTED, "not for elements of type %s",
                              sb_dtype_name(k->in[0]->dtype));
    return SB_OK;
}

static sb_status gelu_prepare(sb_kernel *k)
{
    const gelu_attrs *a = k->attrs;

    if (strcmp(a->approximate, "none") != 0 &&
        strcmp(a->approximate, "tanh") != 0)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "approximate is '%s', want none or tanh",
                              a->approximate);
    return gelu_check(k);
}

static sb_status gelu_forward(sb_kernel *k)
{
    const gelu_attrs *a = k->attrs;

    return gelu_run(k, a->approximate[0] == 't' ? &gelu_tanh : &gelu_erf);
}

static sb_status bias_gelu_forward(sb_kernel *k)
{
    return gelu_run(k, &bias_gelu);
}

static sb_status fast_gelu_forward(sb_kernel *k)
{
    return gelu_run(k, sb_kernel_in(k, 1) ? &bias_fast_gelu : &gelu_tanh);
}

/* The bias never makes the result larger than x. */
static sb_status bias_infer(sb_infer *in)
{
    return sb_infer_same(in);
}

/* ---- QuickGelu ---------------------------------------------------------- */

typedef struct {
    float alpha;
} quick_gelu_attrs;

static const sb_attr_def quick_gelu_table[] = {
    {"alpha", SB_ATTR_FLOAT, offsetof(quick_gelu_attrs, alpha), .f = 1.702f},
    {0},
};

SB_STRIP1_SETUP(quick_gelu_f32, float, float,
                const float alpha = ((const quick_gelu_attrs *)s->param)->alpha,
                x *sb_vec_sigmoidf(alpha *x))
SB_VEC_INLINE float quick_gelu1_slope(float x, float alpha)
{
    float s = sb_vec_sigmoidf(alpha * x);

    return s + alpha * x * s * (1.0f - s);
}

SB_STRIP_GRAD_SETUP(
    quick_gelu_grad,
    const float alpha = ((const quick_gelu_attrs *)s->param)->alpha,
    dy *quick_gelu1_slope(v, alpha))
static const sb_ew_def quick_gelu = {.f32 = quick_gelu_f32,
                                     .grad = quick_gelu_grad};

/* ---- rows --------------------------------------------------------------- */

/* erfc keeps its digits where 1 + erf has none left. */
static double gelu_curve(double x)
{
    return 0.5 * x * erfc(-x * 0.70710678118654752);
}

/* The turn is where Phi(x) + x phi(x) = 0, rounded. */
static const sb_result_range gelu_range = {
    .lo = -HUGE_VAL, .hi = HUGE_VAL, .curve = gelu_curve, .turn = -0.7517916};

const sb_op_def sb_op_gelu = {
    .name = "Gelu",
    .range = &gelu_range,
    .since = 20,
    .quant = SB_ROLE_ACT,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INPLACE | SB_OP_ELEMENTWISE,
    .attrs_size = sizeof(gelu_attrs),
    .attrs = gelu_table,
    .aux = &gelu_any,
    .infer = sb_infer_same,
    .prepare = gelu_prepare,
    .forward = gelu_forward,
    .grad = sb_grad_unary,
};

const sb_op_def sb_op_ms_gelu = {
    .name = "Gelu",
    .domain = "com.microsoft",
    .since = 1,
    .quant = SB_ROLE_ACT,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INPLACE | SB_OP_ELEMENTWISE,
    .aux = &gelu_erf,
    .infer = sb_infer_same,
    .prepare = sb_ew_prepare,
    .forward = sb_ew_forward,
    .grad = sb_grad_unary,
};

const sb_op_def sb_op_ms_quick_gelu = {
    .name = "QuickGelu",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INPLACE | SB_OP_ELEMENTWISE,
    .attrs_size = sizeof(quick_gelu_attrs),
    .attrs = quick_gelu_table,
    .aux = &quick_gelu,
    .infer = sb_infer_same,
    .prepare = sb_ew_prepare,
    .forward = sb_ew_forward,
    .grad = sb_grad_unary,
};

const sb_op_def sb_op_ms_bias_gelu = {
    .name = "BiasGelu",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INPLACE,
    .infer = bias_infer,
    .prepare = gelu_check,
    .forward = bias_gelu_forward,
};

const sb_op_def sb_op_ms_fast_gelu = {
    .name = "FastGelu",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 1,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INPLACE,
    .infer = bias_infer,
    .prepare = gelu_check,
    .forward = fast_gelu_forward,
};
