/* The linear algebra of pruning, in double. */
#include "prune/linear.h"

#include <math.h>

enum { RANK_MOST = 64 };

bool sb_cholesky(double *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = a[i * n + j];
            for (int64_t k = 0; k < j; k++)
                sum -= a[i * n + k] * a[j * n + k];
            if (i != j)
                a[i * n + j] = sum / a[j * n + j];
            else if (sum > 0)
                a[i * n + i] = sqrt(sum);
            else
                return false;
        }
    return true;
}

void sb_cholesky_solve(const double *l, int64_t n, double *b)
{
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < i; k++)
            b[i] -= l[i * n + k] * b[k];
        b[i] /= l[i * n + i];
    }
    for (int64_t i = n; i-- > 0;) {
        b[i] /= l[i * n + i];
        for (int64_t k = 0; k < i; k++)
            b[k] -= l[i * n + k] * b[i];
    }
}

/* Column i of the inverse of L has its first element at i; its squares sum up
 * to what is asked for. */
void sb_cholesky_inverse_diagonal(const double *l, int64_t n, double *out,
                                  double *work)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = 0;
        for (int64_t r = i; r < n; r++) {
            double sum = r == i ? 1 : 0;
            for (int64_t k = i; k < r; k++)
                sum -= l[r * n + k] * work[k];
            work[r] = sum / l[r * n + r];
            out[i] += work[r] * work[r];
        }
    }
}

/* Swaps the largest of the rest to place (r, r); its magnitude. */
static double rank_pivot(double a[RANK_MOST][RANK_MOST], int rows, int cols,
                         int r)
{
    int pi = r, pj = r;

    for (int i = r; i < rows; i++)
        for (int j = r; j < cols; j++)
            if (fabs(a[i][j]) > fabs(a[pi][pj])) {
                pi = i;
                pj = j;
            }
    for (int j = 0; j < cols; j++) {
        double swap = a[r][j];
        a[r][j] = a[pi][j];
        a[pi][j] = swap;
    }
    for (int i = 0; i < rows; i++) {
        double swap = a[i][r];
        a[i][r] = a[i][pj];
        a[i][pj] = swap;
    }
    return fabs(a[r][r]);
}

int sb_matrix_rank(const float *a, int64_t rows, int64_t cols)
{
    double m[RANK_MOST][RANK_MOST], first = 0;
    int n = (int)(rows < RANK_MOST ? rows : RANK_MOST);
    int k = (int)(cols < RANK_MOST ? cols : RANK_MOST), rank = 0;

    for (int i = 0; i < n; i++)
        for (int j = 0; j < k; j++)
            m[i][j] = (double)a[i * rows / n * cols + j * cols / k];
    for (; rank < n && rank < k; rank++) {
        double pivot = rank_pivot(m, n, k, rank);
        first = rank == 0 ? pivot : first;
        if (!(pivot > first * 1e-5))
            break;
        for (int i = rank + 1; i < n; i++) {
            double f = m[i][rank] / m[rank][rank];
            for (int j = rank; j < k; j++)
                m[i][j] -= f * m[rank][j];
        }
    }
    return rank;
}
