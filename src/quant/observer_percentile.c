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

static void percentile_sides(const sb_obs_values *v, side *low, side *high)
{
    double alpha = v->spec->percentile_alpha;

    *low = *high = (side){0};
    for (int64_t i = 0; i < v->n; i++)
        *(v->x[i] < 0.0F ? &low->n : &high->n) += v->count ? v->count[i] : 1.0;
    if (v->below >= 0.0) {
        low->n = v->below;
        high->n = v->elements - v->below;
    }
    high->rank = fmin(rint(high->n * alpha) + 1.0, high->n);
    low->rank = fmin(fmax(rint(low->n * alpha), 1.0), low->n);
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

static float percentile_of(const sb_obs_values *v, side s, bool low)
{
    if (s.n == 0.0)
        return 0.0F;
    if (!v->tails)
        return sb_obs_select(v->x, (size_t)v->n, low, (size_t)s.rank);
    const sb_obs_tail *tail = low ? &v->tails->low : &v->tails->high;
    if (s.rank > (double)v->tails->keep || s.rank > (double)tail->n)
        return percentile_bin(v, s.rank, low);
    /* What is above the bar is in the list, whenever it came. */
    float found = sb_obs_select(tail->v, tail->n, false, (size_t)s.rank);
    return sb_obs_key(found) >= tail->bar ? found
                                          : percentile_bin(v, s.rank, low);
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
    .bound = "exact while at most 16383 values are cut on a side; then within "
             "absmax / 32768",
    .flags = SB_OBS_WEIGHT | SB_OBS_FEATURE | SB_OBS_HISTOGRAM | SB_OBS_TAILS,
    .range = percentile_range,
};
