/* QLinearMatMul: the product of two quantized matrices, quantized again.
 *
 *     y = saturate(round_half_even(sum * (a_scale * b_scale / y_scale))
 *                  + y_zero)
 *
 * with the exact int32 sum of (a - a_zero)(b - b_zero), the rest in float32.
 * Scales are one, or one per row of A, or one per column of B. */
#include "ops/int8/int8_matmul.h"
#include "ops/matmul/matmul_util.h"

enum { A, A_SCALE, A_ZERO, B, B_SCALE, B_ZERO, Y_SCALE, Y_ZERO };

static const sb_int8_operands qlinear_matmul_in = {
    .a = A, .b = B, .a_zero = A_ZERO, .b_zero = B_ZERO};

static sb_status qlinear_matmul_infer(sb_infer *in)
{
    const sb_fact *zero = sb_infer_in(in, Y_ZERO);

    return sb_int8_matmul_infer(in, &qlinear_matmul_in,
                                zero ? zero->type.dtype
                                     : in->in[A]->type.dtype);
}

static sb_status qlinear_matmul_prepare(sb_kernel *k)
{
    sb_int8_matmul *mm = NULL;

    if (!sb_is_byte(k->out[0]->dtype))
        return sb_kernel_fail(k, SB_UNSUPPORTED, "output has type %s",
                              sb_dtype_name(k->out[0]->dtype));
    SB_TRY(sb_qparam_check(k, Y_SCALE, Y_ZERO, k->out[0]->dtype));
    const sb_tensor *scale = sb_kernel_in(k, A_SCALE);
    bool alike = scale && sb_tensor_count(scale) == 1;
    SB_TRY(sb_int8_matmul_create(k, &qlinear_matmul_in, alike, &mm));
    k->state = mm;
    k->scratch_size = mm->scratch;
    SB_TRY(sb_int8_scales_check(k, A_SCALE, mm->rows, mm->products));
    return sb_int8_scales_check(k, B_SCALE, mm->n, mm->n_b);
}

static sb_status qlinear_matmul_forward(sb_kernel *k)
{
    const sb_int8_epilogue end = {
        .dtype = k->out[0]->dtype,
        .y = k->out[0]->data,
        .alpha = 1,
        .row_scale = k->in[A_SCALE]->data,
        .n_row_scale = sb_tensor_count(k->in[A_SCALE]),
        .col_scale = k->in[B_SCALE]->data,
        .n_col_scale = sb_tensor_count(k->in[B_SCALE]),
        .out = sb_qparam_read(k, Y_SCALE, Y_ZERO),
    };

    sb_int8_matmul_run(k, k->state, &end);
    return SB_OK;
}

static double qlinear_matmul_macs(const sb_kernel *k)
{
    return sb_int8_matmul_macs(k, &qlinear_matmul_in);
}

const sb_op_def sb_op_qlinear_matmul = {
    .name = "QLinearMatMul",
    .since = 10,
    .in_min = 8,
    .in_max = 8,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INTEGER,
    .weight_input = 3,
    .weight_axis = sb_last_weight_axis,
    .infer = qlinear_matmul_infer,
    .prepare = qlinear_matmul_prepare,
    .forward = qlinear_matmul_forward,
    .release = sb_int8_matmul_release,
    .macs = qlinear_matmul_macs,
};
