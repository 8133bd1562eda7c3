/* Activation functions of one input: Relu, Elu, Sigmoid, ... one expression
 * each, in float32 (half types are converted by the engine).
 *
 * To add one, write its strip and its row. */
#include <math.h>

#include "dnn/vec_math.h"
#include "ops/elementwise/elementwise.h"

/* ---- without attributes ------------------------------------------------- */

/* NaN stays NaN, as in ONNX Runtime. */
SB_STRIP1(relu_f32, float, float, x < 0 ? 0 : x)
SB_STRIP1(relu_f64, double, double, x < 0 ? 0 : x)
SB_STRIP1(relu_i64, int64_t, int64_t, x < 0 ? 0 : x)
SB_STRIP_GRAD(relu_grad, v > 0 ? dy : 0)
static const sb_ew_def relu_def = {.f32 = relu_f32,
                                   .f64 = relu_f64,
                                   .i64 = relu_i64,
                                   .grad = relu_grad,
                                   .grad_of_y = true};

/* exp of a number that is never positive cannot overflow. */
static inline double sigmoid1_f64(double x)
{
    double e = exp(-fabs(x));
    double p = 1.0 / (1.0 + e);

    return x < 0 ? e * p : p;
}

SB_STRIP1(sigmoid_f32, float, float, sb_vec_sigmoidf(x))
SB_STRIP1(sigmoid_f64, double, double, sigmoid1_f64(x))
SB_STRIP_GRAD(sigmoid_grad, dy *v *(1.0f - v))
static const sb_ew_def sigmoid_def = {.f32 = sigmoid_f32,
                                      .f64 = sigmoid_f64,
                                      .grad = sigmoid_grad,
                                      .grad_of_y = true};

/* log(1 + e^x) = max(x, 0) + log(1 + e^-|x|) */
SB_VEC_INLINE float softplus1(float x)
{
    float tail = sb_vec_log1pf_unit(sb_vec_expf(-fabsf(x)));

    return (x < 0 ? 0 : x) + tail;
}

SB_STRIP1(softplus_f32, float, float, softplus1(x))
SB_STRIP_GRAD(softplus_grad, dy *sb_vec_sigmoidf(v))
static const sb_ew_def softplus_def = {.f32 = softplus_f32,
                                       .grad = softplus_grad};

SB_STRIP1(softsign_f32, float, float, x / (1.0f + fabsf(x)))
SB_STRIP_GRAD(softsign_grad, dy / ((1.0f + fabsf(v)) * (1.0f + fabsf(v))))
static const sb_ew_def softsign_def = {.f32 = softsign_f32,
                                       .grad = softsign_grad};

/* x tanh(log(1 + e^x)) = x w / (w + 2) with w = e^x (e^x + 2); beyond 20 the
 * quotient is 1. */
SB_VEC_INLINE float mish1(float x)
{
    float e = sb_vec_expf(x > 20 ? 20 : x);
    float w = e * (e + 2);

    return x * (w / (w + 2));
}

/* With t = w / (w + 2): t + x (1 - t^2) sigmoid(x). */
SB_VEC_INLINE float mish1_slope(float x)
{
    float e = sb_vec_expf(x > 20 ? 20 : x);
    float t = e * (e + 2) / (e * (e + 2) + 2);

    return t + x * (1 - t * t) * (e / (1 + e));
}

SB_STRIP1(mish_f32, float, float, mish1(x))
SB_STRIP_GRAD(mish_grad, dy *mish1_slope(v))
static const sb_ew_def mish_def = {.f32 = mish_f32, .grad = mish_grad};

SB_VEC_INLINE float clamp01(float x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

SB_STRIP1(hard_swish_f32, float, float, x *clamp01(x *(1.0f / 6.0f) + 0.5f))
SB_STRIP_GRAD(hard_swish_grad, v <= -3  ? 0
                               : v >= 3 ? dy
                                        : dy * (v * (1.0f / 3.0f) + 0.5f))
static const sb_ew_def hard_swish_def = {.f32 = hard_swish_f32,
                                         .grad = hard_swish_grad};

/* ---- with attributes ---------------------------------------------------- */

typedef struct {
    float alpha, beta;
} act_attrs;

#define ALPHA(dflt)                                                   \
    {                                                                 \
        "alpha", SB_ATTR_FLOAT, offsetof(act_attrs, alpha), .f = dflt \
    }
#define SETUP                          \
    const act_attrs *attrs = s->param; \
    const float alpha = attrs->alpha

SB_STRIP1_SETUP(leaky_relu_f32, float, float, SETUP, x < 0 ? alpha * x : x)
SB_STRIP_GRAD_SETUP(leaky_relu_grad, SETUP, v > 0 ? dy : alpha * dy)
static const sb_ew_def leaky_relu_def = {
    .f32 = leaky_relu_f32, .grad = leaky_relu_grad, .grad_of_y = true};
static const sb_attr_def leaky_relu_attrs[] = {ALPHA(0.01f), {0}};

/* `below` where x is negative; both are computed, so that the compiler need not
 * branch. */
SB_VEC_INLINE float pick_neg(float x, float below)
{
    return x < 0 ? below : x;
}

SB_STRIP1_SETUP(elu_f32, float, float, SETUP,
                pick_neg(x, alpha *sb_vec_expm1f_neg(x)))
SB_STRIP_GRAD_SETUP(elu_grad, SETUP, v > 0 ? dy : dy * (v + alpha))
static const sb_ew_def elu_def = {
    .f32 = elu_f32, .grad = elu_grad, .grad_of_y = true};
static const sb_attr_def elu_attrs[] = {ALPHA(1.0f), {0}};

SB_STRIP1_SETUP(celu_f32, float, float, SETUP,
                pick_neg(x, alpha *sb_vec_expm1f_neg(x / alpha)))
SB_STRIP_GRAD_SETUP(celu_grad, SETUP, v > 0 ? dy : dy * (v / alpha + 1.0f))
static const sb_ew_def celu_def = {
    .f32 = celu_f32, .grad = celu_grad, .grad_of_y = true};

SB_STRIP1_SETUP(thresholded_relu_f32, float, float, SETUP, x > alpha ? x : 0)
SB_STRIP_GRAD_SETUP(thresholded_relu_grad, SETUP, v > alpha ? dy : 0)
static const sb_ew_def thresholded_relu_def = {.f32 = thresholded_relu_f32,
                                               .grad = thresholded_relu_grad};

/* s + x s' with s = sigmoid(alpha x). */
SB_VEC_INLINE float swish1_slope(float x, float alpha)
{
    float s = sb_vec_sigmoidf(alpha * x);

    return s + alpha * x * s * (1.0f - s);
}

SB_STRIP1_SETUP(swish_f32, float, float, SETUP, x *sb_vec_sigmoidf(alpha *x))
SB_STRIP_GRAD_SETUP(swish_grad, SETUP, dy *swish1_slope(v, alpha))
static const sb_ew_def swish_def = {.f32 = swish_f32, .grad = swish_grad};

#define SETUP2 \
    SETUP;     \
    const float beta = attrs->beta

SB_STRIP1_SETUP(hard_sigmoid_f32, float, float, SETUP2,
                clamp01(alpha *x + beta))
SB_STRIP_GRAD_SETUP(hard_sigmoid_grad, SETUP, v > 0 && v < 1 ? dy * alpha : 0)
static const sb_ew_def hard_sigmoid_def = {
    .f32 = hard_sigmoid_f32, .grad = hard_sigmoid_grad, .grad_of_y = true};
static const sb_attr_def hard_sigmoid_attrs[] = {
    ALPHA(0.2f),
    {"beta", SB_ATTR_FLOAT, offsetof(act_attrs, beta), .f = 0.5f},
    {0},
};

/* beta holds gamma */
SB_STRIP1_SETUP(selu_f32, float, float, SETUP2,
                beta *pick_neg(x, alpha *sb_vec_expm1f_neg(x)))
SB_STRIP_GRAD_SETUP(selu_grad, SETUP2,
                    v > 0 ? dy * beta : dy * (v + beta * alpha))
static const sb_ew_def selu_def = {
    .f32 = selu_f32, .grad = selu_grad, .grad_of_y = true};
static const sb_attr_def selu_attrs[] = {
    ALPHA(1.67326319217681884765625f),
    {"gamma", SB_ATTR_FLOAT, offsetof(act_attrs, beta),
     .f = 1.05070102214813232421875f},
    {0},
};

/* alpha holds lambd, beta holds bias */
SB_STRIP1_SETUP(shrink_f32, float, float, SETUP2,
                x<-alpha ? x + beta : x> alpha ? x - beta : 0)
/* The float strip would round large integers. */
#define SETUP_I64                      \
    const act_attrs *attrs = s->param; \
    const double alpha = (double)attrs->alpha, beta = (double)attrs->beta
SB_STRIP1_SETUP(shrink_f64, double, double, SETUP_I64,
                x<-alpha ? x + beta : x> alpha ? x - beta : 0)
SB_STRIP_GRAD_SETUP(shrink_grad, SETUP, v<-alpha || v> alpha ? dy : 0)
static const sb_ew_def shrink_def = {
    .f32 = shrink_f32, .f64 = shrink_f64, .grad = shrink_grad};
static const sb_attr_def shrink_attrs[] = {
    {"lambd", SB_ATTR_FLOAT, offsetof(act_attrs, alpha), .f = 0.5f},
    {"bias", SB_ATTR_FLOAT, offsetof(act_attrs, beta), .f = 0},
    {0},
};

/* Integers are computed as doubles. */
static sb_status shrink_prepare(sb_kernel *k)
{
    return sb_dtype_get(k->in[0]->dtype)->cls == SB_CLASS_FLOAT ||
                   sb_dtype_get(k->in[0]->dtype)->cls == SB_CLASS_INT ||
                   sb_dtype_get(k->in[0]->dtype)->cls == SB_CLASS_UINT
               ? SB_OK
               : sb_kernel_fail(k, SB_UNSUPPORTED,
                                "not for elements of type %s",
                                sb_dtype_name(k->in[0]->dtype));
}

static sb_status shrink_forward(sb_kernel *k)
{
    sb_ew_call call = {.fn = shrink_f64,
                       .param = k->attrs,
                       .n_in = 1,
                       .in = {k->in[0]},
                       .in_as = {SB_DTYPE_F64},
                       .out = k->out[0],
                       .out_as = SB_DTYPE_F64};

    if (sb_dtype_is_float(k->in[0]->dtype))
        return sb_ew_forward(k);
    return sb_ew_run(k, &call);
}

/* ---- PRelu: the slope is a broadcast input ------------------------------ */

SB_STRIP2(prelu_f32, float, float, a < 0 ? a * b : a)
SB_STRIP2(prelu_f64, double, double, a < 0 ? a * b : a)
SB_STRIP2(prelu_i64, int64_t, int64_t, a < 0 ? sb_wrap_mul(a, b) : a)
SB_STRIP2(prelu_u64, uint64_t, uint64_t, ((void)b, a)) /* never below 0 */
static const sb_ew_def prelu_def = {
    .f32 = prelu_f32, .f64 = prelu_f64, .i64 = prelu_i64, .u64 = prelu_u64};

/* ---- ranges ------------------------------------------------------------- */

static double hard_swish_curve(double x)
{
    return x * fmin(fmax(x / 6 + 0.5, 0), 1);
}

static double silu_curve(double x)
{
    return x / (1 + exp(-x));
}

static const sb_result_range relu_range = {
    .lo = 0, .hi = HUGE_VAL, .clips = true};
static const sb_result_range sigmoid_range = {.lo = 0, .hi = 1};
/* x (x / 6 + 1/2) is least at -3/2, and is -3/8 there. */
static const sb_result_range hard_swish_range = {
    .lo = -0.375, .hi = HUGE_VAL, .curve = hard_swish_curve, .turn = -1.5};
/* The turn is where 1 + exp(-x) (1 + x) = 0, rounded; with alpha 1. */
static const sb_result_range silu_range = {
    .lo = -HUGE_VAL, .hi = HUGE_VAL, .curve = silu_curve, .turn = -1.2784645};

/* ---- rows --------------------------------------------------------------- */
/* clang-format off */
const sb_op_def sb_op_celu = SB_EW_UNARY_ATTRS_Q("Celu", 12, &celu_def, act_attrs, elu_attrs, SB_ROLE_SINGLE);
const sb_op_def sb_op_elu = SB_EW_UNARY_ATTRS_Q("Elu", 6, &elu_def, act_attrs, elu_attrs, SB_ROLE_SINGLE);
const sb_op_def sb_op_hard_sigmoid = SB_EW_UNARY_ATTRS_Q("HardSigmoid", 6, &hard_sigmoid_def, act_attrs, hard_sigmoid_attrs, SB_ROLE_ACT);
const sb_op_def sb_op_hard_swish = SB_EW_UNARY_R("HardSwish", 14, &hard_swish_def, SB_ROLE_ACT, &hard_swish_range);
const sb_op_def sb_op_mish = SB_EW_UNARY_Q("Mish", 18, &mish_def, SB_ROLE_ACT);
const sb_op_def sb_op_relu = SB_EW_UNARY_R("Relu", 6, &relu_def, SB_ROLE_RELU, &relu_range);
const sb_op_def sb_op_selu = SB_EW_UNARY_ATTRS_Q("Selu", 6, &selu_def, act_attrs, selu_attrs, SB_ROLE_SINGLE);
const sb_op_def sb_op_sigmoid = SB_EW_UNARY_R("Sigmoid", 6, &sigmoid_def, SB_ROLE_ACT, &sigmoid_range);
const sb_op_def sb_op_softplus = SB_EW_UNARY_Q("Softplus", 1, &softplus_def, SB_ROLE_SINGLE);
const sb_op_def sb_op_softsign = SB_EW_UNARY_Q("Softsign", 1, &softsign_def, SB_ROLE_SINGLE);
const sb_op_def sb_op_swish = SB_EW_UNARY_ATTRS_R("Swish", 24, &swish_def, act_attrs, elu_attrs, SB_ROLE_ACT, &silu_range);
const sb_op_def sb_op_thresholded_relu = SB_EW_UNARY_ATTRS_Q("ThresholdedRelu", 10, &thresholded_relu_def, act_attrs, elu_attrs, SB_ROLE_SINGLE);
/* clang-format on */

const sb_op_def sb_op_leaky_relu = {
    .name = "LeakyRelu",
    .since = 6,
    .quant = SB_ROLE_ACT,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags =
        SB_OP_INPLACE | SB_OP_ELEMENTWISE | SB_OP_STRIPS | SB_OP_HOMOGENEOUS,
    .attrs_size = sizeof(act_attrs),
    .attrs = leaky_relu_attrs,
    .aux = &leaky_relu_def,
    .infer = sb_infer_same,
    .prepare = sb_ew_prepare,
    .forward = sb_ew_forward,
    .grad = sb_grad_unary,
};

const sb_op_def sb_op_shrink = {
    .name = "Shrink",
    .since = 9,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INPLACE | SB_OP_ELEMENTWISE | SB_OP_STRIPS,
    .attrs_size = sizeof(act_attrs),
    .attrs = shrink_attrs,
    .aux = &shrink_def,
    .infer = sb_infer_same,
    .prepare = shrink_prepare,
    .forward = shrink_forward,
    .grad = sb_grad_unary,
};

const sb_op_def sb_op_prelu = {
    .name = "PRelu",
    .since = 9,
    .quant = SB_ROLE_SINGLE,
    .parameters = 1u << 1,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags =
        SB_OP_INPLACE | SB_OP_ELEMENTWISE | SB_OP_STRIPS | SB_OP_HOMOGENEOUS,
    .aux = &prelu_def,
    .infer = sb_infer_broadcast,
    .prepare = sb_ew_prepare,
    .forward = sb_ew_forward,
    .grad = sb_grad_prelu,
};
