/* Which edges get a quantizer: what the rows of operators say, under the
 * configuration, for no runtime in particular.
 *
 * An operator with one data input quantizes that input, and its weight; one
 * with several quantizes each of those that are computed, through an identity
 * of its own (the original's QIdentity), sums only if A.QADD asks for it.
 * Inside conv + batch norm + activation, and sum + relu, which run as one,
 * quantizers after the first are switched off. */
#include <stdio.h>
#include <string.h>

#include "graph/op.h"
#include "passes/rewrite.h"
#include "quant/place/place.h"

typedef struct placer {
    sb_quant_model *qm;
    sb_node_id id;
    const sb_node *node;
    const sb_op_def *op;
    const char *base; /* of names */
} placer;

static bool is_float(const sb_graph *g, sb_value_id v)
{
    return v != SB_NONE && sb_dtype_is_float(sb_graph_value(g, v)->type.dtype);
}

/* A value that a run computes, of floats. */
static bool is_computed(const sb_graph *g, sb_value_id v)
{
    return is_float(g, v) && !sb_is_const(g, v);
}

/* ---- names -------------------------------------------------------------- */

static bool has_role(const sb_node *node)
{
    sb_quant_role role = sb_node_role(node);

    return role != SB_ROLE_UNKNOWN && role != SB_ROLE_PASS &&
           role != SB_ROLE_NORM && role != SB_ROLE_QUANTIZE &&
           role != SB_ROLE_DEQUANTIZE;
}

const char *sb_quant_base_name(const sb_graph *g, const sb_node *node)
{
    if (!node->module[0])
        return sb_node_label(g, node);
    for (size_t i = 0; i < g->n_nodes; i++) {
        const sb_node *other = sb_graph_node(g, (sb_node_id)i);
        if (other != node && !other->dead && has_role(other) &&
            strcmp(other->module, node->module) == 0)
            return sb_node_label(g, node);
    }
    return node->module;
}

/* ---- one node ----------------------------------------------------------- */

static sb_status place_config_add(const placer *p, sb_quant_kind kind,
                                  uint32_t input, const char *suffix,
                                  sb_quantizer **out)
{
    sb_quant_model *qm = p->qm;
    const sb_use use = {p->id, input};
    sb_quant_spec settings;
    sb_quantizer_spec spec = {
        .settings = &settings,
        .value = p->node->inputs[input],
        .uses = &use,
        .n_uses = 1,
    };

    *out = NULL;
    sb_quant_config_spec(qm->config, kind, p->node, &settings);
    if (settings.disabled)
        return SB_OK;
    /* Interpolation between few values would show. */
    if (p->op->interpolates && settings.bits < 8)
        settings.bits = 8;
    SB_TRY(sb_place_axis(qm, &settings, use, &spec.axis, &spec.block));
    return sb_place_add_named(qm, &spec, p->base, suffix, out);
}

/* Does the node only finish what the one before it began? */
static bool joins_layer(const placer *p)
{
    const sb_graph *g = p->qm->graph;
    const sb_node *before = sb_graph_producer(g, sb_node_in(p->node, 0));
    const sb_op_def *op = before ? sb_op_of(before) : NULL;

    if (!op ||
        !sb_quant_config_schedule(p->qm->config).disable_unnecessary_quant)
        return false;
    if (p->op->quant != SB_ROLE_ACT && p->op->quant != SB_ROLE_RELU)
        return false;
    /* A module kept in float ends the chain. */
    if (sb_quant_config_skips(p->qm->config, before))
        return false;
    if (op->quant == SB_ROLE_WEIGHTED) /* a product of activations is none */
        return sb_is_const(g, sb_node_in(before, 1));
    return op->quant == SB_ROLE_NORM ||
           (op->quant == SB_ROLE_SUM && p->op->quant == SB_ROLE_RELU);
}

static sb_status place_data(const placer *p)
{
    sb_quantizer *q = NULL;

    if (!is_computed(p->qm->graph, sb_node_in(p->node, 0)))
        return SB_OK;
    SB_TRY(place_config_add(p, SB_QUANT_ACTIVATION, 0, ".input_quantizer", &q));
    if (q)
        q->fake_fused = joins_layer(p);
    return SB_OK;
}

static sb_status place_weight(const placer *p, uint32_t input)
{
    sb_quantizer *q = NULL;

    if (!is_float(p->qm->graph, sb_node_in(p->node, input)))
        return SB_OK;
    return place_config_add(p, SB_QUANT_WEIGHT, input, ".weight_quantizer", &q);
}

/* Several computed inputs: one quantizer each; not where all are one value. */
static sb_status place_each(const placer *p)
{
    const sb_graph *g = p->qm->graph;
    sb_value_id first = SB_NONE;
    bool several = false;
    uint32_t k = 0;

    for (uint32_t i = 0; i < p->node->n_in; i++) {
        if (!is_computed(g, p->node->inputs[i]))
            continue;
        several |= first != SB_NONE && p->node->inputs[i] != first;
        first = p->node->inputs[i];
    }
    for (uint32_t i = 0; several && i < p->node->n_in; i++) {
        char suffix[64];
        sb_quantizer *q = NULL;

        if (!is_computed(g, p->node->inputs[i]))
            continue;
        (void)snprintf(suffix, sizeof suffix, "_identity%u.input_quantizer",
                       k++);
        SB_TRY(place_config_add(p, SB_QUANT_ACTIVATION, i, suffix, &q));
    }
    return SB_OK;
}

static sb_status place_node(const placer *p)
{
    const sb_graph *g = p->qm->graph;
    sb_quant_spec spec;

    switch (p->op->quant) {
    case SB_ROLE_SINGLE:
        /* Picking the nearest element loses nothing. */
        if (p->op->interpolates && !p->op->interpolates(p->node))
            return SB_OK;
        return place_data(p);
    case SB_ROLE_ACT:
    case SB_ROLE_RELU:
        return place_data(p);
    case SB_ROLE_WEIGHTED:
        if (!sb_is_const(g, sb_node_in(p->node, 1)))
            return place_each(p);
        SB_TRY(place_data(p));
        return place_weight(p, 1);
    case SB_ROLE_TABLE:
        return sb_is_const(g, sb_node_in(p->node, 0)) ? place_weight(p, 0)
                                                      : SB_OK;
    case SB_ROLE_SUM:
        sb_quant_config_spec(p->qm->config, SB_QUANT_ACTIVATION, p->node,
                             &spec);
        return spec.qadd ? place_each(p) : SB_OK;
    case SB_ROLE_MULTI:
        return place_each(p);
    case SB_ROLE_UNKNOWN:
    case SB_ROLE_PASS:
    case SB_ROLE_NORM:
    case SB_ROLE_RECURRENT:
    case SB_ROLE_QUANTIZE:
    case SB_ROLE_DEQUANTIZE:
        break;
    }
    return SB_OK;
}

sb_status sb_quant_place_config(sb_quant_model *qm)
{
    sb_graph *g = qm->graph;
    sb_node_id *order = NULL;
    size_t n = 0;
    sb_status status = SB_OK;

    SB_TRY(sb_graph_order(g, &order, &n));
    for (size_t i = 0; i < n && status == SB_OK; i++) {
        placer p = {.qm = qm, .id = order[i]};

        p.node = sb_graph_node(g, p.id);
        p.op = sb_op_of(p.node);
        if (!p.op || sb_quant_config_skips(qm->config, p.node))
            continue;
        p.base = sb_quant_base_name(g, p.node);
        status = place_node(&p);
    }
    sb_free(qm->ctx, order);
    return status;
}
