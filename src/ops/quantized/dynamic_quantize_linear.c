/* DynamicQuantizeLinear: quantize to uint8 by the range of this very input.
 *
 *     scale = (max(0, x) - min(0, x)) / 255    (1 if that is 0)
 *     zero  = round_half_even(clamp(-min / scale, 0, 255))
 *
 * The rounding is that of ONNX Runtime, which in contrast to the operator's
 * text clamps before it rounds; the results are the same. */
#include "base/simd.h"
#include "base/threads.h"
#include "ops/quantized/dynamic_quantize.h"

/* Least and greatest of x and 0; lanes, because a single running minimum of
 * floats cannot be turned into vector code. */
SB_HOT static void min_max(const float *x, int64_t n, float *lo, float *hi)
{
    enum { LANES = 16 };
    float least[LANES] = {0}, most[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            least[j] = x[i + j] < least[j] ? x[i + j] : least[j];
            most[j] = x[i + j] > most[j] ? x[i + j] : most[j];
        }
    for (; i < n; i++) {
        least[0] = x[i] < least[0] ? x[i] : least[0];
        most[0] = x[i] > most[0] ? x[i] : most[0];
    }
    *lo = *hi = 0;
    for (int j = 0; j < LANES; j++) {
        *lo = least[j] < *lo ? least[j] : *lo;
        *hi = most[j] > *hi ? most[j] : *hi;
    }
}

sb_qparam sb_dynamic_qparam(const float *x, int64_t n)
{
    float lo = 0, hi = 0;

    min_max(x, n, &lo, &hi);
    float scale = lo == hi ? 1 : (hi - lo) / 255;
    return (sb_qparam){scale, sb_round_clamp(0 - lo / scale, 0, 255)};
}

typedef struct quantize_job {
    const float *x;
    uint8_t *y;
    sb_qparam q;
} quantize_job;

SB_HOT static void quantize_range(void *arg, size_t begin, size_t end)
{
    const quantize_job *job = arg;
    const float lo = (float)(0 - job->q.zero), hi = (float)(255 - job->q.zero);
    const sb_qparam q = job->q;
    const float *x = job->x;
    uint8_t *y = job->y;

    SB_SIMD
    for (size_t i = begin; i < end; i++)
        y[i] = (uint8_t)(sb_round_clamp(x[i] / q.scale, lo, hi) + q.zero);
}

void sb_quantize_u8(sb_ctx *ctx, const float *x, int64_t n, sb_qparam q,
                    uint8_t *y)
{
    quantize_job job = {x, y, q};

    sb_parallel_for(ctx, (size_t)n, 1 << 14, quantize_range, &job);
}

static sb_status dynamic_quantize_linear_infer(sb_infer *in)
{
    const sb_shape scalar = {.rank = 0};

    sb_infer_set(in, 0, SB_DTYPE_U8, &in->in[0]->type.shape);
    sb_infer_set(in, 1, SB_DTYPE_F32, &scalar);
    sb_infer_set(in, 2, SB_DTYPE_U8, &scalar);
    return SB_OK;
}

static sb_status dynamic_quantize_linear_prepare(sb_kernel *k)
{
    if (k->in[0]->dtype != SB_DTYPE_F32)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "input has type %s",
                              sb_dtype_name(k->in[0]->dtype));
    return SB_OK;
}

static sb_status dynamic_quantize_linear_forward(sb_kernel *k)
{
    const sb_tensor *x = k->in[0];
    sb_tensor *scale = sb_kernel_out(k, 1), *zero = sb_kernel_out(k, 2);
    sb_qparam q = sb_dynamic_qparam(x->data, sb_tensor_count(x));

    if (k->out[0])
        sb_quantize_u8(k->ctx, x->data, sb_tensor_count(x), q, k->out[0]->data);
    if (scale)
        *(float *)scale->data = q.scale;
    if (zero)
        *(uint8_t *)zero->data = (uint8_t)q.zero;
    return SB_OK;
}

const sb_op_def sb_op_dynamic_quantize_linear = {
    .name = "DynamicQuantizeLinear",
    .since = 11,
    .in_min = 1,
    .in_max = 1,
    .out_min = 3,
    .out_max = 3,
    .infer = dynamic_quantize_linear_infer,
    .prepare = dynamic_quantize_linear_prepare,
    .forward = dynamic_quantize_linear_forward,
};
