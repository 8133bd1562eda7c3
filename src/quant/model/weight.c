/* Weights of quantizers as floats and as integers. */
#include "quant/model/weight.h"

#include <math.h>

#include "base/simd.h"
#include "base/threads.h"
#include "graph/op.h"
#include "quant/model/overlay.h"
#include "quant/quantize/rounding.h"
#include "tensor/mapped.h"

/* ---- floats ------------------------------------------------------------- */

void sb_quantizer_map_weight(const sb_quantizer *q, const sb_tensor *w,
                             float *to)
{
    sb_convert(w->dtype, w->data, SB_DTYPE_F32, to, (size_t)sb_tensor_count(w));
    sb_tensor_release_pages(w);
    if (q->def->map_weight)
        q->def->map_weight(&q->spec, to, sb_tensor_count(w));
}

sb_status sb_quantizer_weight(const sb_quant_model *qm, const sb_quantizer *q,
                              sb_tensor *out)
{
    const sb_tensor *w = sb_overlay_constant(qm, q->value);
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, w->rank, w->dims);
    /* What lies over a weight is in the domain already. */
    bool mapped = w != &sb_graph_value(qm->graph, q->value)->constant;

    if (w->dtype == SB_DTYPE_F32 && w->buf && (!q->def->map_weight || mapped) &&
        (uintptr_t)w->data % sizeof(float) == 0) {
        *out = sb_tensor_share(w);
        return SB_OK;
    }
    SB_TRY(sb_tensor_alloc_weight_raw(qm->ctx, &t));
    sb_quantizer_map_weight(q, w, t.data);
    *out = t;
    return SB_OK;
}

int64_t sb_quantizer_scale_at(const sb_quantizer *q, const sb_tensor *w,
                              int64_t i)
{
    if (q->axis < 0)
        return 0;
    int64_t n = w->dims[q->axis];
    int64_t inner = sb_dims_product(w->dims, q->axis + 1, w->rank);
    int64_t at = i / inner % n;

    return q->block == 0 ? at
                         : (i / inner / n * ((n + q->block - 1) / q->block) +
                            at / q->block) *
                                   inner +
                               i % inner;
}

sb_status sb_quantizer_rounded(const sb_quant_model *qm, const sb_quantizer *q,
                               sb_tensor *out)
{
    const sb_qparams *p = sb_quantizer_qparams(qm, q);
    sb_tensor w;

    SB_TRY(sb_quantizer_weight(qm, q, &w));
    *out = sb_tensor_make(SB_DTYPE_F32, w.rank, w.dims);
    sb_status status = sb_tensor_alloc_raw(qm->ctx, out);
    for (int64_t i = 0; status == SB_OK && i < sb_tensor_count(&w); i++) {
        int64_t at = sb_quantizer_scale_at(q, &w, i);

        ((float *)out->data)[i] =
            sb_rounded(((const float *)w.data)[i], p->scale[at],
                       p->zero_point[at], p->qmin, p->qmax);
    }
    sb_tensor_drop(&w);
    return status;
}

/* ---- types of integers -------------------------------------------------- */

static sb_dtype weight_container(int bits, bool is_signed)
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
static bool weight_is_table(const sb_quant_model *qm, const sb_quantizer *q)
{
    const sb_op_def *op =
        q->n_uses > 0 ? sb_op_of(sb_graph_node(qm->graph, q->uses[0].node))
                      : NULL;

    return op && op->quant == SB_ROLE_TABLE && q->uses[0].input == 0;
}

/* The width of the least type of the target that holds `bits`. */
static int weight_fit_bits(uint32_t types, int bits)
{
    while (bits < 8 &&
           !sb_target_has_type(types, weight_container(bits, true)) &&
           !sb_target_has_type(types, weight_container(bits, false)))
        bits++;
    return bits;
}

sb_integer_type sb_quantizer_type(const sb_quant_model *qm,
                                  const sb_quantizer *q)
{
    const sb_target_def *target = qm->target;
    bool weight = q->spec.kind == SB_QUANT_WEIGHT;
    uint32_t types = weight ? target->weight_types : target->act_types;
    bool is_signed = q->spec.symmetric;
    bool only =
        sb_quant_config_mode(qm->config) == SB_QUANT_WEIGHTS_ONLY && weight;
    int bits = q->spec.bits;
    sb_integer_type t = {0};

    /* Integer kernels take bytes: fewer bits are bytes with tight bounds.
     * Where a weight is integers alone, nibbles and pairs of bits save room;
     * pairs are so new a type that only then they are worth it. */
    if (bits == 2 ? !only : bits < 8 && !only && target->ops)
        bits = 8;
    if (bits < 8 && (sb_quant_config_mode(qm->config) == SB_QUANT_DYNAMIC ||
                     (target->ops && weight_is_table(qm, q))))
        bits = 8;
    bits = weight_fit_bits(types, bits);
    if (is_signed && !sb_target_has_type(types, weight_container(bits, true))) {
        is_signed = false;
        t.offset = 1 << (bits - 1);
    }
    t.dtype = weight_container(bits, is_signed);
    t.clip = !weight && q->spec.bits < (int)sb_dtype_get(t.dtype)->bits;
    return t;
}

/* ---- integers ----------------------------------------------------------- */

enum {
    /* Elements that are rounded at once; whole bytes of any type. */
    WEIGHT_CHUNK = 4096
};

typedef struct integer_job {
    const float *x;
    const sb_qparams *p;
    sb_integer_type type;
    uint8_t *to;
    int64_t n;
    /* Which scales: [outer, n_axis, n_inner], a scale for `block` indices of
     * the axis; one for all if the axis is -1. */
    bool one;
    int64_t n_axis, n_inner, block, n_block;
} integer_job;

/* Elements that share a scale. */
SB_HOT static void round_run(const float *x, int64_t n, float scale, float zero,
                             const float *bounds, float *to)
{
    const float lo = bounds[0], hi = bounds[1], offset = bounds[2];

    SB_SIMD
    for (int64_t i = 0; i < n; i++) {
        float v = rintf(x[i] / scale) + zero;
        v = v < lo ? lo : v;
        to[i] = (v > hi ? hi : v) + offset;
    }
}

/* Elements that have a scale each. */
SB_HOT static void round_each(const float *x, int64_t n, const float *scale,
                              const float *zero, const float *bounds, float *to)
{
    const float lo = bounds[0], hi = bounds[1], offset = bounds[2];

    SB_SIMD
    for (int64_t i = 0; i < n; i++) {
        float v = rintf(x[i] / scale[i]) + zero[i];
        v = v < lo ? lo : v;
        to[i] = (v > hi ? hi : v) + offset;
    }
}

/* How many elements from `i` on take one scale, or neighboring ones (*each);
 * *at is the first. */
static int64_t scales_at(const integer_job *j, int64_t i, int64_t *at,
                         bool *each)
{
    *at = 0;
    *each = false;
    if (j->one)
        return j->n - i;
    int64_t inner = i % j->n_inner, a = i / j->n_inner % j->n_axis;
    int64_t outer = i / j->n_inner / j->n_axis;
    if (j->block == 0) { /* a scale an index of the axis, for all outer ones */
        *at = a;
        *each = j->n_inner == 1;
        return *each ? j->n_axis - a : j->n_inner - inner;
    }
    *at = (outer * j->n_block + a / j->block) * j->n_inner + inner;
    *each = j->n_inner > 1;
    int64_t left = j->block - a % j->block;
    return *each                  ? j->n_inner - inner
           : left < j->n_axis - a ? left
                                  : j->n_axis - a;
}

/* Whole numbers within the bounds of a type of bytes, signed or not; what is no
 * number is 0, as in sb_convert(). */
SB_HOT static void store_bytes(const float *codes, int64_t n, uint8_t *to)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        to[i] = (uint8_t)(int32_t)(isnan(codes[i]) ? 0 : codes[i]);
}

static void integer_chunks(void *arg, size_t begin, size_t end)
{
    const integer_job *j = arg;
    const sb_qparams *p = j->p;
    const float bounds[3] = {(float)p->qmin, (float)p->qmax,
                             (float)j->type.offset};
    size_t bits = sb_dtype_get(j->type.dtype)->bits;
    float codes[WEIGHT_CHUNK];

    for (size_t c = begin; c < end; c++) {
        int64_t first = (int64_t)c * WEIGHT_CHUNK, n = j->n - first;
        n = n < WEIGHT_CHUNK ? n : WEIGHT_CHUNK;
        for (int64_t done = 0, run; done < n; done += run) {
            const float *x = j->x + first + done;
            int64_t at;
            bool each;
            run = scales_at(j, first + done, &at, &each);
            run = run < n - done ? run : n - done;
            if (each)
                round_each(x, run, p->scale + at, p->zero_point + at, bounds,
                           codes + done);
            else
                round_run(x, run, p->scale[at], p->zero_point[at], bounds,
                          codes + done);
        }
        if (bits == 8)
            store_bytes(codes, n, j->to + first);
        else
            sb_convert(SB_DTYPE_F32, codes, j->type.dtype,
                       j->to + (size_t)first * bits / 8, (size_t)n);
    }
}

sb_status sb_quantizer_integers(const sb_quant_model *qm, const sb_quantizer *q,
                                sb_tensor *out)
{
    sb_integer_type type = sb_quantizer_type(qm, q);
    sb_tensor w;

    SB_TRY(sb_quantizer_weight(qm, q, &w));
    sb_tensor t = sb_tensor_make(type.dtype, w.rank, w.dims);
    integer_job job = {.x = w.data,
                       .p = sb_quantizer_qparams(qm, q),
                       .type = type,
                       .n = sb_tensor_count(&w),
                       .one = q->axis < 0,
                       .block = q->block};
    sb_status status = sb_tensor_alloc_weight(qm->ctx, &t);
    if (status == SB_OK && job.n > 0) {
        job.to = t.data;
        if (!job.one) {
            job.n_axis = w.dims[q->axis];
            job.n_inner = sb_dims_product(w.dims, q->axis + 1, w.rank);
            job.n_block =
                q->block > 0 ? (job.n_axis + q->block - 1) / q->block : 0;
        }
        sb_parallel_for(qm->ctx, (size_t)((job.n - 1) / WEIGHT_CHUNK + 1), 4,
                        integer_chunks, &job);
        sb_tensor_release_pages(&w);
        sb_tensor_release_pages(&t);
    }
    sb_tensor_drop(&w);
    if (status == SB_OK)
        *out = t;
    return status;
}
