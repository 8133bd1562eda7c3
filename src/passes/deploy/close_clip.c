/* Pass "close_clip": a Clip without an upper limit in front of a
 * QuantizeLinear gets one, far beyond what that can express.
 *
 * ONNX Runtime (1.31) makes one kernel of a layer, a Clip and a QuantizeLinear
 * if the limits become the first and the last integer.  It takes the largest
 * float for a limit that is absent; divided by the scale this exceeds an int32
 * and becomes the first integer, so the layer would stay in float. */
#include <math.h>

#include "passes/pass.h"
#include "passes/rewrite.h"

enum { CLOSE_CLIP_STEPS = 1 << 30 };

/* The limit that the Clip needs; 0 if it needs none. */
static double close_clip_limit(const sb_graph *g, const sb_node *clip)
{
    double scale;

    if (clip->dead || !sb_node_is(clip, "Clip") ||
        sb_node_in(clip, 2) != SB_NONE)
        return 0;
    const sb_value *y = sb_graph_value(g, clip->outputs[0]);
    if (y->is_output || y->n_uses != 1 || y->uses[0].input != 0)
        return 0;
    const sb_node *q = sb_graph_node(g, y->uses[0].node);
    if (!sb_node_is(q, "QuantizeLinear") ||
        !sb_const_scalar(g, q->inputs[1], &scale) || !isfinite(scale))
        return 0;
    return scale * CLOSE_CLIP_STEPS;
}

static sb_status close_clip_rewrite(sb_graph *g, sb_node_id id, double limit)
{
    const sb_node *clip = sb_graph_node(g, id);
    sb_value_id in[3] = {clip->inputs[0], sb_node_in(clip, 1), SB_NONE};
    const sb_shape scalar = {.rank = 0};
    sb_node_id made;

    SB_TRY(sb_rewrite_fill(g, "limit", sb_graph_value(g, in[0])->type.dtype,
                           &scalar, limit, &in[2]));
    return sb_rewrite_node(g, id, "Clip", in, 3, &made);
}

static sb_status close_clip_run(sb_graph *g, size_t *changes)
{
    const size_t n = g->n_nodes;

    for (sb_node_id id = 0; id < n; id++) {
        double limit = close_clip_limit(g, sb_graph_node(g, id));

        if (limit > 0) {
            SB_TRY(close_clip_rewrite(g, id, limit));
            ++*changes;
        }
    }
    return SB_OK;
}

const sb_pass_def sb_pass_close_clip = {
    .name = "close_clip",
    .summary = "an upper limit for a Clip in front of a QuantizeLinear",
    .run = close_clip_run,
};
