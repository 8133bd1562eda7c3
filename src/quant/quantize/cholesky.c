/* Cholesky's factorization from the last row upwards:
 *
 *     R[i,i] = sqrt(A[i,i] - sum over k > i of R[i,k]^2)
 *     R[j,i] = (A[j,i] - sum over k > i of R[j,k] R[i,k]) / R[i,i]   for j < i
 *
 * All sums are products of pieces of rows, which lie in order.  Columns are
 * done in blocks, so that the rows of a block stay in the cache while every
 * other row is multiplied with them. */
#include "quant/quantize/cholesky.h"

#include <math.h>

#include "base/simd.h"
#include "base/threads.h"

enum { CHOLESKY_BLOCK = 48, CHOLESKY_LANES = 16 };

typedef struct cholesky_job {
    float *a;
    int64_t n, begin, end; /* columns of the block */
} cholesky_job;

SB_HOT static double cholesky_dot(const float *a, const float *b, int64_t n)
{
    float lanes[CHOLESKY_LANES] = {0};
    double sum = 0;
    int64_t i = 0;

    for (; i + CHOLESKY_LANES <= n; i += CHOLESKY_LANES) {
        SB_SIMD
        for (int l = 0; l < CHOLESKY_LANES; l++)
            lanes[l] += a[i + l] * b[i + l];
    }
    for (int l = 0; l < CHOLESKY_LANES; l++)
        sum += (double)lanes[l];
    for (; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* What the columns behind the block take from its columns, for rows j. */
static void cholesky_subtract(void *arg, size_t begin, size_t end)
{
    const cholesky_job *job = arg;
    int64_t n = job->n, behind = n - job->end;

    for (int64_t j = (int64_t)begin; j < (int64_t)end; j++) {
        float *row = job->a + j * n;
        for (int64_t i = j > job->begin ? j : job->begin; i < job->end; i++)
            row[i] -= (float)cholesky_dot(row + job->end,
                                          job->a + i * n + job->end, behind);
    }
}

/* The block itself: rows of its columns.  False if a root is not a number. */
static bool cholesky_diagonal(const cholesky_job *job)
{
    int64_t n = job->n;

    for (int64_t i = job->end - 1; i >= job->begin; i--) {
        float *row = job->a + i * n;
        double d = (double)row[i] -
                   cholesky_dot(row + i + 1, row + i + 1, job->end - i - 1);
        if (!(d > 0) || !isfinite(d))
            return false;
        row[i] = (float)sqrt(d);
        for (int64_t j = job->begin; j < i; j++) {
            float *other = job->a + j * n;
            other[i] = (float)(((double)other[i] -
                                cholesky_dot(other + i + 1, row + i + 1,
                                             job->end - i - 1)) /
                               (double)row[i]);
        }
    }
    return true;
}

/* The columns of the block in the rows j above it. */
static void cholesky_solve(void *arg, size_t begin, size_t end)
{
    const cholesky_job *job = arg;
    int64_t n = job->n;

    for (size_t j = begin; j < end; j++) {
        float *other = job->a + (int64_t)j * n;
        for (int64_t i = job->end - 1; i >= job->begin; i--) {
            const float *row = job->a + i * n;
            other[i] = (float)(((double)other[i] -
                                cholesky_dot(other + i + 1, row + i + 1,
                                             job->end - i - 1)) /
                               (double)row[i]);
        }
    }
}

sb_status sb_cholesky_upper(sb_ctx *ctx, float *a, int64_t n, bool *done)
{
    cholesky_job job = {.a = a, .n = n};

    *done = true;
    for (job.end = n; job.end > 0; job.end = job.begin) {
        SB_TRY(sb_ctx_poll(ctx));
        job.begin = job.end > CHOLESKY_BLOCK ? job.end - CHOLESKY_BLOCK : 0;
        if (job.end < n)
            sb_parallel_for(ctx, (size_t)job.end, 8, cholesky_subtract, &job);
        *done = cholesky_diagonal(&job);
        if (!*done)
            return SB_OK;
        sb_parallel_for(ctx, (size_t)job.begin, 8, cholesky_solve, &job);
    }
    return SB_OK;
}

/* ---- systems ------------------------------------------------------------ */

typedef struct cholesky_rows {
    const float *r;
    int64_t n;
    float *x;
} cholesky_rows;

SB_HOT static void cholesky_take(const float *row, float factor, int64_t n,
                                 float *x)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        x[i] -= factor * row[i];
}

/* R u = x from the last row upwards, then R^T y = u. */
static void cholesky_solve_part(void *arg, size_t begin, size_t end)
{
    const cholesky_rows *j = arg;
    int64_t n = j->n;

    for (size_t k = begin; k < end; k++) {
        float *x = j->x + (int64_t)k * n;

        for (int64_t i = n - 1; i >= 0; i--) {
            const float *row = j->r + i * n;
            double rest = cholesky_dot(row + i + 1, x + i + 1, n - i - 1);
            x[i] = (float)(((double)x[i] - rest) / (double)row[i]);
        }
        for (int64_t i = 0; i < n; i++) {
            const float *row = j->r + i * n;
            x[i] /= row[i];
            cholesky_take(row + i + 1, x[i], n - i - 1, x + i + 1);
        }
    }
}

void sb_cholesky_solve_rows(sb_ctx *ctx, const float *r, int64_t n, float *x,
                            int64_t rows)
{
    cholesky_rows job = {r, n, x};

    sb_parallel_for(ctx, (size_t)rows, 4, cholesky_solve_part, &job);
}
