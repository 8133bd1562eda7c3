/* Comparisons and logic of two inputs: Equal, Less, And, ...; and bitwise And,
 * Or, Xor, and BitShift. */
#include "ops/elementwise/elementwise.h"
#include "ops/shape_values.h"

#include <string.h>

/* A comparison in every class that is ordered. */
#define COMPARE(id, op)                                       \
    SB_STRIP2(id##_f32, float, uint8_t, a op b)               \
    SB_STRIP2(id##_f64, double, uint8_t, a op b)              \
    SB_STRIP2(id##_i64, int64_t, uint8_t, a op b)             \
    SB_STRIP2(id##_u64, uint64_t, uint8_t, a op b)            \
    SB_STRIP2(id##_b8, uint8_t, uint8_t, (a != 0) op(b != 0)) \
    static const sb_ew_def id##_def = {.f32 = id##_f32,       \
                                       .f64 = id##_f64,       \
                                       .i64 = id##_i64,       \
                                       .u64 = id##_u64,       \
                                       .b8 = id##_b8,         \
                                       .predicate = true};

COMPARE(equal, ==)
COMPARE(greater, >)
COMPARE(less, <)
COMPARE(greater_or_equal, >=)
COMPARE(less_or_equal, <=)

#define LOGIC(id, op)                                         \
    SB_STRIP2(id##_b8, uint8_t, uint8_t, (a != 0) op(b != 0)) \
    static const sb_ew_def id##_def = {.b8 = id##_b8};

LOGIC(and, &)
LOGIC(or, |)
LOGIC(xor, ^)

#define BITS(id, op)                                \
    SB_STRIP2(id##_u64, uint64_t, uint64_t, a op b) \
    static const sb_ew_def id##_def = {.i64 = id##_u64, .u64 = id##_u64};

BITS(bitwise_and, &)
BITS(bitwise_or, |)
BITS(bitwise_xor, ^)

/* ---- BitShift ----------------------------------------------------------- */
/* Bits beyond the type vanish when the result is narrowed.  Shifting by the
 * width or more, or by a negative number, shifts everything out: the result is
 * 0, or -1 for a negative number shifted right. */
#define SHIFT_SETUP const int64_t width = *(const int64_t *)s->param
SB_STRIP2_SETUP(shift_left, int64_t, int64_t, SHIFT_SETUP,
                b < 0 || b >= width ? 0 : (int64_t)((uint64_t)a << b))
SB_STRIP2_SETUP(shift_right, int64_t, int64_t, SHIFT_SETUP,
                b < 0 || b >= width ? -(a < 0) : a >> b)
SB_STRIP2(shift_left_u64, uint64_t, uint64_t, b < 64 ? a << b : 0)
SB_STRIP2(shift_right_u64, uint64_t, uint64_t, b < 64 ? a >> b : 0)

static const sb_ew_def shifts[2] = {
    {.i64 = shift_right, .u64 = shift_right_u64},
    {.i64 = shift_left, .u64 = shift_left_u64},
};

typedef struct {
    const char *direction;
} bit_shift_attrs;

static const sb_attr_def bit_shift_table[] = {
    {"direction", SB_ATTR_STRING, offsetof(bit_shift_attrs, direction),
     .required = true},
    {0},
};

static sb_status bit_shift_prepare(sb_kernel *k)
{
    const bit_shift_attrs *a = k->attrs;

    if (strcmp(a->direction, "LEFT") != 0 && strcmp(a->direction, "RIGHT") != 0)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "direction is '%s', want LEFT or RIGHT",
                              a->direction);
    return sb_ew_prepare(k);
}

static sb_status bit_shift_forward(sb_kernel *k)
{
    const bit_shift_attrs *a = k->attrs;
    int64_t width = sb_dtype_get(k->in[0]->dtype)->bits;
    sb_dtype as = SB_DTYPE_NONE;
    sb_ew_call call = {
        .fn = sb_ew_pick(&shifts[a->direction[0] == 'L'], k->in[0]->dtype, &as),
        .param = &width,
        .n_in = 2,
        .in = {k->in[0], k->in[1]},
        .in_as = {as, as},
        .out = k->out[0],
        .out_as = as};

    return sb_ew_run(k, &call);
}

/* Exporters ask whether a dimension is -1: a symbol never is. */
static sb_dim dim_equal(sb_dim a, sb_dim b)
{
    if (sb_dim_same(a, b))
        return 1;
    bool has_a = sb_dim_known(a), has_b = sb_dim_known(b);
    if ((has_a && has_b) || (has_a && a < 0 && sb_dim_symbol_index(b) >= 0) ||
        (has_b && b < 0 && sb_dim_symbol_index(a) >= 0))
        return 0;
    return SB_DIM_UNKNOWN;
}

static sb_status equal_infer(sb_infer *in)
{
    SB_TRY(sb_infer_compare(in));
    sb_shape_values_binary(in, dim_equal);
    return SB_OK;
}

/* ---- rows --------------------------------------------------------------- */
/* clang-format off */
const sb_op_def sb_op_and = SB_EW_BINARY("And", 7, &and_def, SB_OP_INPLACE | SB_OP_COMMUTES | SB_OP_FLAT, sb_infer_compare);
const sb_op_def sb_op_bitwise_and = SB_EW_BINARY("BitwiseAnd", 18, &bitwise_and_def, SB_OP_INPLACE | SB_OP_COMMUTES | SB_OP_FLAT, sb_infer_broadcast);
const sb_op_def sb_op_bitwise_or = SB_EW_BINARY("BitwiseOr", 18, &bitwise_or_def, SB_OP_INPLACE | SB_OP_COMMUTES | SB_OP_FLAT, sb_infer_broadcast);
const sb_op_def sb_op_bitwise_xor = SB_EW_BINARY("BitwiseXor", 18, &bitwise_xor_def, SB_OP_INPLACE | SB_OP_COMMUTES | SB_OP_FLAT, sb_infer_broadcast);
const sb_op_def sb_op_equal = SB_EW_BINARY("Equal", 11, &equal_def, SB_OP_COMMUTES | SB_OP_FLAT, equal_infer);
const sb_op_def sb_op_greater = SB_EW_BINARY("Greater", 9, &greater_def, SB_OP_FLAT, sb_infer_compare);
const sb_op_def sb_op_greater_or_equal = SB_EW_BINARY("GreaterOrEqual", 12, &greater_or_equal_def, SB_OP_FLAT, sb_infer_compare);
const sb_op_def sb_op_less = SB_EW_BINARY("Less", 9, &less_def, SB_OP_FLAT, sb_infer_compare);
const sb_op_def sb_op_less_or_equal = SB_EW_BINARY("LessOrEqual", 12, &less_or_equal_def, SB_OP_FLAT, sb_infer_compare);
const sb_op_def sb_op_or = SB_EW_BINARY("Or", 7, &or_def, SB_OP_INPLACE | SB_OP_COMMUTES | SB_OP_FLAT, sb_infer_compare);
const sb_op_def sb_op_xor = SB_EW_BINARY("Xor", 7, &xor_def, SB_OP_INPLACE | SB_OP_COMMUTES | SB_OP_FLAT, sb_infer_compare);
/* clang-format on */

const sb_op_def sb_op_bit_shift = {
    .name = "BitShift",
    .since = 11,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INPLACE | SB_OP_ELEMENTWISE,
    .attrs_size = sizeof(bit_shift_attrs),
    .attrs = bit_shift_table,
    .aux = &shifts[0], /* for the type check of prepare */
    .infer = sb_infer_broadcast,
    .prepare = bit_shift_prepare,
    .forward = bit_shift_forward,
};
