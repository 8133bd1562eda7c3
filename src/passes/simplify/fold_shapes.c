/* Pass "fold_shapes": arithmetic on shapes, done as far as shapes are known.
 *
 * Exporters compute the target of a Reshape at run time: Shape, Gather, Mul,
 * Concat.  Shape inference follows such chains element by element, with
 * symbols for unknown dimensions.  Where all elements came out as numbers, the
 * value becomes a constant.  A Reshape may have symbols left in its target:
 * one that is the input's own dimension at that place is written 0, and one
 * other -1.  The same for Expand, which writes 1 for what it keeps.
 *
 * PyTorch writes expand(-1, n) as Where(Equal(s, -1), 1, s); sizes are never
 * negative, so that is s. */
#include "ops/op_registry.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

static bool content_known(const sb_shape *content)
{
    for (int i = 0; i < content->rank; i++)
        if (!sb_dim_known(content->dim[i]))
            return false;
    return content->rank >= 0;
}

/* A tensor of int32 or int64 with these elements. */
static sb_status make_constant(sb_ctx *ctx, sb_dtype dtype, int rank,
                               const sb_shape *content, sb_tensor *out)
{
    const int64_t dims[] = {content->rank};

    *out = sb_tensor_make(dtype, rank, dims);
    SB_TRY(sb_tensor_alloc(ctx, out));
    sb_convert(SB_DTYPE_I64, content->dim, dtype, out->data,
               (size_t)content->rank);
    return SB_OK;
}

static sb_status fold_known(sb_graph *g, sb_node_id id, const sb_fact *fact,
                            size_t *changes)
{
    sb_tensor t;

    SB_TRY(make_constant(g->ctx, fact->type.dtype, fact->type.shape.rank,
                         &fact->content, &t));
    sb_status status = sb_rewrite_constant(g, id, &t);
    sb_tensor_drop(&t);
    *changes += status == SB_OK;
    return status;
}

static bool all_known(const sb_graph *g, const sb_node *node,
                      const sb_fact *facts)
{
    if (node->n_out != 1 || node->outputs[0] == SB_NONE)
        return false;
    const sb_fact *f = &facts[node->outputs[0]];
    const sb_value *v = sb_graph_value(g, node->outputs[0]);
    if (v->n_uses == 0 && !v->is_output)
        return false;
    /* This is how a constant output looks already. */
    if (sb_node_is(node, "Identity") && v->is_output)
        return false;
    return (f->type.dtype == SB_DTYPE_I64 || f->type.dtype == SB_DTYPE_I32) &&
           content_known(&f->content) &&
           (f->type.shape.rank == 1 ||
            (f->type.shape.rank == 0 && f->content.rank == 1));
}

/* Numbers stay; a symbol becomes 0 or -1.  What the target writes as -1 or 0
 * itself keeps its meaning, so our own -1 must be the only one. */
static bool reshape_target(const sb_shape *x, const sb_shape *content,
                           int64_t *target)
{
    int n_free = 0;

    for (int i = 0; i < content->rank; i++) {
        sb_dim d = content->dim[i];
        if (sb_dim_known(d))
            target[i] = d;
        else if (x->rank > i && sb_dim_same(x->dim[i], d))
            target[i] = 0;
        else
            target[i] = -1;
        n_free += target[i] == -1;
    }
    return content->rank >= 0 && n_free <= 1;
}

static bool expand_target(const sb_shape *x, const sb_shape *content,
                          int64_t *target)
{
    if (x->rank < 0)
        return false;
    for (int i = 0; i < content->rank; i++) {
        int k = i - content->rank + x->rank;
        sb_dim d = content->dim[i];
        if (sb_dim_known(d))
            target[i] = d;
        else if (k >= 0 && sb_dim_same(x->dim[k], d))
            target[i] = 1;
        else
            return false;
    }
    return content->rank >= 0;
}

static sb_status fold_target(sb_graph *g, sb_node_id id, const sb_fact *facts,
                             size_t *changes)
{
    const sb_node *node = sb_graph_node(g, id);
    bool reshape = sb_node_is(node, "Reshape");
    int64_t target[SB_MAX_RANK];
    sb_value_id value;

    if ((!reshape && !sb_node_is(node, "Expand")) || node->n_in != 2 ||
        node->inputs[0] == SB_NONE || node->inputs[1] == SB_NONE ||
        sb_is_const(g, node->inputs[1]) ||
        sb_node_int(node, "allowzero", 0) != 0)
        return SB_OK;
    const sb_shape *x = &facts[node->inputs[0]].type.shape;
    const sb_shape *content = &facts[node->inputs[1]].content;
    if (reshape ? !reshape_target(x, content, target)
                : !expand_target(x, content, target))
        return SB_OK;
    SB_TRY(sb_rewrite_ints(g, "target", target, content->rank, &value));
    SB_TRY(sb_graph_set_input(g, id, 1, value));
    ++*changes;
    return SB_OK;
}

/* Can no element of a equal that of b?  `b` is negative, `a` sizes. */
static bool never_equal(const sb_shape *a, const sb_shape *b)
{
    if (a->rank < 1 || (b->rank != a->rank && b->rank != 1))
        return false;
    for (int i = 0; i < a->rank; i++) {
        sb_dim y = b->dim[b->rank == 1 ? 0 : i], x = a->dim[i];
        bool size = sb_dim_known(x) ? x >= 0 : x != SB_DIM_UNKNOWN;
        if (!size || !sb_dim_known(y) || y >= 0)
            return false;
    }
    return true;
}

static sb_status fold_where(sb_graph *g, sb_node_id id, const sb_fact *facts,
                            size_t *changes)
{
    const sb_node *node = sb_graph_node(g, id);
    bool done = false;

    if (!sb_node_is(node, "Where") || node->n_in != 3 ||
        node->inputs[0] == SB_NONE || node->inputs[2] == SB_NONE)
        return SB_OK;
    const sb_node *equal = sb_graph_producer(g, node->inputs[0]);
    if (!equal || !sb_node_is(equal, "Equal") || equal->n_in != 2 ||
        equal->inputs[0] == SB_NONE || equal->inputs[1] == SB_NONE ||
        !sb_value_same_shape(g, node->inputs[2], node->outputs[0]))
        return SB_OK;
    const sb_shape *a = &facts[equal->inputs[0]].content;
    const sb_shape *b = &facts[equal->inputs[1]].content;
    if (!never_equal(a, b) && !never_equal(b, a))
        return SB_OK;
    SB_TRY(sb_rewrite_forward(g, id, node->inputs[2], &done));
    *changes += done;
    return SB_OK;
}

/* Facts exist for the values that were there before; fold_target adds new
 * ones, but only behind nodes that are not looked at again. */
static sb_status fold_all(sb_graph *g, const sb_fact *facts, size_t *changes)
{
    for (size_t i = 0, n = g->n_nodes; i < n; i++) {
        const sb_node *node = sb_graph_node(g, (sb_node_id)i);
        if (node->dead || !sb_op_of(node))
            continue;
        if (all_known(g, node, facts))
            SB_TRY(fold_known(g, (sb_node_id)i, &facts[node->outputs[0]],
                              changes));
        else if (sb_node_is(node, "Where"))
            SB_TRY(fold_where(g, (sb_node_id)i, facts, changes));
        else
            SB_TRY(fold_target(g, (sb_node_id)i, facts, changes));
    }
    return SB_OK;
}

static sb_status fold_shapes_run(sb_graph *g, size_t *changes)
{
    sb_fact *facts = NULL;

    SB_TRY(sb_graph_infer_facts(g, &facts));
    sb_status status = fold_all(g, facts, changes);
    sb_free(g->ctx, facts);
    return status;
}

const sb_pass_def sb_pass_fold_shapes = {
    .name = "fold_shapes",
    .summary = "compute shape arithmetic as far as shapes are known",
    .run = fold_shapes_run,
};
