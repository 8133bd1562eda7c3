/* com.microsoft QGemm: alpha * A * B + C of quantized matrices.
 *
 * C is int32 with scale a_scale * b_scale, so it is added to the sums; then
 *
 *     y = saturate(round_half_even(sum * (alpha * a_scale * b_scale / y_scale))
 *                  + y_zero)
 *
 * or, without an output scale, y = sum * (alpha * a_scale * b_scale) as float.
 */
#include "ops/int8/int8_matmul.h"
#include "ops/matmul/matmul_util.h"

enum { A, A_SCALE, A_ZERO, B, B_SCALE, B_ZERO, C, Y_SCALE, Y_ZERO };

typedef struct q_gemm_attrs {
    float alpha;
    int64_t trans_a, trans_b;
} q_gemm_attrs;

static const sb_attr_def q_gemm_attr_defs[] = {
    {.name = "alpha", SB_ATTR_FLOAT, offsetof(q_gemm_attrs, alpha), .f = 1},
    {.name = "transA",
     SB_ATTR_INT,
     offsetof(q_gemm_attrs, trans_a),
     .flag = true},
    {.name = "transB",
     SB_ATTR_INT,
     offsetof(q_gemm_attrs, trans_b),
     .flag = true},
    {0},
};

static sb_int8_operands q_gemm_in(const q_gemm_attrs *a)
{
    return (sb_int8_operands){.a = A,
                              .b = B,
                              .a_zero = A_ZERO,
                              .b_zero = B_ZERO,
                              .trans_a = a->trans_a != 0,
                              .trans_b = a->trans_b != 0};
}

static sb_status q_gemm_infer(sb_infer *in)
{
    sb_int8_operands ops = q_gemm_in(in->attrs);
    const sb_fact *zero = sb_infer_in(in, Y_ZERO);
    sb_dtype dtype = SB_DTYPE_F32;

    if (zero)
        dtype = zero->type.dtype;
    else if (sb_infer_in(in, Y_SCALE))
        dtype = in->in[A]->type.dtype;
    return sb_int8_matmul_infer(in, &ops, dtype);
}

static sb_status q_gemm_check(const sb_kernel *k, const sb_int8_matmul *mm)
{
    const sb_tensor *c = sb_kernel_in(k, C);
    sb_dtype dtype = k->out[0]->dtype;

    SB_TRY(sb_int8_scales_check(k, A_SCALE, 1, 1));
    SB_TRY(sb_int8_scales_check(k, B_SCALE, mm->n, 1));
    if (sb_kernel_in(k, Y_SCALE))
        SB_TRY(sb_qparam_check(k, Y_SCALE, Y_ZERO, dtype));
    if (dtype != SB_DTYPE_F32 && !sb_is_byte(dtype))
        return sb_kernel_fail(k, SB_UNSUPPORTED, "output has type %s",
                              sb_dtype_name(dtype));
    if (!c)
        return SB_OK;
    int64_t cols = c->rank > 0 ? c->dims[c->rank - 1] : 1;
    int64_t rows = c->rank > 1 ? c->dims[c->rank - 2] : 1;
    if (c->dtype != SB_DTYPE_I32 || c->rank > 2 ||
        (cols != 1 && cols != mm->n) || (rows != 1 && rows != mm->m))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "C does not broadcast to int32 [%lld, %lld]",
                              (long long)mm->m, (long long)mm->n);
    return SB_OK;
}

static sb_status q_gemm_prepare(sb_kernel *k)
{
    sb_int8_operands ops = q_gemm_in(k->attrs);
    sb_int8_matmul *mm = NULL;

    if (k->in[A]->rank != 2 || k->in[B]->rank != 2)
        return sb_kernel_fail(k, SB_BAD_MODEL, "matrices have rank %d and %d",
                              k->in[A]->rank, k->in[B]->rank);
    const sb_tensor *c = sb_kernel_in(k, C);
    bool alike = !c || c->rank < 2 || c->dims[0] == 1;
    SB_TRY(sb_int8_matmul_create(k, &ops, alike, &mm));
    k->state = mm;
    k->scratch_size = mm->scratch;
    return q_gemm_check(k, mm);
}

/* ONNX Runtime adds C to the sums for a float result as well. */
static sb_status q_gemm_forward(sb_kernel *k)
{
    const q_gemm_attrs *attrs = k->attrs;
    const sb_tensor *c = sb_kernel_in(k, C);
    sb_int8_epilogue end = {
        .dtype = k->out[0]->dtype,
        .y = k->out[0]->data,
        .alpha = attrs->alpha,
        .row_scale = k->in[A_SCALE]->data,
        .n_row_scale = 1,
        .col_scale = k->in[B_SCALE]->data,
        .n_col_scale = sb_tensor_count(k->in[B_SCALE]),
    };

    if (sb_kernel_in(k, Y_SCALE))
        end.out = sb_qparam_read(k, Y_SCALE, Y_ZERO);
    if (c) {
        int64_t cols = c->rank > 0 ? c->dims[c->rank - 1] : 1;

        end.bias = c->data;
        end.bias_col = cols > 1;
        end.bias_row = c->rank > 1 && c->dims[0] > 1 ? cols : 0;
    }
    sb_int8_matmul_run(k, k->state, &end);
    return SB_OK;
}

static double q_gemm_macs(const sb_kernel *k)
{
    sb_int8_operands ops = q_gemm_in(k->attrs);

    return sb_int8_matmul_macs(k, &ops);
}

const sb_op_def sb_op_ms_q_gemm = {
    .name = "QGemm",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 6,
    .in_max = 9,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INTEGER,
    .weight_input = 3,
    .weight_axis = sb_gemm_weight_axis,
    .attrs_size = sizeof(q_gemm_attrs),
    .attrs = q_gemm_attr_defs,
    .infer = q_gemm_infer,
    .prepare = q_gemm_prepare,
    .forward = q_gemm_forward,
    .release = sb_int8_matmul_release,
    .macs = q_gemm_macs,
};
