/* com.microsoft: Attention and MultiHeadAttention, as ONNX Runtime's
 * transformer optimizer writes them.
 *
 * MultiHeadAttention: q [B, S, H D], k and v [B, L, H D], one bias for all
 * three, a key padding mask (int32 [B], [B, L] or [B, S, L]; 0 hides), and an
 * additive bias [B or 1, H or 1, S, L].
 * Attention: x [B, S, I] is projected first by weights [I, 3 H D] and their
 * bias; the same masks.  Packed inputs and past state are refused. */
#include "ops/attention/attention_util.h"
#include "ops/batch_rules.h"

#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "ops/packed_input.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    int64_t num_heads, unidirectional;
    float scale, mask_filter_value;
    sb_ints qkv_hidden_sizes;
} ms_attrs;

static const sb_attr_def attrs[] = {
    {"num_heads", SB_ATTR_INT, offsetof(ms_attrs, num_heads), .required = true},
    {"unidirectional", SB_ATTR_INT, offsetof(ms_attrs, unidirectional), .i = 0,
     .flag = true},
    {"scale", SB_ATTR_FLOAT, offsetof(ms_attrs, scale), .f = 0},
    {"mask_filter_value", SB_ATTR_FLOAT, offsetof(ms_attrs, mask_filter_value),
     .f = -10000.0f},
    {"qkv_hidden_sizes", SB_ATTR_INTS, offsetof(ms_attrs, qkv_hidden_sizes),
     .i = 0},
    {0},
};

/* Where the two operators keep things. */
typedef struct {
    uint32_t bias, mask, add, past; /* inputs; past: the first of the state */
} ms_kind;

static const ms_kind attention_kind = {2, 3, 5, 4};
static const ms_kind mha_kind = {3, 4, 5, 6};

typedef struct {
    sb_attention att;
    int64_t q_hidden, v_hidden, n_in;
    sb_dnn_gemm *project;    /* Attention */
    sb_packed_input weights; /* ... input 1 */
    size_t at_q, at_k, at_v; /* projected, or with their biases added */
} ms_state;

/* ---- shapes ------------------------------------------------------------- */

static sb_status ms_attention_infer(sb_infer *in)
{
    const ms_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape, *w = &in->in[1]->type.shape;
    sb_shape y = *x;

    if (x->rank >= 0 && x->rank != 3)
        return sb_infer_fail(in, "input of rank %d, want 3", x->rank);
    if (w->rank >= 0 && w->rank != 2)
        return sb_infer_fail(in, "weights of rank %d, want 2", w->rank);
    if (x->rank == 3 && w->rank == 2 && sb_dim_known(x->dim[2]) &&
        sb_dim_known(w->dim[0]) && x->dim[2] != w->dim[0])
        return sb_infer_fail(in, "%lld elements for weights of %lld",
                             (long long)x->dim[2], (long long)w->dim[0]);
    if (a->qkv_hidden_sizes.n && a->qkv_hidden_sizes.n != 3)
        return sb_infer_fail(in, "qkv_hidden_sizes wants 3 numbers");
    if (y.rank == 3) {
        y.dim[2] = SB_DIM_UNKNOWN;
        if (a->qkv_hidden_sizes.n)
            y.dim[2] = a->qkv_hidden_sizes.v[2];
        else if (w->rank == 2 && sb_dim_known(w->dim[1]))
            y.dim[2] = w->dim[1] / 3;
    }
    sb_infer_set(in, 0, in->in[0]->type.dtype, &y);
    return SB_OK;
}

static sb_status mha_infer(sb_infer *in)
{
    const sb_fact *v = sb_infer_in(in, 2);
    sb_shape y = in->in[0]->type.shape;

    if (y.rank == 3)
        y.dim[2] = v && v->type.shape.rank == 3 ? v->type.shape.dim[2]
                                                : SB_DIM_UNKNOWN;
    else
        y = sb_shape_unknown();
    sb_infer_set(in, 0, in->in[0]->type.dtype, &y);
    return SB_OK;
}

/* ---- preparing ---------------------------------------------------------- */

static sb_status check_masks(const sb_kernel *k, const sb_attention *a)
{
    const ms_kind *kind = k->op->aux;
    const sb_tensor *mask = sb_kernel_in(k, kind->mask);
    const sb_tensor *add = sb_kernel_in(k, kind->add);

    for (uint32_t i = kind->past; i < k->n_in; i++)
        if (k->in[i] && i != kind->add)
            return sb_kernel_fail(k, SB_UNSUPPORTED, "input %u is given", i);
    if (mask) {
        bool ok = mask->dtype == SB_DTYPE_I32 && mask->rank >= 1 &&
                  mask->rank <= 3 && mask->dims[0] == a->n_batch &&
                  (mask->rank == 1 || mask->dims[mask->rank - 1] == a->k_len) &&
                  (mask->rank < 3 || mask->dims[1] == a->q_len);
        if (!ok)
            return sb_kernel_fail(k, SB_UNSUPPORTED, "a mask of this shape");
    }
    if (add) {
        bool ok = add->dtype == SB_DTYPE_F32 && add->rank == 4 &&
                  (add->dims[0] == 1 || add->dims[0] == a->n_batch) &&
                  (add->dims[1] == 1 || add->dims[1] == a->q_heads) &&
                  add->dims[2] == a->q_len && add->dims[3] == a->k_len;
        if (!ok)
            return sb_kernel_fail(k, SB_UNSUPPORTED, "a bias of this shape");
    }
    return SB_OK;
}

static size_t attention_room(size_t *total, int64_t count)
{
    size_t at = *total;

    *total +=
        ((size_t)count * sizeof(float) + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
    return at;
}

/* Sizes are set; makes products, strides and scratch.  q, k, v lie side by side
 * after a projection, each for itself otherwise. */
static sb_status attention_plan(sb_kernel *k, ms_state *s, int64_t q_step,
                                int64_t v_step)
{
    const ms_attrs *t = k->attrs;
    sb_attention *a = &s->att;

    if (a->q_heads < 1 || s->q_hidden % a->q_heads || s->v_hidden % a->q_heads)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "num_heads is %lld, which does "
                              "not divide the hidden size",
                              (long long)a->q_heads);
    a->kv_heads = a->q_heads;
    a->head_size = s->q_hidden / a->q_heads;
    a->v_head_size = s->v_hidden / a->q_heads;
    a->q = (sb_heads){a->q_len * q_step, a->head_size, q_step};
    a->k = (sb_heads){a->k_len * q_step, a->head_size, q_step};
    a->v = (sb_heads){a->k_len * v_step, a->v_head_size, v_step};
    a->y = (sb_heads){a->q_len * s->v_hidden, a->v_head_size, s->v_hidden};
    a->scale = t->scale > 0 || t->scale < 0
                   ? t->scale
                   : (float)(1 / sqrt((double)a->head_size));
    SB_TRY(check_masks(k, a));
    return sb_attention_plan(k, a);
}

static sb_status ms_attention_prepare(sb_kernel *k)
{
    const ms_attrs *t = k->attrs;
    const sb_tensor *x = k->in[0], *w = k->in[1], *bias = sb_kernel_in(k, 2);
    ms_state *s = sb_alloc(k->ctx, 1, sizeof *s);

    if (!s)
        return SB_NO_MEMORY;
    k->state = s;
    s->n_in = x->dims[2];
    s->q_hidden =
        t->qkv_hidden_sizes.n ? t->qkv_hidden_sizes.v[0] : w->dims[1] / 3;
    s->v_hidden =
        t->qkv_hidden_sizes.n ? t->qkv_hidden_sizes.v[2] : w->dims[1] / 3;
    int64_t all = w->dims[1];
    if (s->q_hidden < 1 || s->v_hidden < 1 || s->q_hidden > all ||
        s->v_hidden > all || 2 * s->q_hidden + s->v_hidden != all ||
        (bias && sb_tensor_count(bias) != all))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "weights and bias do not fit q, k and v");
    s->att.n_batch = x->dims[0];
    s->att.q_heads = t->num_heads;
    s->att.q_len = s->att.k_len = x->dims[1];
    SB_TRY(attention_plan(k, s, all, all));
    sb_dnn_gemm_desc d = {.what = sb_node_label(k->graph, k->node),
                          .m = x->dims[0] * x->dims[1],
                          .n = all,
                          .k = s->n_in,
                          .a_row = s->n_in,
                          .a_col = 1,
                          .b_row = all,
                          .b_col = 1,
                          .c_row = all,
                          .has_bias = bias != NULL,
                          .pack = k->lasting >> 1 & 1};
    SB_TRY(sb_dnn_gemm_create(k->ctx, &d, &s->project));
    SB_TRY(sb_packed_input_gemm(k, 1, 0, s->project, &s->weights));
    size_t gemm = sb_dnn_gemm_scratch(s->project), total = s->att.scratch;
    gemm = gemm > s->weights.scratch ? gemm : s->weights.scratch;
    total = total > gemm ? total : gemm; /* one after the other */
    total = (total + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
    s->at_q = attention_room(&total, x->dims[0] * x->dims[1] * all);
    s->at_k = s->at_q + (size_t)s->q_hidden * sizeof(float);
    s->at_v = s->at_k + (size_t)s->q_hidden * sizeof(float);
    k->scratch_size = total;
    return SB_OK;
}

static sb_status mha_prepare(sb_kernel *k)
{
    const ms_attrs *t = k->attrs;
    const sb_tensor *q = k->in[0], *key = sb_kernel_in(k, 1);
    const sb_tensor *v = sb_kernel_in(k, 2), *bias = sb_kernel_in(k, 3);
    ms_state *s = sb_alloc(k->ctx, 1, sizeof *s);

    if (!s)
        return SB_NO_MEMORY;
    k->state = s;
    if (!key || !v || q->rank != 3 || key->rank != 3 || v->rank != 3)
        return sb_kernel_fail(k, SB_UNSUPPORTED,
                              "q, k and v must be given with rank 3");
    s->q_hidden = q->dims[2];
    s->v_hidden = v->dims[2];
    if (key->dims[0] != q->dims[0] || v->dims[0] != q->dims[0] ||
        key->dims[2] != s->q_hidden || key->dims[1] != v->dims[1] ||
        (bias && sb_tensor_count(bias) != 2 * s->q_hidden + s->v_hidden))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "the shapes of q, k, v and the "
                              "bias do not fit");
    s->att.n_batch = q->dims[0];
    s->att.q_heads = t->num_heads;
    s->att.q_len = q->dims[1];
    s->att.k_len = key->dims[1];
    SB_TRY(attention_plan(k, s, s->q_hidden, s->v_hidden));
    size_t total = (s->att.scratch + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
    if (bias) {
        s->at_q = attention_room(&total, sb_tensor_count(q));
        s->at_k = attention_room(&total, sb_tensor_count(key));
        s->at_v = attention_room(&total, sb_tensor_count(v));
    }
    k->scratch_size = total;
    return SB_OK;
}

/* ---- running ------------------------------------------------------------ */

static void ms_bias(const void *arg, int64_t b, int64_t h, int64_t query,
                    float *row, int64_t n)
{
    const sb_kernel *k = arg;
    const ms_attrs *t = k->attrs;
    const ms_kind *kind = k->op->aux;
    const sb_tensor *mask = sb_kernel_in(k, kind->mask);
    const sb_tensor *add = sb_kernel_in(k, kind->add);

    if (mask) {
        const int32_t *m = mask->data;
        int64_t at = mask->rank == 3 ? (b * mask->dims[1] + query) * n : b * n;
        for (int64_t i = 0; i < n; i++) {
            bool seen = mask->rank == 1 ? i < m[b] : m[at + i] != 0;
            row[i] += seen ? 0 : t->mask_filter_value;
        }
    }
    if (add) {
        const float *x = add->data;
        int64_t plane = (add->dims[0] == 1 ? 0 : b) * add->dims[1] +
                        (add->dims[1] == 1 ? 0 : h);
        for (int64_t i = 0; i < n; i++)
            row[i] += x[(plane * add->dims[2] + query) * n + i];
    }
    for (int64_t i = query + 1; t->unidirectional && i < n; i++)
        row[i] = -INFINITY;
}

static sb_status attention_run(sb_kernel *k, const float *q, const float *key,
                               const float *v)
{
    const ms_state *s = k->state;
    sb_attention_args args = {.q = q,
                              .k = key,
                              .v = v,
                              .y = k->out[0]->data,
                              .scratch = k->scratch,
                              .bias = ms_bias,
                              .bias_arg = k};

    return sb_attention_run(k->ctx, &s->att, &args);
}

static sb_status ms_attention_forward(sb_kernel *k)
{
    const ms_state *s = k->state;
    const sb_tensor *bias = sb_kernel_in(k, 2);
    char *scratch = k->scratch;
    sb_dnn_gemm_args args = {.a = k->in[0]->data,
                             .bias = bias ? bias->data : NULL,
                             .c = (float *)(scratch + s->at_q),
                             .scratch = scratch};

    SB_TRY(sb_packed_input_get(k, &s->weights, scratch, &args.b));
    SB_TRY(sb_dnn_gemm_run(s->project, &args));
    return attention_run(k, (float *)(scratch + s->at_q),
                         (float *)(scratch + s->at_k),
                         (float *)(scratch + s->at_v));
}

/* to = x + bias, row by row. */
static const float *add_bias(const sb_tensor *x, const float *bias, char *to)
{
    int64_t size = x->dims[2], n = sb_tensor_count(x);
    float *y = (float *)(void *)to;

    for (int64_t i = 0; i < n; i++)
        y[i] = ((const float *)x->data)[i] + bias[i % size];
    return y;
}

static sb_status mha_forward(sb_kernel *k)
{
    const ms_state *s = k->state;
    const sb_tensor *bias = sb_kernel_in(k, 3);
    const float *q = k->in[0]->data, *key = k->in[1]->data, *v = k->in[2]->data;
    char *scratch = k->scratch;

    if (bias) {
        const float *b = bias->data;
        q = add_bias(k->in[0], b, scratch + s->at_q);
        key = add_bias(k->in[1], b + s->q_hidden, scratch + s->at_k);
        v = add_bias(k->in[2], b + 2 * s->q_hidden, scratch + s->at_v);
    }
    return attention_run(k, q, key, v);
}

static void ms_release(sb_kernel *k)
{
    ms_state *s = k->state;

    if (s) {
        sb_attention_free(k->ctx, &s->att);
        sb_dnn_gemm_free(s->project);
    }
    sb_free(k->ctx, s);
}

const sb_op_def sb_op_ms_attention = {
    .name = "Attention",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 2,
    .in_max = 7,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .any_type = 1u << 3, /* the mask */
    .attrs_size = sizeof(ms_attrs),
    .attrs = attrs,
    .aux = &attention_kind,
    .batch = sb_batch_first,
    .infer = ms_attention_infer,
    .prepare = ms_attention_prepare,
    .forward = ms_attention_forward,
    .release = ms_release,
    .tie = sb_tie_ms_attention,
    .recut = sb_recut_heads,
};

const sb_op_def sb_op_ms_multi_head_attention = {
    .name = "MultiHeadAttention",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 1,
    .in_max = 10,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .any_type = 1u << 4, /* the mask */
    .attrs_size = sizeof(ms_attrs),
    .attrs = attrs,
    .aux = &mha_kind,
    .batch = sb_batch_first,
    .infer = mha_infer,
    .prepare = mha_prepare,
    .forward = mha_forward,
    .release = ms_release,
    .tie = sb_tie_multi_head,
    .recut = sb_recut_heads,
};
