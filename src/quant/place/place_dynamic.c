/* Layers whose activations are quantized at each run. */
#include "ops/op_registry.h"
#include "quant/place/place.h"

const char *sb_dynamic_kernel(const sb_graph *g, const sb_node *node)
{
    sb_value_id x = sb_node_in(node, 0), w = sb_node_in(node, 1);

    if (!sb_is_const(g, w) || x == SB_NONE ||
        sb_graph_value(g, x)->type.dtype != SB_DTYPE_F32)
        return NULL;
    const sb_op_def *op = sb_op_of(node);
    if (sb_node_role(node) == SB_ROLE_RECURRENT)
        return sb_is_const(g, sb_node_in(node, 2)) &&
                       sb_node_int(node, "layout", 0) == 0
                   ? op->dynamic
                   : NULL;
    int rank = sb_graph_value(g, w)->constant.rank;
    bool fits = sb_node_flag(node, SB_OP_CONV) ? rank >= 3 : rank == 2;
    /* What could not be brought into canonical form stays. */
    return op && fits && sb_gemm_is_canonical(node) ? op->integer : NULL;
}

const sb_quantizer *sb_quantizer_on(const sb_quant_model *qm, sb_node_id node,
                                    uint32_t input)
{
    const sb_placement *p = &qm->place;
    sb_value_id value = sb_node_in(sb_graph_node(qm->graph, node), input);
    const sb_quantizer *found = NULL;

    if (value == SB_NONE)
        return NULL;
    for (uint32_t k = p->of_value[value].first; k != SB_NONE;
         k = p->points[k].next)
        for (uint32_t i = p->points[k].head; i != SB_NONE;
             i = p->quantizers[i].next) {
            const sb_quantizer *q = &p->quantizers[i];

            for (size_t u = 0; u < q->n_uses; u++)
                if (q->uses[u].node == node && q->uses[u].input == input &&
                    (!found || q < found) && !sb_quantizer_is_off(qm, q))
                    found = q;
        }
    return found;
}

bool sb_quantizer_is_dynamic(const sb_quant_model *qm, const sb_quantizer *q)
{
    const sb_quantizer *x;

    if (q->spec.dynamic)
        return true;
    if (q->n_uses == 0 || q->uses[0].input == 0)
        return false;
    x = sb_quantizer_on(qm, q->uses[0].node, 0);
    return x && x->spec.dynamic;
}
