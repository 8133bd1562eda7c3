/* Criterion "l2norm": the Euclidean length of the weights that make a channel;
 * of a single weight its square. */
#include <math.h>

#include "prune/criterion/axis_norm.h"

static sb_status l2norm_axis(const sb_criterion_ask *ask,
                             const sb_prune_axis *a, const sb_tensor *t,
                             double *out)
{
    (void)ask;
    sb_axis_sums(t, a->axis, true, out);
    for (int64_t i = 0; i < t->dims[a->axis]; i++)
        out[i] = sqrt(out[i]);
    return SB_OK;
}

static sb_status l2norm_score(const sb_criterion_ask *ask, double *out)
{
    bool found;

    return sb_score_by_axis(ask, SB_AXIS_MADE, l2norm_axis, out, &found);
}

static sb_status l2norm_weigh(const sb_criterion_ask *ask, float *out)
{
    const sb_tensor *t = sb_const_of(ask->channels->graph, ask->weight);

    for (int64_t i = 0; i < sb_tensor_count(t); i++) {
        double w = sb_weight_at(t, i);
        out[i] = (float)(w * w);
    }
    return SB_OK;
}

const sb_criterion_def sb_criterion_l2norm = {
    .name = "l2norm",
    .summary = "Euclidean length of the weights",
    .score = l2norm_score,
    .weigh = l2norm_weigh,
};
