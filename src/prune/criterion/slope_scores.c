/* What criteria of the loss share. */
#include <math.h>

#include "prune/criterion/criterion.h"
#include "prune/seen.h"

sb_status sb_score_by_slope(const sb_criterion_ask *ask, bool square,
                            double *out)
{
    for (uint32_t i = 0; i < ask->group->n; i++)
        out[i] = sb_slopes_channel(
            ask->seen->slopes, ask->channels->ordered[ask->group->first + i],
            square);
    return SB_OK;
}

/* A weight that gradients do not reach goes by its magnitude. */
sb_status sb_weigh_by_slope(const sb_criterion_ask *ask, bool square,
                            float *out)
{
    const sb_tensor *t = sb_const_of(ask->channels->graph, ask->weight);
    const sb_slope *s = sb_slopes_of(ask->seen->slopes, ask->weight);

    for (int64_t i = 0; i < sb_tensor_count(t); i++)
        out[i] = !s       ? (float)fabs(sb_weight_at(t, i))
                 : square ? s->square[i]
                          : s->magnitude[i];
    return SB_OK;
}
