/* Observer "moving_average": ends of the range averaged over samples.
 *
 *     m <- r * m + (1 - r) * new        for each sample; the first sets m
 *
 * in float, like the original, but for each channel where there are several.
 * Merging: had the samples of `from` (k of them, the first x) come after
 * `into`, x would weigh (1 - r) of what it does and `into` r^k:
 *
 *     m = m_from + r^k * (m_into - x) */
#include <math.h>

#include "quant/observe/observer_def.h"

typedef struct average_params {
    double ratio;
} average_params;

static const sb_param_def average_table[] = {
    {.name = "EMA_RATIO",
     .type = SB_PARAM_FLOAT,
     .offset = offsetof(average_params, ratio),
     .preset = "0.9",
     .max = 1,
     .help = "share of the old range that each sample keeps"},
    {0},
};

/* The state: ends so far, which are floats, and those of the first sample. */
enum { LO, HI, FIRST_LO, FIRST_HI, AVERAGE_SIZE };

static double average_ratio(const sb_quant_spec *spec)
{
    return ((const average_params *)spec->observer_params)->ratio;
}

static void average_update(const sb_quant_spec *spec, double *state,
                           int64_t seen, sb_range sample)
{
    double ratio = average_ratio(spec);
    float keep = (float)ratio, take = (float)(1.0 - ratio);

    if (seen == 0) {
        state[LO] = state[FIRST_LO] = (double)sample.lo;
        state[HI] = state[FIRST_HI] = (double)sample.hi;
        return;
    }
    state[LO] = (double)(keep * (float)state[LO] + take * sample.lo);
    state[HI] = (double)(keep * (float)state[HI] + take * sample.hi);
}

static void average_merge(const sb_quant_spec *spec, double *into,
                          const double *from, int64_t from_seen)
{
    double weight = pow(average_ratio(spec), (double)from_seen);

    into[LO] = (double)(float)(from[LO] + weight * (into[LO] - from[FIRST_LO]));
    into[HI] = (double)(float)(from[HI] + weight * (into[HI] - from[FIRST_HI]));
}

static sb_range average_range(const sb_obs_values *v)
{
    return (sb_range){(float)v->state[LO], (float)v->state[HI]};
}

const sb_observer_def sb_observer_moving_average = {
    .name = "moving_average",
    .summary = "least and greatest value of each sample, averaged over samples",
    .bound = "exact",
    .flags = SB_OBS_ACTIVATION,
    .why_one = "a weight does not change from sample to sample",
    .params = average_table,
    .params_size = sizeof(average_params),
    .state_size = AVERAGE_SIZE,
    .state_update = average_update,
    .state_merge = average_merge,
    .range = average_range,
};
