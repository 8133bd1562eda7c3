/* Attention: softmax(scale q k' + mask) v with many heads, groups of query
 * heads that share a key head, a cache of past keys and values, causal and
 * windowed masks.
 *
 * Tensors of rank 3 hold the heads side by side in the last dimension; those of
 * rank 4 have a dimension for them. */
#include "ops/attention/attention_util.h"
#include "ops/attention/cached_attention.h"
#include "ops/batch_rules.h"
#include "ops/tie/tie_rules.h"

#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "ops/grad/grad_rules.h"

enum { IN_Q, IN_K, IN_V, IN_MASK, IN_PAST_K, IN_PAST_V, IN_LENS };

typedef struct {
    int64_t is_causal, kv_num_heads, q_num_heads, qk_matmul_output_mode;
    int64_t softmax_precision, left_window_size, right_window_size;
    float scale, softcap;
} attention_attrs;

static const sb_attr_def attrs[] = {
    {"is_causal", SB_ATTR_INT, offsetof(attention_attrs, is_causal), .i = 0,
     .flag = true},
    {"kv_num_heads", SB_ATTR_INT, offsetof(attention_attrs, kv_num_heads),
     .i = 0},
    {"q_num_heads", SB_ATTR_INT, offsetof(attention_attrs, q_num_heads),
     .i = 0},
    {"qk_matmul_output_mode", SB_ATTR_INT,
     offsetof(attention_attrs, qk_matmul_output_mode), .i = 0},
    {"softmax_precision", SB_ATTR_INT,
     offsetof(attention_attrs, softmax_precision), .i = 0},
    {"left_window_size", SB_ATTR_INT,
     offsetof(attention_attrs, left_window_size), .i = -1},
    {"right_window_size", SB_ATTR_INT,
     offsetof(attention_attrs, right_window_size), .i = -1},
    {"scale", SB_ATTR_FLOAT, offsetof(attention_attrs, scale), .f = 0},
    {"softcap", SB_ATTR_FLOAT, offsetof(attention_attrs, softcap), .f = 0},
    {0},
};

/* Sizes of one of q, k, v. */
typedef struct {
    sb_dim batch, heads, len, size;
} head_dims;

static sb_status read_dims(const sb_infer *in, uint32_t i, int64_t heads,
                           head_dims *out)
{
    const sb_shape *s = &in->in[i]->type.shape;

    *out = (head_dims){SB_DIM_UNKNOWN, SB_DIM_UNKNOWN, SB_DIM_UNKNOWN,
                       SB_DIM_UNKNOWN};
    if (s->rank < 0)
        return SB_OK;
    if (s->rank == 4) {
        *out = (head_dims){s->dim[0], s->dim[1], s->dim[2], s->dim[3]};
        return SB_OK;
    }
    if (s->rank != 3 || heads < 1)
        return sb_infer_fail(in,
                             "input %u of rank %d with %lld heads, want "
                             "rank 4, or 3 with the number of heads",
                             i, s->rank, (long long)heads);
    if (sb_dim_known(s->dim[2]) && s->dim[2] % heads)
        return sb_infer_fail(in, "input %u: %lld elements for %lld heads", i,
                             (long long)s->dim[2], (long long)heads);
    *out = (head_dims){s->dim[0], heads, s->dim[1],
                       sb_dim_known(s->dim[2]) ? s->dim[2] / heads
                                               : SB_DIM_UNKNOWN};
    return SB_OK;
}

static bool dims_differ(sb_dim a, sb_dim b)
{
    return sb_dim_known(a) && sb_dim_known(b) && a != b;
}

static sb_status check_inputs(const sb_infer *in, const head_dims *q,
                              const head_dims *k, const head_dims *v)
{
    int rank = in->in[IN_Q]->type.shape.rank;

    for (uint32_t i = IN_K; i <= IN_V; i++)
        if (rank >= 0 && in->in[i]->type.shape.rank >= 0 &&
            in->in[i]->type.shape.rank != rank)
            return sb_infer_fail(in, "q, k and v differ in rank");
    if (dims_differ(q->batch, k->batch) || dims_differ(q->batch, v->batch) ||
        dims_differ(k->heads, v->heads) || dims_differ(k->len, v->len) ||
        dims_differ(q->size, k->size))
        return sb_infer_fail(in, "the shapes of q, k and v do not fit");
    if (sb_dim_known(q->heads) && sb_dim_known(k->heads) &&
        (k->heads < 1 || q->heads % k->heads))
        return sb_infer_fail(in, "%lld query heads for %lld key heads",
                             (long long)q->heads, (long long)k->heads);
    if (!sb_infer_in(in, IN_PAST_K) != !sb_infer_in(in, IN_PAST_V))
        return sb_infer_fail(in, "past_key and past_value go together");
    return SB_OK;
}

/* The past [B, heads, P, size] must fit; returns P. */
static sb_status past_len(const sb_infer *in, uint32_t i, const head_dims *d,
                          sb_dim *out)
{
    const sb_fact *f = sb_infer_in(in, i);

    *out = 0;
    if (!f)
        return SB_OK;
    const sb_shape *s = &f->type.shape;
    *out = s->rank == 4 ? s->dim[2] : SB_DIM_UNKNOWN;
    if (s->rank >= 0 &&
        (s->rank != 4 || dims_differ(s->dim[0], d->batch) ||
         dims_differ(s->dim[1], d->heads) || dims_differ(s->dim[3], d->size)))
        return sb_infer_fail(in, "input %u does not fit the keys and values",
                             i);
    return SB_OK;
}

static sb_status attention_infer(sb_infer *in)
{
    const attention_attrs *a = in->attrs;
    sb_dtype dtype = in->in[IN_Q]->type.dtype;
    int rank = in->in[IN_Q]->type.shape.rank;
    head_dims q, k, v;
    sb_dim past, past_v;

    SB_TRY(read_dims(in, IN_Q, a->q_num_heads, &q));
    SB_TRY(read_dims(in, IN_K, a->kv_num_heads, &k));
    SB_TRY(read_dims(in, IN_V, a->kv_num_heads, &v));
    SB_TRY(check_inputs(in, &q, &k, &v));
    SB_TRY(past_len(in, IN_PAST_K, &k, &past));
    SB_TRY(past_len(in, IN_PAST_V, &v, &past_v));
    if (dims_differ(past, past_v))
        return sb_infer_fail(in, "past_key and past_value differ in length");
    sb_dim total = sb_dim_add(past, k.len);
    sb_shape y = sb_shape_of_rank(rank);
    if (rank == 3) {
        y = (sb_shape){3, {q.batch, q.len, sb_dim_mul(q.heads, v.size)}};
    } else if (rank == 4) {
        y = (sb_shape){4, {q.batch, q.heads, q.len, v.size}};
    }
    sb_shape pk = {4, {k.batch, k.heads, total, k.size}};
    sb_shape pv = {4, {v.batch, v.heads, total, v.size}};
    sb_shape qk = {4, {q.batch, q.heads, q.len, total}};
    sb_infer_set(in, 0, dtype, &y);
    sb_infer_set(in, 1, in->in[IN_K]->type.dtype, &pk);
    sb_infer_set(in, 2, in->in[IN_V]->type.dtype, &pv);
    sb_infer_set(in, 3, dtype, &qk);
    return SB_OK;
}

/* ---- preparing ---------------------------------------------------------- */

typedef struct {
    sb_attention att;
    int64_t past;         /* positions of the cache */
    bool join;            /* keys and values are joined with the past */
    bool cached;          /* keys and values are a cache, partly filled */
    size_t lanes;         /* threads that there is room for then */
    size_t at_k, at_v;    /* room for that, if no output takes it */
    int64_t mask_step[4]; /* strides of the mask by (b, h, query, key) */
    int64_t mask_keys;    /* its last dimension */
} attention_state;

static sb_heads heads_of(const sb_tensor *t, int64_t heads)
{
    if (t->rank == 4)
        return (sb_heads){t->dims[1] * t->dims[2] * t->dims[3],
                          t->dims[2] * t->dims[3], t->dims[3]};
    return (sb_heads){t->dims[1] * t->dims[2], heads ? t->dims[2] / heads : 0,
                      t->dims[2]};
}

static sb_status plan_mask(sb_kernel *k, attention_state *s)
{
    const sb_tensor *mask = sb_kernel_in(k, IN_MASK);
    const sb_attention *a = &s->att;
    int64_t want[4] = {a->n_batch, a->q_heads, a->q_len, a->k_len};
    int64_t step = 1;

    if (!mask)
        return SB_OK;
    if (mask->dtype != SB_DTYPE_F32 && mask->dtype != SB_DTYPE_BOOL)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "mask of type %s",
                              sb_dtype_name(mask->dtype));
    if (mask->rank < 1 || mask->rank > 4)
        return sb_kernel_fail(k, SB_BAD_MODEL, "mask of rank %d, want 1 to 4",
                              mask->rank);
    for (int d = 3, o = mask->rank - 1; o >= 0; d--, o--) {
        int64_t n = mask->dims[o];
        if (d == 3 ? n > want[d] : n != 1 && n != want[d])
            return sb_kernel_fail(k, SB_BAD_MODEL,
                                  "dimension %d of the mask is %lld, want %lld",
                                  o, (long long)n, (long long)want[d]);
        s->mask_step[d] = n == 1 && d != 3 ? 0 : step;
        step *= n;
    }
    s->mask_keys = mask->dims[mask->rank - 1];
    return SB_OK;
}

/* Room for joined keys and values that no output holds. */
static void plan_join(sb_kernel *k, attention_state *s)
{
    sb_attention *a = &s->att;
    int64_t heads = a->n_batch * a->kv_heads * a->k_len;
    size_t k_bytes = (size_t)(heads * a->head_size) * sizeof(float);
    size_t v_bytes = (size_t)(heads * a->v_head_size) * sizeof(float);

    s->at_k = (a->scratch + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
    s->at_v = s->at_k + (sb_kernel_out(k, 1) ? 0 : k_bytes);
    k->scratch_size = s->at_v + (sb_kernel_out(k, 2) ? 0 : v_bytes);
}

static sb_status attention_prepare(sb_kernel *k)
{
    const attention_attrs *t = k->attrs;
    const sb_tensor *q = k->in[IN_Q], *key = k->in[IN_K], *v = k->in[IN_V];
    const sb_tensor *past = sb_kernel_in(k, IN_PAST_K);
    const sb_tensor *lens = sb_kernel_in(k, IN_LENS);
    attention_state *s = sb_alloc(k->ctx, 1, sizeof *s);
    bool flat = q->rank == 3;

    if (!s)
        return SB_NO_MEMORY;
    k->state = s;
    sb_attention *a = &s->att;
    a->n_batch = q->dims[0];
    a->q_heads = flat ? t->q_num_heads : q->dims[1];
    a->kv_heads = flat ? t->kv_num_heads : key->dims[1];
    a->q_len = q->dims[flat ? 1 : 2];
    s->past = past ? past->dims[2] : 0;
    a->k_len = key->dims[flat ? 1 : 2] + s->past;
    a->head_size = flat ? q->dims[2] / a->q_heads : q->dims[3];
    a->v_head_size = flat ? v->dims[2] / a->kv_heads : v->dims[3];
    if (lens && (lens->dtype != SB_DTYPE_I64 || lens->rank != 1 ||
                 lens->dims[0] != a->n_batch || past))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "nonpad_kv_seqlen wants one int64 an image, "
                              "without past");
    a->q = heads_of(q, a->q_heads);
    a->k = heads_of(key, a->kv_heads);
    a->v = heads_of(v, a->kv_heads);
    a->y = heads_of(k->out[0], a->q_heads);
    a->scale = t->scale > 0 || t->scale < 0
                   ? t->scale
                   : (float)(1 / sqrt((double)a->head_size));
    a->softcap = t->softcap;
    s->join = past || sb_kernel_out(k, 1) || sb_kernel_out(k, 2);
    if (s->join) {
        a->k = (sb_heads){a->kv_heads * a->k_len * a->head_size,
                          a->k_len * a->head_size, a->head_size};
        a->v = (sb_heads){a->kv_heads * a->k_len * a->v_head_size,
                          a->k_len * a->v_head_size, a->v_head_size};
    }
    SB_TRY(plan_mask(k, s));
    s->cached = lens && t->is_causal && !s->join && !sb_kernel_in(k, IN_MASK) &&
                !sb_kernel_out(k, 3) && t->right_window_size < 0;
    if (s->cached) {
        s->lanes = k->ctx->n_threads > 1 ? (size_t)k->ctx->n_threads : 1;
        k->scratch_size = sb_cached_bytes(a, s->lanes);
        return SB_OK;
    }
    a->causal = t->is_causal && !lens && !sb_kernel_out(k, 3);
    a->past = s->past;
    SB_TRY(sb_attention_plan(k, a));
    k->scratch_size = a->scratch;
    if (s->join)
        plan_join(k, s);
    return SB_OK;
}

/* ---- running ------------------------------------------------------------ */

/* Past and new positions of keys or values into [B, heads, total, size]. */
static void join_past(const attention_state *s, const sb_tensor *past,
                      const sb_tensor *t, int64_t size, float *to)
{
    const sb_attention *a = &s->att;
    sb_heads from = heads_of(t, a->kv_heads);
    int64_t fresh = a->k_len - s->past;

    for (int64_t i = 0; i < a->n_batch * a->kv_heads; i++) {
        const float *x = (const float *)t->data + i / a->kv_heads * from.b +
                         i % a->kv_heads * from.h;
        float *y = to + i * a->k_len * size;
        if (past)
            memcpy(y, (const float *)past->data + i * s->past * size,
                   (size_t)(s->past * size) * sizeof *y);
        y += s->past * size;
        for (int64_t p = 0; p < fresh; p++)
            memcpy(y + p * size, x + p * from.s, (size_t)size * sizeof *y);
    }
}

/* What queries see: the causal frontier, the window, the length, the mask. */
static void attention_bias(const void *arg, int64_t b, int64_t h, int64_t query,
                           float *row, int64_t n)
{
    const sb_kernel *k = arg;
    const attention_attrs *t = k->attrs;
    const attention_state *s = k->state;
    const sb_tensor *mask = sb_kernel_in(k, IN_MASK);
    const sb_tensor *lens = sb_kernel_in(k, IN_LENS);
    int64_t len = lens ? ((const int64_t *)lens->data)[b] : n;
    int64_t at = query + (lens ? len - s->att.q_len : s->past);
    int64_t end = len < 0 ? 0 : len < n ? len : n, begin = 0;

    if (mask) {
        int64_t start =
            b * s->mask_step[0] + h * s->mask_step[1] + query * s->mask_step[2];
        for (int64_t i = 0; i < s->mask_keys && i < n; i++)
            if (mask->dtype == SB_DTYPE_F32)
                row[i] += ((const float *)mask->data)[start + i];
            else if (!((const uint8_t *)mask->data)[start + i])
                row[i] = -INFINITY;
        end = s->mask_keys < end ? s->mask_keys : end;
    }
    if (t->is_causal && at + 1 < end)
        end = at + 1;
    if (t->right_window_size >= 0 && t->right_window_size < end - at - 1)
        end = at + t->right_window_size + 1;
    if (t->left_window_size >= 0 && at - begin > t->left_window_size)
        begin = at - t->left_window_size;
    for (int64_t i = 0; i < begin && i < n; i++)
        row[i] = -INFINITY;
    for (int64_t i = end < 0 ? 0 : end; i < n; i++)
        row[i] = -INFINITY;
}

static sb_status forward_cached(const sb_kernel *k, const attention_state *s)
{
    const attention_attrs *t = k->attrs;
    const sb_attention *a = &s->att;
    const sb_cached_args args = {.q = k->in[IN_Q]->data,
                                 .k = k->in[IN_K]->data,
                                 .v = k->in[IN_V]->data,
                                 .y = k->out[0]->data,
                                 .scratch = k->scratch,
                                 .lanes = s->lanes,
                                 .lens = k->in[IN_LENS]->data,
                                 .left = t->left_window_size};

    sb_cached_attention(k->ctx, a, &args);
    return SB_OK;
}

static sb_status attention_forward(sb_kernel *k)
{
    const attention_attrs *t = k->attrs;
    const attention_state *s = k->state;
    if (s->cached)
        return forward_cached(k, s);
    sb_tensor *show = sb_kernel_out(k, 3);
    sb_attention_args args = {
        .q = k->in[IN_Q]->data,
        .k = k->in[IN_K]->data,
        .v = k->in[IN_V]->data,
        .y = k->out[0]->data,
        .scratch = k->scratch,
        .bias = attention_bias,
        .bias_arg = k,
        .show = show ? show->data : NULL,
        .what = (sb_attention_show)t->qk_matmul_output_mode,
    };

    if (s->join) {
        char *scratch = k->scratch;
        sb_tensor *pk = sb_kernel_out(k, 1), *pv = sb_kernel_out(k, 2);
        float *to_k = pk ? pk->data : (void *)(scratch + s->at_k);
        float *to_v = pv ? pv->data : (void *)(scratch + s->at_v);
        join_past(s, sb_kernel_in(k, IN_PAST_K), k->in[IN_K], s->att.head_size,
                  to_k);
        join_past(s, sb_kernel_in(k, IN_PAST_V), k->in[IN_V],
                  s->att.v_head_size, to_v);
        args.k = to_k;
        args.v = to_v;
    }
    return sb_attention_run(k->ctx, &s->att, &args);
}

static void attention_release(sb_kernel *k)
{
    attention_state *s = k->state;

    if (s)
        sb_attention_free(k->ctx, &s->att);
    sb_free(k->ctx, s);
}

static double attention_macs(const sb_kernel *k)
{
    const attention_attrs *t = k->attrs;
    const sb_tensor *q = k->in[IN_Q], *key = k->in[IN_K], *v = k->in[IN_V];
    const sb_tensor *past = sb_kernel_in(k, IN_PAST_K);

    if (q->rank < 3 || key->rank != q->rank || v->rank != q->rank)
        return 0;
    double keys = (double)key->dims[q->rank - 2] +
                  (past && past->rank == 4 ? (double)past->dims[2] : 0);
    double queries = (double)q->dims[0] * (double)q->dims[q->rank - 2];
    double q_size = (double)q->dims[q->rank - 1], heads = 1;
    double v_size = (double)v->dims[q->rank - 1];
    if (q->rank == 4)
        heads = (double)q->dims[1];
    else if (t->kv_num_heads > 0)
        v_size *= (double)t->q_num_heads / (double)t->kv_num_heads;
    return queries * keys * heads * (q_size + v_size);
}

const sb_op_def sb_op_attention = {
    .name = "Attention",
    .since = 23,
    .in_min = 3,
    .in_max = 7,
    .out_min = 1,
    .out_max = 4,
    .flags = SB_OP_F32,
    .any_type = 1u << IN_MASK | 1u << IN_LENS,
    .attrs_size = sizeof(attention_attrs),
    .attrs = attrs,
    .batch = sb_batch_first,
    .infer = attention_infer,
    .prepare = attention_prepare,
    .forward = attention_forward,
    .release = attention_release,
    .macs = attention_macs,
    .grad = sb_grad_attention,
    .tie = sb_tie_attention,
    .recut = sb_recut_heads,
};
