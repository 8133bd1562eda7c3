/* Pass "unbind": a value that is taken apart along an axis, before gradients
 * are added.
 *
 *     before:  a, b, c = Gather(x, 0), Gather(x, 1), Gather(x, 2)
 *     after:   a, b, c = Squeeze of each result of Split(x)
 *
 * The gradient of a Gather is as large as x and nearly all zeros, and three of
 * them are added; that of a Split is one Concat.  Vision transformers take
 * queries, keys and values apart in this way.  Behind it, split_to_slice makes
 * Gathers of the forward part again. */
#include "ops/op_registry.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

enum { UNBIND_MOST = 16 };

typedef struct unbind_parts {
    int axis;
    int64_t n;
    sb_node_id gather[UNBIND_MOST]; /* by index */
} unbind_parts;

/* The place along `axis` that a reader takes, or -1. */
static int64_t unbind_place(const sb_graph *g, const sb_use *use, int rank,
                            int *axis)
{
    const sb_node *node = sb_graph_node(g, use->node);
    double place;

    if (!sb_node_is(node, "Gather") || use->input != 0 ||
        sb_graph_value(g, node->inputs[1])->type.shape.rank != 0 ||
        !sb_const_scalar(g, node->inputs[1], &place))
        return -1;
    int64_t at = sb_node_int(node, "axis", 0);
    *axis = (int)(at < 0 ? at + rank : at);
    int64_t n = *axis >= 0 && *axis < rank
                    ? sb_graph_value(g, node->inputs[0])->type.shape.dim[*axis]
                    : -1;
    if (!sb_dim_known(n) || n > UNBIND_MOST)
        return -1;
    place += place < 0 ? (double)n : 0;
    return place >= 0 && place < (double)n ? (int64_t)place : -1;
}

/* Does every reader take another part, so that none is left? */
static bool unbind_find(const sb_graph *g, sb_value_id v, unbind_parts *p)
{
    const sb_value *value = sb_graph_value(g, v);
    int rank = value->type.shape.rank;

    if (value->is_constant || rank < 2 || value->n_uses < 2 ||
        value->n_uses > UNBIND_MOST)
        return false;
    for (size_t i = 0; i < UNBIND_MOST; i++)
        p->gather[i] = SB_NONE;
    for (uint32_t u = 0; u < value->n_uses; u++) {
        int axis;
        int64_t i = unbind_place(g, &value->uses[u], rank, &axis);
        if (i < 0 || p->gather[i] != SB_NONE || (u > 0 && axis != p->axis))
            return false;
        p->axis = axis;
        p->gather[i] = value->uses[u].node;
    }
    p->n = value->type.shape.dim[p->axis];
    return p->n == (int64_t)value->n_uses;
}

static sb_status unbind_value(sb_graph *g, sb_value_id v, const unbind_parts *p)
{
    const sb_node *first = sb_graph_node(g, p->gather[0]);
    uint64_t position = first->position;
    const int64_t axis = p->axis;
    const sb_attr attrs[] = {
        {.name = "axis", .type = SB_ATTR_INT, .i = p->axis},
        {.name = "num_outputs", .type = SB_ATTR_INT, .i = p->n}};
    sb_node_spec spec = {.op = "Split",
                         .module = first->module,
                         .inputs = &v,
                         .n_in = 1,
                         .n_out = (size_t)p->n,
                         .attrs = attrs,
                         .n_attrs = SB_COUNT(attrs)};
    sb_value_id parts[UNBIND_MOST], axes;
    sb_node_id split, squeeze;

    for (int64_t i = 0; i < p->n; i++) {
        const sb_node *gather = sb_graph_node(g, p->gather[i]);
        position = gather->position < position ? gather->position : position;
        SB_TRY(
            sb_graph_add_value_like(g, sb_graph_value(g, v)->name, &parts[i]));
        sb_type *type = &sb_graph_value(g, parts[i])->type;
        *type = sb_graph_value(g, v)->type;
        type->shape.dim[p->axis] = 1;
    }
    spec.outputs = parts;
    spec.position = position;
    SB_TRY(sb_graph_add_node(g, &spec, &split));
    SB_TRY(sb_rewrite_ints(g, "axes", &axis, 1, &axes));
    for (int64_t i = 0; i < p->n; i++)
        SB_TRY(sb_rewrite_node(g, p->gather[i], "Squeeze",
                               (const sb_value_id[]){parts[i], axes}, 2,
                               &squeeze));
    return SB_OK;
}

static sb_status unbind_run(sb_graph *graph, size_t *changes)
{
    size_t n = graph->n_values;

    for (sb_value_id v = 0; v < n; v++) {
        unbind_parts parts;
        if (!unbind_find(graph, v, &parts))
            continue;
        SB_TRY(unbind_value(graph, v, &parts));
        ++*changes;
    }
    return SB_OK;
}

const sb_pass_def sb_pass_unbind = {
    .name = "unbind",
    .summary = "take a value apart by a Split, for its gradient",
    .run = unbind_run,
};
