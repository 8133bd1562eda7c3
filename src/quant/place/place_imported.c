/* Which edges get a quantizer: those on which a quantized file has them.
 *
 * That is for targets without rules of their own, where the file alone knows
 * what is meant to be quantized. */
#include "passes/rewrite.h"
#include "quant/place/place.h"

/* The edges on which the file had it, or all if those are gone. */
static size_t place_imported_collect(const sb_graph *g,
                                     const sb_imported_qparams *k,
                                     const sb_value *v, sb_use *uses)
{
    size_t n = 0;

    for (uint32_t i = 0; i < v->n_uses && !k->all; i++)
        if (sb_imported_consumed_by(k, sb_graph_node(g, v->uses[i].node)))
            uses[n++] = v->uses[i];
    if (n == 0)
        for (uint32_t i = 0; i < v->n_uses; i++)
            uses[n++] = v->uses[i];
    return n;
}

static sb_status place_imported_add(sb_quant_model *qm,
                                    const sb_imported_qparams *k,
                                    sb_quantizer_spec spec)
{
    const sb_qparams *p = &k->qparams;
    const sb_node *consumer = spec.n_uses > 0
                                  ? sb_graph_node(qm->graph, spec.uses[0].node)
                                  : sb_graph_producer(qm->graph, spec.value);
    sb_quant_kind kind = k->constant ? SB_QUANT_WEIGHT : SB_QUANT_ACTIVATION;
    sb_quant_spec settings;
    sb_quantizer *q = NULL;

    sb_quant_config_spec(qm->config, kind, consumer, &settings);
    SB_TRY(sb_imported_check_spec(qm, k, &settings,
                                  sb_graph_value(qm->graph, spec.value)->name));
    settings.bits = p->bits;
    settings.symmetric = p->symmetric;
    settings.granularity = k->block > 0   ? SB_QUANT_PER_GROUP
                           : p->axis >= 0 ? SB_QUANT_PER_CHANNEL
                                          : SB_QUANT_PER_TENSOR;
    spec.settings = &settings;
    SB_TRY(sb_place_add_named(
        qm, &spec, sb_quant_base_name(qm->graph, consumer),
        k->constant ? ".weight_quantizer" : ".input_quantizer", &q));
    q->at_output =
        k->at_output && sb_graph_value(qm->graph, spec.value)->is_output;
    return SB_OK;
}

static sb_status place_value(sb_quant_model *qm, sb_value_id value)
{
    const sb_value *v = sb_graph_value(qm->graph, value);
    const sb_imported_qparams *k =
        sb_imported_find(&qm->known, qm->graph, value);

    if (!k || k->dynamic || k->constant != v->is_constant ||
        (v->n_uses == 0 && !(k->at_output && v->is_output)) ||
        (k->qparams.axis >= 0 && k->qparams.axis >= v->type.shape.rank))
        return SB_OK;
    sb_use *uses = sb_alloc(qm->ctx, (size_t)v->n_uses + 1, sizeof *uses);
    if (!uses)
        return SB_NO_MEMORY;
    sb_quantizer_spec spec = {.value = value,
                              .uses = uses,
                              .n_uses =
                                  place_imported_collect(qm->graph, k, v, uses),
                              .axis = k->qparams.axis,
                              .block = k->block};
    sb_status status = place_imported_add(qm, k, spec);
    sb_free(qm->ctx, uses);
    return status;
}

/* In the order of consumers, as quantizers of a configuration are. */
static sb_status place_all(sb_quant_model *qm, const sb_node_id *order,
                           size_t n, bool *done)
{
    for (size_t k = 0; k < n; k++) {
        const sb_node *node = sb_graph_node(qm->graph, order[k]);

        for (uint32_t i = 0; i < node->n_in; i++) {
            sb_value_id v = node->inputs[i];
            if (v == SB_NONE || done[v])
                continue;
            done[v] = true;
            SB_TRY(place_value(qm, v));
        }
    }
    for (size_t i = 0; i < qm->graph->n_outputs; i++) {
        sb_value_id v = qm->graph->outputs[i];
        if (!done[v] && sb_graph_producer(qm->graph, v))
            SB_TRY(place_value(qm, v));
        done[v] = true;
    }
    return SB_OK;
}

sb_status sb_quant_place_imported(sb_quant_model *qm)
{
    sb_node_id *order = NULL;
    size_t n = 0;
    bool *done = sb_alloc(qm->ctx, qm->graph->n_values + 1, sizeof *done);
    sb_status status =
        done ? sb_graph_order(qm->graph, &order, &n) : SB_NO_MEMORY;

    if (status == SB_OK)
        status = place_all(qm, order, n, done);
    sb_free(qm->ctx, order);
    sb_free(qm->ctx, done);
    return status;
}
