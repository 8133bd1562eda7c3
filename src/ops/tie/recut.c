/* Restating, after a cut, what nodes say about sizes (tie.h). */
#include <string.h>

#include "ops/op_registry.h"
#include "ops/tie/tie.h"
#include "ops/tie/tie_rules.h"

/* ---- what is left ---------------------------------------------------------- */

static const sb_shape *cut_shape(const sb_cut *c, sb_value_id value)
{
    return &sb_graph_value(c->graph, value)->type.shape;
}

const uint8_t *sb_cut_gone(const sb_cut *c, sb_value_id value, int axis)
{
    uint32_t first =
        c->atoms->first[(size_t)value * SB_MAX_RANK + (size_t)axis];

    return first == SB_NONE ? NULL : c->gone + first;
}

int64_t sb_cut_left(const sb_cut *c, sb_value_id value, int axis, int64_t from,
                    int64_t to)
{
    const uint8_t *gone = sb_cut_gone(c, value, axis);
    int64_t left = to - from;

    for (int64_t i = from; gone && i < to; i++)
        left -= gone[i];
    return left;
}

sb_dim sb_cut_size(const sb_cut *c, sb_value_id value, int axis)
{
    sb_dim d = cut_shape(c, value)->dim[axis];

    return sb_dim_known(d) ? sb_cut_left(c, value, axis, 0, d) : d;
}

bool sb_cut_touches(const sb_cut *c, sb_value_id value)
{
    const sb_shape *s = cut_shape(c, value);

    for (int a = 0; a < s->rank; a++)
        if (!sb_dim_same(sb_cut_size(c, value, a), s->dim[a]) &&
            sb_dim_known(s->dim[a]))
            return true;
    return false;
}

sb_status sb_cut_set_ints(sb_cut *c, uint32_t input, const int64_t *v,
                          int64_t n)
{
    sb_value_id old = sb_node_in(c->node, input), fresh = SB_NONE;
    sb_dtype dtype = sb_graph_value(c->graph, old)->type.dtype;
    int32_t narrow[SB_MAX_RANK * 2];
    int rank = cut_shape(c, old)->rank;

    if (dtype == SB_DTYPE_I32 && n <= (int64_t)SB_COUNT(narrow)) {
        for (int64_t i = 0; i < n; i++)
            narrow[i] = (int32_t)v[i];
    } else {
        dtype = SB_DTYPE_I64;
    }
    SB_TRY(sb_graph_add_constant(
        c->graph, sb_graph_value(c->graph, old)->name, dtype, rank == 0 ? 0 : 1,
        &n, dtype == SB_DTYPE_I32 ? (const void *)narrow : v, &fresh));
    return sb_graph_set_input(c->graph, c->id, input, fresh);
}

/* The integers of a constant input, at most `max`; -1: there are none. */
static int64_t cut_ints(const sb_cut *c, uint32_t input, int64_t *v,
                        int64_t max)
{
    const sb_ties t = {.graph = c->graph, .node = c->node};

    return sb_tie_ints(&t, input, v, max);
}

/* ---- attributes ------------------------------------------------------------ */

/* The group is what is left of the channels, by those that a group has. */
static sb_status cut_group(sb_cut *c, sb_value_id channels, sb_value_id w)
{
    int64_t group = sb_op_int(c->op, c->node, "group");
    sb_dim all = sb_cut_size(c, channels, 1), per = sb_cut_size(c, w, 1);

    if (group <= 1 || !sb_dim_known(all) || per < 1 || all / per == group)
        return SB_OK;
    return sb_graph_set_attr_int(c->graph, c->id, "group", all / per);
}

sb_status sb_recut_conv(sb_cut *c)
{
    return cut_group(c, c->node->inputs[0], c->node->inputs[1]);
}

sb_status sb_recut_conv_transpose(sb_cut *c)
{
    return cut_group(c, c->node->outputs[0], c->node->inputs[1]);
}

/* Whole groups went if none is in part. */
sb_status sb_recut_group_norm(sb_cut *c)
{
    sb_value_id x = c->node->inputs[0];
    int64_t groups = sb_op_int(c->op, c->node, "num_groups"), whole = 0;
    sb_dim size = cut_shape(c, x)->dim[1];

    if (!sb_dim_known(size) || groups < 1 || size % groups != 0)
        return SB_OK;
    for (int64_t g = 0, per = size / groups; g < groups; g++) {
        int64_t left = sb_cut_left(c, x, 1, g * per, (g + 1) * per);
        if (left != 0 && left != per)
            return SB_OK;
        whole += left == per;
    }
    return sb_graph_set_attr_int(c->graph, c->id, "num_groups", whole);
}

/* Heads keep their size, so there are as many fewer as elements. */
static sb_status cut_heads(sb_cut *c, const char *name, sb_value_id x)
{
    const sb_shape *s = cut_shape(c, x);
    int64_t heads = sb_op_int(c->op, c->node, name);
    int axis = s->rank - 1;

    if (s->rank != 3 || !sb_node_attr(c->node, name) || heads < 1 ||
        !sb_dim_known(s->dim[axis]) || s->dim[axis] < heads)
        return SB_OK;
    return sb_graph_set_attr_int(c->graph, c->id, name,
                                 sb_cut_size(c, x, axis) /
                                     (s->dim[axis] / heads));
}

/* Queries come first, then keys; of MS Attention the result is as wide as the
 * queries are. */
sb_status sb_recut_heads(sb_cut *c)
{
    SB_TRY(cut_heads(c, "q_num_heads", c->node->inputs[0]));
    SB_TRY(cut_heads(c, "kv_num_heads", c->node->inputs[1]));
    return cut_heads(c, "num_heads", c->node->outputs[0]);
}

/* ---- inputs ---------------------------------------------------------------- */

/* A node without sizes, which cuts in equal parts, is written anew. */
static sb_status split_give_sizes(sb_cut *c, sb_value_id sizes)
{
    const sb_node *n = c->node;

    sb_graph_remove_attr(c->graph, c->id, "num_outputs");
    if (n->n_in > 1)
        return sb_graph_set_input(c->graph, c->id, 1, sizes);
    const sb_node *now = sb_graph_node(c->graph, c->id);
    const sb_value_id in[] = {n->inputs[0], sizes};
    const sb_node_spec spec = {
        .op = n->op,
        .domain = n->domain,
        .name = n->name,
        .module = n->module,
        .inputs = in,
        .n_in = 2,
        .outputs = sb_arena_copy(c->graph->arena, n->outputs,
                                 n->n_out * sizeof *n->outputs),
        .n_out = n->n_out,
        .attrs = now->attrs,
        .n_attrs = now->n_attrs,
        .position = n->position,
    };
    sb_node_id id = SB_NONE;
    if (!spec.outputs)
        return SB_NO_MEMORY;
    sb_graph_remove_node(c->graph, c->id);
    return sb_graph_add_node(c->graph, &spec, &id);
}

sb_status sb_recut_split(sb_cut *c)
{
    sb_value_id x = c->node->inputs[0], given = SB_NONE;
    int axis = (int)sb_op_int(c->op, c->node, "axis");
    uint32_t n = c->node->n_out;

    axis += axis < 0 ? cut_shape(c, x)->rank : 0;
    if (!sb_cut_touches(c, x))
        return SB_OK;
    int64_t *sizes = sb_alloc(c->graph->ctx, n, sizeof *sizes);
    if (!sizes)
        return SB_NO_MEMORY;
    for (uint32_t j = 0; j < n; j++)
        sizes[j] = sb_cut_size(c, c->node->outputs[j], axis);
    sb_status status =
        sb_graph_add_constant(c->graph, "split", SB_DTYPE_I64, 1,
                              (const int64_t[]){n}, sizes, &given);
    sb_free(c->graph->ctx, sizes);
    SB_TRY(status);
    return split_give_sizes(c, given);
}

sb_status sb_recut_slice(sb_cut *c)
{
    sb_value_id x = c->node->inputs[0], y = c->node->outputs[0];
    const sb_shape *s = cut_shape(c, x);
    int64_t starts[SB_MAX_RANK], ends[SB_MAX_RANK], axes[SB_MAX_RANK];
    int64_t n = cut_ints(c, 1, starts, SB_MAX_RANK);

    if (!sb_cut_touches(c, x) && !sb_cut_touches(c, y))
        return SB_OK;
    if (n < 0 || cut_ints(c, 2, ends, SB_MAX_RANK) != n)
        return SB_OK;
    bool named = cut_ints(c, 3, axes, SB_MAX_RANK) == n;
    for (int64_t i = 0; i < n; i++) {
        int a = (int)(named ? axes[i] : i);
        a += a < 0 ? s->rank : 0;
        sb_dim d = s->dim[a];
        if (!sb_dim_known(d) || sb_cut_size(c, x, a) == d)
            continue;
        int64_t from = starts[i] < 0 ? starts[i] + d : starts[i];
        from = from < 0 ? 0 : from > d ? d : from;
        starts[i] = sb_cut_left(c, x, a, 0, from);
        ends[i] = starts[i] + sb_cut_size(c, y, a);
    }
    SB_TRY(sb_cut_set_ints(c, 1, starts, n));
    return sb_cut_set_ints(c, 2, ends, n);
}

sb_status sb_recut_pad(sb_cut *c)
{
    sb_value_id x = c->node->inputs[0], y = c->node->outputs[0];
    const sb_shape *s = cut_shape(c, x), *o = cut_shape(c, y);
    int64_t pads[2 * SB_MAX_RANK];
    int rank = s->rank;

    if ((!sb_cut_touches(c, x) && !sb_cut_touches(c, y)) ||
        cut_ints(c, 1, pads, 2 * SB_MAX_RANK) != 2 * rank)
        return SB_OK;
    for (int a = 0; a < rank; a++) {
        int64_t *begin = &pads[a], *end = &pads[a + rank];
        if (!sb_dim_known(s->dim[a]) || !sb_dim_known(o->dim[a]))
            continue;
        int64_t old = *begin;
        /* What is taken away instead of added counts in x. */
        *begin = old >= 0 ? sb_cut_left(c, y, a, 0, old)
                          : -sb_cut_left(c, x, a, 0, -old);
        *end = *end >= 0 ? sb_cut_left(c, y, a, o->dim[a] - *end, o->dim[a])
                         : -sb_cut_left(c, x, a, s->dim[a] + *end, s->dim[a]);
    }
    return sb_cut_set_ints(c, 1, pads, 2 * (int64_t)rank);
}

/* Indices that are left, renumbered. */
sb_status sb_recut_gather(sb_cut *c)
{
    sb_value_id x = c->node->inputs[0], y = c->node->outputs[0];
    const sb_tensor *index = sb_const_of(c->graph, c->node->inputs[1]);
    int axis = (int)sb_op_int(c->op, c->node, "axis");

    axis += axis < 0 ? cut_shape(c, x)->rank : 0;
    sb_dim d = cut_shape(c, x)->dim[axis];
    if (!index || index->rank != 1 || !sb_dim_known(d) ||
        (sb_cut_size(c, x, axis) == d && !sb_cut_touches(c, y)))
        return SB_OK;
    const uint8_t *gone = sb_cut_gone(c, y, axis);
    int64_t n = 0, *v = sb_alloc(c->graph->ctx, (size_t)sb_tensor_count(index),
                                 sizeof *v);
    if (!v)
        return SB_NO_MEMORY;
    for (int64_t i = 0; i < sb_tensor_count(index); i++) {
        int64_t at = sb_tensor_get_i64(index, i);
        if (!gone || !gone[i])
            v[n++] = sb_cut_left(c, x, axis, 0, at < 0 ? at + d : at);
    }
    sb_status status = sb_cut_set_ints(c, 1, v, n);
    sb_free(c->graph->ctx, v);
    return status;
}

/* What the target says of axes whose size is known; -1 and 1, which in Expand
 * stands for the size of the input, stay. */
static void cut_sizes(const sb_cut *c, int64_t *target, int64_t n, int64_t skip)
{
    sb_value_id y = c->node->outputs[0];

    for (int64_t i = 0; i < n; i++)
        if (target[i] != -1 && target[i] != 1 && i + skip >= 0 &&
            sb_dim_known(cut_shape(c, y)->dim[i + skip]))
            target[i] = sb_cut_size(c, y, (int)(i + skip));
}

/* The same Concat with constants restated, for this node alone: others may join
 * sizes of values that are cut in another way. */
static sb_status cut_joined(sb_cut *c, uint32_t input, int64_t skip)
{
    sb_graph *g = c->graph;
    sb_value_id old = sb_node_in(c->node, input), fresh = SB_NONE;
    sb_value_id y = c->node->outputs[0], parts[SB_MAX_RANK];
    const sb_node *concat = sb_target_concat(g, old);

    if (!concat || concat->n_in > SB_MAX_RANK)
        return SB_OK;
    const uint32_t n_in = concat->n_in;
    memcpy(parts, concat->inputs, n_in * sizeof *parts);
    for (uint32_t i = 0; i < n_in; i++) {
        const sb_tensor *t = sb_const_of(g, parts[i]);
        const sb_shape *s = cut_shape(c, parts[i]);
        sb_dim n = s->dim[0];
        int64_t v[SB_MAX_RANK];
        if (s->rank != 1 || !sb_dim_known(n) ||
            skip + n > cut_shape(c, y)->rank)
            break; /* what is behind it is fixed */
        if (t) {
            for (int64_t k = 0; k < n; k++)
                v[k] = sb_tensor_get_i64(t, k);
            cut_sizes(c, v, n, skip);
            SB_TRY(sb_graph_add_constant(g, sb_graph_value(g, parts[i])->name,
                                         SB_DTYPE_I64, 1, &n, v, &parts[i]));
        }
        skip += n;
    }
    SB_TRY(sb_graph_add_value_like(g, sb_graph_value(g, old)->name, &fresh));
    const sb_attr axis = {.name = "axis", .type = SB_ATTR_INT, .i = 0};
    SB_TRY(sb_graph_add_node(g,
                             &(sb_node_spec){.op = "Concat",
                                             .inputs = parts,
                                             .n_in = n_in,
                                             .outputs = &fresh,
                                             .n_out = 1,
                                             .attrs = &axis,
                                             .n_attrs = 1},
                             NULL));
    SB_TRY(sb_graph_set_input(g, c->id, input, fresh));
    if (sb_graph_value(g, old)->n_uses == 0 &&
        !sb_graph_value(g, old)->is_output)
        sb_graph_remove_node(g, sb_graph_value(g, old)->producer);
    return SB_OK;
}

static sb_status cut_target(sb_cut *c, uint32_t input, int skip)
{
    int64_t target[SB_MAX_RANK];
    int64_t n = cut_ints(c, input, target, SB_MAX_RANK);

    if (!sb_cut_touches(c, c->node->outputs[0]))
        return SB_OK;
    if (n < 0)
        return cut_joined(c, input, skip);
    cut_sizes(c, target, n, skip);
    return sb_cut_set_ints(c, input, target, n);
}

sb_status sb_recut_reshape(sb_cut *c)
{
    return cut_target(c, 1, 0);
}

sb_status sb_recut_expand(sb_cut *c)
{
    sb_dim n = cut_shape(c, c->node->inputs[1])->dim[0];

    return cut_target(c, 1, cut_shape(c, c->node->outputs[0])->rank - (int)n);
}

sb_status sb_recut_resize(sb_cut *c)
{
    enum { SIZES = 3 };
    sb_value_id y = c->node->outputs[0];
    const sb_attr *axes = sb_node_attr(c->node, "axes");
    int rank = cut_shape(c, y)->rank;
    int64_t sizes[SB_MAX_RANK];

    if (sb_node_in(c->node, SIZES) == SB_NONE || !sb_cut_touches(c, y))
        return SB_OK;
    int64_t n = cut_ints(c, SIZES, sizes, SB_MAX_RANK);
    for (int64_t i = 0; i < n; i++) {
        int64_t a = axes && i < (int64_t)axes->n ? axes->ints[i] : i;
        a += a < 0 ? rank : 0;
        if (a >= 0 && a < rank && sb_dim_known(cut_shape(c, y)->dim[a]))
            sizes[i] = sb_cut_size(c, y, (int)a);
    }
    return n < 0 ? SB_OK : sb_cut_set_ints(c, SIZES, sizes, n);
}
