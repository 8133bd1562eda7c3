/* Observer "percentile": cuts a fraction alpha of the values on each side.
 *
 * With p values not below zero and n below: the upper end is the value that
 * round(p * alpha) values lie above, the lower end the max(round(n * alpha),
 * 1)-th least; halves are rounded to even.  No value of a side: 0.
 *
 * The SB_EXTREMES_KEEP largest values of either sign are kept, so the answer is
 * exact as long as it is one of them.  Beyond that it comes from the histogram
 * and is off by half a bin at most. */
#include <math.h>

#include "quant/observe/extremes.h"
#include "quant/observe/observer_def.h"

typedef struct percentile_params {
    double alpha;
} percentile_params;

static const sb_param_def percentile_table[] = {
    {.name = "ALPHA",
     .type = SB_PARAM_FLOAT,
     .offset = offsetof(percentile_params, alpha),
     .preset = "0.001",
     .max = 0.5,
     .help = "fraction of the values that is cut off on each side"},
    {0},
};

static double percentile_alpha(const sb_quant_spec *spec)
{
    return ((const percentile_params *)spec->observer_params)->alpha;
}

typedef struct side {
    double n;    /* values of this sign */
    double rank; /* of the answer, 1 the most extreme */
} side;

static void percentile_sides(const sb_obs_values *v, side *low, side *high)
{
    double alpha = percentile_alpha(v->spec);

    for (int64_t i = 0; i < v->n; i++)
        *(v->x[i] < 0.0F ? &low->n : &high->n) += v->count ? v->count[i] : 1.0;
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
    const sb_extremes_side *kept = NULL;

    if (s.n == 0.0)
        return 0.0F;
    if (!v->extremes)
        return sb_extremes_select(v->x, (size_t)v->n, low, (size_t)s.rank);
    kept = low ? &v->extremes->low : &v->extremes->high;
    if (s.rank <= (double)kept->n && s.rank <= (double)v->extremes->keep)
        return sb_extremes_select(kept->v, kept->n, false, (size_t)s.rank);
    return percentile_bin(v, s.rank, low);
}

static sb_range percentile_range(const sb_obs_values *v)
{
    side low = {0}, high = {0};

    percentile_sides(v, &low, &high);
    return (sb_range){-percentile_of(v, low, true) + 0.0F,
                      percentile_of(v, high, false)};
}

const sb_observer_def sb_observer_percentile = {
    .name = "percentile",
    .summary = "cuts a fraction of the values on each side",
    .bound = "exact while at most 8191 values are cut on a side; then within "
             "absmax / 32768",
    .flags =
        SB_OBS_WEIGHT | SB_OBS_ACTIVATION | SB_OBS_HISTOGRAM | SB_OBS_EXTREMES,
    .params = percentile_table,
    .params_size = sizeof(percentile_params),
    .extremes_fraction = percentile_alpha,
    .range = percentile_range,
};
