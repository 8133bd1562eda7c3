/* gram_factor.h - making up for the error of one column of a weight by those
 * that follow it.
 *
 * With H = sum of x x^T and R upper triangular, R R^T = H, the squared error of
 * a row whose elements change by d is
 *
 *     d H d^T = sum over i of (sum over j <= i of d_j R[j,i])^2
 *
 * and column i, as long as it may take any value, makes its term zero with
 * w_i + sum over j < i of d_j R[j,i] / R[i,i]. */
#ifndef SB_QUANT_QUANTIZE_GRAM_FACTOR_H
#define SB_QUANT_QUANTIZE_GRAM_FACTOR_H

#include "base/ctx.h"
#include "quant/quantize/rounding.h"

/* Fills h [n, n], for columns in this order: R[i,i] on the diagonal, above it
 * R[j,i] / R[i,i].  `damping` is added to the diagonal, as a share of its mean,
 * and more until there is a factor: *added in all; *done is false if there is
 * none.  Columns without input stand alone. */
SB_MUST_USE sb_status sb_gram_factor(sb_ctx *ctx, const float *gram, int64_t n,
                                     const int64_t *order, double damping,
                                     float *h, double *added, bool *done);
/* sums[i] += error * factor[i]: what n columns get of an error before them. */
void sb_gram_pass_on(const float *factor, float error, int64_t n, float *sums);

/* The same of SB_TILE rows at once, whose elements lie side by side. */
void sb_tile_pass_on(const float *factor, int64_t n, const float *error,
                     float *sums);
/* Of several errors one after the other: factor [rows, n], whose rows are
 * `stride` apart, and error [rows, SB_TILE]. */
void sb_tile_pass_all(const float *factor, int64_t stride, int64_t rows,
                      int64_t n, const float *error, float *sums);
/* The other way round: sums of factor[i] * x[i, SB_TILE]. */
void sb_tile_gather(const float *factor, const float *x, int64_t n, float *out);

#endif
