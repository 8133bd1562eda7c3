/* Observer "kl_histogram": the threshold that loses least information.
 *
 * The calibration method of TensorRT (S. Migacz, 8-bit inference with
 * TensorRT, GTC 2017), for both signs at a time.  2048 bins cut [-absmax,
 * absmax].  For each threshold, that is each number h of bins on either side
 * of zero that are kept:
 *
 *     P  the 2h bins, what is cut off added to the outermost two
 *     Q  the 2h bins without that, summed into 2^b - 1 equal levels, each sum
 *        spread evenly over those of its bins that P fills
 *
 * and the h with the least KL(P || Q) wins; the first of equals.  A level that
 * holds nothing but what was cut off counts as 1e-9 of everything.
 *
 * Two rules keep the method from failing.  Zeros are not counted: every
 * quantizer represents them exactly, but their peak (behind a ReLU, half of
 * all values in one bin) would be spread by Q over a whole level, and any
 * threshold that makes levels finer would win, down to a quarter of the range.
 * And a threshold that cuts off more than half of the values is not tried: at
 * the end all of P and Q would be in the outermost bin, in perfect agreement.
 *
 * With sums of counts up to each bin, of filled bins, and of c log c, a
 * threshold costs a logarithm a level instead of a walk over all bins:
 *
 *     N KL = sum p log p - sum over levels P_l log(T_l / F_l) - N log(N / I)
 *
 * (P_l, T_l: what P, Q hold in level l; F_l: bins that P fills; N, I: all
 * values, those inside.) */
#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "quant/observer_def.h"

enum { HALF = 1024, BINS = 2 * HALF };

static const double little = 1e-9;

typedef struct kl_job {
    int levels;
    int least; /* h to begin with */
    /* Sums over the bins before each one. */
    double count[BINS + 1];
    double entropy[BINS + 1]; /* of c log c */
    int filled[BINS + 1];
    double log_int[BINS + 1]; /* logarithms of 1, 2, ... */
    double kl[HALF + 1];
} kl_job;

static double c_log_c(double c)
{
    return c > 0.0 ? c * log(c) : 0.0;
}

static void kl_fill(kl_job *job, const sb_obs_values *v, double top)
{
    double bins[BINS] = {0};
    double by = HALF / top;

    for (int64_t i = 0; i < v->n; i++) {
        double at = floor((double)v->x[i] * by) + HALF;
        int bin = at < 0.0 ? 0 : at > BINS - 1 ? BINS - 1 : (int)at;
        if (v->x[i] != 0.0F)
            bins[bin] += v->count ? v->count[i] : 1.0;
    }
    job->count[0] = job->entropy[0] = 0.0;
    job->filled[0] = 0;
    job->log_int[0] = 0.0;
    for (int i = 0; i < BINS; i++) {
        job->count[i + 1] = job->count[i] + bins[i];
        job->entropy[i + 1] = job->entropy[i] + c_log_c(bins[i]);
        job->filled[i + 1] = job->filled[i] + (bins[i] > 0.0);
        job->log_int[i + 1] = log((double)(i + 1));
    }
}

/* One level: bins [a, b), of which P fills `filled` and which holds `p` with
 * and `t` without what was cut off.  Returns p log q, q per filled bin. */
static double kl_level(const kl_job *job, double p, double t, int filled,
                       double inside)
{
    if (p == 0.0)
        return 0.0;
    if (t == 0.0)
        return p * log(little * inside);
    return p * (log(t) - job->log_int[filled]);
}

static double kl_divergence(const kl_job *job, int h)
{
    int from = HALF - h, to = HALF + h, levels = job->levels;
    double all = job->count[BINS];
    double cut_lo = job->count[from], cut_hi = all - job->count[to];
    double inside = job->count[to] - job->count[from];
    double first = job->count[from + 1] - job->count[from];
    double last = job->count[to] - job->count[to - 1];

    if (2.0 * inside < all)
        return (double)INFINITY;
    double self = job->entropy[to - 1] - job->entropy[from + 1] +
                  c_log_c(first + cut_lo) + c_log_c(last + cut_hi);
    double cross = 0.0;
    int a = from;
    for (int l = 0; l < levels; l++) {
        /* Bin i (from 0) belongs to level i * levels / 2h. */
        int b = from + (int)(((int64_t)(l + 1) * 2 * h + levels - 1) / levels);
        double t = job->count[b] - job->count[a], p = t;
        int filled = job->filled[b] - job->filled[a];
        if (b > a && a == from) {
            p += cut_lo;
            filled += first == 0.0 && cut_lo > 0.0;
        }
        if (b > a && b == to) {
            p += cut_hi;
            filled += last == 0.0 && cut_hi > 0.0;
        }
        cross += kl_level(job, p, t, filled, inside);
        a = b;
    }
    return (self - cross) / all + log(inside / all);
}

static void kl_steps(void *arg, size_t begin, size_t end)
{
    kl_job *job = arg;

    for (size_t i = begin; i < end; i++)
        job->kl[job->least + (int)i] = kl_divergence(job, job->least + (int)i);
}

static sb_range kl_range(const sb_obs_values *v)
{
    double lo = (double)v->range.lo, hi = (double)v->range.hi;
    double top = -lo > hi ? -lo : hi;
    kl_job job = {.levels = (1 << v->spec->bits) - 1};

    if (top == 0.0)
        return (sb_range){0};
    job.least = (job.levels + 1) / 2 < HALF ? (job.levels + 1) / 2 : HALF;
    kl_fill(&job, v, top);
    size_t n = (size_t)(HALF - job.least) + 1;
    if (v->alone)
        sb_parallel_for(v->ctx, n, 32, kl_steps, &job);
    else
        kl_steps(&job, 0, n);
    int best = job.least;
    for (int h = job.least; h <= HALF; h++)
        if (job.kl[h] < job.kl[best])
            best = h;
    float t = (float)(top * best / HALF);
    if (v->spec->symmetric)
        return (sb_range){-t, t};
    return (sb_range){-t > v->range.lo ? -t : v->range.lo,
                      t < v->range.hi ? t : v->range.hi};
}

const sb_observer_def sb_observer_kl_histogram = {
    .name = "kl_histogram",
    .summary = "the threshold that loses least information (TensorRT's method)",
    .params = "",
    .bound = "the histogram's edges are off by absmax / 32768 at most",
    .flags = SB_OBS_WEIGHT | SB_OBS_FEATURE | SB_OBS_HISTOGRAM,
    .range = kl_range,
};
