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

enum {
    CHOLESKY_BLOCK = 48,
    CHOLESKY_LANES = 16,
    CHOLESKY_PART = 1024, /* columns */
};

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

enum { CHOLESKY_FOUR = 4 };

/* The same of four at once, which is quicker: `b` and the next three, `step`
 * apart, with `a`. */
SB_HOT static void cholesky_dots(const float *a, const float *b, int64_t step,
                                 int64_t n, double sums[CHOLESKY_FOUR])
{
    const float *b1 = b + step, *b2 = b1 + step, *b3 = b2 + step;
    float l0[CHOLESKY_LANES] = {0}, l1[CHOLESKY_LANES] = {0};
    float l2[CHOLESKY_LANES] = {0}, l3[CHOLESKY_LANES] = {0};
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    int64_t i = 0;

    for (; i + CHOLESKY_LANES <= n; i += CHOLESKY_LANES) {
        SB_SIMD
        for (int l = 0; l < CHOLESKY_LANES; l++) {
            l0[l] += a[i + l] * b[i + l];
            l1[l] += a[i + l] * b1[i + l];
            l2[l] += a[i + l] * b2[i + l];
            l3[l] += a[i + l] * b3[i + l];
        }
    }
    for (int l = 0; l < CHOLESKY_LANES; l++) {
        s0 += (double)l0[l];
        s1 += (double)l1[l];
        s2 += (double)l2[l];
        s3 += (double)l3[l];
    }
    for (; i < n; i++) {
        s0 += (double)a[i] * (double)b[i];
        s1 += (double)a[i] * (double)b1[i];
        s2 += (double)a[i] * (double)b2[i];
        s3 += (double)a[i] * (double)b3[i];
    }
    sums[0] = s0;
    sums[1] = s1;
    sums[2] = s2;
    sums[3] = s3;
}

/* What the columns behind the block take from its columns, for rows j; some at
 * a time, which stay in the cache for all of these rows. */
static void cholesky_subtract(void *arg, size_t begin, size_t end)
{
    const cholesky_job *job = arg;
    int64_t n = job->n;

    for (int64_t c = job->end; c < n; c += CHOLESKY_PART)
        for (int64_t j = (int64_t)begin; j < (int64_t)end; j++) {
            int64_t width = n - c < CHOLESKY_PART ? n - c : CHOLESKY_PART;
            int64_t i = j > job->begin ? j : job->begin;
            float *row = job->a + j * n;

            for (; i + CHOLESKY_FOUR <= job->end; i += CHOLESKY_FOUR) {
                double sums[CHOLESKY_FOUR];

                cholesky_dots(row + c, job->a + i * n + c, n, width, sums);
                for (int k = 0; k < CHOLESKY_FOUR; k++)
                    row[i + k] -= (float)sums[k];
            }
            for (; i < job->end; i++)
                row[i] -=
                    (float)cholesky_dot(row + c, job->a + i * n + c, width);
        }
}

/* Column i of the block in the rows [begin, end), four at once: one sum waits
 * for its own last addition most of the time. */
static void cholesky_column(const cholesky_job *job, int64_t i, int64_t begin,
                            int64_t end)
{
    int64_t n = job->n, left = job->end - i - 1;
    const float *row = job->a + i * n;

    for (int64_t j = begin; j < end; j += CHOLESKY_FOUR) {
        float *other = job->a + j * n;
        int64_t rows = end - j < CHOLESKY_FOUR ? end - j : CHOLESKY_FOUR;
        double sums[CHOLESKY_FOUR];

        if (rows == CHOLESKY_FOUR)
            cholesky_dots(row + i + 1, other + i + 1, n, left, sums);
        for (int64_t k = 0; k < rows; k++) {
            float *at = other + k * n + i;

            if (rows < CHOLESKY_FOUR)
                sums[k] = cholesky_dot(row + i + 1, at + 1, left);
            *at = (float)(((double)*at - sums[k]) / (double)row[i]);
        }
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
        cholesky_column(job, i, job->begin, i);
    }
    return true;
}

/* The columns of the block in the rows above it. */
static void cholesky_solve(void *arg, size_t begin, size_t end)
{
    const cholesky_job *job = arg;

    for (int64_t j = (int64_t)begin; j < (int64_t)end; j += CHOLESKY_FOUR) {
        int64_t left = (int64_t)end - j;
        int64_t rows = left < CHOLESKY_FOUR ? left : CHOLESKY_FOUR;

        for (int64_t i = job->end - 1; i >= job->begin; i--)
            cholesky_column(job, i, j, j + rows);
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
            sb_parallel_for(ctx, (size_t)job.end, 32, cholesky_subtract, &job);
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
    int64_t rows;
} cholesky_rows;

SB_HOT static void cholesky_take(const float *row, float factor, int64_t n,
                                 float *x)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        x[i] -= factor * row[i];
}

/* R u = x from the last row upwards, then R^T y = u. */
static void cholesky_solve_row(const float *r, int64_t n, float *x)
{
    for (int64_t i = n - 1; i >= 0; i--) {
        const float *row = r + i * n;
        double rest = cholesky_dot(row + i + 1, x + i + 1, n - i - 1);
        x[i] = (float)(((double)x[i] - rest) / (double)row[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        const float *row = r + i * n;
        x[i] /= row[i];
        cholesky_take(row + i + 1, x[i], n - i - 1, x + i + 1);
    }
}

/* The same for four at once: R is read once for them. */
static void cholesky_solve_four(const float *r, int64_t n, float *x)
{
    for (int64_t i = n - 1; i >= 0; i--) {
        const float *row = r + i * n;
        double rest[CHOLESKY_FOUR];

        cholesky_dots(row + i + 1, x + i + 1, n, n - i - 1, rest);
        for (int64_t k = 0; k < CHOLESKY_FOUR; k++)
            x[k * n + i] =
                (float)(((double)x[k * n + i] - rest[k]) / (double)row[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        const float *row = r + i * n;

        for (int64_t k = 0; k < CHOLESKY_FOUR; k++) {
            float *to = x + k * n;

            to[i] /= row[i];
            cholesky_take(row + i + 1, to[i], n - i - 1, to + i + 1);
        }
    }
}

/* Items are groups of four rows. */
static void cholesky_solve_part(void *arg, size_t begin, size_t end)
{
    const cholesky_rows *j = arg;

    for (int64_t k = (int64_t)begin * CHOLESKY_FOUR;
         k < (int64_t)end * CHOLESKY_FOUR && k < j->rows; k += CHOLESKY_FOUR) {
        float *x = j->x + k * j->n;

        if (k + CHOLESKY_FOUR <= j->rows)
            cholesky_solve_four(j->r, j->n, x);
        else
            for (int64_t i = k; i < j->rows; i++)
                cholesky_solve_row(j->r, j->n, j->x + i * j->n);
    }
}

void sb_cholesky_solve_rows(sb_ctx *ctx, const float *r, int64_t n, float *x,
                            int64_t rows)
{
    cholesky_rows job = {r, n, x, rows};

    sb_parallel_for(ctx, (size_t)((rows + CHOLESKY_FOUR - 1) / CHOLESKY_FOUR),
                    1, cholesky_solve_part, &job);
}
