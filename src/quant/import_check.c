/* Q and DQ nodes of a file, looked at before they are believed: as many zero
 * points as scales, as many scales as the value has channels or blocks, and
 * types that go together.  Only constants and dimensions that are known can be
 * checked here; the rest is left to the operators when they run. */
#include <math.h>

#include "passes/rewrite.h"
#include "quant/import.h"

typedef struct linear_node {
    const sb_graph *g;
    const sb_node *node;
    const sb_value *x; /* what is quantized or dequantized */
    const sb_tensor *scale;
    const sb_tensor *zero; /* may be NULL */
    int64_t block;
} linear_node;

static const sb_tensor *constant_in(const sb_graph *g, const sb_node *node,
                                    uint32_t i)
{
    sb_value_id v = sb_node_in(node, i);

    return v != SB_NONE && sb_is_const(g, v) ? &sb_graph_value(g, v)->constant
                                             : NULL;
}

static const char *label(const linear_node *l)
{
    return sb_node_label(l->g, l->node);
}

static sb_status check_types(const linear_node *l)
{
    sb_dtype ints = l->x->type.dtype;

    if (!sb_dtype_is_float(l->scale->dtype))
        return sb_fail(l->g->ctx, SB_BAD_MODEL,
                       "node '%s': scale has type %s, want a float type",
                       label(l), sb_dtype_name(l->scale->dtype));
    if (l->zero && sb_node_is(l->node, "DequantizeLinear") &&
        ints != SB_DTYPE_NONE && ints != l->zero->dtype)
        return sb_fail(l->g->ctx, SB_BAD_MODEL,
                       "node '%s': zero point has type %s, the integers %s",
                       label(l), sb_dtype_name(l->zero->dtype),
                       sb_dtype_name(ints));
    return SB_OK;
}

static sb_status check_scales(const linear_node *l)
{
    int64_t n = sb_tensor_count(l->scale);

    if (n == 0)
        return sb_fail(l->g->ctx, SB_BAD_MODEL,
                       "node '%s': scale has no elements", label(l));
    if (l->zero && sb_tensor_count(l->zero) != n)
        return sb_fail(l->g->ctx, SB_BAD_MODEL,
                       "node '%s': zero point has %lld elements, scale %lld",
                       label(l), (long long)sb_tensor_count(l->zero),
                       (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(sb_tensor_get_f64(l->scale, i)))
            return sb_fail(l->g->ctx, SB_BAD_MODEL,
                           "node '%s': scale %lld is %g, want a finite number",
                           label(l), (long long)i,
                           sb_tensor_get_f64(l->scale, i));
    return SB_OK;
}

/* How many scales there must be along dimension `d`; -1 if that is not
 * known. */
static int64_t scales_along(const linear_node *l, int d, int axis)
{
    int64_t n = l->x->type.shape.dim[d];

    if (!sb_dim_known(n))
        return -1;
    return d == axis && l->block > 0 ? n / l->block + (n % l->block != 0) : n;
}

static sb_status check_blocks(const linear_node *l, int axis)
{
    int rank = l->x->type.shape.rank;

    if (l->scale->rank != rank)
        return sb_fail(l->g->ctx, SB_BAD_MODEL,
                       "node '%s': scale of blocks has rank %d, want %d",
                       label(l), l->scale->rank, rank);
    for (int d = 0; d < rank; d++) {
        int64_t want = scales_along(l, d, axis);

        if (want >= 0 && l->scale->dims[d] != want)
            return sb_fail(l->g->ctx, SB_BAD_MODEL,
                           "node '%s': scale has %lld elements along dimension "
                           "%d, want %lld",
                           label(l), (long long)l->scale->dims[d], d,
                           (long long)want);
    }
    return SB_OK;
}

static sb_status check_shape(const linear_node *l)
{
    int64_t axis = sb_node_int(l->node, "axis", 1);
    int64_t n = sb_tensor_count(l->scale);
    int rank = l->x->type.shape.rank;

    if (l->block < 0 || l->block > INT32_MAX)
        return sb_fail(l->g->ctx, SB_BAD_MODEL,
                       "node '%s': block_size is %lld, want 0 to %d", label(l),
                       (long long)l->block, INT32_MAX);
    if (rank < 0 || (l->block == 0 && n == 1 && l->scale->rank <= 1))
        return SB_OK;
    if (axis < -rank || axis >= rank)
        return sb_fail(l->g->ctx, SB_BAD_MODEL,
                       "node '%s': axis is %lld, but the value has rank %d",
                       label(l), (long long)axis, rank);
    axis += axis < 0 ? rank : 0;
    if (l->block > 0)
        return check_blocks(l, (int)axis);
    int64_t want = scales_along(l, (int)axis, (int)axis);
    if (l->scale->rank != 1 || (want >= 0 && n != want))
        return sb_fail(l->g->ctx, SB_BAD_MODEL,
                       "node '%s': scale has rank %d and %lld elements, want "
                       "a vector, one for each index of axis %lld",
                       label(l), l->scale->rank, (long long)n, (long long)axis);
    return SB_OK;
}

sb_status sb_quant_import_check(const sb_graph *g)
{
    for (size_t i = 0; i < g->n_nodes; i++) {
        const sb_node *node = &g->nodes[i];

        if (node->dead || node->n_in == 0 || node->inputs[0] == SB_NONE ||
            (!sb_node_is(node, "QuantizeLinear") &&
             !sb_node_is(node, "DequantizeLinear")))
            continue;
        linear_node l = {g,
                         node,
                         sb_graph_value(g, node->inputs[0]),
                         constant_in(g, node, 1),
                         constant_in(g, node, 2),
                         sb_node_int(node, "block_size", 0)};
        if (!l.scale)
            continue;
        SB_TRY(check_types(&l));
        SB_TRY(check_scales(&l));
        SB_TRY(check_shape(&l));
    }
    return SB_OK;
}
