/* Biases while training, for runtimes that add them as integers.
 *
 * Their step is the product of two scales (fit_bias.c), which with coarse
 * scales is enough to move values to other steps of the next quantizer; a
 * network that was trained without it is not the one in the file.  So layers
 * add what the file will hold, and gradients pass as if it were not rounded:
 *
 *     b' = round(b / step) step,  step = s_x s_w
 *
 * Behind a layer with a restored norm the bias is what folding will make of it,
 *
 *     b = beta - f mean,  f = gamma / sqrt(var + epsilon),  step = s_x s_w |f|
 *
 * with running statistics, and the norm gets beta' = b' + f mean. */
#include <string.h>

#include "graph/op.h"
#include "quant/calibrate/calibrate.h"
#include "quant/train/qat.h"

sb_node_id sb_qat_norm_node(const sb_graph *g, sb_value_id mean)
{
    const sb_value *v = sb_graph_value(g, mean);

    for (uint32_t i = 0; i < v->n_uses; i++)
        if (sb_node_is(sb_graph_node(g, v->uses[i].node), "BatchNormalization"))
            return v->uses[i].node;
    return SB_NONE;
}

/* The scales that a value was rounded with, by a node of its quantizer. */
static sb_value_id bias_scale_of(const sb_graph *g, sb_value_id v)
{
    sb_node_id by = sb_graph_value(g, v)->producer;
    const sb_node *node = by == SB_NONE ? NULL : sb_graph_node(g, by);

    return node && strcmp(node->domain, SB_FUSED_DOMAIN) == 0 &&
                   strcmp(node->op, "FakeQuant") == 0
               ? node->inputs[1]
               : SB_NONE;
}

/* b as integers of 32 bit hold it; a step that is too small for them is
 * enlarged, as fit_bias.c does. */
static sb_value_id bias_round(sb_grad *to, sb_value_id b, sb_value_id step)
{
    const sb_quant_nodes whole = {
        .to = to, .qmin = INT32_MIN, .qmax = INT32_MAX};
    sb_value_id room = sb_grad_scalar(to, b, 1.0001 / 2147483647.0);
    sb_value_id least = sb_emit2(to, "Mul", sb_emit1(to, "Abs", b), room);

    step = sb_emit2(to, "Max", step, least);
    step = sb_emit2(to, "Max", step, sb_grad_scalar(to, b, 1e-30));
    return sb_quant_add_fake(
        &whole, b, step, sb_emit2(to, "Mul", step, sb_grad_scalar(to, b, 0)),
        SB_FAKE_THROUGH);
}

/* What a norm adds at the end, from its parameters and the step of products. */
static sb_value_id bias_of_norm(sb_grad *to, const sb_qat_norm *norm,
                                sb_value_id step)
{
    sb_value_id beta = norm->params[SB_QAT_BETA];
    sb_value_id epsilon = sb_grad_scalar(to, beta, (double)norm->epsilon);
    sb_value_id var = sb_emit2(to, "Add", norm->params[SB_QAT_VAR], epsilon);
    sb_value_id f = sb_emit2(to, "Div", norm->params[SB_QAT_GAMMA],
                             sb_emit1(to, "Sqrt", var));
    sb_value_id moved = sb_emit2(to, "Mul", f, norm->params[SB_QAT_MEAN]);

    step = sb_emit2(to, "Mul", step, sb_emit1(to, "Abs", f));
    return sb_emit2(to, "Add",
                    bias_round(to, sb_emit2(to, "Sub", beta, moved), step),
                    moved);
}

static const sb_qat_norm *bias_find_norm(const sb_qat *qat, sb_node_id layer)
{
    for (size_t i = 0; i < qat->n_norms; i++)
        if (qat->norms[i].layer.node == layer)
            return &qat->norms[i];
    return NULL;
}

static sb_status bias_add(sb_qat *qat, const sb_biased_layer *l)
{
    sb_graph *g = qat->graph;
    sb_node_id layer = l->w->uses[0].node;
    const sb_qat_norm *norm = bias_find_norm(qat, layer);
    sb_use use = l->use; /* what adds the bias */
    sb_grad to = {.graph = g};
    size_t first = g->n_nodes;

    if (norm) {
        use = (sb_use){sb_qat_norm_node(g, norm->params[SB_QAT_MEAN]), 2};
        layer =
            sb_graph_value(g, sb_graph_node(g, use.node)->inputs[0])->producer;
    }
    const sb_node *node = sb_graph_node(g, layer);
    sb_value_id x = bias_scale_of(g, node->inputs[0]);
    sb_value_id w = bias_scale_of(g, node->inputs[1]);
    if (x == SB_NONE || w == SB_NONE)
        return SB_OK;
    sb_value_id step = sb_emit2(&to, "Mul", x, w);
    sb_value_id b =
        norm ? bias_of_norm(&to, norm, step) : bias_round(&to, l->bias, step);
    SB_TRY(to.status);
    sb_qat_claim_nodes(g, first, use.node);
    return sb_graph_set_input(g, use.node, use.input, b);
}

sb_status sb_qat_add_biases(sb_qat *qat)
{
    const sb_quant_model *qm = qat->qm;

    if (qm->target->bias != SB_BIAS_INT32)
        return SB_OK;
    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        const sb_quantizer *w = &qm->place.quantizers[i];
        sb_biased_layer l;

        if (!sb_quantizer_is_off(qm, w) && sb_biased_layer_find(qm, w, &l))
            SB_TRY(bias_add(qat, &l));
    }
    return SB_OK;
}
