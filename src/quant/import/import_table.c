/* Embedding tables read back: what export_table.c wrote is turned round again,
 *
 *     DQ(Gather(t, i), Gather(scale, i), Gather(zero, i))  ->  Gather(DQ(t), i)
 *
 * so that the table is a constant behind a DQ like any other. */
#include "ops/op_registry.h"
#include "passes/rewrite.h"
#include "quant/import/import.h"

typedef struct table {
    sb_value_id in[3]; /* integers, scale, zero point: constants */
    sb_value_id indices;
    bool rows;     /* scales were gathered, too */
    int64_t block; /* if so */
} table;

/* The constant of which a Gather takes rows, and by which indices. */
static sb_value_id import_table_gathered(const sb_graph *g, sb_value_id v,
                                         sb_value_id *indices)
{
    const sb_node *node = v == SB_NONE ? NULL : sb_graph_producer(g, v);

    if (!node || sb_node_role(node) != SB_ROLE_TABLE ||
        sb_node_int(node, "axis", 0) != 0 ||
        !sb_is_const(g, sb_node_in(node, 0)))
        return SB_NONE;
    *indices = node->inputs[1];
    return node->inputs[0];
}

static bool find_table(const sb_graph *g, const sb_node *dq, table *t)
{
    sb_value_id by = SB_NONE;

    *t = (table){.in = {SB_NONE, sb_node_in(dq, 1), sb_node_in(dq, 2)},
                 .block = sb_node_int(dq, "block_size", 0)};
    t->in[0] = import_table_gathered(g, sb_node_in(dq, 0), &t->indices);
    if (t->in[0] == SB_NONE || dq->n_in != 3 || t->in[2] == SB_NONE)
        return false;
    const sb_tensor *w = &sb_graph_value(g, t->in[0])->constant;
    if (w->rank != 2 || !sb_dtype_is_integral(w->dtype))
        return false;
    if (sb_is_const(g, t->in[1]) && sb_is_const(g, t->in[2]))
        return sb_tensor_count(&sb_graph_value(g, t->in[1])->constant) == 1;
    t->rows = true;
    for (int i = 1; i < 3; i++) {
        t->in[i] = import_table_gathered(g, t->in[i], &by);
        if (t->in[i] == SB_NONE || by != t->indices ||
            sb_graph_value(g, t->in[i])->constant.rank != 2)
            return false;
    }
    const sb_tensor *scale = &sb_graph_value(g, t->in[1])->constant;
    const sb_tensor *zero = &sb_graph_value(g, t->in[2])->constant;
    for (int i = 0; i < 2; i++)
        if (scale->dims[i] != zero->dims[i])
            return false;
    return t->block > 0;
}

/* [n, 1] scales become [n]. */
static sb_status add_vector(sb_graph *g, sb_value_id *v)
{
    sb_tensor t = sb_graph_value(g, *v)->constant;

    t.rank = 1;
    SB_TRY(sb_graph_add_value_like(g, sb_graph_value(g, *v)->name, v));
    return sb_graph_set_constant(g, *v, &t);
}

static sb_status import_table_turn(sb_graph *g, sb_node_id id, table *t)
{
    const sb_type type = {.dtype = SB_DTYPE_F32, .shape = {.rank = -1}};
    bool whole = t->rows &&
                 sb_graph_value(g, t->in[1])->constant.dims[1] == 1 &&
                 t->block >= sb_graph_value(g, t->in[0])->constant.dims[1];
    sb_node_id dq = SB_NONE, node = SB_NONE;

    for (int i = 1; i < 3 && whole; i++)
        SB_TRY(add_vector(g, &t->in[i]));
    SB_TRY(sb_rewrite_add(g, id, "DequantizeLinear", t->in, 3, &type, &dq));
    SB_TRY(sb_graph_set_attr_int(g, dq, "axis", t->rows && !whole ? 1 : 0));
    if (t->rows && !whole)
        SB_TRY(sb_graph_set_attr_int(g, dq, "block_size", t->block));
    const sb_value_id in[] = {sb_graph_node(g, dq)->outputs[0], t->indices};
    sb_graph_value(g, in[0])->type.shape =
        sb_graph_value(g, t->in[0])->type.shape;
    SB_TRY(sb_rewrite_node(g, id, "Gather", in, 2, &node));
    return sb_graph_set_attr_int(g, node, "axis", 0);
}

sb_status sb_quant_import_tables(sb_graph *g)
{
    bool any = false;

    for (sb_node_id id = 0, n = (sb_node_id)g->n_nodes; id < n; id++) {
        const sb_node *node = sb_graph_node(g, id);
        table t;

        if (node->dead || sb_node_role(node) != SB_ROLE_DEQUANTIZE ||
            !find_table(g, node, &t))
            continue;
        SB_TRY(import_table_turn(g, id, &t));
        any = true;
    }
    if (any)
        (void)sb_graph_remove_dead(g);
    return SB_OK;
}
