/* Criterion "wanda" (Sun et al., 2023): the magnitude of a weight times the
 * length of what it is multiplied with; compared within an output, so that
 * every output keeps its share. */
#include <math.h>

#include "prune/criterion/criterion.h"
#include "prune/seen.h"

static const sb_seen_value *wanda_seen(const sb_criterion_ask *ask)
{
    const sb_channels *ch = ask->channels;

    for (size_t i = 0; i < ch->n_axes; i++) {
        const sb_prune_axis *a = &ch->axes[i];
        if (a->value == ask->weight && a->reader != SB_NONE)
            return sb_seen_of(ask->seen, a->read.value, a->read.axis);
    }
    return NULL;
}

/* Without samples of what it reads (grouped convolutions) the magnitude. */
static sb_status wanda_weigh(const sb_criterion_ask *ask, float *out)
{
    const sb_tensor *t = sb_const_of(ask->channels->graph, ask->weight);
    const sb_seen_value *s = wanda_seen(ask);
    int64_t inner = ask->summed < 0
                        ? 1
                        : sb_dims_product(t->dims, ask->summed + 1, t->rank);

    for (int64_t i = 0; i < sb_tensor_count(t); i++) {
        out[i] = (float)fabs(sb_weight_at(t, i));
        if (!s || s->samples == 0 || s->n != t->dims[ask->summed])
            continue;
        int64_t c = i / inner % s->n;
        out[i] *= (float)sqrt(s->gram[c * (s->n + 1) + c] / (double)s->samples);
    }
    return SB_OK;
}

const sb_criterion_def sb_criterion_wanda = {
    .name = "wanda",
    .summary = "magnitude of a weight times that of its input (needs data)",
    .needs_data = true,
    .by_output = true,
    .weigh = wanda_weigh,
};
