/* Pass "merge_reshape": of consecutive Reshape, Flatten, Squeeze and Unsqueeze
 * only the last target matters, so the chain becomes one Reshape.
 *
 * The target is the constant of the last Reshape, if it has no 0 (which speaks
 * of the tensor in between), else it is taken from the inferred shape: numbers
 * and at most one symbol that did not keep its place.
 *
 * A Gather of all indices in their order is a Reshape, too: PyTorch writes
 * as_strided so, which stands behind its pools. */
#include "passes/matcher.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

#define RESHAPERS "Reshape|Flatten|Squeeze|Unsqueeze"

/* The constant target of a Reshape that means the same for any input. */
static bool plain_target(const sb_graph *g, const sb_node *node)
{
    int64_t v[SB_MAX_RANK];

    if (!sb_node_is(node, "Reshape") || sb_node_int(node, "allowzero", 0) != 0)
        return false;
    int n = sb_const_ints(g, sb_node_in(node, 1), v, SB_MAX_RANK);
    for (int i = 0; i < n; i++)
        if (v[i] == 0)
            return false;
    return n >= 0;
}

static sb_status chain_rewrite(sb_match *m, bool *done)
{
    sb_graph *g = m->graph;
    const sb_node *root = sb_graph_node(g, m->root);
    const sb_node *inner = sb_graph_node(g, m->nodes[1]);
    sb_value_id in[2] = {sb_node_in(inner, 0), SB_NONE};
    int64_t target[SB_MAX_RANK];
    sb_node_id node;

    if (in[0] == SB_NONE)
        return SB_OK;
    const sb_shape *x = &sb_graph_value(g, in[0])->type.shape;
    const sb_shape *y = &sb_graph_value(g, root->outputs[0])->type.shape;
    if (plain_target(g, root))
        in[1] = root->inputs[1];
    else if (sb_reshape_target(x, y, target))
        SB_TRY(sb_rewrite_ints(g, "shape", target, y->rank, &in[1]));
    else
        return SB_OK;
    *done = true;
    return sb_rewrite_node(g, m->root, "Reshape", in, 2, &node);
}

/* The reshaped tensor is the first input in all of them; other inputs are
 * parameters, which a chain cannot enter through. */
static bool chain_check(const sb_match *m)
{
    const sb_node *root = sb_graph_node(m->graph, m->root);

    return sb_node_in(root, 0) == sb_match_value(m, "r");
}

static const sb_pat chain_pattern[] = {
    {"y", RESHAPERS, .in = {"r"}, .order = SB_PAT_SUBSET},
    {"r", RESHAPERS, .order = SB_PAT_SUBSET, .shared = true},
    {0},
};

/* Does a Gather take an axis as it is? */
static bool gather_check(const sb_match *m)
{
    const sb_graph *g = m->graph;
    const sb_node *node = sb_graph_node(g, m->root);
    const sb_tensor *index = sb_const_of(g, sb_node_in(node, 1));
    const sb_shape *x = &sb_graph_value(g, node->inputs[0])->type.shape;
    int64_t axis = sb_node_int(node, "axis", 0);

    axis += axis < 0 ? x->rank : 0;
    if (!index || axis < 0 || axis >= x->rank ||
        x->dim[axis] != sb_tensor_count(index))
        return false;
    for (int64_t i = 0; i < sb_tensor_count(index); i++)
        if (sb_tensor_get_i64(index, i) != i)
            return false;
    return true;
}

static sb_status gather_rewrite(sb_match *m, bool *done)
{
    sb_graph *g = m->graph;
    const sb_node *root = sb_graph_node(g, m->root);
    sb_value_id in[2] = {sb_node_in(root, 0), SB_NONE};
    const sb_shape *y = &sb_graph_value(g, root->outputs[0])->type.shape;
    int64_t target[SB_MAX_RANK];
    sb_node_id node;

    if (!sb_reshape_target(&sb_graph_value(g, in[0])->type.shape, y, target))
        return SB_OK;
    SB_TRY(sb_rewrite_ints(g, "shape", target, y->rank, &in[1]));
    *done = true;
    return sb_rewrite_node(g, m->root, "Reshape", in, 2, &node);
}

static const sb_pat gather_pattern[] = {
    {"y", "Gather", .order = SB_PAT_SUBSET},
    {0},
};

static const sb_rule rules[] = {
    {.rows = chain_pattern, .check = chain_check, .rewrite = chain_rewrite},
    {.rows = gather_pattern, .check = gather_check, .rewrite = gather_rewrite},
};

static sb_status merge_reshape_run(sb_graph *graph, size_t *changes)
{
    return sb_rules_run(graph, rules, SB_COUNT(rules), changes);
}

const sb_pass_def sb_pass_merge_reshape = {
    .name = "merge_reshape",
    .summary = "merge chains of Reshape, Flatten, Squeeze, Unsqueeze",
    .run = merge_reshape_run,
};
