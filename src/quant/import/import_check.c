/* Q and DQ nodes of a file, looked at before they are believed: as many zero
 * points as scales, as many scales as the value has channels or blocks, and
 * types that go together.  Only constants and dimensions that are known can be
 * checked here; the rest is left to the operators when they run. */
#include <math.h>
#include <string.h>

#include "ops/op_registry.h"
#include "passes/readback/integer_util.h"
#include "quant/model/quant_model.h"

typedef struct linear_node {
    const sb_graph *g;
    const sb_node *node;
    const sb_value *x; /* what is quantized or dequantized */
    const sb_tensor *scale;
    const sb_tensor *zero; /* may be NULL */
    int64_t block;
} linear_node;

static const char *import_check_label(const linear_node *l)
{
    return sb_node_label(l->g, l->node);
}

static sb_status check_types(const linear_node *l)
{
    sb_dtype ints = l->x->type.dtype;

    if (!sb_dtype_is_float(l->scale->dtype))
        return sb_fail(l->g->ctx, SB_BAD_MODEL,
                       "node '%s': scale has type %s, want a float type",
                       import_check_label(l), sb_dtype_name(l->scale->dtype));
    if (l->zero && sb_node_role(l->node) == SB_ROLE_DEQUANTIZE &&
        ints != SB_DTYPE_NONE && ints != l->zero->dtype)
        return sb_fail(l->g->ctx, SB_BAD_MODEL,
                       "node '%s': zero point has type %s, the integers %s",
                       import_check_label(l), sb_dtype_name(l->zero->dtype),
                       sb_dtype_name(ints));
    return SB_OK;
}

static sb_status check_scales(const linear_node *l)
{
    int64_t n = sb_tensor_count(l->scale);

    if (n == 0)
        return sb_fail(l->g->ctx, SB_BAD_MODEL,
                       "node '%s': scale has no elements",
                       import_check_label(l));
    if (l->zero && sb_tensor_count(l->zero) != n)
        return sb_fail(l->g->ctx, SB_BAD_MODEL,
                       "node '%s': zero point has %lld elements, scale %lld",
                       import_check_label(l),
                       (long long)sb_tensor_count(l->zero), (long long)n);
    /* Weights of some tools have scales below 0 (import_scales.c). */
    bool positive = sb_node_role(l->node) == SB_ROLE_QUANTIZE;
    for (int64_t i = 0; i < n; i++) {
        double scale = sb_tensor_get_f64(l->scale, i);
        if (!isfinite(scale) || (positive && scale <= 0))
            return sb_fail(l->g->ctx, SB_BAD_MODEL,
                           "node '%s': scale %lld is %g, want a finite number"
                           "%s",
                           import_check_label(l), (long long)i, scale,
                           positive ? " above 0" : "");
    }
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
                       import_check_label(l), l->scale->rank, rank);
    for (int d = 0; d < rank; d++) {
        int64_t want = scales_along(l, d, axis);

        if (want >= 0 && l->scale->dims[d] != want)
            return sb_fail(l->g->ctx, SB_BAD_MODEL,
                           "node '%s': scale has %lld elements along dimension "
                           "%d, want %lld",
                           import_check_label(l), (long long)l->scale->dims[d],
                           d, (long long)want);
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
                       "node '%s': block_size is %lld, want 0 to %d",
                       import_check_label(l), (long long)l->block, INT32_MAX);
    if (rank < 0 || (l->block == 0 && n == 1 && l->scale->rank <= 1))
        return SB_OK;
    if (axis < -rank || axis >= rank)
        return sb_fail(l->g->ctx, SB_BAD_MODEL,
                       "node '%s': axis is %lld, but the value has rank %d",
                       import_check_label(l), (long long)axis, rank);
    axis += axis < 0 ? rank : 0;
    if (l->block > 0)
        return check_blocks(l, (int)axis);
    int64_t want = scales_along(l, (int)axis, (int)axis);
    if (l->scale->rank != 1 || (want >= 0 && n != want))
        return sb_fail(l->g->ctx, SB_BAD_MODEL,
                       "node '%s': scale has rank %d and %lld elements, want "
                       "a vector, one for each index of axis %lld",
                       import_check_label(l), l->scale->rank, (long long)n,
                       (long long)axis);
    return SB_OK;
}

sb_status sb_quant_import_check(const sb_graph *g)
{
    for (size_t i = 0; i < g->n_nodes; i++) {
        const sb_node *node = &g->nodes[i];

        if (node->dead || node->n_in == 0 || node->inputs[0] == SB_NONE ||
            (sb_node_role(node) != SB_ROLE_QUANTIZE &&
             sb_node_role(node) != SB_ROLE_DEQUANTIZE))
            continue;
        linear_node l = {g,
                         node,
                         sb_graph_value(g, node->inputs[0]),
                         sb_const_of(g, sb_node_in(node, 1)),
                         sb_const_of(g, sb_node_in(node, 2)),
                         sb_node_int(node, "block_size", 0)};
        if (!l.scale)
            continue;
        SB_TRY(check_types(&l));
        SB_TRY(check_scales(&l));
        SB_TRY(check_shape(&l));
    }
    return SB_OK;
}

/* ---- what is left ------------------------------------------------------- */

/* What kept the passes from reading it, where that is known. */
static const char *why_not(const sb_graph *g, const sb_node *node)
{
    /* By name: its pass reads some of its forms only. */
    bool nbits = strcmp(node->op, "MatMulNBits") == 0;

    return nbits ? sb_nbits_why_not(g, node) : "";
}

sb_status sb_quant_check_float(const sb_quant_model *qm, const sb_graph *g)
{
    for (size_t i = 0; i < g->n_nodes; i++) {
        const sb_node *node = &g->nodes[i];

        /* By name: no other operator finds scales at each run. */
        if (!node->dead &&
            (sb_op_is_integer(node, NULL) ||
             sb_node_is(node, "DynamicQuantizeLinear")) &&
            !sb_quant_config_skips(qm->config, node))
            return sb_fail(qm->ctx, SB_BAD_MODEL,
                           "the model is quantized already (node '%s' is a "
                           "%s%s): start from the float model it was made of, "
                           "or name its modules in SKIP_TRACE_MODULES",
                           sb_node_label(g, node), node->op, why_not(g, node));
    }
    return SB_OK;
}
