/* Pass "fuse_shuffle": the channel shuffle of ShuffleNet becomes one node of
 * the executor's own domain.
 *
 *     r = Reshape(x)                 [N, g, C / g, ...]
 *     t = Transpose(r)               [N, C / g, g, ...]
 *     y = Reshape(t)                 as x      =>  y = ChannelShuffle(x)
 *
 * For running only: the node means nothing to other programs.  It works where
 * the channels of a pixel lie together, which a Reshape of channels does
 * not. */
#include "graph/op.h"
#include "passes/matcher.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

static const sb_pat pattern[] = {
    {"y", "Reshape", .in = {"t", "*"}},
    {"t", "Transpose", .in = {"r"}},
    {"r", "Reshape", .in = {"x", "*"}},
    {0},
};

/* Do dimensions 1 and 2 change places, and no others? */
static bool swaps_groups(const sb_graph *g, const sb_node *node)
{
    int64_t perm[SB_MAX_RANK];
    int rank = sb_node_perm(g, node, perm);

    for (int i = 0; i < rank; i++)
        if (perm[i] != (i == 1 ? 2 : i == 2 ? 1 : i))
            return false;
    return rank >= 3;
}

static bool shuffle_check(const sb_match *m)
{
    const sb_graph *g = m->graph;
    sb_value_id in = sb_match_value(m, "x");
    const sb_shape *x = &sb_graph_value(g, in)->type.shape;
    const sb_shape *r = &sb_graph_value(g, sb_match_value(m, "r"))->type.shape;
    int64_t channels = 0;

    /* The rest of the dimensions follow from the count of elements. */
    return x->rank >= 2 && r->rank >= 3 &&
           swaps_groups(g, sb_graph_node(g, sb_match_node(m, "t"))) &&
           sb_value_same_shape(g, in, sb_match_value(m, "y")) &&
           sb_dim_same(x->dim[0], r->dim[0]) && sb_dim_known(x->dim[1]) &&
           sb_dim_known(r->dim[1]) && sb_dim_known(r->dim[2]) &&
           sb_mul_i64(r->dim[1], r->dim[2], &channels) && channels > 0 &&
           channels == x->dim[1];
}

static sb_status shuffle_rewrite(sb_match *m, bool *done)
{
    sb_graph *g = m->graph;
    const sb_node root = *sb_graph_node(g, m->root);
    sb_value_id x = sb_match_value(m, "x");
    int64_t groups =
        sb_graph_value(g, sb_match_value(m, "r"))->type.shape.dim[1];
    sb_node_id node = SB_NONE;
    sb_node_spec spec = {.op = "ChannelShuffle",
                         .domain = SB_FUSED_DOMAIN,
                         .name = root.name,
                         .module = root.module,
                         .inputs = &x,
                         .n_in = 1,
                         .outputs = root.outputs,
                         .n_out = 1,
                         .position = root.position};

    *done = true;
    sb_graph_remove_node(g, m->root);
    SB_TRY(sb_graph_add_node(g, &spec, &node));
    return sb_graph_set_attr_int(g, node, "groups", groups);
}

static const sb_rule rules[] = {
    {.rows = pattern, .check = shuffle_check, .rewrite = shuffle_rewrite},
};

static sb_status fuse_shuffle_run(sb_graph *graph, size_t *changes)
{
    return sb_rules_run(graph, rules, SB_COUNT(rules), changes);
}

const sb_pass_def sb_pass_fuse_shuffle = {
    .name = "fuse_shuffle",
    .summary = "channel shuffles from Reshape, Transpose (for running)",
    .run = fuse_shuffle_run,
};
