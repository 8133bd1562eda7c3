/* com.microsoft DynamicQuantizeLSTM: an LSTM whose weights are bytes and whose
 * activations are rounded to bytes before each product, as
 * DynamicQuantizeLinear does: the sequence as a whole, the hidden state at each
 * step.
 *
 * What it computes here is what ONNX Runtime does with integers, but for the
 * last bits of the sums; speed is not the aim. */
#include "ops/quantized/dynamic_quantize.h"
#include "ops/rnn/rnn_util.h"

/* Scale and zero point of one weight: one for each direction, or for each
 * column of it as well. */
static sb_status check_params(const sb_kernel *k, uint32_t weight,
                              uint32_t scale)
{
    const sb_tensor *w = k->in[weight], *s = sb_kernel_in(k, scale);
    const sb_tensor *z = sb_kernel_in(k, scale + 1);

    if (!s)
        return sb_kernel_fail(k, SB_BAD_MODEL, "input %u is absent", scale);
    int64_t n = sb_tensor_count(s);
    if ((w->dtype != SB_DTYPE_I8 && w->dtype != SB_DTYPE_U8) || w->rank != 3)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "input %u has type %s, want int8 or uint8",
                              weight, sb_dtype_name(w->dtype));
    if (s->dtype != SB_DTYPE_F32 ||
        (n != w->dims[0] && n != w->dims[0] * w->dims[2]))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "input %u has %lld elements of type %s, want a "
                              "float for each direction or column",
                              scale, (long long)n, sb_dtype_name(s->dtype));
    if (z && (z->dtype != w->dtype || sb_tensor_count(z) != n))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "input %u is not like the scales and weights",
                              scale + 1);
    return SB_OK;
}

sb_status sb_rnn_rounds_check(const sb_kernel *k)
{
    SB_TRY(check_params(k, SB_RNN_W, SB_RNN_W_SCALE));
    return check_params(k, SB_RNN_R, SB_RNN_R_SCALE);
}

static float byte_at(const sb_tensor *t, int64_t i)
{
    return t->dtype == SB_DTYPE_I8 ? (float)((const int8_t *)t->data)[i]
                                   : (float)((const uint8_t *)t->data)[i];
}

static void weights_of(const sb_kernel *k, uint32_t weight, uint32_t scale,
                       float *out)
{
    const sb_tensor *w = k->in[weight], *s = k->in[scale];
    const sb_tensor *z = sb_kernel_in(k, scale + 1);
    int64_t columns = w->dims[2];
    bool each = sb_tensor_count(s) != w->dims[0];

    for (int64_t row = 0; row < w->dims[0] * w->dims[1]; row++) {
        int64_t dir = row / w->dims[1];

        for (int64_t c = 0; c < columns; c++) {
            int64_t at = each ? dir * columns + c : dir;
            float zero = z ? byte_at(z, at) : 0;

            out[row * columns + c] = (byte_at(w, row * columns + c) - zero) *
                                     ((const float *)s->data)[at];
        }
    }
}

void sb_rnn_rounds_weights(sb_kernel *k)
{
    const sb_rnn_state *s = k->state;
    float *out = (float *)((char *)k->scratch + s->at_weights);

    weights_of(k, SB_RNN_W, SB_RNN_W_SCALE, out);
    weights_of(k, SB_RNN_R, SB_RNN_R_SCALE,
               out + sb_tensor_count(k->in[SB_RNN_W]));
}

void sb_rnn_rounds_values(const float *x, int64_t n, float *out)
{
    sb_qparam q = sb_dynamic_qparam(x, n);
    const float lo = (float)(0 - q.zero), hi = (float)(255 - q.zero);

    for (int64_t i = 0; i < n; i++)
        out[i] = (float)sb_round_clamp(x[i] / q.scale, lo, hi) * q.scale;
}
