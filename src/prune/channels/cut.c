/* Taking channels out of a graph.
 *
 * Nodes restate their sizes first, while shapes are those from before; then
 * constants lose their indices, shapes are inferred anew, and must be what is
 * left of the old ones. */
#include <string.h>

#include "ops/op_registry.h"
#include "prune/channels/channels.h"

/* Elements of less than a byte into `out`, which is zeroed. */
static void cut_packed(const sb_tensor *x, int axis, const uint8_t *gone,
                       sb_tensor *out)
{
    int64_t inner = sb_dims_product(x->dims, axis + 1, x->rank), to = 0;
    int bits = sb_dtype_bits(x->dtype), per = bits ? 8 / bits : 0;
    unsigned mask = (1u << bits) - 1;
    const uint8_t *from = x->data;
    uint8_t *data = out->data;

    for (int64_t i = 0; per && i < sb_tensor_count(x); i++) {
        if (gone[i / inner % x->dims[axis]])
            continue;
        unsigned v = from[i / per] >> (int)(i % per) * bits & mask;
        data[to / per] |= (uint8_t)(v << (int)(to % per) * bits);
        to++;
    }
}

/* The tensor without the indices of one axis that are gone. */
static sb_status cut_axis(sb_ctx *ctx, const sb_tensor *x, int axis,
                          const uint8_t *gone, sb_tensor *out)
{
    size_t inner = (size_t)sb_dims_product(x->dims, axis + 1, x->rank) *
                   sb_dtype_size(x->dtype);
    int64_t outer = sb_dims_product(x->dims, 0, axis), n = x->dims[axis];
    int64_t dims[SB_MAX_RANK], left = 0;

    for (int64_t i = 0; i < n; i++)
        left += !gone[i];
    memcpy(dims, x->dims, sizeof dims);
    dims[axis] = left;
    *out = sb_tensor_make(x->dtype, x->rank, dims);
    SB_TRY(sb_tensor_alloc(ctx, out));
    if (sb_dtype_size(x->dtype) == 0) {
        cut_packed(x, axis, gone, out);
        return SB_OK;
    }
    const char *from = x->data;
    char *to = out->data;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < n; i++, from += inner)
            if (!gone[i]) {
                memcpy(to, from, inner);
                to += inner;
            }
    return SB_OK;
}

static sb_status cut_constant(const sb_cut *c, sb_value_id v)
{
    sb_graph *g = c->graph;
    sb_tensor now = sb_tensor_share(&sb_graph_value(g, v)->constant);
    sb_status status = SB_OK;
    bool cut = false;

    for (int a = 0; a < now.rank && status == SB_OK; a++) {
        const uint8_t *gone = sb_cut_gone(c, v, a);
        sb_tensor less;
        if (!gone || !memchr(gone, 1, (size_t)now.dims[a]))
            continue;
        status = cut_axis(g->ctx, &now, a, gone, &less);
        if (status != SB_OK)
            break;
        sb_tensor_drop(&now);
        now = less;
        cut = true;
    }
    if (status == SB_OK && cut)
        status = sb_graph_set_constant(g, v, &now);
    sb_tensor_drop(&now);
    return status;
}

/* Types of results as the cut leaves them. */
static void cut_types(const sb_cut *c, sb_shape *want, size_t n_values)
{
    for (sb_value_id v = 0; v < n_values; v++) {
        sb_value *value = sb_graph_value(c->graph, v);
        want[v] = value->type.shape;
        for (int a = 0; a < want[v].rank; a++)
            want[v].dim[a] = sb_cut_size(c, v, a);
        if (!value->is_input && !value->is_constant)
            value->type.shape = want[v];
        if (value->producer != SB_NONE && !value->is_output)
            value->type.shape.rank = -1;
    }
}

/* The shape of every value, inferred from what is there now, must be the one
 * that the cut left. */
static sb_status cut_check(const sb_graph *g, const sb_shape *want, size_t n)
{
    for (sb_value_id v = 0; v < n; v++) {
        const sb_value *value = sb_graph_value(g, v);
        if (value->producer == SB_NONE || value->type.shape.rank < 0)
            continue;
        const sb_shape *s = &value->type.shape;
        bool same = s->rank == want[v].rank;
        for (int a = 0; same && a < s->rank; a++)
            same = !sb_dim_known(s->dim[a]) || !sb_dim_known(want[v].dim[a]) ||
                   s->dim[a] == want[v].dim[a];
        if (!same) {
            const sb_node *node = sb_graph_node(g, value->producer);
            return sb_fail(g->ctx, SB_UNSUPPORTED,
                           "node '%s' (%s): its result '%s' does not have the "
                           "shape that the cut should leave; exclude its layer",
                           sb_node_label(g, node), node->op, value->name);
        }
    }
    return SB_OK;
}

static sb_status cut_nodes(sb_cut *c)
{
    size_t n = c->graph->n_nodes;

    for (sb_node_id id = 0; id < n; id++) {
        const sb_node node = *sb_graph_node(c->graph, id);
        if (node.dead)
            continue;
        c->id = id;
        c->node = &node;
        c->op = sb_op_of(&node);
        if (c->op && c->op->recut)
            SB_TRY(c->op->recut(c));
    }
    return SB_OK;
}

static sb_status cut_graph(sb_cut *c, sb_shape *want, size_t n_values)
{
    SB_TRY(cut_nodes(c));
    cut_types(c, want, n_values);
    for (sb_value_id v = 0; v < n_values; v++)
        if (sb_is_const(c->graph, v))
            SB_TRY(cut_constant(c, v));
    SB_TRY(sb_graph_infer(c->graph));
    SB_TRY(cut_check(c->graph, want, n_values));
    return sb_graph_verify(c->graph);
}

sb_status sb_channels_cut(const sb_channels *ch, const uint8_t *gone,
                          sb_graph *g)
{
    sb_ctx *ctx = ch->graph->ctx;
    size_t n_values = ch->graph->n_values;
    uint8_t *atoms = sb_alloc(ctx, ch->atoms.n, 1);
    sb_shape *want = sb_alloc(ctx, n_values, sizeof *want);
    sb_status status = atoms && want ? SB_OK : SB_NO_MEMORY;

    if (status == SB_OK) {
        sb_cut c = {.graph = g, .atoms = &ch->atoms, .gone = atoms};
        for (size_t i = 0; i < ch->atoms.n; i++)
            atoms[i] = ch->channel_of[i] != SB_NONE && gone[ch->channel_of[i]];
        status = cut_graph(&c, want, n_values);
    }
    sb_free(ctx, atoms);
    sb_free(ctx, want);
    return status;
}
