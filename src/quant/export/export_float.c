/* Layers that stay in float between integers.
 *
 * ONNX Runtime makes integers of the float weight of a convolution whose input
 * comes from a DQ and whose result goes to a Q, with one scale for all
 * channels: just what was to be avoided.  A Sum of one input behind the DQ
 * changes nothing, and no rule of its optimizer takes it away. */
#include "quant/export/export.h"
#include "quant/model/instrument.h"
#include "quant/place/place.h"

static bool float_is_quantize(const sb_graph *g, sb_value_id v)
{
    const sb_value *value = sb_graph_value(g, v);

    return value->n_uses == 1 &&
           sb_node_role(sb_graph_node(g, value->uses[0].node)) ==
               SB_ROLE_QUANTIZE;
}

/* Does the result go to a Q, perhaps behind what is folded into it? */
static bool float_goes_to_integers(const sb_quant_model *qm, const sb_graph *g,
                                   const sb_node *node)
{
    const sb_value *v = sb_graph_value(g, node->outputs[0]);

    if (v->n_uses != 1 || float_is_quantize(g, node->outputs[0]))
        return v->n_uses == 1;
    const sb_node *next = sb_graph_node(g, v->uses[0].node);
    const sb_target_op *row = sb_target_op_find(qm->target, next);
    return row && row->place == SB_PLACE_FOLD &&
           float_is_quantize(g, next->outputs[0]);
}

/* Would the runtime take the layer for integers? */
static bool float_is_taken(const sb_quant_model *qm, const sb_graph *g,
                           const sb_node *node)
{
    const sb_fusion *fuse =
        node->dead ? NULL : sb_fusion_find(qm->target, node);
    const sb_node *before = NULL;

    if (!fuse || !(fuse->flags & SB_FUSE_QUANT_BIAS) || node->n_in < 2 ||
        node->inputs[0] == SB_NONE || node->inputs[1] == SB_NONE)
        return false;
    before = sb_graph_producer(g, node->inputs[0]);
    return before && sb_node_role(before) == SB_ROLE_DEQUANTIZE &&
           sb_graph_value(g, node->inputs[1])->is_constant &&
           float_goes_to_integers(qm, g, node);
}

sb_status sb_export_floats(const sb_quant_model *qm, sb_graph *g)
{
    for (sb_node_id id = 0, n = (sb_node_id)g->n_nodes; id < n; id++) {
        sb_value_id x, y = SB_NONE;

        if (qm->known.n > 0 || !float_is_taken(qm, g, sb_graph_node(g, id)))
            continue;
        x = sb_graph_node(g, id)->inputs[0];
        const sb_node_spec spec = {.op = "Sum", .inputs = &x, .n_in = 1};

        SB_TRY(sb_quant_add_node(g, id, &spec, x, &y));
        SB_TRY(sb_graph_set_input(g, id, 0, y));
    }
    return SB_OK;
}
