/* QLinearConv: convolution of quantized x and w, quantized again.
 *
 *     y = saturate(round_half_even((sum + bias) * m) + y_zero)
 *     m = x_scale * w_scale / y_scale
 *
 * with the exact int32 sum of (x - x_zero)(w - w_zero); m and the product are
 * float32, as in ONNX Runtime's CPU kernels.  Scale and zero point of w are one
 * or one per output channel. */
#include "ops/int8/int8_conv_last.h"

enum { X, X_SCALE, X_ZERO, W, W_SCALE, W_ZERO, Y_SCALE, Y_ZERO, BIAS };

static const sb_int8_conv_inputs qlinear_conv_in = {
    .x = X, .w = W, .x_zero = X_ZERO, .w_zero = W_ZERO};

static sb_status qlinear_conv_infer(sb_infer *in)
{
    const sb_fact *zero = sb_infer_in(in, Y_ZERO);

    return sb_int8_conv_infer(in, &qlinear_conv_in,
                              zero ? zero->type.dtype : in->in[X]->type.dtype);
}

static sb_status qlinear_conv_check(const sb_kernel *k, int64_t n_channel)
{
    const sb_tensor *w_scale = sb_kernel_in(k, W_SCALE);
    const sb_tensor *bias = sb_kernel_in(k, BIAS);
    sb_dtype dtype = k->out[0]->dtype;

    if (!sb_is_byte(dtype))
        return sb_kernel_fail(k, SB_UNSUPPORTED, "output has type %s",
                              sb_dtype_name(dtype));
    SB_TRY(sb_qparam_check(k, X_SCALE, X_ZERO, k->in[X]->dtype));
    SB_TRY(sb_qparam_check(k, Y_SCALE, Y_ZERO, dtype));
    int64_t n = w_scale ? sb_tensor_count(w_scale) : 0;
    if (!w_scale || w_scale->dtype != SB_DTYPE_F32 ||
        (n != 1 && n != n_channel))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "weight scale must be 1 or %lld floats",
                              (long long)n_channel);
    if (bias &&
        (bias->dtype != SB_DTYPE_I32 || sb_tensor_count(bias) != n_channel))
        return sb_kernel_fail(k, SB_BAD_MODEL, "bias must be %lld int32",
                              (long long)n_channel);
    return SB_OK;
}

static void qlinear_conv_layout(const sb_kernel *k, sb_layout *in,
                                sb_layout *out)
{
    sb_int8_last_layout(k, &qlinear_conv_in, in, out);
}

static sb_status qlinear_conv_prepare(sb_kernel *k)
{
    sb_int8_conv *c = NULL;
    size_t bytes = 0;

    SB_TRY(sb_int8_conv_create(k, &qlinear_conv_in, &c));
    k->state = c;
    int64_t n_channel = c->group * c->c_out;
    if (!sb_add_size(c->scratch, (size_t)n_channel * sizeof(float), &bytes))
        return sb_kernel_fail(k, SB_BAD_MODEL, "weights are too large");
    k->scratch_size = bytes;
    return qlinear_conv_check(k, n_channel);
}

static sb_status qlinear_conv_forward(sb_kernel *k)
{
    const sb_int8_conv *c = k->state;
    float *multiplier = (float *)(void *)((char *)k->scratch + c->scratch);
    const sb_tensor *w_scale = k->in[W_SCALE];
    const sb_tensor *bias = sb_kernel_in(k, BIAS);
    sb_qparam x = sb_qparam_read(k, X_SCALE, X_ZERO);
    sb_qparam y = sb_qparam_read(k, Y_SCALE, Y_ZERO);
    const float *w = w_scale->data;
    int64_t step = sb_tensor_count(w_scale) > 1;

    for (int64_t m = 0; m < c->group * c->c_out; m++)
        multiplier[m] = x.scale * w[m * step] / y.scale;
    const sb_int8_conv_end end = {
        .dtype = k->out[0]->dtype,
        .y = k->out[0]->data,
        .bias = bias ? bias->data : NULL,
        .multiplier = multiplier,
        .zero = y.zero,
    };
    sb_int8_conv_run(k, c, &end);
    return SB_OK;
}

static double qlinear_conv_macs(const sb_kernel *k)
{
    return sb_int8_conv_macs(k, &qlinear_conv_in);
}

const sb_op_def sb_op_qlinear_conv = {
    .name = "QLinearConv",
    .since = 10,
    .in_min = 8,
    .in_max = 9,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INTEGER,
    .weight_input = 3,
    .attrs_size = sizeof(sb_int8_conv_attrs),
    .attrs = sb_int8_conv_attr_defs,
    .infer = qlinear_conv_infer,
    .layout = qlinear_conv_layout,
    .prepare = qlinear_conv_prepare,
    .forward = qlinear_conv_forward,
    .release = sb_int8_conv_release,
    .macs = qlinear_conv_macs,
};
