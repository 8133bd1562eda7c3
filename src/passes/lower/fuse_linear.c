/* Pass "fuse_linear": matrix product with weights, bias, residual sum and
 * activation become one node of the executor's own domain.  Weights are one
 * matrix: a constant, a parameter (a graph input with a default), or computed
 * from one, transposed or rounded, as in training.
 *
 *     y = act(a x w + b + z)
 *
 * MatMul and Gemm (without factors) alike.  For running only: the node means
 * nothing to other programs. */
#include <string.h>

#include "passes/lower/fuse_epilogue.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

/* The product as it is, and what goes into it next. */
typedef struct fusion {
    sb_node_id node, next;
    sb_value_id in[4]; /* a, w, bias, addend */
    bool trans_b;
    sb_fused_act act; /* that it has or takes */
} fusion;

static bool is_fused(const sb_node *node)
{
    return strcmp(node->op, "FusedMatMul") == 0 &&
           strcmp(node->domain, SB_FUSED_DOMAIN) == 0;
}

static bool is_one(float f)
{
    return f >= 1 && f <= 1;
}

/* Elements may change, type and shape do not. */
static bool is_parameter(const sb_graph *g, sb_value_id id)
{
    if (id == SB_NONE)
        return false;
    const sb_value *v = sb_graph_value(g, id);
    return v->is_constant && sb_shape_known(&v->type.shape);
}

/* A parameter with one element for each of `n` columns, all in its last
 * dimension. */
static bool is_bias(const sb_graph *g, sb_value_id v, int64_t n)
{
    if (!sb_is_const(g, v) && !is_parameter(g, v))
        return false;
    const sb_tensor *t = &sb_graph_value(g, v)->constant;
    return t->dtype == SB_DTYPE_F32 && t->rank >= 1 &&
           t->dims[t->rank - 1] == n && sb_tensor_count(t) == n;
}

/* A product of a float matrix (or several) with one matrix. */
static bool find_product(const sb_graph *g, const sb_node *node, fusion *f)
{
    bool gemm = sb_node_is(node, "Gemm");

    if (node->dead || !(gemm || sb_node_is(node, "MatMul") || is_fused(node)))
        return false;
    for (uint32_t i = 0; i < 4; i++)
        f->in[i] = sb_node_in(node, i);
    f->trans_b = sb_node_int(node, "transB", 0) != 0;
    const sb_type *w = &sb_graph_value(g, f->in[1])->type;
    const sb_shape *a = &sb_graph_value(g, f->in[0])->type.shape;
    if (w->dtype != SB_DTYPE_F32 || w->shape.rank != 2 ||
        !sb_shape_known(&w->shape) || a->rank < 2)
        return false;
    if (!gemm)
        return true;
    return !sb_node_int(node, "transA", 0) &&
           is_one(sb_node_float(node, "alpha", 1)) &&
           is_one(sb_node_float(node, "beta", 1)) &&
           (f->in[2] == SB_NONE ||
            is_bias(g, f->in[2], w->shape.dim[f->trans_b ? 0 : 1]));
}

static bool find_fusion(const sb_graph *g, sb_node_id id, fusion *f)
{
    const sb_node *node = sb_graph_node(g, id);

    *f = (fusion){.node = id};
    if (!find_product(g, node, f))
        return false;
    f->next = sb_fused_next(g, node);
    if (f->next == SB_NONE || sb_node_attr(node, "activation"))
        return false;
    const sb_node *next = sb_graph_node(g, f->next);
    if (sb_fused_act_of(g, next, &f->act))
        return true;
    f->act.name = NULL;
    if (f->in[3] != SB_NONE || !sb_node_is(next, "Add"))
        return false;
    sb_value_id y = node->outputs[0];
    sb_value_id other = next->inputs[next->inputs[0] == y ? 1 : 0];
    const sb_shape *w = &sb_graph_value(g, f->in[1])->type.shape;
    const sb_shape *ys = &sb_graph_value(g, y)->type.shape;
    if (f->in[2] == SB_NONE && ys->rank >= 2 &&
        is_bias(g, other, w->dim[f->trans_b ? 0 : 1]) &&
        sb_graph_value(g, other)->constant.rank <= ys->rank) {
        f->in[2] = other;
        return true;
    }
    f->in[3] = sb_fused_addend(g, next, y);
    return f->in[3] != SB_NONE;
}

static sb_status fuse_linear_apply(sb_graph *g, const fusion *f)
{
    size_t n_in = f->in[3] != SB_NONE ? 4 : f->in[2] != SB_NONE ? 3 : 2;
    sb_node_id fresh = SB_NONE;

    SB_TRY(sb_fused_replace(g, f->node, f->next, "FusedMatMul", f->in, n_in,
                            &fresh));
    if (f->trans_b)
        SB_TRY(sb_graph_set_attr_int(g, fresh, "transB", 1));
    if (f->act.name)
        SB_TRY(sb_fused_act_set(g, fresh, &f->act));
    return sb_rewrite_prune(g, f->node);
}

/* New nodes come last, so one walk sees what it made and fuses on. */
static sb_status fuse_linear_run(sb_graph *g, size_t *changes)
{
    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        fusion f;
        if (!find_fusion(g, id, &f))
            continue;
        SB_TRY(fuse_linear_apply(g, &f));
        (*changes)++;
    }
    return SB_OK;
}

const sb_pass_def sb_pass_fuse_linear = {
    .name = "fuse_linear",
    .summary = "product, bias, sum and activation in one (for running)",
    .run = fuse_linear_run,
};
