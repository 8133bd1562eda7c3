/* Criterion "fisher" (Theis et al., 2018; Molchanov et al., 2019): the same
 * first-order changes of the loss as "taylor", squared before they are summed
 * up over batches: the diagonal of the empirical Fisher matrix, which stands
 * for second derivatives.  Smaller batches make it sharper. */
#include "prune/criterion/criterion.h"

static sb_status fisher_score(const sb_criterion_ask *ask, double *out)
{
    return sb_score_by_slope(ask, true, out);
}

static sb_status fisher_weigh(const sb_criterion_ask *ask, float *out)
{
    return sb_weigh_by_slope(ask, true, out);
}

const sb_criterion_def sb_criterion_fisher = {
    .name = "fisher",
    .summary = "the same, squared in each batch: empirical Fisher (needs data)",
    .needs_data = true,
    .needs_slopes = true,
    .score = fisher_score,
    .weigh = fisher_weigh,
};
