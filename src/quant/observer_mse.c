/* Observer "mse": the shrunk range with the least squared error.
 *
 *     for f = 1.00, 0.99, ... 0.21:  range f * [min, max], fake quantized;
 *     the first f with the least sum of (x - x_dq)^2
 *
 * Ranges, scales and x_dq are computed in float like the original's, the sum
 * in double.
 *
 * From a histogram: |x - x_dq| is the distance of x to the nearest point of a
 * grid, so moving x by half a bin changes it by half a bin at most, and so the
 * root mean square over all values.  The range found is therefore at most one
 * bin worse, in root mean square error, than the best of the 80. */
#include <assert.h>
#include <math.h>

#include "base/simd.h"
#include "base/threads.h"
#include "quant/observer_def.h"

enum {
    STEPS = 80,
    LANES = 16,  /* sums that are kept apart, the same on any machine */
    LEAP = 4096, /* values after which a hopeless sum is given up */
};

/* Adding and subtracting this rounds a float below 2^22 to even. */
static const float rounder = 12582912.0F;

typedef struct grid {
    float scale;
    float lo, hi; /* steps from zero to the ends, whole numbers */
} grid;

static grid mse_grid(const sb_obs_values *v, sb_range range)
{
    const sb_quant_spec *spec = v->spec;
    grid g;
    float zero;

    sb_qparams_from_range(range, spec->bits, spec->symmetric, &g.scale, &zero);
    g.lo = (float)sb_qmin(spec->bits, spec->symmetric) - zero;
    g.hi = (float)sb_qmax(spec->bits, spec->symmetric) - zero;
    return g;
}

/* Clamping before rounding gives the same, the ends being whole. */
static inline double mse_square(float x, const grid *g)
{
    float q = x / g->scale;

    q = q < g->lo ? g->lo : q;
    q = q > g->hi ? g->hi : q;
    q = (q + rounder) - rounder;
    double d = (double)(x - q * g->scale);
    return d * d;
}

SB_HOT static void mse_add(const float *x, size_t n, const grid *at,
                           double *sum)
{
    const grid g = *at;

    for (size_t i = 0; i < n; i += LANES) {
        SB_SIMD
        for (size_t k = 0; k < LANES; k++)
            sum[k] += mse_square(x[i + k], &g);
    }
}

SB_HOT static void mse_add_weighted(const float *x, const double *count,
                                    size_t n, const grid *at, double *sum)
{
    const grid g = *at;

    for (size_t i = 0; i < n; i += LANES) {
        SB_SIMD
        for (size_t k = 0; k < LANES; k++)
            sum[k] += count[i + k] * mse_square(x[i + k], &g);
    }
}

static double mse_total(const double *sum)
{
    double total = 0.0;

    for (size_t k = 0; k < LANES; k++)
        total += sum[k];
    return total;
}

/* The sum of squares; when it passes `limit`, some number above it. */
static double mse_sum(const sb_obs_values *v, const grid *g, double limit)
{
    double sum[LANES] = {0};
    size_t n = (size_t)v->n, whole = n - n % LANES;

    for (size_t i = 0; i < whole; i += LEAP) {
        size_t m = whole - i < LEAP ? whole - i : LEAP;
        if (v->count)
            mse_add_weighted(v->x + i, v->count + i, m, g, sum);
        else
            mse_add(v->x + i, m, g, sum);
        if (mse_total(sum) > limit)
            return mse_total(sum);
    }
    for (size_t i = whole; i < n; i++)
        sum[i - whole] +=
            (v->count ? v->count[i] : 1.0) * mse_square(v->x[i], g);
    return mse_total(sum);
}

static sb_range mse_shrunk(const sb_obs_values *v, size_t step)
{
    float by = (float)(1.0 - (double)step * 0.01);

    return (sb_range){v->range.lo * by, v->range.hi * by};
}

typedef struct mse_job {
    const sb_obs_values *v;
    double limit;
    double sum[STEPS];
} mse_job;

static void mse_steps(void *arg, size_t begin, size_t end)
{
    mse_job *job = arg;

    for (size_t i = begin; i < end; i++) {
        grid g = mse_grid(job->v, mse_shrunk(job->v, i));
        job->sum[i] = mse_sum(job->v, &g, job->limit);
        /* In one thread what was found so far is the limit. */
        if (!job->v->alone && job->sum[i] < job->limit)
            job->limit = job->sum[i];
    }
}

/* The same without the first step. */
static void mse_steps_rest(void *arg, size_t begin, size_t end)
{
    mse_steps(arg, begin + 1, end + 1);
}

static sb_range mse_range(const sb_obs_values *v)
{
    mse_job job = {.v = v, .limit = (double)INFINITY};
    size_t best = 0;

    mse_steps(&job, 0, 1);
    job.limit = job.sum[0];
    if (v->alone)
        sb_parallel_for(v->ctx, STEPS - 1, 1, mse_steps_rest, &job);
    else
        mse_steps(&job, 1, STEPS);
    for (size_t i = 1; i < STEPS; i++)
        if (job.sum[i] < job.sum[best])
            best = i;
    return mse_shrunk(v, best);
}

const sb_observer_def sb_observer_mse = {
    .name = "mse",
    .summary = "the shrunk range with the least squared error",
    .params = "",
    .bound = "root mean square error at most absmax / 16384 above the best",
    .flags = SB_OBS_WEIGHT | SB_OBS_FEATURE | SB_OBS_HISTOGRAM,
    .range = mse_range,
};
