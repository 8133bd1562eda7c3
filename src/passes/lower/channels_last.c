/* Pass "channels_last": where a convolution's result is cut along its channels
 * and transposed, the channels go to the end first.
 *
 *     r = Reshape(x)    [N, C.., S..]   from [N, C, H, W]
 *     y = Transpose(r)  perm
 *     =>
 *     t = Transpose(x)  [N, H, W, C]
 *     r = Reshape(t)    [N, S.., C..]
 *     y = Transpose(r)  the rest of perm, if any is left
 *
 * Detection heads do so.  The executor keeps what convolutions make in
 * channels-last order, where the first two of the new nodes move nothing, and
 * often the third is not needed.  In NCHW order they would cost a copy more,
 * so it is for running, and only behind convolutions. */
#include "graph/op.h"
#include "passes/matcher.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

#include <string.h>

static const sb_pat pattern[] = {
    {"y", "Transpose", .in = {"r"}},
    {"r", "Reshape", .in = {"x", "*"}},
    {0},
};

/* How the dimensions of r come from [N, C, H, W]: images are [0, images),
 * channels [images, channels), places the rest. */
typedef struct parts {
    int images, channels, rank;
} parts;

/* Does the node leave channels-last order as it is? */
static bool keeps_order(const sb_graph *g, const sb_node *node)
{
    static const char *const ops[] = {"Sigmoid", "Mul",  "Add",   "Sub",
                                      "Concat",  "Exp",  "Split", "Slice",
                                      "Softmax", "Clip", "Relu"};

    for (size_t i = 0; i < SB_COUNT(ops); i++)
        if (sb_node_is(node, ops[i]))
            return true;
    if (!sb_node_is(node, "Reshape"))
        return false;
    const sb_shape *x = &sb_graph_value(g, node->inputs[0])->type.shape;
    const sb_shape *y = &sb_graph_value(g, node->outputs[0])->type.shape;
    return x->rank > 2 && y->rank > 2 && sb_dim_same(x->dim[0], y->dim[0]) &&
           sb_dim_same(x->dim[1], y->dim[1]);
}

/* Is this made by a convolution, perhaps with such nodes in between? */
static bool behind_conv(const sb_graph *g, sb_value_id v)
{
    for (int steps = 0; steps < 8 && v != SB_NONE; steps++) {
        const sb_node *node = sb_graph_producer(g, v);
        if (!node)
            return false;
        if (strcmp(node->op, "Conv") == 0 || strcmp(node->op, "FusedConv") == 0)
            return true;
        if (!keeps_order(g, node))
            return false;
        v = sb_node_in(node, 0);
    }
    return false;
}

/* The end of the run of dimensions from `begin` whose product is `want`; -1 if
 * there is none. */
static int run_of(const sb_shape *s, int begin, int64_t want)
{
    int64_t product = 1;
    int i = begin;

    while (i < s->rank && product < want && sb_dim_known(s->dim[i]))
        if (!sb_mul_i64(product, s->dim[i++], &product) || product < 1)
            return -1;
    return product == want ? i : -1;
}

static bool find_parts(const sb_shape *x, const sb_shape *r, parts *p)
{
    p->rank = r->rank;
    if (x->rank < 3 || r->rank < 2 || !sb_dim_known(x->dim[1]))
        return false;
    /* One image may have no dimension of its own. */
    p->images = sb_dim_same(x->dim[0], r->dim[0]) ? 1
                : sb_dim_known(x->dim[0])         ? run_of(r, 0, x->dim[0])
                                                  : -1;
    if (p->images < 0)
        return false;
    p->channels = run_of(r, p->images, x->dim[1]);
    if (p->channels < 0 && x->dim[0] == 1) {
        p->images = 0;
        p->channels = run_of(r, 0, x->dim[1]);
    }
    return p->channels > p->images && p->channels < p->rank;
}

/* Do the places of x and those of r agree, and is there more than one? */
static bool places_fit(const sb_shape *x, const sb_shape *r, const parts *p)
{
    int64_t a = 1, b = 1;
    bool alike = r->rank - p->channels == x->rank - 2, one = true;

    for (int i = 2; i < x->rank; i++) {
        alike = alike && sb_dim_same(x->dim[i], r->dim[p->channels + i - 2]);
        one = one && x->dim[i] == 1;
    }
    if (one)
        return false;
    if (alike)
        return true;
    for (int i = 2; i < x->rank; i++)
        if (!sb_dim_known(x->dim[i]) || !sb_mul_i64(a, x->dim[i], &a))
            return false;
    for (int i = p->channels; i < r->rank; i++)
        if (!sb_dim_known(r->dim[i]) || !sb_mul_i64(b, r->dim[i], &b))
            return false;
    return a == b;
}

/* Where dimension i of r is after the channels have gone to the end. */
static int64_t channels_last_moved(const parts *p, int64_t i)
{
    int64_t n = p->channels - p->images;

    return i < p->images     ? i
           : i < p->channels ? i + p->rank - p->channels
                             : i - n;
}

/* Adds the node that moves the channels of x to the end, which makes it
 * `shape`. */
static sb_status add_first(sb_match *m, sb_value_id x, const sb_shape *shape,
                           sb_value_id *out)
{
    sb_graph *g = m->graph;
    sb_type type = {sb_graph_value(g, x)->type.dtype, *shape};
    int64_t perm[SB_MAX_RANK] = {0};
    sb_node_id node = SB_NONE;

    for (int i = 1; i < shape->rank; i++)
        perm[i] = i == shape->rank - 1 ? 1 : i + 1;
    SB_TRY(sb_rewrite_add(g, m->root, "Transpose", &x, 1, &type, &node));
    *out = sb_graph_node(g, node)->outputs[0];
    return sb_graph_set_attr_ints(g, node, "perm", perm, (size_t)shape->rank);
}

static sb_status last_rewrite(sb_match *m, bool *done)
{
    sb_graph *g = m->graph;
    sb_value_id x = sb_match_value(m, "x"), in[2];
    const sb_shape r = sb_graph_value(g, sb_match_value(m, "r"))->type.shape;
    int64_t perm[SB_MAX_RANK], rest[SB_MAX_RANK], target[SB_MAX_RANK];
    int rank = sb_node_perm(g, sb_graph_node(g, m->root), perm);
    sb_type type = sb_graph_value(g, x)->type;
    sb_shape last = type.shape, cut = {.rank = r.rank};
    bool as_is = true;
    sb_node_id node = SB_NONE;
    parts p;

    if (rank != r.rank || !find_parts(&type.shape, &r, &p) ||
        !places_fit(&type.shape, &r, &p) || !behind_conv(g, x))
        return SB_OK;
    for (int i = 0; i < rank; i++) {
        cut.dim[channels_last_moved(&p, i)] = r.dim[i];
        rest[i] = channels_last_moved(&p, perm[i]);
        as_is = as_is && rest[i] == i;
    }
    for (int i = 1; i < last.rank; i++)
        last.dim[i] = type.shape.dim[i == last.rank - 1 ? 1 : i + 1];
    if (!sb_reshape_target(&last, &cut, target))
        return SB_OK;
    *done = true;
    SB_TRY(add_first(m, x, &last, &in[0]));
    SB_TRY(sb_rewrite_ints(g, "shape", target, rank, &in[1]));
    if (as_is)
        return sb_rewrite_node(g, m->root, "Reshape", in, 2, &node);
    type.shape = cut;
    SB_TRY(sb_rewrite_add(g, m->root, "Reshape", in, 2, &type, &node));
    in[0] = sb_graph_node(g, node)->outputs[0];
    SB_TRY(sb_rewrite_node(g, m->root, "Transpose", in, 1, &node));
    return sb_graph_set_attr_ints(g, node, "perm", rest, (size_t)rank);
}

static const sb_rule rules[] = {
    {.rows = pattern, .rewrite = last_rewrite},
};

static sb_status channels_last_run(sb_graph *graph, size_t *changes)
{
    return sb_rules_run(graph, rules, SB_COUNT(rules), changes);
}

const sb_pass_def sb_pass_channels_last = {
    .name = "channels_last",
    .summary = "channels to the end before they are cut (for running)",
    .run = channels_last_run,
};
