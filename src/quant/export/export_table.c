/* Embedding tables: rows are taken from the integers and dequantized after.
 *
 *     Gather(DQ(t), i)  ->  DQ(Gather(t, i), Gather(scale, i), Gather(zero, i))
 *
 * A runtime would dequantize the whole table at every run otherwise.  A scale a
 * row is a block as long as the row. */
#include "passes/rewrite.h"
#include "quant/export/export.h"
#include "quant/model/instrument.h"

typedef struct table {
    sb_graph *g;
    const sb_quantizer *q;
    sb_node_id id; /* the Gather */
    sb_node_id dq; /* that it reads */
    sb_value_id indices;
    sb_value_id in[3]; /* integers, scale, zero point */
} table;

/* Rows of one of the three. */
static sb_status add_rows(const table *t, int i, sb_value_id *out)
{
    const sb_value *v = sb_graph_value(t->g, t->in[i]);
    const sb_type type = {.dtype = v->type.dtype, .shape = {.rank = -1}};
    const sb_value_id in[] = {t->in[i], t->indices};
    const sb_attr axis = {.name = "axis", .type = SB_ATTR_INT, .i = 0};
    const sb_node_spec spec = {
        .op = "Gather", .inputs = in, .n_in = 2, .attrs = &axis, .n_attrs = 1};

    SB_TRY(sb_export_node(t->g, t->id, &spec, t->in[i], v->name, "_rows", out));
    sb_graph_value(t->g, *out)->type = type;
    return SB_OK;
}

/* [n] scales of rows become [n, 1]. */
static sb_status add_column(table *t, int i)
{
    sb_tensor column = sb_graph_value(t->g, t->in[i])->constant;

    column.rank = 2;
    column.dims[1] = 1;
    SB_TRY(sb_quant_add_value(t->g, sb_graph_value(t->g, t->in[i])->name,
                              "_column", &t->in[i]));
    return sb_graph_set_constant(t->g, t->in[i], &column);
}

static sb_status write_table(table *t, int rank)
{
    const sb_tensor *w = &sb_graph_value(t->g, t->in[0])->constant;
    int64_t block = t->q->block > 0 ? t->q->block : w->dims[1];
    bool many = t->q->axis >= 0;
    sb_value_id in[3] = {SB_NONE, t->in[1], t->in[2]};
    sb_node_id node = SB_NONE;

    for (int i = 1; i < 3 && many && t->q->block == 0; i++)
        SB_TRY(add_column(t, i));
    for (int i = 0; i < (many ? 3 : 1); i++)
        SB_TRY(add_rows(t, i, &in[i]));
    SB_TRY(sb_rewrite_node(t->g, t->id, "DequantizeLinear", in, 3, &node));
    /* Attributes of Gather do not belong to it. */
    sb_graph_remove_attr(t->g, node, "axis");
    SB_TRY(sb_rewrite_prune(t->g, t->dq));
    if (!many)
        return SB_OK;
    SB_TRY(sb_graph_set_attr_int(t->g, node, "axis", rank));
    return sb_graph_set_attr_int(t->g, node, "block_size", block);
}

/* The Gather that reads a quantizer's DQ, if it can be turned round. */
static bool find_table(const sb_quant_model *qm, sb_graph *g,
                       const sb_quantizer *q, table *out)
{
    if (sb_quantizer_is_off(qm, q) || q->spec.kind != SB_QUANT_WEIGHT ||
        q->n_uses != 1 || q->uses[0].input != 0)
        return false;
    const sb_node *node = sb_graph_node(g, q->uses[0].node);
    if (node->dead || sb_node_role(node) != SB_ROLE_TABLE ||
        sb_node_int(node, "axis", 0) != 0)
        return false;
    const sb_node *dq = sb_graph_producer(g, node->inputs[0]);
    const sb_tensor *w = &sb_graph_value(qm->graph, q->value)->constant;
    if (!dq || sb_node_role(dq) != SB_ROLE_DEQUANTIZE || dq->n_in != 3 ||
        !sb_is_const(g, dq->inputs[0]) || w->rank != 2 ||
        (q->block == 0 && q->axis > 0) ||
        sb_dtype_get(sb_graph_value(g, dq->inputs[0])->type.dtype)->bits < 8)
        return false;
    *out = (table){.g = g,
                   .q = q,
                   .id = q->uses[0].node,
                   .dq = sb_graph_value(g, node->inputs[0])->producer,
                   .indices = node->inputs[1],
                   .in = {dq->inputs[0], dq->inputs[1], dq->inputs[2]}};
    return true;
}

sb_status sb_export_tables(const sb_quant_model *qm, sb_graph *g,
                           int64_t *min_opset)
{
    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        const sb_quantizer *q = &qm->place.quantizers[i];
        table t;

        if (!sb_quantizer_is_constant(qm, q) || !find_table(qm, g, q, &t))
            continue;
        int rank = sb_graph_value(g, t.indices)->type.shape.rank;
        if (rank < 0)
            continue;
        SB_TRY(write_table(&t, rank));
        if (q->axis >= 0 && *min_opset < 21)
            *min_opset = 21;
    }
    return SB_OK;
}
