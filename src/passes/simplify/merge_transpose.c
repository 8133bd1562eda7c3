/* Pass "merge_transpose": consecutive Transposes become one; one that only
 * moves dimensions of 1 becomes a Reshape, which copies nothing.
 *
 *     y[i] = t[perm2[i]],  t[i] = x[perm1[i]]   =>   y[i] = x[perm1[perm2[i]]]
 */
#include "passes/matcher.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

static sb_status two_rewrite(sb_match *m, bool *done)
{
    sb_graph *g = m->graph;
    int64_t outer[SB_MAX_RANK], inner[SB_MAX_RANK], perm[SB_MAX_RANK];
    sb_value_id x = sb_match_value(m, "x");
    int rank = sb_node_perm(g, sb_graph_node(g, m->root), outer);
    bool identity = true;
    sb_node_id node;

    if (rank < 0 ||
        rank != sb_node_perm(g, sb_graph_node(g, m->nodes[1]), inner))
        return SB_OK;
    for (int i = 0; i < rank; i++) {
        perm[i] = inner[outer[i]];
        identity = identity && perm[i] == i;
    }
    if (identity) {
        SB_TRY(sb_rewrite_forward(g, m->root, x, done));
        if (*done)
            return SB_OK;
    }
    *done = true;
    SB_TRY(sb_rewrite_node(g, m->root, "Transpose", &x, 1, &node));
    return sb_graph_set_attr_ints(g, node, "perm", perm, (size_t)rank);
}

/* Dimensions other than 1 keep their order. */
static bool moves_only_ones(const sb_shape *x, const int64_t *perm, int rank)
{
    int64_t last = -1;

    for (int i = 0; i < rank; i++) {
        if (x->dim[perm[i]] == 1)
            continue;
        if (perm[i] < last)
            return false;
        last = perm[i];
    }
    return true;
}

static sb_status ones_rewrite(sb_match *m, bool *done)
{
    sb_graph *g = m->graph;
    const sb_node *root = sb_graph_node(g, m->root);
    int64_t perm[SB_MAX_RANK], target[SB_MAX_RANK];
    sb_value_id in[2] = {sb_match_value(m, "x"), SB_NONE};
    const sb_shape *x = &sb_graph_value(g, in[0])->type.shape;
    int rank = sb_node_perm(g, root, perm);
    sb_shape y = {.rank = rank};
    sb_node_id node;

    if (rank < 1 || x->rank != rank || !moves_only_ones(x, perm, rank))
        return SB_OK;
    for (int i = 0; i < rank; i++)
        y.dim[i] = x->dim[perm[i]];
    if (sb_shape_same(x, &y) || !sb_reshape_target(x, &y, target))
        return SB_OK;
    SB_TRY(sb_rewrite_ints(g, "shape", target, rank, &in[1]));
    *done = true;
    return sb_rewrite_node(g, m->root, "Reshape", in, 2, &node);
}

static const sb_pat two_pattern[] = {
    {"y", "Transpose", .in = {"t"}},
    {"t", "Transpose", .in = {"x"}, .shared = true},
    {0},
};

static const sb_pat ones_pattern[] = {
    {"y", "Transpose", .in = {"x"}},
    {0},
};

static const sb_rule rules[] = {
    {.rows = two_pattern, .rewrite = two_rewrite},
    {.rows = ones_pattern, .rewrite = ones_rewrite},
};

static sb_status merge_transpose_run(sb_graph *graph, size_t *changes)
{
    return sb_rules_run(graph, rules, SB_COUNT(rules), changes);
}

const sb_pass_def sb_pass_merge_transpose = {
    .name = "merge_transpose",
    .summary = "merge Transposes; Reshape where nothing moves",
    .run = merge_transpose_run,
};
