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
 * bin worse, in root mean square error, than the best of the 80.  There, what
 * is clipped at either end alone is known cheaply, since the bins are in order;
 * steps that lose more by that than another loses in all are left out.
 *
 * Of groups and small channels sums of all steps in float come first, side by
 * side; only steps whose sum may be the least are summed up in double. */
#include <assert.h>
#include <float.h>
#include <math.h>

#include "base/simd.h"
#include "base/threads.h"
#include "quant/observe/observer_def.h"

enum {
    STEPS = 80,
    LANES = 16,  /* sums that are kept apart, the same on any machine */
    LEAP = 1024, /* values after which a hopeless sum is given up */
    SUMS = 8,    /* floats that are added up as such */
    FEW = 10,    /* steps from one to the next of those tried first */
};

/* Adding and subtracting this rounds a float below 2^22 to even. */
static const float rounder = 12582912.0F;

typedef struct grid {
    float scale;
    float inverse;
    float lo, hi; /* steps from zero to the ends, whole numbers */
} grid;

/* Those of all steps. */
typedef struct grids {
    float scale[STEPS], zero[STEPS];
    float qmin, qmax;
} grids;

static sb_range mse_shrunk(const sb_obs_values *v, size_t step)
{
    float by = (float)(1.0 - (double)step * 0.01);

    return (sb_range){v->range.lo * by, v->range.hi * by};
}

static void mse_grids(const sb_obs_values *v, grids *g)
{
    const sb_quant_spec *spec = v->spec;
    sb_qparams p = {.n = STEPS,
                    .scale = g->scale,
                    .zero_point = g->zero,
                    .bits = spec->bits,
                    .symmetric = spec->symmetric};
    sb_range ranges[STEPS];

    for (size_t i = 0; i < STEPS; i++)
        ranges[i] = mse_shrunk(v, i);
    sb_qparams_set(&p, ranges);
    g->qmin = (float)sb_qmin(spec->bits, spec->symmetric);
    g->qmax = (float)sb_qmax(spec->bits, spec->symmetric);
}

static grid mse_grid(const grids *g, size_t step)
{
    return (grid){.scale = g->scale[step],
                  .inverse = 1.0F / g->scale[step],
                  .lo = g->qmin - g->zero[step],
                  .hi = g->qmax - g->zero[step]};
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
    double sum[LANES] = {0}, total = 0;
    size_t n = (size_t)v->n, whole = n - n % LANES;

    for (size_t i = 0; i < whole; i += LEAP) {
        mse_add(v->x + i, whole - i < LEAP ? whole - i : LEAP, g, sum);
        total = mse_total(sum);
        if (total > limit)
            return total;
    }
    for (size_t i = whole; i < n; i++)
        sum[i - whole] += mse_square(v->x[i], g);
    return whole < n ? mse_total(sum) : total;
}

typedef struct mse_job {
    const sb_obs_values *v;
    grids grids;
    double limit;
    double clipped[STEPS]; /* at least so much is lost */
    double sum[STEPS];
} mse_job;

/* ---- of a histogram ------------------------------------------------------- */

/* Sum of count * (x - end)^2 over values beyond the end, seen so far. */
typedef struct mse_tail {
    int64_t n; /* values */
    double count, x, xx;
} mse_tail;

/* Adds what is clipped at one end in each step.  Ends move inwards, though not
 * always: only what is beyond all that follow is counted. */
static void mse_clip(const sb_obs_values *v, const double *end, bool high,
                     double *clipped)
{
    double beyond[STEPS], most = 0.0;
    mse_tail t = {0};

    for (int i = STEPS - 1; i >= 0; i--) {
        most = fabs(end[i]) > most ? fabs(end[i]) : most;
        beyond[i] = most;
    }
    for (int i = 0; i < STEPS; i++) {
        for (; t.n < v->n; t.n++) {
            int64_t at = high ? v->n - 1 - t.n : t.n;
            double x = high ? (double)v->x[at] : -(double)v->x[at];
            if (x <= beyond[i])
                break;
            t.count += v->count[at];
            t.x += v->count[at] * x;
            t.xx += v->count[at] * x * x;
        }
        double e = fabs(end[i]);
        double lost = t.xx - 2.0 * e * t.x + e * e * t.count;
        clipped[i] += lost - 1e-6 * t.xx; /* sums of floats round */
    }
}

static void mse_clips(mse_job *job, const grid *g)
{
    double lo[STEPS], hi[STEPS];

    for (size_t i = 0; i < STEPS; i++) {
        lo[i] = (double)g[i].lo * (double)g[i].scale;
        hi[i] = (double)g[i].hi * (double)g[i].scale;
    }
    mse_clip(job->v, lo, false, job->clipped);
    mse_clip(job->v, hi, true, job->clipped);
}

/* The sum of squares, in steps.  There is no division: of two points that are
 * equally near it may take the other, which is as far.  Floats are added up,
 * SUMS of them at a time.  n is a multiple of SUMS * LANES. */
SB_HOT static void mse_add_counted(const float *x, const float *count, size_t n,
                                   const grid *at, double *out)
{
    const grid g = *at;
    double sum[LANES] = {0};

    for (size_t i = 0; i < n; i += SUMS * LANES) {
        float some[LANES] = {0};
        for (size_t j = i; j < i + SUMS * LANES; j += LANES) {
            SB_SIMD
            for (size_t k = 0; k < LANES; k++) {
                float t = x[j + k] * g.inverse, q = t;
                q = q < g.lo ? g.lo : q;
                q = q > g.hi ? g.hi : q;
                q = t - ((q + rounder) - rounder);
                some[k] += count[j + k] * (q * q);
            }
        }
        for (size_t k = 0; k < LANES; k++)
            sum[k] += (double)some[k];
    }
    *out = mse_total(sum);
}

/* The sums of those steps that are not known and may be the least, some values
 * at a time for all steps, as long as these are in the cache. */
static void mse_histogram(mse_job *job, const grid *g, const bool *wanted)
{
    const sb_obs_values *v = job->v;
    float x[LEAP], count[LEAP];
    size_t step[STEPS], n = 0;

    for (size_t i = 0; i < STEPS; i++)
        if (wanted[i] && job->sum[i] < 0.0) {
            bool hopeless = job->clipped[i] > job->limit;
            job->sum[i] = hopeless ? job->clipped[i] : 0.0;
            step[n] = i;
            n += !hopeless;
        }
    for (size_t at = 0; at < (size_t)v->n && n > 0; at += LEAP) {
        size_t m = (size_t)v->n - at < LEAP ? (size_t)v->n - at : LEAP,
               left = 0;
        size_t full = (m + SUMS * LANES - 1) / (SUMS * LANES) * (SUMS * LANES);
        for (size_t i = 0; i < full; i++) {
            x[i] = i < m ? v->x[at + i] : 0.0F;
            count[i] = i < m ? (float)v->count[at + i] : 0.0F;
        }
        for (size_t k = 0; k < n; k++) {
            const grid *s = &g[step[k]];
            double sum;
            mse_add_counted(x, count, full, s, &sum);
            sum = job->sum[step[k]] +=
                sum * (double)s->scale * (double)s->scale;
            step[left] = step[k];
            left += sum <= job->limit;
        }
        n = left;
    }
}

static void mse_of_histogram(mse_job *job)
{
    grid g[STEPS];
    bool few[STEPS], all[STEPS];

    for (size_t i = 0; i < STEPS; i++) {
        g[i] = mse_grid(&job->grids, i);
        few[i] = i % FEW == 0;
        all[i] = true;
    }
    mse_clips(job, g);
    mse_histogram(job, g, few);
    for (size_t i = 0; i < STEPS; i += FEW)
        job->limit = fmin(job->limit, job->sum[i]);
    mse_histogram(job, g, all);
}

/* ---- of a weight ---------------------------------------------------------- */

static void mse_steps(void *arg, size_t begin, size_t end)
{
    mse_job *job = arg;

    for (size_t i = begin; i < end; i++) {
        grid g = mse_grid(&job->grids, i);
        if (job->sum[i] >= 0.0)
            continue; /* known */
        job->sum[i] = mse_sum(job->v, &g, job->limit);
        /* In one thread what was found so far is the limit. */
        if (!job->v->alone && job->sum[i] < job->limit)
            job->limit = job->sum[i];
    }
}

static void mse_steps_few(void *arg, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        mse_steps(arg, i * FEW, i * FEW + 1);
}

/* Sums in float, of up to LEAP values: the same squares as mse_add(), added up
 * less exactly. */
SB_HOT static void mse_estimate(const float *x, size_t n, const grids *g,
                                float *sum)
{
    _Static_assert(STEPS % LANES == 0, "steps fill vectors");
    for (size_t step = 0; step < STEPS; step += LANES) {
        const float *scale = g->scale + step, *zero = g->zero + step;
        float some[LANES] = {0};

        for (size_t i = 0; i < n; i++) {
            SB_SIMD
            for (size_t k = 0; k < LANES; k++) {
                float lo = g->qmin - zero[k], hi = g->qmax - zero[k];
                float q = x[i] / scale[k];

                q = q < lo ? lo : q;
                q = q > hi ? hi : q;
                q = (q + rounder) - rounder;
                q = x[i] - q * scale[k];
                some[k] += q * q;
            }
        }
        for (size_t k = 0; k < LANES; k++)
            sum[step + k] = some[k];
    }
}

/* Leaves out steps that cannot be the least.  A sum of n floats is off by n
 * roundings of 2^-24 at most, and by what is lost below FLT_MIN. */
static void mse_leave_out(mse_job *job)
{
    const double n = (double)job->v->n, off = n * 0x1p-22;
    float sum[STEPS], least = INFINITY;

    mse_estimate(job->v->x, (size_t)job->v->n, &job->grids, sum);
    for (size_t i = 0; i < STEPS; i++)
        least = sum[i] < least ? sum[i] : least;
    for (size_t i = 0; i < STEPS; i++)
        if ((double)sum[i] >
            (double)least * (1.0 + off) + 2.0 * n * (double)FLT_MIN)
            job->sum[i] = HUGE_VAL;
}

static void mse_of_weight(mse_job *job)
{
    const sb_obs_values *v = job->v;

    if (v->n <= LEAP) {
        mse_leave_out(job);
        mse_steps(job, 0, STEPS);
        return;
    }
    /* A few first, for a limit. */
    if (v->alone)
        sb_parallel_for(v->ctx, STEPS / FEW, 1, mse_steps_few, job);
    else
        mse_steps_few(job, 0, STEPS / FEW);
    for (size_t i = 0; i < STEPS; i += FEW)
        if (job->sum[i] < job->limit)
            job->limit = job->sum[i];
    if (v->alone)
        sb_parallel_for(v->ctx, STEPS, 4, mse_steps, job);
    else
        mse_steps(job, 0, STEPS);
}

static sb_range mse_range(const sb_obs_values *v)
{
    mse_job job = {.v = v, .limit = (double)INFINITY};
    size_t best = 0;

    for (size_t i = 0; i < STEPS; i++)
        job.sum[i] = -1.0;
    mse_grids(v, &job.grids);
    if (v->count)
        mse_of_histogram(&job);
    else
        mse_of_weight(&job);
    for (size_t i = 1; i < STEPS; i++)
        if (job.sum[i] < job.sum[best])
            best = i;
    return mse_shrunk(v, best);
}

const sb_observer_def sb_observer_mse = {
    .name = "mse",
    .summary = "the shrunk range with the least squared error",
    .bound = "root mean square error at most absmax / 16384 above the best",
    .flags = SB_OBS_WEIGHT | SB_OBS_ACTIVATION | SB_OBS_HISTOGRAM,
    .range = mse_range,
};
