/* linear.h - the linear algebra of pruning, in double. */
#ifndef SB_PRUNE_LINEAR_H
#define SB_PRUNE_LINEAR_H

#include "base/ctx.h"

/* The lower triangle of the symmetric a [n, n] becomes its Cholesky factor;
 * false if a is not positive definite. */
bool sb_cholesky(double *a, int64_t n);
/* Solves L L' x = b for one right-hand side, in place. */
void sb_cholesky_solve(const double *l, int64_t n, double *b);
/* Element (i, i) of the inverse of L L', for all i; `work` has n. */
void sb_cholesky_inverse_diagonal(const double *l, int64_t n, double *out,
                                  double *work);
/* The number of rows of a [rows, cols] that do not depend on others, as far as
 * float can tell (Gaussian elimination with complete pivoting).  At most 64
 * rows and columns, evenly spread, are looked at. */
int sb_matrix_rank(const float *a, int64_t rows, int64_t cols);

#endif
