/* Rounding to nearest, which all methods fall back on. */
#include "quant/quantize/rounding.h"

#include <math.h>

#include "base/simd.h"

static inline float rounding_one(float w, float scale, float zero, int32_t qmin,
                                 int32_t qmax)
{
    float whole = floorf(zero); /* zero itself, but of blocks */
    float q = rintf(w / scale + (zero - whole)) + whole;

    q = q < (float)qmin ? (float)qmin : q;
    q = q > (float)qmax ? (float)qmax : q;
    return (q - zero) * scale;
}

float sb_rounded(float w, float scale, float zero, int32_t qmin, int32_t qmax)
{
    return rounding_one(w, scale, zero, qmin, qmax);
}

float sb_rounding_nearest(const sb_rounding *r, int64_t row, int64_t col,
                          float w)
{
    int64_t at = row * sb_rounding_groups(r) + col / r->group;

    return sb_rounded(w, r->scale[at], r->zero_point[at], r->qmin, r->qmax);
}

SB_HOT void sb_rounding_tile(const sb_rounding *r, int64_t row, int64_t rows,
                             int64_t col, const float *x, float *out)
{
    const int64_t groups = sb_rounding_groups(r), group = col / r->group;
    const int32_t qmin = r->qmin, qmax = r->qmax;
    float scale[SB_TILE], zero[SB_TILE];

    for (int64_t k = 0; k < SB_TILE; k++) {
        int64_t at = (row + (k < rows ? k : 0)) * groups + group;

        scale[k] = r->scale[at];
        zero[k] = r->zero_point[at];
    }
    SB_SIMD
    for (int k = 0; k < SB_TILE; k++)
        out[k] = rounding_one(x[k], scale[k], zero[k], qmin, qmax);
}

void sb_rounding_all_nearest(const sb_rounding *r)
{
    for (int64_t row = 0; row < r->rows; row++)
        for (int64_t c = 0; c < r->cols; c++)
            r->w[row * r->cols + c] =
                sb_rounding_nearest(r, row, c, r->w[row * r->cols + c]);
}
