/* cholesky.h - triangular factors of Gram matrices. */
#ifndef SB_QUANT_QUANTIZE_CHOLESKY_H
#define SB_QUANT_QUANTIZE_CHOLESKY_H

#include "base/ctx.h"

/* Overwrites the upper triangle of a symmetric matrix [n, n], of which it reads
 * that triangle only, by R with R R^T = the matrix.  *done is false if it is
 * not positive definite; then the triangle is of no use any more.  The same
 * result for any number of threads. */
SB_MUST_USE sb_status sb_cholesky_upper(sb_ctx *ctx, float *a, int64_t n,
                                        bool *done);
/* With that triangle, overwrites each of `rows` rows x, [rows, n], by the
 * solution y of y R R^T = x. */
void sb_cholesky_solve_rows(sb_ctx *ctx, const float *r, int64_t n, float *x,
                            int64_t rows);

#endif
