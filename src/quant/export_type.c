/* Element types of exported integers, and the integers of constants. */
#include <math.h>

#include "base/simd.h"
#include "graph/op.h"
#include "quant/export.h"

static sb_dtype container(int bits, bool is_signed)
{
    if (bits == 2)
        return is_signed ? SB_DTYPE_I2 : SB_DTYPE_U2;
    if (bits == 4)
        return is_signed ? SB_DTYPE_I4 : SB_DTYPE_U4;
    if (bits <= 8)
        return is_signed ? SB_DTYPE_I8 : SB_DTYPE_U8;
    return is_signed ? SB_DTYPE_I16 : SB_DTYPE_U16;
}

/* Rows of an embedding, of which runtimes take no less than bytes. */
static bool is_table(const sb_quant_model *qm, const sb_quantizer *q)
{
    const sb_op_def *op =
        q->n_uses > 0 ? sb_op_of(sb_graph_node(qm->graph, q->uses[0].node))
                      : NULL;

    return op && op->quant == SB_ROLE_TABLE && q->uses[0].input == 0;
}

/* The width of the least type of the target that holds `bits`. */
static int fit(uint32_t types, int bits)
{
    while (bits < 8 && !sb_target_has_type(types, container(bits, true)) &&
           !sb_target_has_type(types, container(bits, false)))
        bits++;
    return bits;
}

sb_export_type sb_export_type_of(const sb_quant_model *qm,
                                 const sb_quantizer *q)
{
    const sb_target_def *target = qm->target;
    bool weight = q->spec.kind == SB_QUANT_WEIGHT;
    uint32_t types = weight ? target->weight_types : target->act_types;
    bool is_signed = q->spec.symmetric;
    bool only =
        sb_quant_config_mode(qm->config) == SB_QUANT_WEIGHTS_ONLY && weight;
    int bits = q->spec.bits;
    sb_export_type t = {0};

    /* Integer kernels take bytes: fewer bits are bytes with tight bounds.
     * Where a weight is integers alone, nibbles and pairs of bits save room;
     * pairs are so new a type that only then they are worth it. */
    if (bits == 2 ? !only : bits < 8 && !only && target->ops)
        bits = 8;
    if (bits < 8 && (sb_quant_config_mode(qm->config) == SB_QUANT_DYNAMIC ||
                     (target->ops && is_table(qm, q))))
        bits = 8;
    bits = fit(types, bits);
    if (is_signed && !sb_target_has_type(types, container(bits, true))) {
        is_signed = false;
        t.offset = 1 << (bits - 1);
    }
    t.dtype = container(bits, is_signed);
    t.clip = !weight && q->spec.bits < (int)sb_dtype_get(t.dtype)->bits;
    return t;
}

/* ---- constants ---------------------------------------------------------- */

/* Which scale belongs to element i of a tensor with scales along `axis`. */
typedef struct param_walk {
    int64_t n_axis, n_inner, block, n_block;
    bool one;
} param_walk;

static param_walk walk_of(const sb_tensor *w, const sb_quantizer *q)
{
    param_walk p = {.one = q->axis < 0};

    if (p.one)
        return p;
    p.n_axis = w->dims[q->axis];
    p.n_inner = sb_dims_product(w->dims, q->axis + 1, w->rank);
    p.block = q->block > 0 ? q->block : 1;
    p.n_block = (p.n_axis + p.block - 1) / p.block;
    return p;
}

static int64_t param_of(const param_walk *p, const sb_quantizer *q, int64_t i)
{
    if (p->one)
        return 0;
    int64_t inner = i % p->n_inner, a = i / p->n_inner % p->n_axis;
    if (q->block == 0)
        return a;
    int64_t outer = i / (p->n_inner * p->n_axis);
    return (outer * p->n_block + a / p->block) * p->n_inner + inner;
}

typedef struct integer_map {
    float scale, zero, lo, hi, offset;
} integer_map;

SB_HOT static void to_integers(float *x, int64_t n, const integer_map *map)
{
    const integer_map m = *map;

    for (int64_t i = 0; i < n; i++) {
        float v = rintf(x[i] / m.scale) + m.zero;
        v = v < m.lo ? m.lo : v;
        x[i] = (v > m.hi ? m.hi : v) + m.offset;
    }
}

sb_status sb_export_integers(const sb_quant_model *qm, const sb_quantizer *q,
                             sb_tensor *out)
{
    sb_export_type type = sb_export_type_of(qm, q);
    const sb_qparams *p = &q->qparams;
    sb_tensor w;

    SB_TRY(sb_quantizer_weight(qm, q, &w));
    int64_t n = sb_tensor_count(&w);
    param_walk walk = walk_of(&w, q);
    float *x = w.data;
    /* Neighbours that share a scale. */
    int64_t run = walk.one ? n : q->block == 0 ? walk.n_inner : 1;
    for (int64_t i = 0; i < n; i += run) {
        int64_t k = param_of(&walk, q, i);
        integer_map map = {p->scale[k], p->zero_point[k], (float)p->qmin,
                           (float)p->qmax, (float)type.offset};
        to_integers(x + i, run, &map);
    }
    sb_tensor t = sb_tensor_make(type.dtype, w.rank, w.dims);
    sb_status status = sb_tensor_alloc(qm->ctx, &t);
    if (status == SB_OK) {
        sb_convert(SB_DTYPE_F32, x, type.dtype, t.data, (size_t)n);
        *out = t;
    }
    sb_tensor_drop(&w);
    return status;
}

/* Dimensions of the scales of a quantizer: none, [n], or those of the weight
 * with blocks counted along the axis. */
static int param_dims(const sb_quant_model *qm, const sb_quantizer *q,
                      int64_t *dims)
{
    const sb_tensor *w = &sb_graph_value(qm->graph, q->value)->constant;

    if (q->axis < 0)
        return 0;
    dims[0] = q->qparams.n;
    if (q->block == 0)
        return 1;
    for (int i = 0; i < w->rank; i++)
        dims[i] = w->dims[i];
    dims[q->axis] = (dims[q->axis] + q->block - 1) / q->block;
    return w->rank;
}

static sb_status zero_points(sb_ctx *ctx, const sb_quantizer *q,
                             sb_export_type type, int rank, const int64_t *dims,
                             sb_tensor *out)
{
    size_t n = (size_t)q->qparams.n;
    float *z = sb_alloc(ctx, n, sizeof *z);
    sb_tensor t = sb_tensor_make(type.dtype, rank, dims);

    if (!z)
        return SB_NO_MEMORY;
    sb_status status = sb_tensor_alloc(ctx, &t);
    if (status == SB_OK) {
        for (size_t i = 0; i < n; i++)
            z[i] = q->qparams.zero_point[i] + (float)type.offset;
        sb_convert(SB_DTYPE_F32, z, type.dtype, t.data, n);
        *out = t;
    }
    sb_free(ctx, z);
    return status;
}

sb_status sb_export_params(sb_graph *g, const sb_quant_model *qm,
                           const sb_quantizer *q, sb_value_id *scale,
                           sb_value_id *zero)
{
    sb_export_type type = sb_export_type_of(qm, q);
    const char *name = sb_graph_value(qm->graph, q->value)->name;
    int64_t dims[SB_MAX_RANK];
    int rank = param_dims(qm, q, dims);
    const sb_tensor like = sb_tensor_make(SB_DTYPE_F32, rank, dims);
    sb_tensor z;

    SB_TRY(sb_export_array(g, name, "_scale", &like, q->qparams.scale, scale));
    SB_TRY(zero_points(qm->ctx, q, type, rank, dims, &z));
    sb_status status = sb_export_constant(g, name, "_zero_point", &z, zero);
    sb_tensor_drop(&z);
    return status;
}
