/* Layers whose logarithm is taken stay in float.
 *
 * A spectrogram in front of a network for speech is a convolution or product,
 * squares, a product with the mel filters, and a logarithm.  That tells 0.0001
 * from 0.001 as well as 1 from 10, and 256 equal steps make zeros of both: the
 * network would hear silence, or the logarithm of zero.
 *
 * Backwards from each Log: the layer in front of it, be there an activation in
 * between, and those in front of that as long as there is none.  What an Exp
 * gives has been in steps before; a softmax, a sigmoid or a norm ends the way,
 * too. */
#include "ops/op_registry.h"
#include "quant/place/placer.h"

/* Is what goes into the node behind, and how far, a logarithm? */
static sb_log_way log_before(const sb_placer *t, sb_node_id id, sb_log_way way)
{
    const sb_op_def *op = sb_op_of(sb_graph_node(t->g, id));

    if (!op)
        return SB_LOG_NONE;
    if (op->flags & SB_OP_LOG)
        return SB_LOG_NEAR;
    if (way == SB_LOG_NONE || (op->flags & SB_OP_EXP))
        return SB_LOG_NONE;
    switch (op->quant) {
    case SB_ROLE_RELU:
        return way == SB_LOG_NEAR ? way : SB_LOG_NONE;
    case SB_ROLE_ACT:
        return way == SB_LOG_NEAR && (op->flags & SB_OP_HOMOGENEOUS)
                   ? way
                   : SB_LOG_NONE;
    case SB_ROLE_SINGLE:
        return op->flags & SB_OP_HOMOGENEOUS ? way : SB_LOG_NONE;
    case SB_ROLE_WEIGHTED:
        return t->anchor[id] ? SB_LOG_FAR : SB_LOG_NONE;
    case SB_ROLE_RECURRENT:
    case SB_ROLE_QUANTIZE:
    case SB_ROLE_DEQUANTIZE:
        return SB_LOG_NONE;
    default:
        return way;
    }
}

void sb_placer_leave_logs(sb_placer *t)
{
    for (size_t i = t->n_order; i-- > 0;) {
        sb_node_id id = t->order[i];
        const sb_node *node = sb_graph_node(t->g, id);
        sb_log_way way = SB_LOG_NONE;

        for (uint32_t k = 0; k < node->n_out; k++)
            if (node->outputs[k] != SB_NONE && t->log[node->outputs[k]] > way)
                way = t->log[node->outputs[k]];
        sb_log_way before = log_before(t, id, way);
        if (way != SB_LOG_NONE && t->anchor[id]) {
            t->anchor[id] = false;
            t->qm->place.before_log = sb_node_label(t->g, node);
        }
        for (uint32_t k = 0; k < node->n_in && before != SB_LOG_NONE; k++)
            if (node->inputs[k] != SB_NONE && t->log[node->inputs[k]] < before)
                t->log[node->inputs[k]] = before;
    }
}
