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
    for (size_t i = 0; i < known->n; i++) {
        sb_qparams_free(ctx, &known->v[i].qparams);
        sb_free(ctx, known->v[i].readers);
    }
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

/* Constants of a mapped file may lie anywhere, so nothing points into them. */
static float scale_at(const linear *l, int64_t i)
{
    return (float)sb_tensor_get_f64(l->scale, i);
}

/* Can a quantizer have these scales?  A scale of 0, for a channel of zeros,
 * is fine for what was quantized with it, but nothing else. */
static bool is_usable(const linear *l)
{
    for (int64_t i = 0; i < sb_tensor_count(l->scale); i++)
        if (!(scale_at(l, i) > 0))
            return false;
    return true;
}

static bool is_live(const sb_graph *g, sb_node_id id, const char *op)
{
    return !sb_graph_node(g, id)->dead && sb_node_is(sb_graph_node(g, id), op);
}

static const sb_tensor *constant_of(const sb_graph *g, sb_value_id v)
{
    return sb_is_const(g, v) ? &sb_graph_value(g, v)->constant : NULL;
}

/* A vector of one scale for the one channel of a constant. */
static bool is_one_channel(const sb_value *x, const sb_tensor *scale,
                           int64_t axis)
{
    return x->is_constant && scale->rank == 1 && x->constant.dims[axis] == 1;
}

static bool read_linear(const sb_graph *g, const sb_node *node, linear *out)
{
    bool dq = sb_node_is(node, "DequantizeLinear");
    sb_value_id ints = dq ? sb_node_in(node, 0) : node->outputs[0];
    const sb_value *x = sb_graph_value(g, sb_node_in(node, 0));
    int64_t axis = sb_node_int(node, "axis", 1);
    int64_t bits = sb_node_int(node, "bits", 0);

    if (!dq && !sb_node_is(node, "QuantizeLinear"))
        return false;
    *out = (linear){
        .scale = constant_of(g, sb_node_in(node, 1)),
        .zero = constant_of(g, sb_node_in(node, 2)),
        .dtype = sb_graph_value(g, ints)->type.dtype,
        .axis = -1,
        .block = sb_node_int(node, "block_size", 0),
        .bits = bits > 0 && bits <= 16 ? (int)bits : 0,
    };
    if (!out->scale || out->scale->dtype != SB_DTYPE_F32 ||
        (node->n_in > 2 && node->inputs[2] != SB_NONE && !out->zero))
        return false;
    if (out->zero)
        out->dtype = out->zero->dtype;
    if (out->dtype == SB_DTYPE_NONE)
        out->dtype = SB_DTYPE_U8;
    int rank = x->type.shape.rank;
    bool inside = rank > 0 && axis >= -rank && axis < rank;
    if (inside &&
        (sb_tensor_count(out->scale) > 1 || out->scale->rank > 1 ||
         is_one_channel(x, out->scale, axis < 0 ? axis + rank : axis)))
        out->axis = (int)(axis < 0 ? axis + rank : axis);
    return inside || sb_tensor_count(out->scale) == 1;
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

/* Adds what a node says of a value, if nothing was said of it before; *out is
 * valid until the next call.  [lo, hi] are the numbers in use. */
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
    int bits =
        l->bits > 0 ? l->bits : width_of(lo + shift, hi + shift, symmetric);
    SB_TRY(sb_grow(ctx, &known->v, &known->cap, known->n + 1, sizeof k));
    SB_TRY(sb_qparams_init(ctx, &k.qparams, n, l->axis, bits, symmetric));
    k.qparams.qmin = lo + shift;
    k.qparams.qmax = hi + shift;
    for (int64_t i = 0; i < n; i++) {
        double z = l->zero ? sb_tensor_get_f64(l->zero, i) : 0;
        k.qparams.scale[i] = scale_at(l, i);
        k.qparams.zero_point[i] = (float)z + (float)shift;
    }
    known->v[known->n++] = k;
    return SB_OK;
}

/* Notes who reads the result of a DQ. */
static sb_status note_readers(const sb_graph *g, sb_known_list *known,
                              sb_known *k, sb_value_id y)
{
    const sb_value *v = sb_graph_value(g, y);

    k->at_output |= v->is_output;
    for (uint32_t i = 0; i < v->n_uses; i++) {
        const sb_node *reader = sb_graph_node(g, v->uses[i].node);
        if (reader->n_out == 0 || reader->outputs[0] == SB_NONE)
            continue;
        const char *name = sb_arena_str(
            known->arena, sb_graph_value(g, reader->outputs[0])->name);
        if (!name)
            return SB_NO_MEMORY;
        SB_TRY(sb_grow(g->ctx, &k->readers, &k->cap_readers, k->n_readers + 1,
                       sizeof *k->readers));
        k->readers[k->n_readers++] = name;
    }
    return SB_OK;
}

static bool same_constant(const sb_tensor *a, const sb_tensor *b)
{
    if (!a || !b)
        return a == b;
    return a->dtype == b->dtype && sb_tensor_count(a) == sb_tensor_count(b) &&
           memcmp(a->data, b->data, sb_tensor_bytes(a)) == 0;
}

/* Do two Q or DQ nodes have the same scales? */
static bool same_linear(const linear *a, const linear *b)
{
    return same_constant(a->scale, b->scale) && a->axis == b->axis &&
           a->block == b->block &&
           (same_constant(a->zero, b->zero) || (!a->zero && !b->zero));
}

/* ---- constants ---------------------------------------------------------- */

static sb_status eval(sb_graph *g, sb_node_id id, sb_tensor *out)
{
    const sb_node *node = sb_graph_node(g, id);
    const sb_tensor *in[3] = {NULL, NULL, NULL};

    for (uint32_t i = 0; i < node->n_in && i < 3; i++)
        in[i] = constant_of(g, node->inputs[i]);
    return sb_exec_eval(g->ctx, g, node, in, out);
}

/* The node's result becomes a constant. */
static sb_status fold(sb_graph *g, sb_node_id id)
{
    sb_tensor out;

    SB_TRY(eval(g, id, &out));
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

/* Readers of all DQ nodes that compute the same of the same integers as `id`
 * read its result. */
static sb_status merge_twins(sb_graph *g, sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    sb_value_id ints = node->inputs[0], y = node->outputs[0];
    linear mine, other;

    if (!read_linear(g, node, &mine))
        return SB_OK;
    for (uint32_t i = 0; i < sb_graph_value(g, ints)->n_uses;) {
        sb_use use = sb_graph_value(g, ints)->uses[i++];
        const sb_node *twin = sb_graph_node(g, use.node);
        bool done = false;

        if (use.node == id || use.input != 0 ||
            !sb_node_is(twin, "DequantizeLinear") ||
            sb_graph_value(g, twin->outputs[0])->is_output ||
            !read_linear(g, twin, &other) || !same_linear(&mine, &other))
            continue;
        SB_TRY(sb_rewrite_forward(g, use.node, y, &done));
        if (done) /* the list is shorter now, perhaps in another order */
            i = 0;
    }
    return SB_OK;
}

/* integers -> DQ -> reader */
static sb_status import_integers(sb_graph *g, sb_known_list *known,
                                 sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    sb_value_id ints = node->inputs[0], y = node->outputs[0];
    const sb_tensor *q = constant_of(g, ints);
    int32_t lo = 0, hi = 0;
    size_t mine = known->n;
    linear l;

    SB_TRY(merge_twins(g, id));
    if (!read_linear(g, sb_graph_node(g, id), &l))
        return SB_OK;
    bool keep = type_bounds(q->dtype, &lo, &hi) && is_usable(&l);
    if (keep)
        used_bounds(q, &lo, &hi);
    sb_tensor scale = *l.scale, zero = l.zero ? *l.zero : (sb_tensor){0};
    SB_TRY(fold(g, id));
    SB_TRY(sb_import_name(g, ints, y));
    if (!keep)
        return SB_OK;
    l.scale = &scale;
    l.zero = l.zero ? &zero : NULL;
    SB_TRY(remember(g, known, y, &l, lo, hi));
    if (known->n == mine)
        return SB_OK;
    known->v[mine].all = true;
    return note_readers(g, known, &known->v[mine], y);
}

/* Has the file other scales for the same value? */
static bool contradicts(const sb_known *k, const linear *l)
{
    int64_t n = sb_tensor_count(l->scale);

    int32_t least = 0, most = 0;

    if (!type_bounds(l->dtype, &least, &most) || k->qparams.n != n ||
        k->qparams.axis != l->axis ||
        memcmp(k->qparams.scale, l->scale->data, (size_t)n * sizeof(float)))
        return true;
    for (int64_t i = 0; i < n; i++) {
        double z = l->zero ? sb_tensor_get_f64(l->zero, i) : 0;
        double shift = k->qparams.symmetric ? 0 : -(double)least;
        if ((double)k->qparams.zero_point[i] != z + shift)
            return true;
    }
    return false;
}

/* floats -> Q -> DQ -> reader: the floats stay, since rounding them again is
 * what the quantizer does. */
static sb_status import_floats(sb_graph *g, sb_known_list *known, sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    sb_node_id q = sb_graph_value(g, node->inputs[0])->producer;
    sb_value_id w = sb_graph_node(g, q)->inputs[0];
    int32_t lo = 0, hi = 0;
    size_t mine = known->n;
    linear l, first;
    bool done = false;
    sb_tensor ints;

    if (!read_linear(g, node, &l) ||
        !read_linear(g, sb_graph_node(g, q), &first) ||
        !same_linear(&l, &first) || !type_bounds(l.dtype, &lo, &hi) ||
        !is_usable(&l))
        return SB_OK;
    SB_TRY(eval(g, q, &ints));
    used_bounds(&ints, &lo, &hi);
    sb_tensor_drop(&ints);
    const sb_known *told = sb_known_find(known, sb_graph_value(g, w)->name);
    if (told && contradicts(told, &l)) { /* a second, other rounding of w */
        SB_TRY(fold(g, q));
        return fold(g, id);
    }
    SB_TRY(remember(g, known, w, &l, lo, hi));
    if (known->n > mine)
        SB_TRY(note_readers(g, known, &known->v[mine], node->outputs[0]));
    return sb_rewrite_forward(g, id, w, &done);
}

static sb_status import_constant(sb_graph *g, sb_known_list *known,
                                 sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    const sb_node *before = sb_graph_producer(g, sb_node_in(node, 0));
    linear l;

    if (sb_graph_value(g, node->outputs[0])->is_output ||
        !read_linear(g, node, &l))
        return SB_OK;
    if (sb_is_const(g, sb_node_in(node, 0)))
        return import_integers(g, known, id);
    if (before && sb_node_is(before, "QuantizeLinear") &&
        sb_is_const(g, sb_node_in(before, 0)))
        return import_floats(g, known, id);
    return SB_OK;
}

/* ---- activations -------------------------------------------------------- */

/* Are [first, last] all the numbers of a width below that of the type? */
static bool is_width(double first, double last, sb_dtype dtype, bool is_signed)
{
    int most = (int)sb_dtype_get(dtype)->bits;
    double middle = is_signed ? 0 : ldexp(1, most - 1);

    for (int bits = 1; bits < most; bits++) {
        double half = ldexp(1, bits - 1);
        if (!is_signed && first == 0 && last == 2 * half - 1)
            return true;
        if (first == middle - half && last == middle + half - 1)
            return true;
    }
    return false;
}

/* A Clip to the numbers of a smaller width than the type has says the width;
 * it was put there for that, so it goes away with the Q. */
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
    double scale = sb_tensor_get_f64(l->scale, 0);
    double zero = l->zero ? sb_tensor_get_f64(l->zero, 0) : 0;
    double first = rint(from / scale) + zero, last = rint(to / scale) + zero;
    /* NaN is within nothing, and the bounds must hold a number and zero. */
    if (!(first >= *lo && last <= *hi && first <= zero && last >= zero &&
          first < last) ||
        !is_width(first, last, l->dtype, *lo < 0) ||
        fabs((first - zero) * scale - from) > 1e-5 * scale ||
        fabs((last - zero) * scale - to) > 1e-5 * scale)
        return x;
    *lo = (int32_t)first;
    *hi = (int32_t)last;
    return sb_node_in(clip, 0);
}

/* Do only DQ nodes with the same scales read the integers? */
static bool only_dequantized(const sb_graph *g, sb_value_id q, const linear *l)
{
    const sb_value *v = sb_graph_value(g, q);
    linear other;

    for (uint32_t i = 0; i < v->n_uses; i++) {
        const sb_node *reader = sb_graph_node(g, v->uses[i].node);
        if (!sb_node_is(reader, "DequantizeLinear") || v->uses[i].input != 0 ||
            !read_linear(g, reader, &other) || !same_linear(l, &other))
            return false;
    }
    return !v->is_output && v->n_uses > 0;
}

/* Is it only for joining that the integers are there?  What a Concat reads is
 * often quantized a second time, with the scale of the whole. */
static bool only_joined(const sb_graph *g, sb_value_id q)
{
    const sb_value *v = sb_graph_value(g, q);

    for (uint32_t i = 0; i < v->n_uses; i++) {
        const sb_node *dq = sb_graph_node(g, v->uses[i].node);
        const sb_value *y = sb_graph_value(g, dq->outputs[0]);
        for (uint32_t k = 0; k < y->n_uses; k++)
            if (!sb_node_is(sb_graph_node(g, y->uses[k].node), "Concat"))
                return false;
    }
    return true;
}

/* ---- Relus that were left out ------------------------------------------- */

/* Others take away a Relu that a zero point at the lowest number makes
 * needless. It is needed again where a target does not quantize at this place;
 * files of ours keep theirs. */
static bool lacks_relu(const sb_graph *g, sb_value_id x, const linear *l,
                       int32_t lo)
{
    static const char *const ops[] = {"Conv",   "ConvTranspose", "Gemm",
                                      "MatMul", "Add",           "Sub"};
    const sb_node *node = sb_graph_producer(g, x);

    if (!node || !l->zero || sb_tensor_count(l->zero) != 1 ||
        sb_tensor_get_f64(l->zero, 0) != (double)lo ||
        sb_graph_value(g, x)->is_output)
        return false;
    for (uint32_t i = 0; i < sb_graph_value(g, x)->n_uses; i++) {
        sb_use use = sb_graph_value(g, x)->uses[i];
        linear other;
        if (use.input != 0 || !is_live(g, use.node, "QuantizeLinear") ||
            !read_linear(g, sb_graph_node(g, use.node), &other) ||
            !same_linear(l, &other))
            return false;
    }
    for (size_t i = 0; i < g->n_model_props; i++)
        if (strcmp(g->model_props[i].key, "sparsebit.target") == 0)
            return false;
    for (size_t i = 0; i < SB_COUNT(ops); i++)
        if (sb_node_is(node, ops[i]))
            return true;
    return false;
}

/* *x becomes the result of a Relu before all Q that read it. */
static sb_status put_relu(sb_graph *g, sb_value_id *x)
{
    sb_type type = sb_graph_value(g, *x)->type;
    sb_node_id producer = sb_graph_value(g, *x)->producer, relu = SB_NONE;

    SB_TRY(sb_rewrite_add(g, producer, "Relu", x, 1, &type, &relu));
    sb_value_id y = sb_graph_node(g, relu)->outputs[0];
    for (uint32_t i = 0; i < sb_graph_value(g, *x)->n_uses;) {
        sb_use use = sb_graph_value(g, *x)->uses[i];
        if (use.node == relu) {
            i++;
            continue;
        }
        SB_TRY(sb_graph_set_input(g, use.node, use.input, y));
        i = 0; /* the list is shorter now */
    }
    *x = y;
    return SB_OK;
}

/* The readers of all DQ nodes behind a Q read x.  *done is false if a graph
 * output stands against it. */
static sb_status bypass(sb_graph *g, sb_known_list *known, size_t at,
                        sb_value_id q, sb_value_id x, bool *done)
{
    *done = true;
    while (*done && sb_graph_value(g, q)->n_uses > 0) {
        sb_node_id dq = sb_graph_value(g, q)->uses[0].node;
        SB_TRY(note_readers(g, known, &known->v[at],
                            sb_graph_node(g, dq)->outputs[0]));
        SB_TRY(sb_rewrite_forward(g, dq, x, done));
    }
    /* x may have got the name of an output */
    known->v[at].value = sb_arena_str(known->arena, sb_graph_value(g, x)->name);
    return known->v[at].value ? SB_OK : SB_NO_MEMORY;
}

/* x -> Q -> DQ... : readers of every DQ read x. */
static sb_status import_pair(sb_graph *g, sb_known_list *known, sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    sb_value_id q = node->outputs[0];
    int32_t lo = 0, hi = 0;
    bool done = false;
    linear l;

    if (!sb_node_is(node, "QuantizeLinear") || !read_linear(g, node, &l) ||
        !type_bounds(l.dtype, &lo, &hi) || !is_usable(&l) ||
        !only_dequantized(g, q, &l))
        return SB_OK;
    sb_value_id x = node->inputs[0];
    if (lacks_relu(g, x, &l, lo))
        SB_TRY(put_relu(g, &x));
    else
        x = behind_clip(g, x, &l, &lo, &hi);
    const char *name = sb_graph_value(g, x)->name;
    const sb_known *k = sb_known_find(known, name);
    if (k && contradicts(k, &l) && !only_joined(g, q))
        return SB_OK;
    uint32_t n_uses = sb_graph_value(g, x)->n_uses;
    if (!k)
        SB_TRY(remember(g, known, x, &l, lo, hi));
    size_t at = k ? (size_t)(k - known->v) : known->n - 1;
    if (!k)
        known->v[at].all = n_uses == 1;
    SB_TRY(bypass(g, known, at, q, x, &done));
    return done ? sb_rewrite_prune(g, id) : SB_OK;
}

sb_status sb_quant_import(sb_graph *g, sb_known_list *known)
{
    SB_TRY(sb_quant_import_tables(g));
    SB_TRY(sb_quant_import_check(g));
    /* Constants first; nodes are only removed, so the numbers stay. */
    for (sb_node_id id = 0; id < g->n_nodes; id++)
        if (is_live(g, id, "DequantizeLinear"))
            SB_TRY(import_constant(g, known, id));
    for (sb_node_id id = 0; id < g->n_nodes; id++)
        if (is_live(g, id, "QuantizeLinear") &&
            !sb_is_const(g, sb_node_in(sb_graph_node(g, id), 0)))
            SB_TRY(import_pair(g, known, id));
    return SB_OK;
}
