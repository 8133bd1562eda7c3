/* Observer "percentile": cuts a fraction alpha of the values on each side.
 *
 * With p values not below zero and n below: the upper end is the value that
 * round(p * alpha) values lie above, the lower end the max(round(n * alpha),
 * 1)-th least; halves are rounded to even.  No value of a side: 0.
 *
 * The outermost SB_TAIL_KEEP values of each side are kept, so the answer is
 * exact as long as it is one of them.  Beyond that it comes from the histogram
 * and is off by half a bin at most.  Of large tensors only those are kept that
 * are above bars well below the answer so far; should values shrink so much
 * that it falls below them in the end, it comes from the sampled part of the
 * histogram. */
#include <math.h>

#include "quant/obs_tails.h"
#include "quant/observer_def.h"

typedef struct side {
    double n;    /* values of this side */
    double rank; /* of the answer, 1 the outermost */
} side;

/* Sides of so many values in all and below zero. */
static void percentile_ranks(const sb_obs_values *v, double all, double below,
                             side *low, side *high)
{
    double alpha = v->spec->percentile_alpha;

    low->n = below;
    high->n = all - below;
    high->rank = fmin(rint(high->n * alpha) + 1.0, high->n);
    low->rank = fmin(fmax(rint(low->n * alpha), 1.0), low->n);
}

static void percentile_sides(const sb_obs_values *v, side *low, side *high)
{
    double below = 0.0, all = 0.0;

    for (int64_t i = 0; i < v->n && v->below < 0.0; i++) {
        double count = v->count ? v->count[i] : 1.0;
        all += count;
        below += v->x[i] < 0.0F ? count : 0.0;
    }
    if (v->below >= 0.0)
        percentile_ranks(v, v->elements, v->below, low, high);
    else
        percentile_ranks(v, all, below, low, high);
}

/* Magnitude of the bin that holds the value of this rank. */
static float percentile_bin(const sb_obs_values *v, double rank, bool low)
{
    float last = 0.0F;

    for (int64_t k = 0; k < v->n; k++) {
        int64_t i = low ? k : v->n - 1 - k; /* from the outside */
        if (low ? v->x[i] >= 0.0F : v->x[i] < 0.0F)
            break;
        rank -= v->count[i];
        last = fabsf(v->x[i]);
        if (rank <= 0.0)
            break;
    }
    return last;
}

/* From the outermost values, if it is among them. */
static bool percentile_tail(const sb_obs_values *v, side s, bool low,
                            float *out)
{
    const sb_obs_tail *tail = low ? &v->tails->low : &v->tails->high;

    *out = 0.0F;
    if (s.n == 0.0)
        return true;
    if (s.rank > (double)v->tails->keep || s.rank > (double)tail->n)
        return false;
    /* What is above the bar is in the list, whenever it came. */
    *out = sb_obs_select(tail->v, tail->n, false, (size_t)s.rank);
    return sb_obs_key(*out) >= tail->bar;
}

static float percentile_of(const sb_obs_values *v, side s, bool low)
{
    float found;

    if (s.n == 0.0)
        return 0.0F;
    if (!v->tails)
        return sb_obs_select(v->x, (size_t)v->n, low, (size_t)s.rank);
    return percentile_tail(v, s, low, &found) ? found
                                              : percentile_bin(v, s.rank, low);
}

static bool percentile_of_tails(const sb_obs_values *v, sb_range *out)
{
    side low, high;

    if (v->below < 0.0)
        return false;
    percentile_ranks(v, v->elements, v->below, &low, &high);
    if (!percentile_tail(v, low, true, &out->lo) ||
        !percentile_tail(v, high, false, &out->hi))
        return false;
    out->lo = -out->lo + 0.0F;
    return true;
}

static sb_range percentile_range(const sb_obs_values *v)
{
    side low, high;

    percentile_sides(v, &low, &high);
    return (sb_range){-percentile_of(v, low, true) + 0.0F,
                      percentile_of(v, high, false)};
}

const sb_observer_def sb_observer_percentile = {
    .name = "percentile",
    .summary = "cuts a fraction of the values on each side",
    .params = "PERCENTILE.ALPHA",
    .bound = "exact while at most 8191 values are cut on a side; then within "
             "absmax / 32768",
    .flags = SB_OBS_WEIGHT | SB_OBS_FEATURE | SB_OBS_HISTOGRAM | SB_OBS_TAILS,
    .range_of_tails = percentile_of_tails,
    .range = percentile_range,
};
