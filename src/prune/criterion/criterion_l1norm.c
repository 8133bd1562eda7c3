/* Criterion "l1norm": the sum of the magnitudes of the weights that make a
 * channel; of a single weight its magnitude.  What the original Sparsebit
 * has. */
#include <math.h>

#include "prune/criterion/axis_norm.h"

static sb_status l1norm_axis(const sb_criterion_ask *ask,
                             const sb_prune_axis *a, const sb_tensor *t,
                             double *out)
{
    (void)ask;
    sb_axis_sums(t, a->axis, false, out);
    return SB_OK;
}

static sb_status l1norm_score(const sb_criterion_ask *ask, double *out)
{
    bool found;

    return sb_score_by_axis(ask, SB_AXIS_MADE, l1norm_axis, out, &found);
}

static sb_status l1norm_weigh(const sb_criterion_ask *ask, float *out)
{
    const sb_tensor *t = sb_const_of(ask->channels->graph, ask->weight);

    for (int64_t i = 0; i < sb_tensor_count(t); i++)
        out[i] = (float)fabs(sb_weight_at(t, i));
    return SB_OK;
}

const sb_criterion_def sb_criterion_l1norm = {
    .name = "l1norm",
    .summary = "sum of the magnitudes of the weights",
    .score = l1norm_score,
    .weigh = l1norm_weigh,
};
