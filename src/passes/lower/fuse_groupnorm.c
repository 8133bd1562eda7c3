/* Pass "fuse_groupnorm": GroupNormalization as PyTorch writes it for older
 * opsets becomes one node.
 *
 *     r = Reshape(x)                               [N, groups, ...]
 *     n = InstanceNormalization(r, 1, 0)
 *     b = Reshape(n)                               as x
 *     y = Add(Mul(b, scale), bias)                 one number a channel
 *
 * For running: the Reshape of channels would force a reorder on both sides,
 * and older opsets do not know the operator. */
#include <string.h>

#include "passes/matcher.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

static const sb_pat affine_pattern[] = {
    {"y", "Add", .in = {"m", "$bias"}, .order = SB_PAT_ANY},
    {"m", "Mul", .in = {"b", "$scale"}, .order = SB_PAT_ANY},
    {"b", "Reshape", .in = {"n", "*"}},
    {"n", "InstanceNormalization", .in = {"r", "$one", "$zero"}},
    {"r", "Reshape", .in = {"x", "*"}},
    {0},
};

/* A scale of 1 and a bias of 0 were removed before. */
static const sb_pat bare_pattern[] = {
    {"b", "Reshape", .in = {"n", "*"}},
    {"n", "InstanceNormalization", .in = {"r", "$one", "$zero"}},
    {"r", "Reshape", .in = {"x", "*"}},
    {0},
};

/* Is it a float constant with one element for each channel of x, the second
 * of its dimensions? */
static bool per_channel(const sb_graph *g, sb_value_id v, const sb_shape *x)
{
    const sb_tensor *t = &sb_graph_value(g, v)->constant;
    int at = 1 - (x->rank - t->rank); /* where it has its channels */

    if (t->dtype != SB_DTYPE_F32 || t->rank > x->rank || at < 0)
        return false;
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] != (i == at ? x->dim[1] : 1))
            return false;
    return true;
}

static bool bare_check(const sb_match *m)
{
    const sb_graph *g = m->graph;
    sb_value_id in = sb_match_value(m, "x");
    const sb_type *x = &sb_graph_value(g, in)->type;
    const sb_shape *r = &sb_graph_value(g, sb_match_value(m, "r"))->type.shape;
    const sb_shape *s = &x->shape;

    return x->dtype == SB_DTYPE_F32 && s->rank >= 3 && r->rank >= 3 &&
           sb_dim_known(s->dim[1]) && sb_dim_known(r->dim[1]) &&
           r->dim[1] > 0 && s->dim[1] % r->dim[1] == 0 &&
           sb_dim_same(s->dim[0], r->dim[0]) &&
           sb_value_same_shape(g, in, sb_match_value(m, "b")) &&
           sb_const_all(g, sb_match_value(m, "one"), 1) &&
           sb_const_all(g, sb_match_value(m, "zero"), 0);
}

static bool affine_check(const sb_match *m)
{
    const sb_graph *g = m->graph;
    const sb_shape *x = &sb_graph_value(g, sb_match_value(m, "x"))->type.shape;

    return bare_check(m) && per_channel(g, sb_match_value(m, "scale"), x) &&
           per_channel(g, sb_match_value(m, "bias"), x);
}

/* The same elements with one dimension. */
static sb_status fuse_groupnorm_flat(sb_graph *g, sb_value_id v,
                                     sb_value_id *out)
{
    const sb_tensor *old = &sb_graph_value(g, v)->constant;
    const char *stem = sb_graph_value(g, v)->name;
    int64_t n = sb_tensor_count(old);
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, 1, &n);

    SB_TRY(sb_tensor_alloc(g->ctx, &t));
    memcpy(t.data, old->data, sb_tensor_bytes(&t));
    sb_status status = sb_graph_add_value_like(g, stem, out);
    if (status == SB_OK)
        status = sb_graph_set_constant(g, *out, &t);
    sb_tensor_drop(&t);
    return status;
}

static sb_status fuse_groupnorm_replace(sb_match *m, sb_value_id scale,
                                        sb_value_id bias)
{
    sb_graph *g = m->graph;
    const sb_node *norm = sb_graph_node(g, sb_match_node(m, "n"));
    float epsilon = sb_node_float(norm, "epsilon", 1e-5f);
    int64_t groups =
        sb_graph_value(g, sb_match_value(m, "r"))->type.shape.dim[1];
    sb_value_id in[3] = {sb_match_value(m, "x"), scale, bias};
    sb_node_id node = SB_NONE;

    SB_TRY(sb_rewrite_node(g, m->root, "GroupNormalization", in, 3, &node));
    SB_TRY(sb_graph_set_attr_int(g, node, "num_groups", groups));
    return sb_rewrite_set_float(g, node, "epsilon", epsilon);
}

static sb_status affine_rewrite(sb_match *m, bool *done)
{
    sb_value_id scale = SB_NONE, bias = SB_NONE;

    *done = true;
    SB_TRY(fuse_groupnorm_flat(m->graph, sb_match_value(m, "scale"), &scale));
    SB_TRY(fuse_groupnorm_flat(m->graph, sb_match_value(m, "bias"), &bias));
    return fuse_groupnorm_replace(m, scale, bias);
}

static sb_status bare_rewrite(sb_match *m, bool *done)
{
    sb_graph *g = m->graph;
    const sb_value *b = sb_graph_value(g, sb_match_value(m, "b"));
    sb_shape shape = {
        .rank = 1,
        .dim = {sb_graph_value(g, sb_match_value(m, "x"))->type.shape.dim[1]}};
    sb_value_id scale = SB_NONE, bias = SB_NONE;

    /* Left to the other rule, which comes to it by the Add. */
    if (b->n_uses == 1 && sb_node_is(sb_graph_node(g, b->uses[0].node), "Mul"))
        return SB_OK;
    *done = true;
    SB_TRY(sb_rewrite_fill(g, "scale", SB_DTYPE_F32, &shape, 1, &scale));
    SB_TRY(sb_rewrite_fill(g, "bias", SB_DTYPE_F32, &shape, 0, &bias));
    return fuse_groupnorm_replace(m, scale, bias);
}

static const sb_rule rules[] = {
    {.rows = affine_pattern, .check = affine_check, .rewrite = affine_rewrite},
    {.rows = bare_pattern, .check = bare_check, .rewrite = bare_rewrite},
};

static sb_status fuse_groupnorm_run(sb_graph *graph, size_t *changes)
{
    return sb_rules_run(graph, rules, SB_COUNT(rules), changes);
}

const sb_pass_def sb_pass_fuse_groupnorm = {
    .name = "fuse_groupnorm",
    .summary = "GroupNormalization from its older form (for running)",
    .run = fuse_groupnorm_run,
};
