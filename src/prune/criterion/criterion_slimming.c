/* Criterion "slimming" (Liu et al., 2017): the scale that batch normalization
 * gives a channel.  Meant for networks trained with a penalty on the scales;
 * groups without normalization are scored by the l1 norm of their weights. */
#include "prune/criterion/axis_norm.h"

static sb_status slimming_axis(const sb_criterion_ask *ask,
                               const sb_prune_axis *a, const sb_tensor *t,
                               double *out)
{
    (void)ask;
    sb_axis_sums(t, a->axis, false, out);
    return SB_OK;
}

static sb_status slimming_score(const sb_criterion_ask *ask, double *out)
{
    bool found;

    SB_TRY(sb_score_by_axis(ask, SB_AXIS_SCALE, slimming_axis, out, &found));
    return found ? SB_OK
                 : sb_score_by_axis(ask, SB_AXIS_MADE, slimming_axis, out,
                                    &found);
}

const sb_criterion_def sb_criterion_slimming = {
    .name = "slimming",
    .summary = "magnitude of the scale of the normalization behind a layer",
    .score = slimming_score,
};
