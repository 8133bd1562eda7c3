/* Criterion "movement" (Sanh et al., 2020): weights that training moves toward
 * zero go first, however large they are.  The paper sums up -w_t dL/dw_t over
 * the steps of training; since steps follow the gradient, that is, up to their
 * squares, what the ends alone tell:
 *
 *     sum of w_t (w_t+1 - w_t)  ~  (w_end^2 - w_begin^2) / 2
 */
#include <string.h>

#include "prune/criterion/criterion.h"

static sb_status movement_weigh(const sb_criterion_ask *ask, float *out)
{
    const sb_graph *g = ask->channels->graph;
    const char *name = sb_graph_value(g, ask->weight)->name;
    const sb_tensor *now = sb_const_of(g, ask->weight);
    const sb_tensor *then =
        sb_const_of(ask->origin, sb_graph_find_value(ask->origin, name));

    if (!then || !sb_dtype_is_float(then->dtype) || then->rank != now->rank ||
        memcmp(then->dims, now->dims,
               (size_t)now->rank * sizeof now->dims[0]) != 0)
        return sb_fail(ask->ctx, SB_BAD_ARG,
                       "'%s': the network before training has no such weight",
                       name);
    for (int64_t i = 0; i < sb_tensor_count(now); i++) {
        double a = sb_weight_at(then, i), b = sb_weight_at(now, i);
        out[i] = (float)((b * b - a * a) / 2);
    }
    return SB_OK;
}

const sb_criterion_def sb_criterion_movement = {
    .name = "movement",
    .summary = "how far training moved a weight from zero (needs --before)",
    .needs_origin = true,
    .weigh = movement_weigh,
};
