/* MatMulInteger: y = (a - a_zero) * (b - b_zero), exact in int32. */
#include "ops/int8/int8_matmul.h"
#include "ops/matmul/matmul_util.h"

static const sb_int8_operands matmul_integer_in = {
    .a = 0, .b = 1, .a_zero = 2, .b_zero = 3};

static sb_status matmul_integer_infer(sb_infer *in)
{
    return sb_int8_matmul_infer(in, &matmul_integer_in, SB_DTYPE_I32);
}

static sb_status matmul_integer_prepare(sb_kernel *k)
{
    sb_int8_matmul *mm = NULL;

    SB_TRY(sb_int8_matmul_create(k, &matmul_integer_in, true, &mm));
    k->state = mm;
    k->scratch_size = mm->scratch;
    return SB_OK;
}

static sb_status matmul_integer_forward(sb_kernel *k)
{
    const sb_int8_epilogue end = {.dtype = SB_DTYPE_I32, .y = k->out[0]->data};

    sb_int8_matmul_run(k, k->state, &end);
    return SB_OK;
}

static double matmul_integer_macs(const sb_kernel *k)
{
    return sb_int8_matmul_macs(k, &matmul_integer_in);
}

const sb_op_def sb_op_matmul_integer = {
    .name = "MatMulInteger",
    .since = 10,
    .in_min = 2,
    .in_max = 4,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INTEGER,
    .weight_input = 1,
    .weight_axis = sb_last_weight_axis,
    .infer = matmul_integer_infer,
    .prepare = matmul_integer_prepare,
    .forward = matmul_integer_forward,
    .release = sb_int8_matmul_release,
    .macs = matmul_integer_macs,
};
