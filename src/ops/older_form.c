/* Nodes in the form of older opsets.
 *
 * After loading every node has the form of the newest opset.  Most forms mean
 * the same in much older ones (`since` of the descriptor), and some nodes in
 * older ones than their operator in general: a Resize without the attributes of
 * opset 18 is one of opset 13.  Axes of a reduction are an attribute before
 * opset 18; that is how they are written there if they are constant.  And an
 * attribute that an older form does not have is left out if it says what is
 * true without it.  The window of an Attention becomes a mask. */
#include <string.h>

#include "ops/op_registry.h"

enum { REDUCE_AXES_INPUT = 18 }; /* ReduceSum: 13, the lowest that is written */

/* Attributes that came with opset `since`, and what they mean by default. */
static const struct {
    const char *op, *attr;
    int64_t since;
    const char *text; /* NULL: 0 */
} newer[] = {
    {"Reshape", "allowzero", 14, NULL},
    {"Resize", "antialias", 18, NULL},
    {"Resize", "keep_aspect_ratio_policy", 18, "stretch"},
    {"ScatterElements", "reduction", 16, "none"},
    {"ScatterND", "reduction", 16, "none"},
};

/* Does the node have attribute i of the list, with its default? */
static bool older_is_default(const sb_node *node, size_t i)
{
    if (*node->domain || strcmp(node->op, newer[i].op) != 0 ||
        !sb_node_attr(node, newer[i].attr))
        return false;
    return newer[i].text
               ? sb_node_string_is(node, newer[i].attr, newer[i].text, false)
               : sb_node_int(node, newer[i].attr, 1) == 0;
}

/* ---- what a node needs ---------------------------------------------------- */

static int64_t resize_since(const sb_node *node)
{
    if (sb_node_string_is(node, "coordinate_transformation_mode",
                          "half_pixel_symmetric", false))
        return 19;
    return sb_node_attr(node, "axes") || sb_node_int(node, "antialias", 0) ||
                   !sb_node_string_is(node, "keep_aspect_ratio_policy",
                                      "stretch", true)
               ? 18
               : 13;
}

static int64_t pad_since(const sb_node *node)
{
    if (sb_node_string_is(node, "mode", "wrap", false))
        return 19;
    return sb_node_in(node, 3) != SB_NONE ? 18 : 11;
}

static int64_t split_since(const sb_node *node)
{
    return sb_node_attr(node, "num_outputs") ? 18 : 13;
}

static int64_t reshape_since(const sb_node *node)
{
    return sb_node_int(node, "allowzero", 0) ? 14 : 5;
}

static int64_t shape_since(const sb_node *node)
{
    return sb_node_attr(node, "start") || sb_node_attr(node, "end") ? 15 : 1;
}

static int64_t scatter_since(const sb_node *node)
{
    if (sb_node_string_is(node, "reduction", "none", true))
        return 11;
    return sb_node_string_is(node, "reduction", "max", false) ||
                   sb_node_string_is(node, "reduction", "min", false)
               ? 18
               : 16;
}

static const struct {
    const char *op;
    int64_t (*since)(const sb_node *node);
} finer[] = {
    {"Attention", sb_attention_since},
    {"Pad", pad_since},
    {"Reshape", reshape_since},
    {"Resize", resize_since},
    {"ScatterElements", scatter_since},
    {"ScatterND", scatter_since},
    {"Shape", shape_since},
    {"Split", split_since},
};

/* Is it a reduction whose axes can be an attribute? */
static bool older_takes_axes(const sb_graph *g, const sb_node *node)
{
    static const char *const ops[] = {
        "ReduceL1",        "ReduceL2",   "ReduceLogSum",
        "ReduceLogSumExp", "ReduceMax",  "ReduceMin",
        "ReduceMean",      "ReduceProd", "ReduceSumSquare"};
    sb_value_id axes = sb_node_in(node, 1);

    if (*node->domain || sb_node_attr(node, "noop_with_empty_axes"))
        return false;
    for (size_t i = 0; i < SB_COUNT(ops); i++)
        if (strcmp(node->op, ops[i]) == 0)
            return axes == SB_NONE ||
                   (sb_graph_value(g, axes)->is_constant &&
                    sb_tensor_count(&sb_graph_value(g, axes)->constant) > 0);
    return false;
}

int64_t sb_node_since(const sb_graph *graph, const sb_node *node)
{
    const sb_op_def *op = sb_op_of(node);

    if (!op || op->domain)
        return 1;
    for (size_t i = 0; i < SB_COUNT(finer); i++)
        if (strcmp(node->op, finer[i].op) == 0)
            return finer[i].since(node);
    return older_takes_axes(graph, node) ? 11 : op->since;
}

/* ---- what a graph needs --------------------------------------------------- */

/* The node that needs the newest opset, which *least receives. */
static const sb_node *older_newest(const sb_graph *graph, int64_t *least)
{
    const sb_node *found = NULL;
    const sb_graph *body;

    for (sb_node_id id = 0; id < graph->n_nodes; id++) {
        const sb_node *node = sb_graph_node(graph, id);
        int64_t since = sb_node_since(graph, node);

        if (node->dead)
            continue;
        if (since > *least) {
            *least = since;
            found = node;
        }
        for (size_t k = 0; (body = sb_node_body(node, k)) != NULL; k++) {
            const sb_node *inner = older_newest(body, least);
            found = inner ? inner : found;
        }
    }
    return found;
}

int64_t sb_graph_min_opset(const sb_graph *graph)
{
    int64_t least = 1;

    (void)older_newest(graph, &least);
    return least;
}

sb_status sb_graph_check_opset(const sb_graph *graph, int64_t opset)
{
    int64_t least = opset;
    const sb_node *node = older_newest(graph, &least);

    if (!node)
        return SB_OK;
    return sb_fail(graph->ctx, SB_UNSUPPORTED,
                   "opset %lld cannot hold node '%s': %s in this form needs "
                   "opset %lld",
                   (long long)opset,
                   *node->name ? node->name : "without a name", node->op,
                   (long long)least);
}

/* ---- writing -------------------------------------------------------------- */

/* Is it written otherwise in that opset? */
static bool older_differs(const sb_graph *g, const sb_node *node, int64_t opset)
{
    for (size_t i = 0; i < SB_COUNT(newer); i++)
        if (opset < newer[i].since && older_is_default(node, i))
            return true;
    if (sb_attention_wants_mask(node, opset))
        return true;
    return opset < REDUCE_AXES_INPUT && sb_node_in(node, 1) != SB_NONE &&
           older_takes_axes(g, node);
}

bool sb_graph_wants_older(const sb_graph *graph, int64_t opset)
{
    const sb_graph *body;

    for (sb_node_id id = 0; id < graph->n_nodes; id++) {
        const sb_node *node = sb_graph_node(graph, id);

        if (node->dead)
            continue;
        if (older_differs(graph, node, opset))
            return true;
        for (size_t k = 0; (body = sb_node_body(node, k)) != NULL; k++)
            if (sb_graph_wants_older(body, opset))
                return true;
    }
    return false;
}

static sb_status older_set_axes(sb_graph *g, sb_node_id id)
{
    sb_value_id axes = sb_node_in(sb_graph_node(g, id), 1);
    const sb_tensor *t = &sb_graph_value(g, axes)->constant;
    int64_t list[SB_MAX_RANK];
    size_t n = (size_t)sb_tensor_count(t);

    if (n > SB_COUNT(list))
        return sb_fail(g->ctx, SB_BAD_MODEL,
                       "node '%s': %zu axes, want at most %d",
                       sb_graph_node(g, id)->name, n, SB_MAX_RANK);
    for (size_t i = 0; i < n; i++)
        list[i] = sb_tensor_get_i64(t, (int64_t)i);
    SB_TRY(sb_graph_set_attr_ints(g, id, "axes", list, n));
    return sb_graph_set_input(g, id, 1, SB_NONE);
}

static sb_status older_rewrite(sb_graph *g, int64_t opset)
{
    sb_graph *body;

    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        const sb_node *node = sb_graph_node(g, id);

        if (node->dead)
            continue;
        for (size_t i = 0; i < SB_COUNT(newer); i++)
            if (opset < newer[i].since && older_is_default(node, i))
                sb_graph_remove_attr(g, id, newer[i].attr);
        if (sb_attention_wants_mask(sb_graph_node(g, id), opset))
            SB_TRY(sb_attention_use_mask(g, id));
        else if (older_differs(g, sb_graph_node(g, id), opset))
            SB_TRY(older_set_axes(g, id));
        for (size_t k = 0;
             (body = sb_node_body(sb_graph_node(g, id), k)) != NULL; k++)
            SB_TRY(older_rewrite(body, opset));
    }
    return SB_OK;
}

sb_status sb_graph_use_older(sb_graph *graph, int64_t opset)
{
    SB_TRY(older_rewrite(graph, opset));
    (void)sb_graph_remove_dead(graph);
    return SB_OK;
}
