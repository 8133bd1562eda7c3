/* com.microsoft MatMulIntegerToFloat and DynamicQuantizeMatMul:
 *
 *     y = sum of (a - a_zero)(b - b_zero) * (a_scale * b_scale) + bias
 *
 * The second takes a float A and quantizes it to uint8 by its own range, as
 * DynamicQuantizeLinear does. */
#include "ops/int8/int8_matmul.h"
#include "ops/matmul/matmul_util.h"
#include "ops/quantized/dynamic_quantize.h"

/* Which input is what. */
typedef struct to_float_inputs {
    sb_int8_operands mm;
    uint32_t a_scale, b_scale, bias;
} to_float_inputs;

static const to_float_inputs integer_in = {
    .mm = {.a = 0, .b = 1, .a_zero = 4, .b_zero = 5},
    .a_scale = 2,
    .b_scale = 3,
    .bias = 6};
static const to_float_inputs dynamic_in = {
    .mm = {.a = 0, .b = 1, .b_zero = 3, .a_is_float = true},
    .b_scale = 2,
    .bias = 4};

static sb_status to_float_infer(sb_infer *in)
{
    const to_float_inputs *which = sb_op_of(in->node)->aux;

    return sb_int8_matmul_infer(in, &which->mm, SB_DTYPE_F32);
}

/* Bytes of A when it is quantized into scratch. */
static size_t quantized_a(const sb_kernel *k, const to_float_inputs *which)
{
    return which->mm.a_is_float ? (size_t)sb_tensor_count(k->in[0]) : 0;
}

static sb_status to_float_prepare(sb_kernel *k)
{
    const to_float_inputs *which = k->op->aux;
    const sb_tensor *bias = sb_kernel_in(k, which->bias);
    sb_int8_matmul *mm = NULL;

    if (which->mm.a_is_float && k->in[0]->dtype != SB_DTYPE_F32)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "input has type %s",
                              sb_dtype_name(k->in[0]->dtype));
    const sb_tensor *scale = sb_kernel_in(k, which->a_scale);
    bool alike = which->mm.a_is_float || (scale && sb_tensor_count(scale) == 1);
    SB_TRY(sb_int8_matmul_create(k, &which->mm, alike, &mm));
    k->state = mm;
    if (!which->mm.a_is_float)
        SB_TRY(sb_int8_scales_check(k, which->a_scale, mm->rows, mm->products));
    SB_TRY(sb_int8_scales_check(k, which->b_scale, mm->n, mm->n_b));
    if (bias && (bias->dtype != SB_DTYPE_F32 || sb_tensor_count(bias) != mm->n))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "bias has %lld elements of type %s, want %lld of "
                              "type float",
                              (long long)sb_tensor_count(bias),
                              sb_dtype_name(bias->dtype), (long long)mm->n);
    if (!sb_add_size(mm->scratch, quantized_a(k, which), &k->scratch_size))
        return sb_kernel_fail(k, SB_BAD_MODEL, "matrices are too large");
    return SB_OK;
}

static sb_status to_float_forward(sb_kernel *k)
{
    const to_float_inputs *which = k->op->aux;
    const sb_int8_matmul *mm = k->state;
    const sb_tensor *bias = sb_kernel_in(k, which->bias);
    sb_int8_epilogue end = {
        .dtype = SB_DTYPE_F32,
        .y = k->out[0]->data,
        .alpha = 1,
        .col_scale = k->in[which->b_scale]->data,
        .n_col_scale = sb_tensor_count(k->in[which->b_scale]),
        .bias_float = bias ? bias->data : NULL,
    };

    if (!which->mm.a_is_float) {
        end.row_scale = k->in[which->a_scale]->data;
        end.n_row_scale = sb_tensor_count(k->in[which->a_scale]);
        sb_int8_matmul_run(k, mm, &end);
        return SB_OK;
    }
    const sb_tensor *a = k->in[0];
    uint8_t *bytes = (uint8_t *)k->scratch + mm->scratch;
    sb_qparam q = sb_dynamic_qparam(a->data, sb_tensor_count(a));

    sb_quantize_u8(k->ctx, a->data, sb_tensor_count(a), q, bytes);
    end.row_scale = &q.scale;
    end.n_row_scale = 1;
    sb_int8_matmul_run_u8(k, mm, bytes, q.zero, &end);
    return SB_OK;
}

static double to_float_macs(const sb_kernel *k)
{
    const to_float_inputs *which = k->op->aux;

    return sb_int8_matmul_macs(k, &which->mm);
}

const sb_op_def sb_op_ms_matmul_integer_to_float = {
    .name = "MatMulIntegerToFloat",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 4,
    .in_max = 7,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INTEGER,
    .weight_input = 1,
    .weight_axis = sb_last_weight_axis,
    .aux = &integer_in,
    .infer = to_float_infer,
    .prepare = to_float_prepare,
    .forward = to_float_forward,
    .release = sb_int8_matmul_release,
    .macs = to_float_macs,
};

const sb_op_def sb_op_ms_dynamic_quantize_matmul = {
    .name = "DynamicQuantizeMatMul",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 3,
    .in_max = 5,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INTEGER,
    .weight_input = 1,
    .weight_axis = sb_last_weight_axis,
    .aux = &dynamic_in,
    .infer = to_float_infer,
    .prepare = to_float_prepare,
    .forward = to_float_forward,
    .release = sb_int8_matmul_release,
    .macs = to_float_macs,
};
