/* com.microsoft GroupQueryAttention: attention of language models as ONNX
 * Runtime's own exporter writes it.
 *
 * New keys, rotated by their positions, and new values go behind those of the
 * past into present_key and present_value [batch, kv heads, length, size], and
 * each query sees the keys up to its own.  seqlens_k says how many positions
 * count in each row of a batch, less one; the first prompt, where all positions
 * are new, may be filled up at its end.  q, k and v come apart, or side by side
 * in the first input.
 *
 * Not here: caches of integers, rings of keys, norms of q and k inside, and
 * scores as a result. */
#include "ops/attention/cached_attention.h"
#include "ops/attention/rotary.h"

#include <math.h>
#include <string.h>

#include "base/threads.h"

enum {
    IN_Q,
    IN_K,
    IN_V,
    IN_PAST_K,
    IN_PAST_V,
    IN_LENS,
    IN_TOTAL,
    IN_COS,
    IN_SIN,
    IN_IDS,
    IN_BIAS,
    IN_SINK
};

typedef struct {
    int64_t causal, do_rotary, kv_num_heads, local_window_size, num_heads;
    int64_t qk_output, rotary_interleaved, sliding_window_cache, smooth_softmax;
    int64_t kv_cache_bit_width;
    float scale, softcap;
} gqa_attrs;

#define ATTR(field) offsetof(gqa_attrs, field)

static const sb_attr_def gqa_attr_defs[] = {
    {"causal", SB_ATTR_INT, ATTR(causal), .i = 1, .flag = true},
    {"do_rotary", SB_ATTR_INT, ATTR(do_rotary), .i = 0, .flag = true},
    {"kv_cache_bit_width", SB_ATTR_INT, ATTR(kv_cache_bit_width), .i = 0},
    {"kv_num_heads", SB_ATTR_INT, ATTR(kv_num_heads), .required = true},
    {"local_window_size", SB_ATTR_INT, ATTR(local_window_size), .i = -1},
    {"num_heads", SB_ATTR_INT, ATTR(num_heads), .required = true},
    {"qk_output", SB_ATTR_INT, ATTR(qk_output), .i = 0},
    {"rotary_interleaved", SB_ATTR_INT, ATTR(rotary_interleaved), .i = 0,
     .flag = true},
    {"scale", SB_ATTR_FLOAT, ATTR(scale), .f = 0},
    {"sliding_window_cache", SB_ATTR_INT, ATTR(sliding_window_cache), .i = 0,
     .flag = true},
    {"smooth_softmax", SB_ATTR_INT, ATTR(smooth_softmax), .i = 0, .flag = true},
    {"softcap", SB_ATTR_FLOAT, ATTR(softcap), .f = 0},
    {0},
};

/* ---- shapes ------------------------------------------------------------- */

/* How long the caches become: what is counted, or what there is room for. */
static sb_dim present_len(const sb_infer *in)
{
    const sb_fact *past = sb_infer_in(in, IN_PAST_K);
    const sb_fact *total = in->in[IN_TOTAL];
    sb_dim have = 0, want = SB_DIM_UNKNOWN;
    int64_t n = 0;

    if (past)
        have = past->type.shape.rank == 4 ? past->type.shape.dim[2]
                                          : SB_DIM_UNKNOWN;
    if (sb_infer_ints(in, IN_TOTAL, &n, 1) == 1 && n >= 0)
        want = n;
    else if (total->content.rank == 1)
        want = total->content.dim[0];
    if (!past || (sb_dim_known(have) && have == 0))
        return want;
    if (sb_dim_known(have) && sb_dim_known(want))
        return have > want ? have : want;
    return SB_DIM_UNKNOWN;
}

static sb_status gqa_infer(sb_infer *in)
{
    const gqa_attrs *a = in->attrs;
    const sb_shape *q = &in->in[IN_Q]->type.shape;
    sb_dtype dtype = in->in[IN_Q]->type.dtype;
    bool packed = !sb_infer_in(in, IN_K);

    if (a->num_heads < 1 || a->num_heads > 1 << 16 || a->kv_num_heads < 1 ||
        a->num_heads % a->kv_num_heads)
        return sb_infer_fail(in, "%lld query heads for %lld key heads",
                             (long long)a->num_heads,
                             (long long)a->kv_num_heads);
    if (!sb_infer_in(in, IN_LENS) || !sb_infer_in(in, IN_TOTAL))
        return sb_infer_fail(in, "want seqlens_k and total_sequence_length");
    if (q->rank >= 0 && q->rank != 3)
        return sb_infer_fail(in, "query of rank %d, want 3", q->rank);
    int64_t heads = a->num_heads + (packed ? 2 * a->kv_num_heads : 0);
    sb_dim size = SB_DIM_UNKNOWN;
    if (q->rank == 3 && sb_dim_known(q->dim[2])) {
        if (q->dim[2] % heads)
            return sb_infer_fail(in, "%lld elements of a query for %lld heads",
                                 (long long)q->dim[2], (long long)heads);
        size = q->dim[2] / heads;
    }
    sb_dim batch = q->rank == 3 ? q->dim[0] : SB_DIM_UNKNOWN;
    sb_dim len = q->rank == 3 ? q->dim[1] : SB_DIM_UNKNOWN;
    sb_shape y = {3, {batch, len, sb_dim_mul(a->num_heads, size)}};
    sb_shape cache = {4, {batch, a->kv_num_heads, present_len(in), size}};
    sb_infer_set(in, 0, dtype, &y);
    for (uint32_t i = 1; i <= 2; i++) {
        const sb_fact *past = sb_infer_in(in, IN_PAST_K + i - 1);

        sb_infer_set(in, i, past ? past->type.dtype : dtype, &cache);
    }
    return SB_OK;
}

/* ---- preparing ---------------------------------------------------------- */

typedef struct {
    sb_attention att;
    int64_t fresh;    /* new positions of keys and values; 0: none are added */
    int64_t past;     /* positions there is room for in the past */
    sb_heads k, v;    /* where new keys and values lie */
    int64_t at_value; /* in the first input, where all are packed */
    sb_rotation turn;
    size_t lanes;
    /* Places in the scratch: rotated queries, caches that no output holds,
     * positions. */
    size_t at_q, at_k, at_v, at_lens;
} gqa_state;

static sb_status gqa_refuse(const sb_kernel *k)
{
    const gqa_attrs *a = k->attrs;

    for (uint32_t i = IN_SINK + 1; i < k->n_in; i++)
        if (k->in[i])
            return sb_kernel_fail(k, SB_UNSUPPORTED, "input %u is given", i);
    if (a->qk_output || sb_kernel_out(k, 3))
        return sb_kernel_fail(k, SB_UNSUPPORTED, "qk_output is %lld, want 0",
                              (long long)a->qk_output);
    if (a->sliding_window_cache || a->kv_cache_bit_width)
        return sb_kernel_fail(k, SB_UNSUPPORTED,
                              "a cache of %lld bits, sliding_window_cache %lld",
                              (long long)a->kv_cache_bit_width,
                              (long long)a->sliding_window_cache);
    if (a->local_window_size < -1 || a->local_window_size == 0 ||
        (a->local_window_size > 0 && !a->causal))
        return sb_kernel_fail(
            k, SB_BAD_MODEL, "local_window_size is %lld with causal %lld",
            (long long)a->local_window_size, (long long)a->causal);
    return SB_OK;
}

static bool dims_are(const sb_tensor *t, int rank, const int64_t *dims)
{
    return t->rank == rank &&
           memcmp(t->dims, dims, (size_t)rank * sizeof *dims) == 0;
}

/* Sizes of q, k, v and of the past. */
static sb_status gqa_sizes(sb_kernel *k, gqa_state *s)
{
    const gqa_attrs *t = k->attrs;
    const sb_tensor *q = k->in[IN_Q], *key = sb_kernel_in(k, IN_K);
    const sb_tensor *v = sb_kernel_in(k, IN_V);
    const sb_tensor *past[2] = {sb_kernel_in(k, IN_PAST_K),
                                sb_kernel_in(k, IN_PAST_V)};
    sb_attention *a = &s->att;
    int64_t heads = t->num_heads + (key ? 0 : 2 * t->kv_num_heads);

    if (!key != !v || !past[0] != !past[1])
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "keys and values must both be given, or none");
    a->n_batch = q->dims[0];
    a->q_heads = t->num_heads;
    a->kv_heads = t->kv_num_heads;
    a->q_len = q->dims[1];
    a->head_size = a->v_head_size = q->dims[2] / heads;
    s->fresh = key ? key->rank == 3 ? key->dims[1] : -1 : a->q_len;
    s->past = past[0] && past[0]->rank == 4 ? past[0]->dims[2] : 0;
    int64_t hidden = a->kv_heads * a->head_size;
    int64_t want[3] = {a->n_batch, s->fresh, hidden};
    int64_t room[4] = {a->n_batch, a->kv_heads, s->past, a->head_size};
    if ((key && (!dims_are(key, 3, want) || !dims_are(v, 3, want))) ||
        (past[0] &&
         (!dims_are(past[0], 4, room) || !dims_are(past[1], 4, room))) ||
        (s->fresh != a->q_len && (s->fresh != 0 || !past[0])))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "the shapes of keys, values and past do not fit "
                              "%lld queries and %lld heads of %lld",
                              (long long)a->q_len, (long long)a->kv_heads,
                              (long long)a->head_size);
    a->q = (sb_heads){a->q_len * q->dims[2], a->head_size, q->dims[2]};
    s->k = s->v =
        key ? (sb_heads){s->fresh * hidden, a->head_size, hidden} : a->q;
    s->at_value = hidden;
    return SB_OK;
}

static sb_status gqa_check_rotary(sb_kernel *k, gqa_state *s)
{
    const gqa_attrs *t = k->attrs;
    const sb_tensor *c = sb_kernel_in(k, IN_COS), *n = sb_kernel_in(k, IN_SIN);
    const sb_tensor *ids = sb_kernel_in(k, IN_IDS);
    const sb_attention *a = &s->att;

    s->turn = (sb_rotation){a->head_size, 0, t->rotary_interleaved != 0};
    if (!t->do_rotary)
        return SB_OK;
    if (!c || !n || c->rank != 2 || !dims_are(n, 2, c->dims) ||
        2 * c->dims[1] > a->head_size)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "do_rotary wants cos_cache and sin_cache "
                              "[positions, at most %lld]",
                              (long long)(a->head_size / 2));
    if (ids && (ids->dtype != SB_DTYPE_I64 ||
                !dims_are(ids, 2, (int64_t[]){a->n_batch, a->q_len})))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "position_ids wants int64 [batch, length]");
    s->turn.half = c->dims[1];
    return SB_OK;
}

static sb_status gqa_check_rest(const sb_kernel *k, const sb_attention *a)
{
    const sb_tensor *lens = k->in[IN_LENS], *total = k->in[IN_TOTAL];
    const sb_tensor *bias = sb_kernel_in(k, IN_BIAS);
    const sb_tensor *sink = sb_kernel_in(k, IN_SINK);

    if (lens->dtype != SB_DTYPE_I32 || sb_tensor_count(lens) != a->n_batch ||
        total->dtype != SB_DTYPE_I32 || sb_tensor_count(total) != 1)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "seqlens_k and total_sequence_length want %lld "
                              "and 1 elements of type int32",
                              (long long)a->n_batch);
    if (bias && (bias->rank != 4 ||
                 (bias->dims[0] != 1 && bias->dims[0] != a->n_batch) ||
                 (bias->dims[1] != 1 && bias->dims[1] != a->q_heads) ||
                 bias->dims[2] != a->q_len || bias->dims[3] > a->k_len))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "attention_bias does not fit %lld queries and "
                              "%lld keys",
                              (long long)a->q_len, (long long)a->k_len);
    if (sink && (sink->rank != 1 || sink->dims[0] != a->q_heads))
        return sb_kernel_fail(k, SB_BAD_MODEL, "head_sink wants %lld elements",
                              (long long)a->q_heads);
    return SB_OK;
}

static size_t gqa_room(size_t *total, size_t count, size_t size)
{
    size_t at = *total;

    *total += (count * size + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
    return at;
}

static sb_status gqa_prepare(sb_kernel *k)
{
    const gqa_attrs *t = k->attrs;
    gqa_state *s = sb_alloc(k->ctx, 1, sizeof *s);
    const sb_tensor *out =
        sb_kernel_out(k, 1) ? sb_kernel_out(k, 1) : sb_kernel_out(k, 2);
    int64_t total = 0;

    if (!s)
        return SB_NO_MEMORY;
    k->state = s;
    sb_attention *a = &s->att;
    SB_TRY(gqa_refuse(k));
    SB_TRY(gqa_sizes(k, s));
    SB_TRY(gqa_check_rotary(k, s));
    if (out)
        total = out->dims[2];
    else if (k->in[IN_TOTAL]->data)
        sb_kernel_ints(k, IN_TOTAL, &total, 1);
    else
        return sb_kernel_fail(k, SB_UNSUPPORTED,
                              "a computed total_sequence_length without "
                              "present_key");
    a->k_len = total > s->past ? total : s->past;
    SB_TRY(gqa_check_rest(k, a));
    const sb_tensor room = sb_tensor_make(
        SB_DTYPE_F32, 4,
        (int64_t[]){a->n_batch, a->kv_heads, a->k_len, a->head_size});
    if (!sb_tensor_size_ok(&room))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "a cache of %lld positions is too large",
                              (long long)a->k_len);
    a->y = (sb_heads){a->q_len * a->q_heads * a->head_size, a->head_size,
                      a->q_heads * a->head_size};
    a->k = a->v = (sb_heads){a->kv_heads * a->k_len * a->head_size,
                             a->k_len * a->head_size, a->head_size};
    a->scale = t->scale > 0 || t->scale < 0
                   ? t->scale
                   : (float)(1 / sqrt((double)a->head_size));
    a->softcap = t->softcap;
    s->lanes = k->ctx->n_threads > 1 ? (size_t)k->ctx->n_threads : 1;
    size_t at = 0, cache = (size_t)(a->n_batch * a->k.b);
    gqa_room(&at, sb_cached_bytes(a, s->lanes), 1);
    s->at_q = gqa_room(&at, t->do_rotary ? (size_t)(a->n_batch * a->y.b) : 0,
                       sizeof(float));
    s->at_k = gqa_room(&at, sb_kernel_out(k, 1) ? 0 : cache, sizeof(float));
    s->at_v = gqa_room(&at, sb_kernel_out(k, 2) ? 0 : cache, sizeof(float));
    s->at_lens = gqa_room(&at, 2 * (size_t)a->n_batch, sizeof(int64_t));
    k->scratch_size = at;
    return SB_OK;
}

/* ---- running ------------------------------------------------------------ */

/* A run: where everything is, and which positions count. */
typedef struct {
    const sb_kernel *k;
    const gqa_state *s;
    const float *q, *keys, *values; /* new ones */
    float *turned, *cache_k, *cache_v;
    int64_t *lens, *first; /* by row of the batch; of its first query */
    bool prompt;           /* all positions are new */
} gqa_run;

static sb_status gqa_positions(const sb_kernel *k, gqa_run *r)
{
    const gqa_attrs *t = k->attrs;
    const sb_attention *a = &r->s->att;
    const int32_t *lens = k->in[IN_LENS]->data;
    int32_t total = *(const int32_t *)k->in[IN_TOTAL]->data;
    const sb_tensor *c = sb_kernel_in(k, IN_COS);
    const sb_tensor *ids = sb_kernel_in(k, IN_IDS);

    if (total < 1 || total > a->k_len)
        return sb_kernel_fail(k, SB_BAD_DATA,
                              "total_sequence_length is %d, want 1 to %lld",
                              (int)total, (long long)a->k_len);
    r->prompt = total == a->q_len;
    for (int64_t b = 0; b < a->n_batch; b++) {
        int64_t len = (int64_t)lens[b] + 1;
        int64_t before = r->prompt ? 0 : len - a->q_len;

        if (len < 1 || len > a->k_len || before < 0 ||
            (r->s->fresh == 0 ? len > r->s->past : before > r->s->past))
            return sb_kernel_fail(k, SB_BAD_DATA,
                                  "seqlens_k[%lld] is %lld, with %lld queries "
                                  "behind a past of %lld",
                                  (long long)b, (long long)len - 1,
                                  (long long)a->q_len, (long long)r->s->past);
        r->lens[b] = len;
        r->first[b] = before;
        for (int64_t i = 0; t->do_rotary && i < a->q_len; i++) {
            int64_t at = before + i;

            if (ids)
                at = r->prompt ? *(const int64_t *)ids->data + i
                               : ((const int64_t *)ids->data)[b * a->q_len + i];
            if (at < 0 || at >= c->dims[0])
                return sb_kernel_fail(
                    k, SB_BAD_DATA,
                    "position %lld is outside the cache of %lld", (long long)at,
                    (long long)c->dims[0]);
        }
    }
    return SB_OK;
}

/* The angle of new position i in row b. */
static int64_t gqa_angle(const gqa_run *r, int64_t b, int64_t i)
{
    const sb_tensor *ids = sb_kernel_in(r->k, IN_IDS);

    if (!ids)
        return r->first[b] + i;
    return r->prompt ? *(const int64_t *)ids->data + i
                     : ((const int64_t *)ids->data)[b * r->s->att.q_len + i];
}

static void gqa_rotate(const gqa_run *r, int64_t b, int64_t i, const float *x,
                       float *y)
{
    int64_t at = gqa_angle(r, b, i) * r->s->turn.half;

    sb_rotate_head(&r->s->turn, x, (const float *)r->k->in[IN_COS]->data + at,
                   (const float *)r->k->in[IN_SIN]->data + at, y);
}

/* The past, new positions and zeros of one head of keys or values. */
static void gqa_fill(const gqa_run *r, int64_t b, int64_t h, bool key)
{
    const gqa_state *s = r->s;
    const sb_attention *a = &s->att;
    const gqa_attrs *t = r->k->attrs;
    const sb_tensor *past = sb_kernel_in(r->k, key ? IN_PAST_K : IN_PAST_V);
    int64_t size = a->head_size;
    int64_t before = s->fresh == 0 ? r->lens[b] : r->first[b];
    sb_heads from = key ? s->k : s->v;
    const float *x = (key ? r->keys : r->values) + b * from.b + h * from.h;
    float *y = (key ? r->cache_k : r->cache_v) + b * a->k.b + h * a->k.h;

    if (past)
        memcpy(y,
               (const float *)past->data +
                   (b * a->kv_heads + h) * s->past * size,
               (size_t)(before * size) * sizeof *y);
    for (int64_t i = 0; i < s->fresh; i++) {
        float *to = y + (before + i) * size;

        if (key && t->do_rotary)
            gqa_rotate(r, b, i, x + i * from.s, to);
        else
            memcpy(to, x + i * from.s, (size_t)size * sizeof *to);
    }
    before += s->fresh;
    memset(y + before * size, 0,
           (size_t)((a->k_len - before) * size) * sizeof *y);
}

static void gqa_fill_range(void *arg, size_t begin, size_t end)
{
    const gqa_run *r = arg;
    const sb_attention *a = &r->s->att;

    for (size_t i = begin; i < end; i++) {
        int64_t b = (int64_t)i / a->kv_heads, h = (int64_t)i % a->kv_heads;

        gqa_fill(r, b, h, true);
        gqa_fill(r, b, h, false);
    }
}

static void gqa_turn_range(void *arg, size_t begin, size_t end)
{
    const gqa_run *r = arg;
    const sb_attention *a = &r->s->att;

    for (size_t item = begin; item < end; item++) {
        int64_t b = (int64_t)item / a->q_len, i = (int64_t)item % a->q_len;

        for (int64_t h = 0; h < a->q_heads; h++)
            gqa_rotate(r, b, i, r->q + b * a->q.b + i * a->q.s + h * a->q.h,
                       r->turned + b * a->y.b + i * a->y.s + h * a->y.h);
    }
}

static void gqa_bias(const void *arg, int64_t b, int64_t h, int64_t query,
                     int64_t begin, float *row, int64_t n)
{
    const sb_tensor *bias = arg;
    const float *x = bias->data;
    int64_t plane = (bias->dims[0] == 1 ? 0 : b) * bias->dims[1] +
                    (bias->dims[1] == 1 ? 0 : h);

    x += (plane * bias->dims[2] + query) * bias->dims[3] + begin;
    for (int64_t i = 0; i < n && begin + i < bias->dims[3]; i++)
        row[i] += x[i];
}

static sb_status gqa_forward(sb_kernel *k)
{
    const gqa_attrs *t = k->attrs;
    const gqa_state *s = k->state;
    const sb_tensor *key = sb_kernel_in(k, IN_K);
    const sb_tensor *bias = sb_kernel_in(k, IN_BIAS);
    const sb_tensor *sink = sb_kernel_in(k, IN_SINK);
    sb_tensor *pk = sb_kernel_out(k, 1), *pv = sb_kernel_out(k, 2);
    sb_attention a = s->att;
    char *room = k->scratch;
    gqa_run r = {.k = k, .s = s, .q = k->in[IN_Q]->data};

    r.keys = key ? key->data : r.q + a.q_heads * a.head_size;
    r.values = key ? k->in[IN_V]->data : (const void *)(r.keys + s->at_value);
    r.turned = (float *)(void *)(room + s->at_q);
    r.cache_k = pk ? pk->data : (void *)(room + s->at_k);
    r.cache_v = pv ? pv->data : (void *)(room + s->at_v);
    r.lens = (int64_t *)(void *)(room + s->at_lens);
    r.first = r.lens + a.n_batch;
    SB_TRY(gqa_positions(k, &r));
    sb_parallel_for(k->ctx, (size_t)(a.n_batch * a.kv_heads), 1, gqa_fill_range,
                    &r);
    if (t->do_rotary) {
        sb_parallel_for(k->ctx, (size_t)(a.n_batch * a.q_len),
                        (size_t)(8192 / (a.y.s + 1) + 1), gqa_turn_range, &r);
        a.q = a.y;
    }
    const sb_cached_args args = {
        .q = t->do_rotary ? r.turned : r.q,
        .k = r.cache_k,
        .v = r.cache_v,
        .y = k->out[0]->data,
        .scratch = k->scratch,
        .lanes = s->lanes,
        .lens = r.lens,
        .first = r.first,
        .left = t->local_window_size > 0 ? t->local_window_size - 1 : -1,
        .all = !t->causal,
        .sink = sink || t->smooth_softmax,
        .sinks = sink ? sink->data : NULL,
        .bias = bias ? gqa_bias : NULL,
        .bias_arg = bias};
    sb_cached_attention(k->ctx, &a, &args);
    return SB_OK;
}

const sb_op_def sb_op_ms_group_query_attention = {
    .name = "GroupQueryAttention",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 1, /* of the first seven, some may be absent */
    .in_max = 16,
    .out_min = 1,
    .out_max = 4,
    .flags = SB_OP_F32,
    .any_type = 1u << IN_LENS | 1u << IN_TOTAL | 1u << IN_IDS,
    .attrs_size = sizeof(gqa_attrs),
    .attrs = gqa_attr_defs,
    .infer = gqa_infer,
    .prepare = gqa_prepare,
    .forward = gqa_forward,
};
