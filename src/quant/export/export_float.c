/* Layers that stay in float between integers.
 *
 * ONNX Runtime makes integers of the float weight of a Conv, ConvTranspose or
 * Gemm whose input comes from a DQ and whose result goes to a Q, with one scale
 * for all channels: just what was to be avoided.  Before that it moves DQ
 * forwards and Q backwards over what only moves elements.  A Sum of one input
 * before the layer changes nothing, and no rule of its optimizer takes it away;
 * the pass remove_identity leaves it, too. */
#include "quant/export/export.h"
#include "quant/model/instrument.h"
#include "quant/place/place.h"

/* The only consumer of the node's first result; NULL: none, or several. */
static const sb_node *float_next(const sb_graph *g, const sb_node *node)
{
    const sb_value *v = sb_graph_value(g, node->outputs[0]);

    return v->n_uses == 1 && !v->is_output ? sb_graph_node(g, v->uses[0].node)
                                           : NULL;
}

static bool float_is_folded(const sb_quant_model *qm, const sb_node *node)
{
    const sb_target_op *row = sb_target_op_find(qm->target, node);

    return row && row->place == SB_PLACE_FOLD;
}

/* Does the result go to a Q, perhaps behind what is folded into it and what the
 * Q is moved over, in this order? */
static bool float_goes_to_integers(const sb_quant_model *qm, const sb_graph *g,
                                   const sb_node *node)
{
    const sb_node *next = float_next(g, node);

    while (next && float_is_folded(qm, next))
        next = float_next(g, next);
    while (next && sb_fusion_flag(qm->target, next, SB_FUSE_MOVABLE))
        next = float_next(g, next);
    return next && sb_node_role(next) == SB_ROLE_QUANTIZE;
}

/* Does the value come from a DQ, perhaps over what that is moved over? */
static bool float_comes_from_integers(const sb_quant_model *qm,
                                      const sb_graph *g, sb_value_id v)
{
    const sb_node *before = sb_graph_producer(g, v);

    while (before && sb_fusion_flag(qm->target, before, SB_FUSE_MOVABLE) &&
           sb_node_in(before, 0) != SB_NONE)
        before = sb_graph_producer(g, before->inputs[0]);
    return before && sb_node_role(before) == SB_ROLE_DEQUANTIZE;
}

/* Would the runtime take the layer for integers? */
static bool float_is_taken(const sb_quant_model *qm, const sb_graph *g,
                           const sb_node *node)
{
    return !node->dead &&
           sb_fusion_flag(qm->target, node, SB_FUSE_QUANT_BIAS) &&
           sb_node_in(node, 0) != SB_NONE && sb_node_in(node, 1) != SB_NONE &&
           sb_graph_value(g, node->inputs[1])->is_constant &&
           float_comes_from_integers(qm, g, node->inputs[0]) &&
           float_goes_to_integers(qm, g, node);
}

sb_status sb_export_floats(const sb_quant_model *qm, sb_graph *g)
{
    for (sb_node_id id = 0, n = (sb_node_id)g->n_nodes; id < n; id++) {
        sb_value_id x, y = SB_NONE;

        if (!float_is_taken(qm, g, sb_graph_node(g, id)))
            continue;
        x = sb_graph_node(g, id)->inputs[0];
        const sb_node_spec spec = {.op = "Sum", .inputs = &x, .n_in = 1};

        SB_TRY(sb_quant_add_value(g, sb_graph_value(g, x)->name, "_sum", &y));
        SB_TRY(sb_quant_put_node(g, id, &spec, x, y));
        SB_TRY(sb_graph_set_input(g, id, 0, y));
    }
    return SB_OK;
}
