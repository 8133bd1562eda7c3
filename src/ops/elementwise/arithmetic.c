/* Add, Sub, Mul, Div with NumPy broadcasting.
 *
 * Integers wrap; integer division truncates, gives 0 for a zero divisor, and
 * wraps for the least integer divided by -1, so no input can trap.
 * Shape inference also computes small integer vectors symbolically, because
 * exporters calculate shapes with these operators. */
#include "ops/elementwise/elementwise.h"
#include "ops/shape_values.h"

static inline int64_t div_i64(int64_t a, int64_t b)
{
    return b == 0 ? 0 : b == -1 ? sb_wrap_sub(0, a) : a / b;
}

#define FLOATS(id, op)                        \
    SB_STRIP2(id##_f32, float, float, a op b) \
    SB_STRIP2(id##_f64, double, double, a op b)

FLOATS(add, +)
SB_STRIP2(add_i64, uint64_t, uint64_t, a + b)
FLOATS(sub, -)
SB_STRIP2(sub_i64, uint64_t, uint64_t, a - b)
FLOATS(mul, *)
SB_STRIP2(mul_i64, uint64_t, uint64_t, a *b)
FLOATS(div, /)
SB_STRIP2(div_i64s, int64_t, int64_t, div_i64(a, b))
SB_STRIP2(div_u64, uint64_t, uint64_t, b == 0 ? 0 : a / b)

static const sb_ew_def add_def = {
    .f32 = add_f32, .f64 = add_f64, .i64 = add_i64, .u64 = add_i64};
static const sb_ew_def sub_def = {
    .f32 = sub_f32, .f64 = sub_f64, .i64 = sub_i64, .u64 = sub_i64};
static const sb_ew_def mul_def = {
    .f32 = mul_f32, .f64 = mul_f64, .i64 = mul_i64, .u64 = mul_i64};
static const sb_ew_def div_def = {
    .f32 = div_f32, .f64 = div_f64, .i64 = div_i64s, .u64 = div_u64};

/* ---- shapes and their arithmetic ---------------------------------------- */

static sb_dim dim_sub(sb_dim a, sb_dim b)
{
    if (sb_dim_same(a, b))
        return 0;
    return b == 0 ? a : sb_dim_known(b) ? sb_dim_add(a, -b) : SB_DIM_UNKNOWN;
}

static sb_dim dim_div(sb_dim a, sb_dim b)
{
    if (b == 1)
        return a;
    if (!sb_dim_known(a) || !sb_dim_known(b) || b == 0)
        return SB_DIM_UNKNOWN;
    return a / b;
}

static sb_dim dim_mul(sb_dim a, sb_dim b)
{
    return a == 0 || b == 0 ? 0 : sb_dim_mul(a, b);
}

static sb_status add_infer(sb_infer *in)
{
    SB_TRY(sb_infer_broadcast(in));
    sb_shape_values_binary(in, sb_dim_add);
    return SB_OK;
}

static sb_status sub_infer(sb_infer *in)
{
    SB_TRY(sb_infer_broadcast(in));
    sb_shape_values_binary(in, dim_sub);
    return SB_OK;
}

static sb_status mul_infer(sb_infer *in)
{
    SB_TRY(sb_infer_broadcast(in));
    sb_shape_values_binary(in, dim_mul);
    return SB_OK;
}

static sb_status div_infer(sb_infer *in)
{
    SB_TRY(sb_infer_broadcast(in));
    sb_shape_values_binary(in, dim_div);
    return SB_OK;
}

/* ---- rows --------------------------------------------------------------- */
/* clang-format off */
const sb_op_def sb_op_add = SB_EW_BINARY_G("Add", 7, &add_def, SB_OP_INPLACE | SB_OP_COMMUTES, add_infer, SB_ROLE_SUM, sb_grad_add);
const sb_op_def sb_op_div = SB_EW_BINARY_G("Div", 7, &div_def, SB_OP_INPLACE, div_infer, SB_ROLE_MULTI, sb_grad_div);
const sb_op_def sb_op_mul = SB_EW_BINARY_G("Mul", 7, &mul_def, SB_OP_INPLACE | SB_OP_COMMUTES, mul_infer, SB_ROLE_MULTI, sb_grad_mul);
const sb_op_def sb_op_sub = SB_EW_BINARY_G("Sub", 7, &sub_def, SB_OP_INPLACE, sub_infer, SB_ROLE_MULTI, sb_grad_sub);
/* clang-format on */
