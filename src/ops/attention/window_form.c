/* The window of an Attention before opset 25, which has no attribute for it: a
 * mask [n, n] that hides the keys farther back than that,
 *
 *   Trilu(Expand(true, [n, n]), k = -window, upper = 1)
 *
 * beside is_causal, which hides those ahead.  ONNX Runtime (1.31) knows no
 * other form.  Files are read back with the attribute: what puts a cache of
 * keys into a network wants a window, and no mask of fixed form. */
#include <string.h>

#include "ops/op_registry.h"

enum { IN_Q, IN_MASK = 3, N_IN = 7, SINCE_WINDOW = 25, MOST_ATTRS = 10 };

static const char attr_name[] = "left_window_size";

/* Keys are as many as queries, which have one dimension for all heads. */
static bool window_may(const sb_node *node)
{
    if (*node->domain || !sb_node_is(node, "Attention") ||
        sb_node_int(node, "q_num_heads", 0) <= 0 || node->n_out != 1 ||
        node->n_attrs > MOST_ATTRS - 1)
        return false;
    for (uint32_t i = IN_MASK + 1; i < N_IN; i++)
        if (sb_node_in(node, i) != SB_NONE)
            return false;
    return sb_node_int(node, "right_window_size", -1) < 0;
}

int64_t sb_attention_since(const sb_node *node)
{
    bool left = sb_node_int(node, attr_name, -1) >= 0;
    bool right = sb_node_int(node, "right_window_size", -1) >= 0;

    if (right ||
        (left && (!window_may(node) || sb_node_in(node, IN_MASK) != SB_NONE)))
        return SINCE_WINDOW;
    return sb_node_in(node, N_IN - 1) != SB_NONE ? 24 : 23;
}

bool sb_attention_wants_mask(const sb_node *node, int64_t opset)
{
    return opset < SINCE_WINDOW && sb_node_is(node, "Attention") &&
           sb_node_int(node, attr_name, -1) >= 0 &&
           sb_attention_since(node) < SINCE_WINDOW;
}

static sb_status window_node(sb_graph *g, const char *op, const sb_value_id *in,
                             size_t n_in, const sb_attr *attrs, size_t n_attrs,
                             sb_value_id *out)
{
    const sb_node_spec spec = {.op = op,
                               .inputs = in,
                               .n_in = n_in,
                               .outputs = out,
                               .n_out = 1,
                               .attrs = attrs,
                               .n_attrs = n_attrs};
    sb_node_id id = SB_NONE;

    SB_TRY(sb_graph_add_value_like(g, op, out));
    return sb_graph_add_node(g, &spec, &id);
}

/* The same node with a mask, or with the window instead. */
static sb_status window_replace(sb_graph *g, sb_node_id id, sb_value_id mask,
                                int64_t window)
{
    const sb_node old = *sb_graph_node(g, id);
    const sb_value_id in[] = {old.inputs[0], old.inputs[1], old.inputs[2],
                              mask};
    sb_attr attrs[MOST_ATTRS];
    sb_value_id y = SB_NONE;
    sb_node_id fresh = SB_NONE;
    bool done = false;
    size_t n = 0;

    for (uint32_t i = 0; i < old.n_attrs; i++)
        if (strcmp(old.attrs[i].name, attr_name) != 0)
            attrs[n++] = old.attrs[i];
    if (mask == SB_NONE)
        attrs[n++] =
            (sb_attr){.name = attr_name, .type = SB_ATTR_INT, .i = window};
    const sb_node_spec spec = {.op = old.op,
                               .name = old.name,
                               .module = old.module,
                               .inputs = in,
                               .n_in = mask == SB_NONE ? 3 : 4,
                               .outputs = &y,
                               .n_out = 1,
                               .attrs = attrs,
                               .n_attrs = n};
    SB_TRY(sb_graph_add_value_like(g, old.op, &y));
    sb_graph_value(g, y)->type = sb_graph_value(g, old.outputs[0])->type;
    SB_TRY(sb_graph_add_node(g, &spec, &fresh));
    SB_TRY(sb_graph_replace_value(g, old.outputs[0], y, &done));
    if (done)
        sb_graph_remove_node(g, id);
    else
        sb_graph_remove_node(g, fresh);
    return SB_OK;
}

sb_status sb_attention_use_mask(sb_graph *g, sb_node_id id)
{
    const sb_attr ends[] = {{.name = "start", .type = SB_ATTR_INT, .i = 1},
                            {.name = "end", .type = SB_ATTR_INT, .i = 2}};
    const sb_attr axis = {.name = "axis", .type = SB_ATTR_INT, .i = 0};
    const sb_attr upper = {.name = "upper", .type = SB_ATTR_INT, .i = 1};
    const int64_t k = -sb_node_int(sb_graph_node(g, id), attr_name, 0);
    const bool yes = true;
    sb_value_id q = sb_graph_node(g, id)->inputs[IN_Q];
    sb_value_id n = SB_NONE, shape = SB_NONE, all = SB_NONE, mask = SB_NONE;
    sb_value_id c[2];

    SB_TRY(
        sb_graph_add_constant(g, "true", SB_DTYPE_BOOL, 0, NULL, &yes, &c[0]));
    SB_TRY(
        sb_graph_add_constant(g, "window", SB_DTYPE_I64, 0, NULL, &k, &c[1]));
    SB_TRY(window_node(g, "Shape", &q, 1, ends, 2, &n));
    SB_TRY(
        window_node(g, "Concat", (sb_value_id[]){n, n}, 2, &axis, 1, &shape));
    SB_TRY(window_node(g, "Expand", (sb_value_id[]){c[0], shape}, 2, NULL, 0,
                       &all));
    SB_TRY(window_node(g, "Trilu", (sb_value_id[]){all, c[1]}, 2, &upper, 1,
                       &mask));
    return window_replace(g, id, mask, 0);
}

/* ---- reading -------------------------------------------------------------- */

/* The node of this type that makes the value, or NULL. */
static const sb_node *window_maker(const sb_graph *g, sb_value_id v,
                                   const char *op)
{
    const sb_node *node = v == SB_NONE ? NULL : sb_graph_producer(g, v);

    return node && !*node->domain && sb_node_is(node, op) ? node : NULL;
}

/* The single number that a constant is. */
static bool window_constant(const sb_graph *g, sb_value_id v, sb_dtype dtype,
                            int64_t *out)
{
    if (v == SB_NONE || !sb_graph_value(g, v)->is_constant)
        return false;
    const sb_tensor *t = &sb_graph_value(g, v)->constant;
    if (t->dtype != dtype || sb_tensor_count(t) != 1)
        return false;
    *out = sb_tensor_get_i64(t, 0);
    return true;
}

/* The window that the mask of an Attention is, as it is written above. */
static bool window_of_mask(const sb_graph *g, const sb_node *node, int64_t *out)
{
    const sb_node *mask = window_maker(g, sb_node_in(node, IN_MASK), "Trilu");
    const sb_node *all =
        mask ? window_maker(g, sb_node_in(mask, 0), "Expand") : NULL;
    const sb_node *shape =
        all ? window_maker(g, sb_node_in(all, 1), "Concat") : NULL;
    const sb_node *n =
        shape ? window_maker(g, sb_node_in(shape, 0), "Shape") : NULL;
    int64_t k = 1, yes = 0;

    if (!n || shape->n_in != 2 || shape->inputs[0] != shape->inputs[1] ||
        sb_node_in(n, 0) != node->inputs[IN_Q] ||
        sb_node_int(n, "start", 0) != 1 || sb_node_int(n, "end", 0) != 2 ||
        !sb_node_int(mask, "upper", 1) ||
        !window_constant(g, sb_node_in(mask, 1), SB_DTYPE_I64, &k) ||
        !window_constant(g, sb_node_in(all, 0), SB_DTYPE_BOOL, &yes))
        return false;
    *out = -k;
    return yes && k <= 0 && k > INT64_MIN;
}

sb_status sb_graph_find_windows(sb_graph *g)
{
    size_t n_nodes = g->n_nodes;
    bool found = false;

    for (sb_node_id id = 0; id < n_nodes; id++) {
        const sb_node *node = sb_graph_node(g, id);
        int64_t window = -1;

        if (node->dead || !window_may(node) ||
            sb_node_int(node, attr_name, -1) >= 0 ||
            !sb_node_int(node, "is_causal", 0) ||
            !window_of_mask(g, node, &window))
            continue;
        SB_TRY(window_replace(g, id, SB_NONE, window));
        found = true;
    }
    if (found)
        (void)sb_graph_remove_dead(g);
    return SB_OK;
}
