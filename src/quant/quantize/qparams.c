/* Scales and zero points from ranges (SPEC of the quantizer, in float). */
#include "quant/quantize/qparams.h"

#include <assert.h>
#include <float.h>
#include <math.h>

#include "base/simd.h"

/* Keeps a constant tensor from dividing by zero. */
static const float scale_least = 1e-6F;

int32_t sb_qmin(int bits, bool symmetric)
{
    assert(bits >= 1 && bits <= 16);
    return symmetric ? -((int32_t)1 << (bits - 1)) : 0;
}

int32_t sb_qmax(int bits, bool symmetric)
{
    assert(bits >= 1 && bits <= 16);
    return ((int32_t)1 << (symmetric ? bits - 1 : bits)) - 1;
}

/* Of as many ranges as a vector has lanes: all is computed, then chosen. */
static inline void qparams_of(sb_range range, float steps, bool symmetric,
                              float *scale, float *zero_point)
{
    float lo = range.lo < 0.0F ? range.lo : 0.0F;
    float hi = range.hi > 0.0F ? range.hi : 0.0F;
    float most = -lo > hi ? -lo : hi;
    float s = symmetric ? most * 2.0F / steps : (hi - lo) / steps;
    /* Twice the range does not fit a float. */
    float parts = symmetric ? most / (steps / 2.0F) : hi / steps - lo / steps;

    s = s <= FLT_MAX ? s : parts;
    s = s <= FLT_MAX ? s : FLT_MAX; /* one step, as wide as that */
    s = s < scale_least ? scale_least : s;
    *scale = s;
    *zero_point = symmetric ? 0.0F : rintf(0.0F - lo / s) + 0.0F; /* no -0 */
}

static float qparams_steps(int bits, bool symmetric)
{
    return (float)(sb_qmax(bits, symmetric) - sb_qmin(bits, symmetric));
}

void sb_qparams_from_range(sb_range range, int bits, bool symmetric,
                           float *scale, float *zero_point)
{
    qparams_of(range, qparams_steps(bits, symmetric), symmetric, scale,
               zero_point);
}

sb_status sb_qparams_init(sb_ctx *ctx, sb_qparams *q, int64_t n, int axis,
                          int bits, bool symmetric)
{
    assert(n >= 0);
    float *values = sb_alloc(ctx, (size_t)n, 2 * sizeof(float));

    if (!values)
        return SB_NO_MEMORY;
    *q = (sb_qparams){
        .n = n,
        .scale = values,
        .zero_point = values + n,
        .axis = axis,
        .qmin = sb_qmin(bits, symmetric),
        .qmax = sb_qmax(bits, symmetric),
        .bits = bits,
        .symmetric = symmetric,
    };
    for (int64_t i = 0; i < n; i++)
        q->scale[i] = 1.0F;
    return SB_OK;
}

SB_HOT static void qparams_fill(const sb_range *ranges, int64_t n, float steps,
                                bool symmetric, float *scale, float *zero_point)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        qparams_of(ranges[i], steps, symmetric, &scale[i], &zero_point[i]);
}

void sb_qparams_set(sb_qparams *q, const sb_range *ranges)
{
    qparams_fill(ranges, q->n, qparams_steps(q->bits, q->symmetric),
                 q->symmetric, q->scale, q->zero_point);
}

void sb_qparams_free(sb_ctx *ctx, sb_qparams *q)
{
    sb_free(ctx, q->scale); /* and the zero points behind them */
    *q = (sb_qparams){0};
}
