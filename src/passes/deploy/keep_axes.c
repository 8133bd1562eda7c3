/* Pass "keep_axes": reductions keep their axes, which a Squeeze removes.
 *
 *     before:  y = ReduceMean(x, axes) keepdims=0
 *     after:   r = ReduceMean(x, axes) keepdims=1   y = Squeeze(r, axes)
 *
 * OpenVINO's CPU plugin makes one kernel of a reduction and what follows it,
 * and moves factors of channels from in front of it behind it.  Where axes are
 * removed and a QuantizeLinear follows, it takes these factors along the axis
 * that the channels had no longer: results are wrong (2026.4.1).  A Squeeze
 * ends the kernel before that, and costs nothing. */
#include <string.h>

#include "passes/pass.h"
#include "passes/rewrite.h"

/* Does the node remove axes that are known, and leave others? */
static bool keep_axes_removes(const sb_graph *g, const sb_node *node,
                              sb_type *kept)
{
    int64_t axes[SB_MAX_RANK];
    int n = sb_const_ints(g, sb_node_in(node, 1), axes, SB_MAX_RANK);

    if (node->dead || node->domain[0] != '\0' ||
        strncmp(node->op, "Reduce", strlen("Reduce")) != 0 ||
        node->n_out != 1 || sb_node_int(node, "keepdims", 1) != 0)
        return false;
    *kept = sb_graph_value(g, node->inputs[0])->type;
    int rank = kept->shape.rank;
    for (int i = 0; i < n && rank > 0; i++) {
        int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];

        if (axis < 0 || axis >= rank)
            return false;
        kept->shape.dim[axis] = 1;
    }
    return n > 0 && n < rank;
}

static sb_status keep_axes_rewrite(sb_graph *g, sb_node_id id,
                                   const sb_type *kept)
{
    const sb_node *node = sb_graph_node(g, id);
    sb_value_id in[2] = {node->inputs[0], node->inputs[1]};
    sb_node_id made;

    SB_TRY(sb_rewrite_add(g, id, node->op, in, 2, kept, &made));
    SB_TRY(sb_graph_set_attr_int(g, made, "keepdims", 1));
    in[0] = sb_graph_node(g, made)->outputs[0];
    return sb_rewrite_node(g, id, "Squeeze", in, 2, &made);
}

static sb_status keep_axes_run(sb_graph *g, size_t *changes)
{
    const size_t n = g->n_nodes;
    sb_type kept;

    for (sb_node_id id = 0; id < n; id++)
        if (keep_axes_removes(g, sb_graph_node(g, id), &kept)) {
            SB_TRY(keep_axes_rewrite(g, id, &kept));
            ++*changes;
        }
    return SB_OK;
}

const sb_pass_def sb_pass_keep_axes = {
    .name = "keep_axes",
    .summary = "reductions that remove axes: with axes, then a Squeeze",
    .run = keep_axes_run,
};
