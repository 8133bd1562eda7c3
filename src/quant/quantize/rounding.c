/* Rounding to nearest, which all methods fall back on. */
#include "quant/quantize/rounding.h"

#include <math.h>

float sb_rounded(float w, float scale, float zero, int32_t qmin, int32_t qmax)
{
    float whole = floorf(zero); /* zero itself, but of blocks */
    float q = rintf(w / scale + (zero - whole)) + whole;

    q = q < (float)qmin ? (float)qmin : q;
    q = q > (float)qmax ? (float)qmax : q;
    return (q - zero) * scale;
}

float sb_rounding_nearest(const sb_rounding *r, int64_t row, int64_t col,
                          float w)
{
    int64_t at = row * sb_rounding_groups(r) + col / r->group;

    return sb_rounded(w, r->scale[at], r->zero_point[at], r->qmin, r->qmax);
}

void sb_rounding_all_nearest(const sb_rounding *r)
{
    for (int64_t row = 0; row < r->rows; row++)
        for (int64_t c = 0; c < r->cols; c++)
            r->w[row * r->cols + c] =
                sb_rounding_nearest(r, row, c, r->w[row * r->cols + c]);
}
