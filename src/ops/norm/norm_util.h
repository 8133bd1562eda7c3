/* norm_util.h - statistics of a run of floats, for the normalizations. */
#ifndef SB_OPS_NORM_NORM_UTIL_H
#define SB_OPS_NORM_NORM_UTIL_H

#include "ops/infer_util.h"

/* Sums are made in a fixed number of parts, which the compiler may lay in a
 * vector, in double: two passes, so that a large mean costs no digits. */
typedef struct sb_moments {
    double mean;
    double var; /* mean of (x - mean)^2 */
} sb_moments;

sb_moments sb_moments_of(const float *x, int64_t n);

/* y = x * factor + shift. */
void sb_scale_shift(const float *x, float *y, int64_t n, float factor,
                    float shift);

/* ---- rows ------------------------------------------------------------------
 * Layer normalization of x [rows, size], and what it is without centering:
 *
 *     y = (x - mean) / sqrt(var + epsilon) * scale + bias
 *     y = x / sqrt(mean(x^2) + epsilon) * scale */
typedef struct sb_row_norm {
    int64_t rows, size;
    bool centered;
    float epsilon;
    const float *x;
    const float *skip;      /* (optional) added to x first; */
    int64_t skip_rows;      /* row r takes row r % skip_rows of it */
    const float *skip_bias; /* (optional) [size], added too */
    const float *scale;     /* (optional) [size] */
    const float *bias;      /* (optional) [size] */
    float *y;
    float *mean, *inv_std; /* (optional) [rows] */
    float *sum; /* (optional) [rows, size], what was normalized; needed if
                   there is a skip and y must not be used for it */
} sb_row_norm;

void sb_row_norm_run(sb_ctx *ctx, const sb_row_norm *norm);

/* Input i must be there and, as far as is known, have `c` elements. */
SB_MUST_USE sb_status sb_infer_per_channel(const sb_infer *in, uint32_t i,
                                           sb_dim c);

#endif
