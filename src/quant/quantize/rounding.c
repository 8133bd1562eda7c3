/* Rounding to nearest, which all methods fall back on. */
#include "quant/quantize/rounding.h"

#include <math.h>

float sb_rounding_nearest(const sb_rounding *r, int64_t row, int64_t col,
                          float w)
{
    int64_t at = row * sb_rounding_groups(r) + col / r->group;
    float scale = r->scale[at], zero = r->zero_point[at];
    float q = rintf(w / scale) + zero;

    q = q < (float)r->qmin ? (float)r->qmin : q;
    q = q > (float)r->qmax ? (float)r->qmax : q;
    return (q - zero) * scale;
}

void sb_rounding_all_nearest(const sb_rounding *r)
{
    for (int64_t row = 0; row < r->rows; row++)
        for (int64_t c = 0; c < r->cols; c++)
            r->w[row * r->cols + c] =
                sb_rounding_nearest(r, row, c, r->w[row * r->cols + c]);
}
