/* Criterion "hrank" (Lin et al., 2020): the mean rank of the images that a
 * channel shows for samples.  Images of low rank carry little.  Layers that
 * make no images are scored by the l1 norm of their weights. */
#include "prune/criterion/axis_norm.h"
#include "prune/seen.h"

/* The ranks of the result that the weight makes. */
static sb_status hrank_axis(const sb_criterion_ask *ask, const sb_prune_axis *a,
                            const sb_tensor *t, double *out)
{
    const sb_channels *ch = ask->channels;
    const sb_node *n = sb_graph_node(ch->graph, a->maker);
    const sb_seen_value *s = sb_seen_of(ask->seen, n->outputs[0], 1);

    if (s && s->rank && s->n == t->dims[a->axis]) {
        for (int64_t i = 0; i < s->n; i++)
            out[i] = s->rank[i];
        return SB_OK;
    }
    sb_axis_sums(t, a->axis, false, out);
    return SB_OK;
}

static sb_status hrank_score(const sb_criterion_ask *ask, double *out)
{
    bool found;

    return sb_score_by_axis(ask, SB_AXIS_MADE, hrank_axis, out, &found);
}

const sb_criterion_def sb_criterion_hrank = {
    .name = "hrank",
    .summary = "mean rank of a channel's images (needs data)",
    .needs_data = true,
    .needs_ranks = true,
    .score = hrank_score,
};
