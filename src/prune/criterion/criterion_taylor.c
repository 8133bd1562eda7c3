/* Criterion "taylor" (Molchanov et al., 2017): how much the loss changes
 * without a channel, or a weight, to first order:
 *
 *     sum over batches of |sum over the weights that read it of w dL/dw|
 *
 * With labels the loss is cross-entropy; without, see prune/slopes.h. */
#include "prune/criterion/criterion.h"

static sb_status taylor_score(const sb_criterion_ask *ask, double *out)
{
    return sb_score_by_slope(ask, false, out);
}

static sb_status taylor_weigh(const sb_criterion_ask *ask, float *out)
{
    return sb_weigh_by_slope(ask, false, out);
}

const sb_criterion_def sb_criterion_taylor = {
    .name = "taylor",
    .summary = "first-order change of the loss (needs data)",
    .needs_data = true,
    .needs_slopes = true,
    .score = taylor_score,
    .weigh = taylor_weigh,
};
