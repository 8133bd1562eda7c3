/* Embedding tables of a calibrated model: bytes of which rows are taken, with
 * one scale, where the target has no integer kernel around them.
 *
 * They are half of the file of a small language model.  Nothing is computed
 * with the integers; the float result is what it would be, rounded. */
#include "graph/op.h"
#include "ops/op_registry.h"
#include "quant/place/place.h"

enum { TABLE_LEAST = 1 << 14 /* elements; smaller ones are not worth it */ };

/* Is it a table that the target takes rows of, without another consumer? */
static bool table_fits(const sb_quant_model *qm, const sb_node *node)
{
    const sb_graph *g = qm->graph;
    const sb_target_op *row = sb_target_op_find(qm->target, node);
    sb_value_id table = sb_node_in(node, 0), indices = sb_node_in(node, 1);

    if (!row || !row->weight_only || sb_node_role(node) != SB_ROLE_TABLE ||
        sb_node_int(node, "axis", 0) != 0 || indices == SB_NONE ||
        sb_graph_value(g, indices)->type.shape.rank < 0 ||
        sb_quant_config_skips(qm->config, node))
        return false;
    const sb_tensor *t = sb_const_of(g, table);
    if (!t || t->dtype != SB_DTYPE_F32 || t->rank != 2 ||
        sb_tensor_count(t) < TABLE_LEAST ||
        sb_graph_value(g, table)->n_uses != 1 ||
        sb_graph_value(g, table)->is_output)
        return false;
    if (qm->known.n == 0)
        return true;
    /* As the file has it. */
    const sb_imported_qparams *k = sb_imported_find(&qm->known, g, table);
    return k && k->constant;
}

sb_status sb_place_table(sb_quant_model *qm, sb_node_id id)
{
    const sb_node *node = sb_graph_node(qm->graph, id);
    const sb_use use = {id, 0};
    sb_quant_spec settings;
    sb_quantizer *q = NULL;

    if (!table_fits(qm, node))
        return SB_OK;
    sb_quantizer_spec spec = {.settings = &settings,
                              .value = node->inputs[0],
                              .uses = &use,
                              .n_uses = 1,
                              .axis = -1};
    sb_quant_config_spec(qm->config, SB_QUANT_WEIGHT, node, &settings);
    if (settings.disabled || settings.bits > 8)
        return SB_OK;
    settings.granularity = SB_QUANT_PER_TENSOR;
    return sb_place_add_named(qm, &spec, sb_quant_base_name(qm->graph, node),
                              ".weight_quantizer", &q);
}
