/* Finding values whose channels can be scaled. */
#include <math.h>

#include "ops/op_registry.h"
#include "passes/rewrite.h"
#include "quant/correct/correct.h"
#include "quant/correct/equalize.h"
#include "quant/place/place.h"

/* A float constant with one consumer. */
static bool link_owns(const sb_graph *g, sb_value_id v)
{
    const sb_tensor *t = sb_const_of(g, v);

    return t && t->dtype == SB_DTYPE_F32 && sb_graph_value(g, v)->n_uses == 1 &&
           !sb_graph_value(g, v)->is_output;
}

/* ---- where it begins ---------------------------------------------------- */

static bool link_from_layer(const sb_graph *g, const sb_node *node,
                            sb_link *out, sb_value_id *result)
{
    const sb_tensor *w = sb_const_of(g, sb_node_in(node, 1));
    sb_bias_layer biased;

    if (!link_owns(g, sb_node_in(node, 1)) || node->n_out != 1)
        return false;
    bool conv = sb_node_flag(node, SB_OP_CONV);
    out->weight = node->inputs[1];
    out->weight_axis = sb_op_weight_axis(node, w->rank);
    if (conv ? out->weight_axis != 0 : w->rank != 2)
        return false;
    out->channels = w->dims[out->weight_axis];
    out->bias = SB_NONE;
    *result = node->outputs[0];
    if (sb_bias_layer_find(g, out->maker, &biased)) {
        out->bias = biased.bias;
        *result = biased.result;
        if (*result != node->outputs[0])
            out->chain[out->n_chain++] = node->outputs[0];
    } else if (sb_node_in(node, 2) != SB_NONE) {
        return false;
    }
    const sb_shape *y = &sb_graph_value(g, *result)->type.shape;
    out->axis = conv ? 1 : y->rank - 1;
    return y->rank > 1 && y->dim[out->axis] == out->channels &&
           (out->bias == SB_NONE || link_owns(g, out->bias));
}

/* A norm along the last axis, with gains and perhaps biases of its own. */
static bool link_from_norm(const sb_graph *g, const sb_node *node, sb_link *out,
                           sb_value_id *result)
{
    const sb_tensor *gain = sb_const_of(g, sb_node_in(node, 1));
    const sb_tensor *bias = sb_const_of(g, sb_node_in(node, 2));

    if (!link_owns(g, sb_node_in(node, 1)) || gain->rank != 1 ||
        (bias && (bias->rank != 1 || bias->dims[0] != gain->dims[0])))
        return false;
    out->weight = node->inputs[1];
    out->weight_axis = 0;
    out->bias = sb_node_in(node, 2);
    out->channels = gain->dims[0];
    *result = node->outputs[0];
    const sb_shape *y = &sb_graph_value(g, *result)->type.shape;
    out->axis = y->rank - 1;
    return y->rank > 1 && y->dim[out->axis] == out->channels &&
           (out->bias == SB_NONE || link_owns(g, out->bias));
}

/* ---- consumers ---------------------------------------------------------- */

bool sb_link_reader_set(const sb_graph *g, const sb_link *l, sb_use use,
                        sb_link_reader *out)
{
    const sb_node *node = sb_graph_node(g, use.node);
    sb_value_id weight = sb_node_in(node, 1);

    if (use.input != 0 || sb_node_role(node) != SB_ROLE_WEIGHTED ||
        !link_owns(g, weight))
        return false;
    const sb_tensor *w = sb_const_of(g, weight);
    int axis = sb_op_weight_axis(node, w->rank);
    *out = (sb_link_reader){
        .node = use.node, .weight = weight, .groups = 1, .taps = 1};
    if (sb_node_flag(node, SB_OP_CONV)) {
        out->groups = sb_node_int(node, "group", 1);
        out->rows = w->dims[0];
        out->taps = sb_dims_product(w->dims, 2, w->rank);
        return axis == 0 && l->axis == 1 && out->groups > 0 &&
               out->rows % out->groups == 0 &&
               w->dims[1] * out->groups == l->channels;
    }
    if (w->rank != 2 || axis < 0 || sb_node_int(node, "transA", 0) != 0 ||
        l->axis != sb_graph_value(g, l->value)->type.shape.rank - 1)
        return false;
    out->transposed = axis == 1;
    out->rows = w->dims[axis];
    return w->dims[1 - axis] == l->channels;
}

/* Is there a quantizer, of the numbers as they are?  In a domain of its own
 * factors have no counterpart. */
static bool link_quantized(const sb_quant_model *qm, sb_node_id node,
                           uint32_t input)
{
    const sb_quantizer *q = sb_quantizer_on(qm, node, input);

    return q && !q->def->map_weight && !q->def->map_activation;
}

bool sb_link_takes(const sb_quant_model *qm, const sb_link *l, sb_use use,
                   sb_link_reader *out)
{
    return sb_link_reader_set(qm->graph, l, use, out) &&
           link_quantized(qm, use.node, 0) && link_quantized(qm, use.node, 1);
}

/* Is everything that reads the value a layer that runs on integers? */
static bool link_set_readers(const sb_quant_model *qm, sb_link *l)
{
    const sb_value *v = sb_graph_value(qm->graph, l->value);

    if (v->is_output || v->n_uses == 0 || v->n_uses > SB_LINK_READERS)
        return false;
    for (uint32_t i = 0; i < v->n_uses; i++)
        if (!sb_link_takes(qm, l, v->uses[i], &l->readers[i]))
            return false;
    l->n_readers = v->n_uses;
    return true;
}

int64_t sb_link_channel(const sb_link *l, const sb_link_reader *r, int64_t e)
{
    int64_t per = l->channels / r->groups;

    if (r->transposed)
        return e / r->rows;
    int64_t row = e / (per * r->taps);
    return row / (r->rows / r->groups) * per + e / r->taps % per;
}

/* ---- between ------------------------------------------------------------ */

/* Does the node give s times as much for s times as much, in each channel?
 * Clip up to its bound, which must be known; a pool where it slides over one
 * channel, and not behind a Clip: how near that came to its bound does not show
 * in means. */
static bool link_passes(const sb_graph *g, const sb_node *node, sb_link *l)
{
    double lo, hi;
    const sb_result_range *range = sb_node_range(g, node, &lo, &hi);

    if (sb_node_flag(node, SB_OP_HOMOGENEOUS))
        return sb_node_flag(node, SB_OP_ELEMENTWISE) ||
               (l->axis == 1 && !isfinite(l->bound));
    if (!range || !range->clips || lo != 0 || !(hi > 0))
        return false;
    sb_value_id most = range->hi_in ? sb_node_in(node, range->hi_in) : SB_NONE;
    l->bound = fmin(l->bound, hi);
    return most == SB_NONE || sb_const_scalar(g, most, &hi);
}

bool sb_link_observable(const sb_quant_model *qm, sb_value_id v)
{
    uint32_t i = qm->place.of_value[v].first;

    for (; i != SB_NONE; i = qm->place.points[i].next) {
        const sb_quant_point *p = &qm->place.points[i];
        if (p->known || p->same_as != i || p->followers != SB_NONE ||
            sb_point_quantizer(&qm->place, i)->axis >= 0 ||
            sb_point_quantizer(&qm->place, i)->def->map_activation)
            return false;
    }
    return true;
}

bool sb_link_find(const sb_quant_model *qm, sb_node_id maker, sb_link *out)
{
    const sb_graph *g = qm->graph;
    const sb_node *node = sb_graph_node(g, maker);
    sb_value_id v = SB_NONE;

    *out = (sb_link){.maker = maker, .bound = HUGE_VAL};
    if (node->dead || (sb_node_role(node) == SB_ROLE_WEIGHTED
                           ? !link_from_layer(g, node, out, &v)
                           : !sb_node_flag(node, SB_OP_GAINS) ||
                                 !link_from_norm(g, node, out, &v)))
        return false;
    const sb_quantizer *made = sb_quantizer_on(qm, maker, 1);
    if ((made && made->def->map_weight) ||
        (out->n_chain > 0 && !sb_link_observable(qm, out->chain[0])))
        return false;
    for (;;) {
        const sb_value *value = sb_graph_value(g, v);

        if (out->n_chain == SB_LINK_CHAIN || !sb_link_observable(qm, v) ||
            value->is_output)
            return false;
        out->chain[out->n_chain++] = out->value = v;
        if (link_set_readers(qm, out))
            return true;
        if (value->n_uses != 1 || value->uses[0].input != 0)
            return false;
        node = sb_graph_node(g, value->uses[0].node);
        if (node->n_out != 1 || !link_passes(g, node, out))
            return false;
        v = node->outputs[0];
    }
}
