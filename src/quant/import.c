/* Reading Q/DQ nodes back.
 *
 *     x -> [Clip ->] Q -> DQ -> reader    becomes   x -> reader,  scales of x
 *     integers -> DQ -> reader            becomes   floats -> reader
 *     floats -> Q -> DQ -> reader         becomes   rounded floats -> reader
 *
 * The width is that of the type, unless the attribute `bits` or a Clip to fewer
 * levels says less; constants tell by the levels that they use. */
#include "quant/import.h"

#include <math.h>
#include <string.h>

#include "exec/exec.h"
#include "passes/rewrite.h"

/* ---- the list ----------------------------------------------------------- */

void sb_known_free(sb_ctx *ctx, sb_known_list *known)
{
    for (size_t i = 0; i < known->n; i++)
        sb_qparams_free(ctx, &known->v[i].qparams);
    sb_free(ctx, known->v);
    *known = (sb_known_list){0};
}

const sb_known *sb_known_find(const sb_known_list *known, const char *value)
{
    for (size_t i = 0; i < known->n; i++)
        if (strcmp(known->v[i].value, value) == 0)
            return &known->v[i];
    return NULL;
}

/* ---- one Q or DQ -------------------------------------------------------- */

/* What the inputs 1 and 2 of a Q or DQ node say. */
typedef struct linear {
    const sb_tensor *scale, *zero; /* zero may be NULL */
    sb_dtype dtype;                /* of the integers */
    int axis;                      /* -1: one scale */
    int64_t block;
    int bits; /* 0: as the type */
} linear;

static const sb_tensor *constant_of(const sb_graph *g, sb_value_id v)
{
    return sb_is_const(g, v) ? &sb_graph_value(g, v)->constant : NULL;
}

static bool read_linear(const sb_graph *g, const sb_node *node, linear *out)
{
    bool dq = sb_node_is(node, "DequantizeLinear");
    sb_value_id ints = dq ? sb_node_in(node, 0) : node->outputs[0];
    const sb_value *x = sb_graph_value(g, sb_node_in(node, 0));
    int64_t axis = sb_node_int(node, "axis", 1);

    if (!dq && !sb_node_is(node, "QuantizeLinear"))
        return false;
    *out = (linear){
        .scale = constant_of(g, sb_node_in(node, 1)),
        .zero = constant_of(g, sb_node_in(node, 2)),
        .dtype = sb_graph_value(g, ints)->type.dtype,
        .axis = -1,
        .block = sb_node_int(node, "block_size", 0),
        .bits = (int)sb_node_int(node, "bits", 0),
    };
    if (!out->scale || out->scale->dtype != SB_DTYPE_F32 ||
        (node->n_in > 2 && node->inputs[2] != SB_NONE && !out->zero))
        return false;
    if (out->zero)
        out->dtype = out->zero->dtype;
    if (out->dtype == SB_DTYPE_NONE)
        out->dtype = SB_DTYPE_U8;
    if (sb_tensor_count(out->scale) > 1 || out->scale->rank > 1) {
        int rank = x->type.shape.rank;
        if (rank <= 0 || axis < -rank || axis >= rank)
            return false;
        out->axis = (int)(axis < 0 ? axis + rank : axis);
    }
    return true;
}

/* Least and greatest number of a type; false for what is not quantized. */
static bool type_bounds(sb_dtype dtype, int32_t *lo, int32_t *hi)
{
    const sb_dtype_info *info = sb_dtype_get(dtype);

    if (info->bits > 16 ||
        (info->cls != SB_CLASS_INT && info->cls != SB_CLASS_UINT))
        return false;
    *lo = info->cls == SB_CLASS_INT ? -(1 << (info->bits - 1)) : 0;
    *hi = (int32_t)((1u << info->bits) - 1u) + *lo;
    return true;
}

/* Symmetric, as runtimes mean it: zero points in the middle of the type. */
static bool is_symmetric(const linear *l, int32_t lo)
{
    double middle =
        lo < 0
            ? 0
            : (double)(sb_qmax((int)sb_dtype_get(l->dtype)->bits, false) + 1) /
                  2;
    int64_t n = l->zero ? sb_tensor_count(l->zero) : 0;

    if (lo >= 0)
        return false;
    for (int64_t i = 0; i < n; i++)
        if (sb_tensor_get_f64(l->zero, i) != middle)
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

/* Adds what a node says of a value.  [lo, hi] are the numbers in use. */
static sb_status remember(sb_graph *g, sb_known_list *known, sb_value_id value,
                          const linear *l, int32_t lo, int32_t hi)
{
    sb_ctx *ctx = g->ctx;
    int64_t n = sb_tensor_count(l->scale);
    int32_t least = 0, most = 0;
    sb_known k = {
        .value = sb_arena_str(known->arena, sb_graph_value(g, value)->name),
        .block = l->block,
        .constant = sb_graph_value(g, value)->is_constant};

    if (!k.value)
        return SB_NO_MEMORY;
    if (!type_bounds(l->dtype, &least, &most) || sb_known_find(known, k.value))
        return SB_OK;
    bool symmetric = is_symmetric(l, least);
    /* Affine integers of a signed type, as unsigned ones. */
    int32_t shift = symmetric ? 0 : -least;
    int bits = l->bits > 0 && l->bits <= 16
                   ? l->bits
                   : width_of(lo + shift, hi + shift, symmetric);
    SB_TRY(sb_grow(ctx, &known->v, &known->cap, known->n + 1, sizeof k));
    SB_TRY(sb_qparams_init(ctx, &k.qparams, n, l->axis, bits, symmetric));
    k.qparams.qmin = lo + shift;
    k.qparams.qmax = hi + shift;
    for (int64_t i = 0; i < n; i++) {
        double z = l->zero ? sb_tensor_get_f64(l->zero, i) : 0;
        k.qparams.scale[i] = ((const float *)l->scale->data)[i];
        k.qparams.zero_point[i] = (float)z + (float)shift;
    }
    known->v[known->n++] = k;
    return SB_OK;
}

/* ---- constants ---------------------------------------------------------- */

/* Computes a node of constants; *done is false if it is none. */
static sb_status fold(sb_graph *g, sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    const sb_tensor *in[3] = {NULL, NULL, NULL};
    sb_tensor out;

    for (uint32_t i = 0; i < node->n_in && i < 3; i++)
        in[i] = constant_of(g, node->inputs[i]);
    SB_TRY(sb_exec_eval(g->ctx, g, node, in, &out));
    sb_status status = sb_rewrite_constant(g, id, &out);
    sb_tensor_drop(&out);
    return status;
}

/* Bounds that the integers keep: those of the type, or narrower ones of a
 * width that the numbers in use tell. */
static void used_bounds(const sb_tensor *q, int32_t *lo, int32_t *hi)
{
    double least = 0, most = 0;

    for (int64_t i = 0; i < sb_tensor_count(q); i++) {
        double v = sb_tensor_get_f64(q, i);
        least = v < least ? v : least;
        most = v > most ? v : most;
    }
    /* The lowest number is left out more often than not: [-127, 127]. */
    if (*lo < 0 && least > (double)*lo) {
        double reach = -least > most ? -least : most;
        int bits = 2;
        while (bits < 16 && reach > (double)((1 << (bits - 1)) - 1))
            bits++;
        *hi = (1 << (bits - 1)) - 1;
        *lo = -*hi;
    }
}

static sb_status import_constant(sb_graph *g, sb_known_list *known,
                                 sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    const sb_tensor *q = constant_of(g, sb_node_in(node, 0));
    sb_value_id y = node->outputs[0];
    int32_t lo = 0, hi = 0;
    linear l;

    if (!q || sb_graph_value(g, y)->is_output || !read_linear(g, node, &l))
        return SB_OK;
    bool keep = type_bounds(q->dtype, &lo, &hi);
    if (keep)
        used_bounds(q, &lo, &hi);
    sb_tensor scale = *l.scale, zero = l.zero ? *l.zero : (sb_tensor){0};
    SB_TRY(fold(g, id));
    if (!keep)
        return SB_OK;
    l.scale = &scale;
    l.zero = l.zero ? &zero : NULL;
    return remember(g, known, y, &l, lo, hi);
}

/* ---- activations -------------------------------------------------------- */

/* A Clip to fewer levels than the type has says the width; it was put there
 * for that, so it goes away with the Q. */
static sb_value_id behind_clip(const sb_graph *g, sb_value_id x,
                               const linear *l, int32_t *lo, int32_t *hi)
{
    const sb_node *clip = sb_graph_producer(g, x);
    double from = 0, to = 0;

    if (!clip || !sb_node_is(clip, "Clip") || l->axis >= 0 ||
        sb_graph_value(g, x)->n_uses != 1 || sb_graph_value(g, x)->is_output ||
        !sb_const_scalar(g, sb_node_in(clip, 1), &from) ||
        !sb_const_scalar(g, sb_node_in(clip, 2), &to))
        return x;
    double scale = (double)((const float *)l->scale->data)[0];
    double zero = l->zero ? sb_tensor_get_f64(l->zero, 0) : 0;
    double first = rint(from / scale) + zero, last = rint(to / scale) + zero;
    if (first < *lo || last > *hi || (first == *lo && last == *hi) ||
        fabs((first - zero) * scale - from) > 1e-5 * scale ||
        fabs((last - zero) * scale - to) > 1e-5 * scale)
        return x;
    *lo = (int32_t)first;
    *hi = (int32_t)last;
    return sb_node_in(clip, 0);
}

static bool only_dequantized(const sb_graph *g, sb_value_id q)
{
    const sb_value *v = sb_graph_value(g, q);

    for (uint32_t i = 0; i < v->n_uses; i++) {
        const sb_node *reader = sb_graph_node(g, v->uses[i].node);
        if (!sb_node_is(reader, "DequantizeLinear") || v->uses[i].input != 0)
            return false;
    }
    return !v->is_output && v->n_uses > 0;
}

/* x -> Q -> DQ... : readers of every DQ read x. */
static sb_status import_pair(sb_graph *g, sb_known_list *known, sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    sb_value_id q = node->outputs[0];
    int32_t lo = 0, hi = 0;
    linear l;

    if (!sb_node_is(node, "QuantizeLinear") || !read_linear(g, node, &l) ||
        !type_bounds(l.dtype, &lo, &hi) || !only_dequantized(g, q))
        return SB_OK;
    sb_value_id x = behind_clip(g, node->inputs[0], &l, &lo, &hi);
    size_t mine = known->n;
    SB_TRY(remember(g, known, x, &l, lo, hi));
    while (sb_graph_value(g, q)->n_uses > 0) {
        sb_node_id reader = sb_graph_value(g, q)->uses[0].node;
        bool done = false;
        SB_TRY(sb_rewrite_forward(g, reader, x, &done));
        if (!done) /* a graph output that is a graph input, or shares x */
            return SB_OK;
    }
    if (known->n > mine) { /* x may have got the name of an output */
        known->v[mine].value =
            sb_arena_str(known->arena, sb_graph_value(g, x)->name);
        if (!known->v[mine].value)
            return SB_NO_MEMORY;
    }
    return sb_rewrite_prune(g, id);
}

sb_status sb_quant_import(sb_graph *g, sb_known_list *known)
{
    /* Floats behind Q first, then what stands behind DQ, then activations;
     * nodes are only removed, so the numbers stay. */
    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        const sb_node *node = sb_graph_node(g, id);
        if (!node->dead && sb_node_is(node, "QuantizeLinear") &&
            sb_is_const(g, sb_node_in(node, 0)) &&
            sb_is_const(g, sb_node_in(node, 1)) &&
            !sb_graph_value(g, node->outputs[0])->is_output)
            SB_TRY(fold(g, id));
    }
    for (sb_node_id id = 0; id < g->n_nodes; id++)
        if (!sb_graph_node(g, id)->dead &&
            sb_node_is(sb_graph_node(g, id), "DequantizeLinear"))
            SB_TRY(import_constant(g, known, id));
    for (sb_node_id id = 0; id < g->n_nodes; id++)
        if (!sb_graph_node(g, id)->dead)
            SB_TRY(import_pair(g, known, id));
    return SB_OK;
}
