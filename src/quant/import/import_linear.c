/* What one Q or DQ node says, and the list of what a file says
 * (import_linear.h).
 *
 * The width is that of the type, unless the attribute `bits` or a Clip to fewer
 * levels says less; the metadata of our own files (import_scales.c) come last.
 */
#include "quant/import/import_linear.h"

#include <string.h>

#include "ops/op_registry.h"

/* ---- the list ----------------------------------------------------------- */

void sb_imported_free(sb_ctx *ctx, sb_imported_list *known)
{
    for (size_t i = 0; i < known->n; i++) {
        sb_qparams_free(ctx, &known->v[i].qparams);
        sb_free(ctx, known->v[i].consumers);
    }
    sb_free(ctx, known->v);
    *known = (sb_imported_list){0};
}

bool sb_imported_calibrated(const sb_imported_list *known)
{
    for (size_t i = 0; i < known->n; i++)
        if (!known->v[i].constant && !known->v[i].dynamic)
            return true;
    return false;
}

const sb_imported_qparams *sb_imported_find(const sb_imported_list *known,
                                            const sb_graph *g,
                                            sb_value_id value)
{
    uint32_t origin = value == SB_NONE ? 0 : sb_graph_value(g, value)->origin;

    return origin != 0 ? &known->v[origin - 1] : NULL;
}

bool sb_imported_consumed_by(const sb_imported_qparams *k, const sb_node *node)
{
    for (size_t i = 0; i < k->n_consumers; i++)
        if (k->consumers[i] == node->origin)
            return true;
    return false;
}

bool sb_imported_dynamic_for(const sb_imported_qparams *k, const sb_node *node)
{
    return k && k->dynamic && (k->all || sb_imported_consumed_by(k, node));
}

sb_status sb_imported_new(sb_ctx *ctx, sb_imported_list *known,
                          sb_imported_qparams **out)
{
    SB_TRY(
        sb_grow(ctx, &known->v, &known->cap, known->n + 1, sizeof *known->v));
    *out = &known->v[known->n++];
    **out = (sb_imported_qparams){0};
    return SB_OK;
}

/* ---- one Q or DQ -------------------------------------------------------- */

/* Constants of a mapped file may lie anywhere, so nothing points into them. */
static float scale_at(const sb_linear *l, int64_t i)
{
    return (float)sb_tensor_get_f64(&l->scale, i);
}

static double zero_at(const sb_linear *l, int64_t i)
{
    return l->zero.data ? sb_tensor_get_f64(&l->zero, i) : 0;
}

bool sb_linear_usable(const sb_linear *l)
{
    for (int64_t i = 0; i < sb_tensor_count(&l->scale); i++)
        if (!(scale_at(l, i) > 0))
            return false;
    return true;
}

bool sb_node_lives(const sb_graph *g, sb_node_id id, sb_quant_role role)
{
    const sb_node *node = sb_graph_node(g, id);

    return !node->dead && sb_node_role(node) == role;
}

/* A vector of one scale for the one channel of a constant. */
static bool is_one_channel(const sb_value *x, const sb_tensor *scale,
                           int64_t axis)
{
    return x->is_constant && scale->rank == 1 && x->constant.dims[axis] == 1;
}

bool sb_linear_read(const sb_graph *g, const sb_node *node, sb_linear *out)
{
    bool dq = sb_node_role(node) == SB_ROLE_DEQUANTIZE;
    sb_value_id ints = dq ? sb_node_in(node, 0) : node->outputs[0];
    const sb_value *x = sb_graph_value(g, sb_node_in(node, 0));
    int64_t axis = sb_node_int(node, "axis", 1);
    int64_t bits = sb_node_int(node, "bits", 0);
    const sb_tensor *scale = sb_const_of(g, sb_node_in(node, 1));
    const sb_tensor *zero = sb_const_of(g, sb_node_in(node, 2));

    if ((!dq && sb_node_role(node) != SB_ROLE_QUANTIZE) || !scale ||
        scale->dtype != SB_DTYPE_F32 ||
        (node->n_in > 2 && node->inputs[2] != SB_NONE && !zero))
        return false;
    *out = (sb_linear){
        .scale = *scale,
        .zero = zero ? *zero : (sb_tensor){0},
        .dtype = sb_graph_value(g, ints)->type.dtype,
        .axis = -1,
        .block = sb_node_int(node, "block_size", 0),
        .bits = bits > 0 && bits <= 16 ? (int)bits : 0,
    };
    if (zero)
        out->dtype = zero->dtype;
    if (out->dtype == SB_DTYPE_NONE)
        out->dtype = SB_DTYPE_U8;
    int rank = x->type.shape.rank;
    bool inside = rank > 0 && axis >= -rank && axis < rank;
    if (inside && (sb_tensor_count(scale) > 1 || scale->rank > 1 ||
                   is_one_channel(x, scale, axis < 0 ? axis + rank : axis)))
        out->axis = (int)(axis < 0 ? axis + rank : axis);
    return inside || sb_tensor_count(scale) == 1;
}

bool sb_type_bounds(sb_dtype dtype, sb_bounds *out)
{
    const sb_dtype_info *info = sb_dtype_get(dtype);

    *out = (sb_bounds){0};
    if (info->bits > 16 ||
        (info->cls != SB_CLASS_INT && info->cls != SB_CLASS_UINT))
        return false;
    out->lo = info->cls == SB_CLASS_INT ? -(1 << (info->bits - 1)) : 0;
    out->hi = (int32_t)((1u << info->bits) - 1u) + out->lo;
    return true;
}

/* Symmetric, as runtimes mean it: a signed type, zero points at 0. */
static bool is_symmetric(const sb_linear *l, int32_t lo)
{
    int64_t n = l->zero.data ? sb_tensor_count(&l->zero) : 0;

    if (lo >= 0)
        return false;
    for (int64_t i = 0; i < n; i++)
        if (zero_at(l, i) != 0)
            return false;
    return true;
}

/* The smallest width whose bounds hold [lo, hi]. */
static int width_of(int32_t lo, int32_t hi, bool symmetric)
{
    int bits = 1;

    while (bits < 16 &&
           (lo < sb_qmin(bits, symmetric) || hi > sb_qmax(bits, symmetric)))
        bits++;
    return bits;
}

/* A scale of 0, for a channel of zeros, is as good as any. */
static float kept_scale(const sb_imported_qparams *k, const sb_linear *l,
                        int64_t i)
{
    float scale = scale_at(l, i);

    return k->constant && scale == 0 ? 1 : scale;
}

sb_status sb_imported_add(sb_graph *g, sb_imported_list *known,
                          sb_value_id value, const sb_linear *l, sb_bounds b,
                          sb_imported_qparams **out)
{
    int64_t n = sb_tensor_count(&l->scale);
    sb_imported_qparams *k = NULL;
    sb_bounds type;

    (void)sb_type_bounds(l->dtype, &type);
    bool symmetric = is_symmetric(l, type.lo);
    /* Affine integers of a signed type, as unsigned ones. */
    int32_t shift = symmetric ? 0 : -type.lo;
    int bits =
        l->bits > 0 ? l->bits : width_of(b.lo + shift, b.hi + shift, symmetric);
    SB_TRY(sb_imported_new(g->ctx, known, &k));
    SB_TRY(sb_qparams_init(g->ctx, &k->qparams, n, l->axis, bits, symmetric));
    k->block = l->block;
    k->constant = sb_graph_value(g, value)->is_constant;
    k->qparams.qmin = b.lo + shift;
    k->qparams.qmax = b.hi + shift;
    k->least = b.least + shift;
    k->most = b.most + shift;
    for (int64_t i = 0; i < n; i++) {
        k->qparams.scale[i] = kept_scale(k, l, i);
        k->qparams.zero_point[i] = (float)zero_at(l, i) + (float)shift;
    }
    sb_graph_value(g, value)->origin = (uint32_t)known->n;
    *out = k;
    return SB_OK;
}

bool sb_imported_contradicts(const sb_imported_qparams *k, const sb_linear *l)
{
    int64_t n = sb_tensor_count(&l->scale);
    sb_bounds type;

    if (k->dynamic || !sb_type_bounds(l->dtype, &type) || k->qparams.n != n ||
        k->qparams.axis != l->axis)
        return true;
    double shift = k->qparams.symmetric ? 0 : -(double)type.lo;
    for (int64_t i = 0; i < n; i++) {
        double z = zero_at(l, i);
        if (k->qparams.scale[i] != kept_scale(k, l, i) ||
            (double)k->qparams.zero_point[i] != z + shift)
            return true;
    }
    return false;
}

sb_status sb_imported_consumers(sb_graph *g, sb_imported_list *known,
                                sb_imported_qparams *k, sb_value_id y)
{
    const sb_value *v = sb_graph_value(g, y);

    k->at_output |= v->is_output;
    for (uint32_t i = 0; i < v->n_uses; i++) {
        sb_node *node = sb_graph_node(g, v->uses[i].node);

        SB_TRY(sb_grow(g->ctx, &k->consumers, &k->cap_consumers,
                       k->n_consumers + 1, sizeof *k->consumers));
        if (node->origin == 0)
            node->origin = ++known->n_nodes;
        k->consumers[k->n_consumers++] = node->origin;
    }
    return SB_OK;
}

static bool same_constant(const sb_tensor *a, const sb_tensor *b)
{
    if (!a->data || !b->data)
        return a->data == b->data;
    return a->dtype == b->dtype && sb_tensor_count(a) == sb_tensor_count(b) &&
           memcmp(a->data, b->data, sb_tensor_bytes(a)) == 0;
}

bool sb_linear_same(const sb_linear *a, const sb_linear *b)
{
    return same_constant(&a->scale, &b->scale) && a->axis == b->axis &&
           a->block == b->block && same_constant(&a->zero, &b->zero);
}
