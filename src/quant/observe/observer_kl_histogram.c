/* Observer "kl_histogram": the threshold that loses least information.
 *
 * The calibration method of TensorRT (S. Migacz, 8-bit inference with
 * TensorRT, GTC 2017), for both signs at a time.  2048 bins cut [-absmax,
 * absmax].  For each threshold, that is each number h of bins on either side
 * of zero that are kept:
 *
 *     P  the 2h bins, what is cut off added to the first and last
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
 * the end all of P and Q would be in the last bin, in perfect agreement.
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

#include "base/simd.h"
#include "base/threads.h"
#include "quant/observe/observer_def.h"

enum {
    HALF = 1024,
    BINS = 2 * HALF,
    FEW = 32,  /* steps from one to the next of those tried first */
    LANES = 8, /* sums that are kept apart, the same on any machine */
};

static const double little = 1e-9;

typedef struct kl_job {
    int levels;
    int least;    /* h to begin with */
    int lo, hi;   /* first and last bin that is filled */
    double limit; /* a divergence that was found */
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
    while (job->lo < BINS - 1 && bins[job->lo] == 0.0)
        job->lo++;
    job->hi = BINS - 1;
    while (job->hi > job->lo && bins[job->hi] == 0.0)
        job->hi--;
}

/* The levels of one threshold: what Q holds, and the logarithm of the number of
 * bins that P fills. */
typedef struct kl_levels {
    double t[BINS + LANES], log_filled[BINS + LANES];
} kl_levels;

/* The logarithm of a normal number above zero, to some units in the last place,
 * as vector code: x = m 2^e with m around 1, log m = 2 artanh((m-1) / (m+1)).
 */
static inline double kl_log(double x)
{
    uint64_t bits, e;
    double m, power;

    memcpy(&bits, &x, sizeof bits);
    e = bits >> 52 | 0x4330000000000000; /* 2^52 + e */
    memcpy(&power, &e, sizeof power);
    power -= 4503599627370496.0 + 1023.0;
    bits = (bits & 0xfffffffffffff) | 0x3ff0000000000000;
    memcpy(&m, &bits, sizeof m);
    power = m > 1.4142135623730951 ? power + 1.0 : power;
    m = m > 1.4142135623730951 ? m * 0.5 : m;
    double s = (m - 1.0) / (m + 1.0), z = s * s, sum = 1.0 / 21;
    for (int k = 19; k >= 1; k -= 2)
        sum = sum * z + 1.0 / k;
    return power * 0.6931471805599453 + 2.0 * s * sum;
}

/* Sum of t log(t / filled).  n is a multiple of LANES.  Of nothing the
 * logarithm is some number. */
SB_HOT static void kl_cross(const kl_levels *l, size_t n, double *sum)
{
    double own[LANES] = {0};

    for (size_t i = 0; i < n; i += LANES) {
        SB_SIMD
        for (size_t k = 0; k < LANES; k++)
            own[k] +=
                l->t[i + k] * (kl_log(l->t[i + k]) - l->log_filled[i + k]);
    }
    for (size_t k = 0; k < LANES; k++)
        sum[k] = own[k];
}

/* What is added to the sum at an end, whose level also holds what was cut off
 * there; `more` bins count as filled by that. */
static double kl_end(const kl_job *job, double t, int filled, double cut,
                     int more, double inside)
{
    if (cut == 0.0)
        return 0.0;
    if (t == 0.0)
        return cut * log(little * inside);
    return (t + cut) * (log(t) - job->log_int[filled + more]) -
           t * (log(t) - job->log_int[filled]);
}

static double kl_walk(const kl_job *job, int h, double cut_lo, double cut_hi)
{
    int from = HALF - h, to = HALF + h;
    /* Not more levels than bins: others would be empty. */
    int levels = job->levels < 2 * h ? job->levels : 2 * h;
    double sum[LANES], cross = 0.0;
    double inside = job->count[to] - job->count[from];
    kl_levels v;
    int more_lo = job->count[from + 1] == job->count[from] && cut_lo > 0.0;
    int more_hi = job->count[to] == job->count[to - 1] && cut_hi > 0.0;
    /* Bin i (from 0) belongs to level i * levels / 2h, so level l ends at
     * (l + 1) * 2h / levels, rounded up.  Empty ones at either end are left
     * out. */
    int empty = job->lo > from ? (job->lo - from) * levels / (2 * h) : 0;
    int step = 2 * h / levels, part = 2 * h % levels;
    int rest = (empty * 2 * h + levels - 1) % levels;
    int a = from + (empty * 2 * h + levels - 1) / levels;
    int n = 0, first = 0, last = 0, filled = job->filled[a];
    double count = job->count[a];

    for (; empty + n < levels && a <= job->hi; n++) {
        rest += part - levels;
        a += step + (rest >= 0);
        rest += rest >= 0 ? 0 : levels;
        v.t[n] = job->count[a] - count;
        last = job->filled[a] - filled;
        v.log_filled[n] = job->log_int[last];
        first = n == 0 ? last : first;
        count = job->count[a];
        filled = job->filled[a];
    }
    if (levels == 1)
        cross = kl_end(job, v.t[0], first, cut_lo + cut_hi, more_lo + more_hi,
                       inside);
    else
        cross = kl_end(job, v.t[0], first, cut_lo, more_lo, inside) +
                kl_end(job, v.t[n - 1], last, cut_hi, more_hi, inside);
    for (; n % LANES; n++)
        v.t[n] = v.log_filled[n] = 0.0;
    kl_cross(&v, (size_t)n, sum);
    for (int k = 0; k < LANES; k++)
        cross += sum[k];
    return cross;
}

/* Less than the divergence: that of what the first and last levels hold
 * together, since taking parts together never adds to it. */
static double kl_least(const kl_job *job, int h)
{
    int from = HALF - h, to = HALF + h, levels = job->levels;
    int wide = (2 * h + levels - 1) / levels;
    int last = 2 * h - ((levels - 1) * 2 * h + levels - 1) / levels;
    double all = job->count[BINS];
    double inside = job->count[to] - job->count[from];

    if (levels < 3 || levels > 2 * h || !(inside > 0.0))
        return 0.0;
    double middle = job->count[to - last] - job->count[from + wide];
    double p = 1.0 - middle / all, q = 1.0 - middle / inside;
    if (!(p > 0.0 && p < 1.0 && q > 0.0 && q < 1.0))
        return 0.0;
    return p * log(p / q) + (1.0 - p) * log((1.0 - p) / (1.0 - q)) - 1e-6;
}

static double kl_divergence(const kl_job *job, int h)
{
    int from = HALF - h, to = HALF + h;
    double all = job->count[BINS];
    double cut_lo = job->count[from], cut_hi = all - job->count[to];
    double inside = job->count[to] - job->count[from];
    double first = job->count[from + 1] - job->count[from];
    double last = job->count[to] - job->count[to - 1];

    if (2.0 * inside < all || kl_least(job, h) > job->limit)
        return (double)INFINITY;
    double self = job->entropy[to - 1] - job->entropy[from + 1] +
                  c_log_c(first + cut_lo) + c_log_c(last + cut_hi);
    return (self - kl_walk(job, h, cut_lo, cut_hi)) / all + log(inside / all);
}

static void kl_steps(void *arg, size_t begin, size_t end)
{
    kl_job *job = arg;

    for (size_t i = begin; i < end; i++)
        job->kl[job->least + (int)i] = kl_divergence(job, job->least + (int)i);
}

static void kl_steps_few(void *arg, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        kl_steps(arg, i * FEW, i * FEW + 1);
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
    /* A few first, for a limit. */
    size_t few = (n + FEW - 1) / FEW;
    job.limit = (double)INFINITY;
    kl_steps_few(&job, 0, few);
    for (size_t i = 0; i < few; i++)
        job.limit = fmin(job.limit, job.kl[job.least + (int)i * FEW]);
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
    .bound = "the histogram's edges are off by absmax / 32768 at most",
    .flags = SB_OBS_WEIGHT | SB_OBS_ACTIVATION | SB_OBS_HISTOGRAM,
    .range = kl_range,
};
