/* softmax(scale q k' + bias) v for many heads. */
#include "ops/attention/attention_util.h"

#include <math.h>
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"
#include "ops/norm/softmax.h"

/* Scores of one chunk, in floats. */
enum { CHUNK_MOST = 4 << 20 };

/* softmax in place; a row of -infinity only becomes zeros. */
static void softmax_row(float *row, int64_t n)
{
    int64_t i = 0;

    while (i < n && row[i] == -INFINITY)
        i++;
    if (i < n)
        sb_softmax_f32(row, row, (size_t)n);
    else
        memset(row, 0, (size_t)n * sizeof *row);
}

/* ---- planning ----------------------------------------------------------- */

static void plan_strips(sb_attention *a)
{
    enum { ROWS_LEAST = 16 };
    int64_t n = SB_ATTENTION_STRIPS;

    a->n_strips = a->causal && a->q_len >= n * ROWS_LEAST ? n : 1;
    for (int64_t i = 0; i < a->n_strips; i++) {
        sb_attention_strip *s = &a->strips[i];
        int64_t end = a->q_len * (i + 1) / a->n_strips;

        s->first = a->q_len * i / a->n_strips;
        s->rows = end - s->first;
        s->keys =
            a->causal && a->past + end < a->k_len ? a->past + end : a->k_len;
    }
}

static sb_status plan_starts(sb_ctx *ctx, sb_attention *a)
{
    int64_t heads = a->n_batch * a->q_heads;
    int64_t share = a->q_heads / a->kv_heads; /* queries of a key head */

    a->at = sb_alloc(ctx, (size_t)(heads * 4 + a->n_strips * a->chunk),
                     sizeof *a->at);
    if (!a->at)
        return SB_NO_MEMORY;
    for (int64_t i = 0; i < heads; i++) {
        int64_t b = i / a->q_heads, h = i % a->q_heads;
        a->at[i] = b * a->q.b + h * a->q.h;
        a->at[heads + i] = b * a->k.b + h / share * a->k.h;
        a->at[2 * heads + i] = b * a->v.b + h / share * a->v.h;
        a->at[3 * heads + i] = b * a->y.b + h * a->y.h;
    }
    for (int64_t i = 0; i < a->n_strips * a->chunk; i++) {
        const sb_attention_strip *s = &a->strips[i / a->chunk];
        a->at[4 * heads + i] = i % a->chunk * s->rows * s->keys;
    }
    return SB_OK;
}

static sb_status plan_products(const sb_kernel *k, sb_attention *a,
                               sb_attention_strip *s)
{
    const char *what = sb_node_label(k->graph, k->node);
    const sb_dnn_gemm_desc qk = {.what = what,
                                 .m = s->rows,
                                 .n = s->keys,
                                 .k = a->head_size,
                                 .a_row = a->q.s,
                                 .a_col = 1,
                                 .b_row = 1,
                                 .b_col = a->k.s,
                                 .c_row = s->keys};
    const sb_dnn_gemm_desc pv = {.what = what,
                                 .m = s->rows,
                                 .n = a->v_head_size,
                                 .k = s->keys,
                                 .a_row = s->keys,
                                 .a_col = 1,
                                 .b_row = a->v.s,
                                 .b_col = 1,
                                 .c_row = a->y.s};
    size_t scores = (size_t)(a->chunk * s->rows * s->keys) * sizeof(float);

    SB_TRY(sb_dnn_gemm_create(k->ctx, &qk, &s->qk));
    SB_TRY(sb_dnn_gemm_create(k->ctx, &pv, &s->pv));
    size_t gemm = sb_dnn_gemm_scratch(s->qk),
           other = sb_dnn_gemm_scratch(s->pv);
    scores = (scores + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
    a->at_gemm = scores > a->at_gemm ? scores : a->at_gemm;
    gemm = gemm > other ? gemm : other;
    a->gemm = gemm > a->gemm ? gemm : a->gemm;
    return SB_OK;
}

sb_status sb_attention_plan(const sb_kernel *k, sb_attention *a)
{
    int64_t heads = a->n_batch * a->q_heads, size = 0;

    if (!sb_mul_i64(a->q_len, a->k_len, &size) || size > INT64_MAX / 64)
        return sb_kernel_fail(k, SB_NO_MEMORY, "the scores are too large");
    if (heads == 0 || a->q_len == 0)
        return SB_OK;
    plan_strips(a);
    a->chunk = size ? CHUNK_MOST / size : heads;
    a->chunk = a->chunk < 1 ? 1 : a->chunk > heads ? heads : a->chunk;
    SB_TRY(plan_starts(k->ctx, a));
    for (int64_t i = 0; i < a->n_strips; i++)
        SB_TRY(plan_products(k, a, &a->strips[i]));
    a->scratch = a->at_gemm + a->gemm;
    return SB_OK;
}

void sb_attention_free(sb_ctx *ctx, sb_attention *a)
{
    for (int64_t i = 0; i < a->n_strips; i++) {
        sb_dnn_gemm_free(a->strips[i].qk);
        sb_dnn_gemm_free(a->strips[i].pv);
        a->strips[i].qk = a->strips[i].pv = NULL;
    }
    sb_free(ctx, a->at);
    a->at = NULL;
}

/* ---- running ------------------------------------------------------------ */

typedef struct score_job {
    const sb_attention *a;
    const sb_attention_strip *strip;
    const sb_attention_args *args;
    float *scores;
    int64_t first; /* (batch, head) of the chunk */
} score_job;

SB_HOT static void scale_row(float *row, int64_t n, float by)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        row[i] *= by;
}

static void score_row(const score_job *job, int64_t item)
{
    const sb_attention *a = job->a;
    const sb_attention_args *args = job->args;
    int64_t n = job->strip->keys, head = job->first + item / job->strip->rows;
    int64_t query = job->strip->first + item % job->strip->rows;
    float *row = job->scores + item * n;
    float *show =
        args->show ? args->show + (head * a->q_len + query) * n : NULL;
    size_t bytes = (size_t)n * sizeof *row;

    scale_row(row, n, a->scale);
    if (show && args->what == SB_SHOW_SCORES)
        memcpy(show, row, bytes);
    if (a->softcap > 0)
        for (int64_t i = 0; i < n; i++)
            row[i] = a->softcap * tanhf(row[i] / a->softcap);
    if (show && args->what == SB_SHOW_CAPPED)
        memcpy(show, row, bytes);
    if (args->bias)
        args->bias(args->bias_arg, head / a->q_heads, head % a->q_heads, query,
                   row, n);
    if (show && args->what == SB_SHOW_BIASED)
        memcpy(show, row, bytes);
    softmax_row(row, n);
    if (show && args->what == SB_SHOW_SOFTMAX)
        memcpy(show, row, bytes);
}

static void score_rows(void *arg, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        score_row(arg, (int64_t)i);
}

/* A strip of `n` heads from `first` on. */
static sb_status run_strip(sb_ctx *ctx, const sb_attention *a,
                           const sb_attention_args *args, int64_t strip,
                           int64_t first, int64_t n)
{
    const sb_attention_strip *s = &a->strips[strip];
    int64_t heads = a->n_batch * a->q_heads;
    const int64_t *scores_at = a->at + 4 * heads + strip * a->chunk;
    void *gemm = (char *)args->scratch + a->at_gemm;
    const sb_dnn_gemm_args qk = {.a = args->q + s->first * a->q.s,
                                 .b = args->k,
                                 .c = args->scratch,
                                 .n_batch = n,
                                 .a_at = a->at + first,
                                 .b_at = a->at + heads + first,
                                 .c_at = scores_at,
                                 .scratch = gemm};
    const sb_dnn_gemm_args pv = {.a = args->scratch,
                                 .b = args->v,
                                 .c = args->y + s->first * a->y.s,
                                 .n_batch = n,
                                 .a_at = scores_at,
                                 .b_at = a->at + 2 * heads + first,
                                 .c_at = a->at + 3 * heads + first,
                                 .scratch = gemm};
    score_job job = {a, s, args, args->scratch, first};

    SB_TRY(sb_ctx_poll(ctx));
    SB_TRY(sb_dnn_gemm_run(s->qk, &qk));
    sb_parallel_for(ctx, (size_t)(n * s->rows),
                    (size_t)(4096 / (s->keys + 1) + 1), score_rows, &job);
    return sb_dnn_gemm_run(s->pv, &pv);
}

sb_status sb_attention_run(sb_ctx *ctx, const sb_attention *a,
                           const sb_attention_args *args)
{
    int64_t heads = a->n_batch * a->q_heads;

    /* Without strips there is nothing to compute. */
    for (int64_t i = 0; i < a->n_strips; i++)
        for (int64_t first = 0; first < heads; first += a->chunk) {
            int64_t n = heads - first < a->chunk ? heads - first : a->chunk;

            SB_TRY(run_strip(ctx, a, args, i, first, n));
        }
    return SB_OK;
}
