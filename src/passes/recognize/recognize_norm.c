/* What the passes share that recognize LayerNormalization and
 * RMSNormalization. */
#include "passes/recognize/recognize_norm.h"

#include <string.h>

#include "passes/rewrite.h"

int sb_norm_axes(const sb_graph *g, const sb_node *reduce)
{
    int64_t axes[SB_MAX_RANK];
    int rank = sb_graph_value(g, reduce->inputs[0])->type.shape.rank;
    int n = sb_const_ints(g, sb_node_in(reduce, 1), axes, SB_MAX_RANK);
    unsigned seen = 0;

    if (n < 1 || sb_node_int(reduce, "keepdims", 1) != 1)
        return -1;
    for (int i = 0; i < n; i++) {
        /* Counted from the end, the last n axes are -1 ... -n. */
        int64_t axis = axes[i];
        if (axis >= 0) {
            if (rank < 0)
                return -1;
            axis -= rank;
        }
        if (axis < -n || axis > -1)
            return -1;
        seen |= 1u << (-axis);
    }
    return seen == ((1u << n) - 1) << 1 ? n : -1;
}

/* The last n dimensions, if they are numbers. */
static bool last_dims(const sb_shape *s, int n, sb_shape *out)
{
    if (s->rank < n || n < 1)
        return false;
    out->rank = n;
    for (int i = 0; i < n; i++) {
        out->dim[i] = s->dim[s->rank - n + i];
        if (!sb_dim_known(out->dim[i]) || out->dim[i] < 1)
            return false;
    }
    return true;
}

bool sb_norm_core_ok(const sb_match *m, int n)
{
    const sb_graph *g = m->graph;
    const sb_type *x = &sb_graph_value(g, sb_match_value(m, "x"))->type;
    sb_value_id y = sb_graph_node(g, m->root)->outputs[0];
    sb_shape dims;
    double eps;

    return sb_dtype_is_float(x->dtype) &&
           sb_const_scalar(g, sb_match_value(m, "eps"), &eps) && eps >= 0 &&
           last_dims(&x->shape, n, &dims) &&
           sb_graph_value(g, y)->type.shape.rank == x->shape.rank;
}

sb_status sb_norm_core(sb_match *m, const char *op, int n, sb_value_id scale,
                       sb_value_id bias)
{
    sb_graph *g = m->graph;
    sb_value_id in[3] = {sb_match_value(m, "x"), scale, bias};
    sb_shape dims;
    double eps = 0;
    sb_node_id node;

    (void)sb_const_scalar(g, sb_match_value(m, "eps"), &eps);
    if (scale == SB_NONE) {
        const sb_type *x = &sb_graph_value(g, in[0])->type;
        sb_dtype dtype = x->dtype;
        (void)last_dims(&x->shape, n, &dims);
        SB_TRY(sb_rewrite_fill(g, "ones", dtype, &dims, 1, &in[1]));
    }
    SB_TRY(sb_rewrite_node(g, m->root, op, in, bias == SB_NONE ? 2 : 3, &node));
    SB_TRY(sb_graph_set_attr_int(g, node, "axis", -n));
    return sb_rewrite_set_float(g, node, "epsilon", (float)eps);
}

int sb_norm_node_axes(const sb_graph *g, const sb_node *norm)
{
    int64_t axis = sb_node_int(norm, "axis", -1);
    int rank = sb_graph_value(g, norm->inputs[0])->type.shape.rank;

    if (axis >= 0)
        axis = rank < 0 ? 0 : axis - rank;
    return axis < 0 && axis >= -SB_MAX_RANK ? (int)-axis : -1;
}

bool sb_norm_fits(const sb_graph *g, const sb_node *norm, sb_value_id value)
{
    const sb_value *v = sb_graph_value(g, value);
    const sb_type *x = &sb_graph_value(g, norm->inputs[0])->type;
    int n = sb_norm_node_axes(g, norm);
    int rank = v->constant.rank;
    sb_shape dims;

    if (!v->is_constant || v->constant.dtype != x->dtype ||
        !last_dims(&x->shape, n, &dims) || rank < n || rank > x->shape.rank)
        return false;
    for (int i = 0; i < rank; i++)
        if (v->constant.dims[i] !=
            (i < rank - n ? 1 : dims.dim[i - (rank - n)]))
            return false;
    return true;
}

sb_status sb_norm_param(sb_graph *g, sb_value_id value, int n, sb_value_id *out)
{
    sb_tensor t = sb_graph_value(g, value)->constant;

    *out = value;
    if (t.rank == n)
        return SB_OK;
    memmove(t.dims, t.dims + t.rank - n, (size_t)n * sizeof t.dims[0]);
    t.rank = n;
    const char *stem = sb_graph_value(g, value)->name;
    SB_TRY(sb_graph_add_value_like(g, stem, out));
    return sb_graph_set_constant(g, *out, &t);
}

sb_status sb_norm_again(sb_match *m, const sb_value_id *in, size_t n_in)
{
    sb_graph *g = m->graph;
    const sb_node norm = *sb_graph_node(g, sb_match_node(m, "n"));
    sb_node_id node;

    SB_TRY(sb_rewrite_node(g, m->root, norm.op, in, n_in, &node));
    for (uint32_t i = 0; i < norm.n_attrs; i++)
        SB_TRY(sb_graph_set_attr(g, node, &norm.attrs[i]));
    return SB_OK;
}

/* ---- scale -------------------------------------------------------------- */

bool sb_norm_scale_check(const sb_match *m)
{
    const sb_graph *g = m->graph;
    const sb_node *norm = sb_graph_node(g, sb_match_node(m, "n"));

    return sb_const_all(g, sb_node_in(norm, 1), 1) &&
           sb_norm_fits(g, norm, sb_node_in(norm, 1)) &&
           sb_norm_fits(g, norm, sb_match_value(m, "g"));
}

sb_status sb_norm_scale_rewrite(sb_match *m, bool *done)
{
    sb_graph *g = m->graph;
    const sb_node *norm = sb_graph_node(g, sb_match_node(m, "n"));
    int n = sb_norm_node_axes(g, norm);
    sb_value_id in[2] = {sb_match_value(m, "x"), SB_NONE};

    SB_TRY(sb_norm_param(g, sb_match_value(m, "g"), n, &in[1]));
    *done = true;
    return sb_norm_again(m, in, 2);
}

/* ---- casts ----------------------------------------------------------------
 * Half precision is normalized in single precision: the operator does so by
 * itself (stash_type). */

bool sb_norm_cast_check(const sb_match *m)
{
    const sb_graph *g = m->graph;
    const sb_node *norm = sb_graph_node(g, sb_match_node(m, "n"));
    const sb_type *x = &sb_graph_value(g, sb_match_value(m, "x"))->type;
    sb_dtype inner = sb_graph_value(g, norm->inputs[0])->type.dtype;
    int64_t to = sb_node_int(sb_graph_node(g, m->root), "to", 0);

    return (x->dtype == SB_DTYPE_F16 || x->dtype == SB_DTYPE_BF16) &&
           inner == SB_DTYPE_F32 && to == (int64_t)x->dtype &&
           sb_node_int(norm, "stash_type", 1) == 1 &&
           sb_const_all(g, sb_node_in(norm, 1), 1) &&
           sb_norm_fits(g, norm, sb_node_in(norm, 1));
}

sb_status sb_norm_cast_rewrite(sb_match *m, bool *done)
{
    sb_graph *g = m->graph;
    const sb_node *norm = sb_graph_node(g, sb_match_node(m, "n"));
    sb_value_id in[2] = {sb_match_value(m, "x"), SB_NONE};
    const sb_type x = sb_graph_value(g, in[0])->type;
    sb_shape dims;

    if (!last_dims(&x.shape, sb_norm_node_axes(g, norm), &dims))
        return SB_OK;
    SB_TRY(sb_rewrite_fill(g, "ones", x.dtype, &dims, 1, &in[1]));
    *done = true;
    return sb_norm_again(m, in, 2);
}
