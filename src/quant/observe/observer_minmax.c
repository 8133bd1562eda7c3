/* Observer "minmax": the least and the greatest value.
 *
 * Nothing is ever clipped; one outlier makes all steps coarse. */
#include "quant/observe/observer_def.h"

static sb_range minmax_range(const sb_obs_values *v)
{
    return v->range;
}

const sb_observer_def sb_observer_minmax = {
    .name = "minmax",
    .summary = "least and greatest value",
    .bound = "exact",
    .flags = SB_OBS_WEIGHT | SB_OBS_ACTIVATION,
    .range = minmax_range,
};
