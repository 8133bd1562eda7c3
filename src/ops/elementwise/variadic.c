/* Max, Min, Sum, Mean of any number of inputs, broadcast together.
 *
 * Inputs are folded into the output two at a time, which is why the output
 * must not share memory with an input.  NaN wins in Max and Min. */
#include "ops/elementwise/elementwise.h"
#include "ops/shape_values.h"

#define PICK(id, op)                                                \
    SB_STRIP2(id##_f32, float, float, (a op b || a != a) ? a : b)   \
    SB_STRIP2(id##_f64, double, double, (a op b || a != a) ? a : b) \
    SB_STRIP2(id##_i64, int64_t, int64_t, a op b ? a : b)           \
    SB_STRIP2(id##_u64, uint64_t, uint64_t, a op b ? a : b)         \
    static const sb_ew_def id##_def = {                             \
        .f32 = id##_f32, .f64 = id##_f64, .i64 = id##_i64, .u64 = id##_u64};

PICK(max, >)
PICK(min, <)

SB_STRIP2(sum_f32, float, float, a + b)
SB_STRIP2(sum_f64, double, double, a + b)
static const sb_ew_def sum_def = {.f32 = sum_f32, .f64 = sum_f64};

#define COUNT_SETUP(T) const T count = (T) * (const uint32_t *)s->param
SB_STRIP1_SETUP(scale_f32, float, float, COUNT_SETUP(float), x / count)
SB_STRIP1_SETUP(scale_f64, double, double, COUNT_SETUP(double), x / count)
static const sb_ew_def scale_def = {.f32 = scale_f32, .f64 = scale_f64};

/* A copy, broadcast to the output, for a single input. */
SB_STRIP1(copy_f32, float, float, x)
SB_STRIP1(copy_f64, double, double, x)
SB_STRIP1(copy_i64, uint64_t, uint64_t, x)
static const sb_ew_def copy_def = {
    .f32 = copy_f32, .f64 = copy_f64, .i64 = copy_i64, .u64 = copy_i64};

static sb_status variadic_prepare(sb_kernel *k)
{
    sb_dtype as, dtype = k->in[0]->dtype;

    for (uint32_t i = 1; i < k->n_in; i++)
        if (!k->in[i] || k->in[i]->dtype != dtype)
            return sb_kernel_fail(k, SB_BAD_MODEL,
                                  "input %u is absent or not of type %s", i,
                                  sb_dtype_name(dtype));
    if (!sb_ew_pick(k->op->aux, dtype, &as) || sb_dtype_size(dtype) == 0)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "not for elements of type %s",
                              sb_dtype_name(dtype));
    return SB_OK;
}

static sb_status variadic_step(sb_kernel *k, const sb_ew_def *def,
                               const sb_tensor *a, const sb_tensor *b)
{
    sb_dtype as = SB_DTYPE_NONE;
    sb_ew_call call = {.fn = sb_ew_pick(def, a->dtype, &as),
                       .param = &k->n_in,
                       .n_in = b ? 2 : 1,
                       .in = {a, b},
                       .in_as = {as, as},
                       .out = k->out[0],
                       .out_as = as};

    return sb_ew_run(k, &call);
}

static sb_status variadic_forward(sb_kernel *k)
{
    if (k->n_in == 1)
        return variadic_step(k, &copy_def, k->in[0], NULL);
    SB_TRY(variadic_step(k, k->op->aux, k->in[0], k->in[1]));
    for (uint32_t i = 2; i < k->n_in; i++)
        SB_TRY(variadic_step(k, k->op->aux, k->out[0], k->in[i]));
    return SB_OK;
}

static sb_status mean_forward(sb_kernel *k)
{
    SB_TRY(variadic_forward(k));
    return variadic_step(k, &scale_def, k->out[0], NULL);
}

/* ---- shapes ------------------------------------------------------------- */

static sb_dim dim_max(sb_dim a, sb_dim b)
{
    if (sb_dim_same(a, b))
        return a;
    if (!sb_dim_known(a) || !sb_dim_known(b))
        return SB_DIM_UNKNOWN;
    return a > b ? a : b;
}

static sb_dim dim_min(sb_dim a, sb_dim b)
{
    if (sb_dim_same(a, b))
        return a;
    if (!sb_dim_known(a) || !sb_dim_known(b))
        return SB_DIM_UNKNOWN;
    return a < b ? a : b;
}

static sb_status max_infer(sb_infer *in)
{
    SB_TRY(sb_infer_broadcast(in));
    if (in->n_in == 2)
        sb_shape_values_binary(in, dim_max);
    return SB_OK;
}

static sb_status min_infer(sb_infer *in)
{
    SB_TRY(sb_infer_broadcast(in));
    if (in->n_in == 2)
        sb_shape_values_binary(in, dim_min);
    return SB_OK;
}

/* ---- rows --------------------------------------------------------------- */

#define VARIADIC(name_, since_, def_, flags_, infer_, forward_, quant_, grad_) \
    {                                                                          \
        .quant = quant_, .name = name_, .since = since_, .in_min = 1,          \
        .in_max = SB_ARITY_ANY, .out_min = 1, .out_max = 1,                    \
        .flags = SB_OP_ELEMENTWISE | (flags_), .aux = def_, .infer = infer_,   \
        .prepare = variadic_prepare, .forward = forward_, .grad = grad_,       \
    }

/* clang-format off */
const sb_op_def sb_op_max = VARIADIC("Max", 8, &max_def, SB_OP_STRIPS, max_infer, variadic_forward, SB_ROLE_MULTI, sb_grad_extreme);
const sb_op_def sb_op_mean = VARIADIC("Mean", 8, &sum_def, 0, sb_infer_broadcast, mean_forward, SB_ROLE_MULTI, sb_grad_mean);
const sb_op_def sb_op_min = VARIADIC("Min", 8, &min_def, SB_OP_STRIPS, min_infer, variadic_forward, SB_ROLE_MULTI, sb_grad_extreme);
const sb_op_def sb_op_sum = VARIADIC("Sum", 8, &sum_def, SB_OP_STRIPS, sb_infer_broadcast, variadic_forward, SB_ROLE_SUM, sb_grad_add);
/* clang-format on */
