/* Biases of layers that came from a dynamic file.
 *
 * Integer products have no bias: there it is an Add behind them.  What is
 * calibrated now wants it inside of the layer again:
 *
 *     Add(Conv(x, w), b [C, 1, 1])   becomes   Conv(x, w, b [C])
 *     Add(MatMul(x, w), b [N])       becomes   Gemm(x, w, b), x of rank 2 */
#include "ops/op_registry.h"
#include "passes/readback/integer_util.h"
#include "passes/rewrite.h"
#include "quant/model/quant_model.h"

/* n numbers along the dimension that has `tail` others behind it? */
static bool is_bias(const sb_tensor *b, int64_t n, int tail, int most)
{
    if (!b || b->dtype != SB_DTYPE_F32 || b->rank <= tail || b->rank > most)
        return false;
    for (int d = 0; d < b->rank; d++)
        if (b->dims[d] != (d == b->rank - 1 - tail ? n : 1))
            return false;
    return true;
}

/* A layer that has an integer form, and no attributes but those of a
 * convolution. */
static bool is_product(const sb_node *node)
{
    const sb_op_def *op = sb_op_of(node);

    return op && op->integer &&
           ((op->flags & SB_OP_CONV) || node->n_attrs == 0);
}

/* The bias among the inputs of an Add behind the layer; SB_NONE if the layer
 * cannot take one. */
static sb_value_id find_bias(const sb_graph *g, const sb_node *node,
                             const sb_node *add)
{
    const sb_tensor *w = sb_const_of(g, sb_node_in(node, 1));
    bool conv = sb_node_flag(node, SB_OP_CONV);
    int rank = sb_graph_value(g, node->inputs[0])->type.shape.rank;

    if (!w || add->n_in != 2 || !sb_node_adds(add))
        return SB_NONE;
    sb_value_id bias = add->inputs[add->inputs[0] == node->outputs[0] ? 1 : 0];
    const sb_tensor *b = sb_const_of(g, bias);
    if (conv ? w->rank >= 3 && is_bias(b, w->dims[0], w->rank - 2, w->rank)
             : w->rank == 2 && rank == 2 && is_bias(b, w->dims[1], 0, 2))
        return bias;
    return SB_NONE;
}

static sb_status merge(sb_graph *g, sb_node_id id, sb_node_id add,
                       sb_value_id bias)
{
    const sb_node layer = *sb_graph_node(g, id);
    const sb_node sum = *sb_graph_node(g, add);
    bool conv = sb_node_flag(&layer, SB_OP_CONV);
    sb_value_id in[3] = {layer.inputs[0], layer.inputs[1], bias};
    sb_tensor b = sb_graph_value(g, bias)->constant;
    sb_node_id made;

    if (b.rank > 1) {
        b.dims[0] = sb_tensor_count(&b);
        b.rank = 1;
        SB_TRY(
            sb_graph_add_value_like(g, sb_graph_value(g, bias)->name, &in[2]));
        SB_TRY(sb_graph_set_constant(g, in[2], &b));
    }
    sb_graph_remove_node(g, add);
    sb_graph_remove_node(g, id);
    SB_TRY(sb_put_node(g, &layer, conv ? "Conv" : "Gemm", in, 3, sum.outputs[0],
                       &made));
    sb_graph_node(g, made)->name = layer.name;
    sb_graph_node(g, made)->origin = layer.origin;
    for (uint32_t i = 0; conv && i < layer.n_attrs; i++)
        SB_TRY(sb_graph_set_attr(g, made, &layer.attrs[i]));
    return SB_OK;
}

sb_status sb_quant_merge_biases(const sb_quant_model *qm, sb_graph *g)
{
    for (sb_node_id id = 0, n = (sb_node_id)g->n_nodes; id < n; id++) {
        const sb_node *node = sb_graph_node(g, id);

        if (node->dead || node->n_in != 2 || node->n_out != 1 ||
            !is_product(node) ||
            !sb_imported_dynamic_for(
                sb_imported_find(&qm->known, g, sb_node_in(node, 0)), node))
            continue;
        const sb_value *y = sb_graph_value(g, node->outputs[0]);
        if (y->n_uses != 1 || y->is_output)
            continue;
        sb_node_id add = y->uses[0].node;
        sb_value_id bias = find_bias(g, node, sb_graph_node(g, add));
        if (bias != SB_NONE)
            SB_TRY(merge(g, id, add, bias));
    }
    return SB_OK;
}
