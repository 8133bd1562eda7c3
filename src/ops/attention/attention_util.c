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

static sb_status plan_starts(sb_ctx *ctx, sb_attention *a)
{
    int64_t heads = a->n_batch * a->q_heads;
    int64_t share = a->q_heads / a->kv_heads; /* queries of a key head */

    a->at = sb_alloc(ctx, (size_t)heads * 4 + (size_t)a->chunk, sizeof *a->at);
    if (!a->at)
        return SB_NO_MEMORY;
    for (int64_t i = 0; i < heads; i++) {
        int64_t b = i / a->q_heads, h = i % a->q_heads;
        a->at[i] = b * a->q.b + h * a->q.h;
        a->at[heads + i] = b * a->k.b + h / share * a->k.h;
        a->at[2 * heads + i] = b * a->v.b + h / share * a->v.h;
        a->at[3 * heads + i] = b * a->y.b + h * a->y.h;
    }
    for (int64_t i = 0; i < a->chunk; i++)
        a->at[4 * heads + i] = i * a->q_len * a->k_len;
    return SB_OK;
}

sb_status sb_attention_plan(const sb_kernel *k, sb_attention *a)
{
    int64_t heads = a->n_batch * a->q_heads, size = 0;
    const char *what = sb_node_label(k->graph, k->node);

    if (!sb_mul_i64(a->q_len, a->k_len, &size) || size > INT64_MAX / 64)
        return sb_kernel_fail(k, SB_NO_MEMORY, "the scores are too large");
    if (heads == 0 || a->q_len == 0)
        return SB_OK;
    a->chunk = size ? CHUNK_MOST / size : heads;
    a->chunk = a->chunk < 1 ? 1 : a->chunk > heads ? heads : a->chunk;
    SB_TRY(plan_starts(k->ctx, a));
    sb_dnn_gemm_desc qk = {.what = what,
                           .m = a->q_len,
                           .n = a->k_len,
                           .k = a->head_size,
                           .a_row = a->q.s,
                           .a_col = 1,
                           .b_row = 1,
                           .b_col = a->k.s,
                           .c_row = a->k_len};
    sb_dnn_gemm_desc pv = {.what = what,
                           .m = a->q_len,
                           .n = a->v_head_size,
                           .k = a->k_len,
                           .a_row = a->k_len,
                           .a_col = 1,
                           .b_row = a->v.s,
                           .b_col = 1,
                           .c_row = a->y.s};
    SB_TRY(sb_dnn_gemm_create(k->ctx, &qk, &a->qk));
    SB_TRY(sb_dnn_gemm_create(k->ctx, &pv, &a->pv));
    size_t gemm = sb_dnn_gemm_scratch(a->qk),
           other = sb_dnn_gemm_scratch(a->pv);
    size_t scores = (size_t)(a->chunk * size) * sizeof(float);
    a->at_gemm = (scores + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
    a->scratch = a->at_gemm + (gemm > other ? gemm : other);
    return SB_OK;
}

void sb_attention_free(sb_ctx *ctx, sb_attention *a)
{
    sb_dnn_gemm_free(a->qk);
    sb_dnn_gemm_free(a->pv);
    sb_free(ctx, a->at);
    a->qk = a->pv = NULL;
    a->at = NULL;
}

/* ---- running ------------------------------------------------------------ */

typedef struct score_job {
    const sb_attention *a;
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
    int64_t n = a->k_len, head = job->first + item / a->q_len;
    int64_t query = item % a->q_len;
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

sb_status sb_attention_run(sb_ctx *ctx, const sb_attention *a,
                           const sb_attention_args *args)
{
    int64_t heads = a->n_batch * a->q_heads;
    float *scores = args->scratch;
    void *gemm = (char *)args->scratch + a->at_gemm;

    if (!a->qk)
        return SB_OK; /* nothing to compute */
    for (int64_t first = 0; first < heads; first += a->chunk) {
        int64_t n = heads - first < a->chunk ? heads - first : a->chunk;
        sb_dnn_gemm_args qk = {.a = args->q,
                               .b = args->k,
                               .c = scores,
                               .n_batch = n,
                               .a_at = a->at + first,
                               .b_at = a->at + heads + first,
                               .c_at = a->at + 4 * heads,
                               .scratch = gemm};
        sb_dnn_gemm_args pv = {.a = scores,
                               .b = args->v,
                               .c = args->y,
                               .n_batch = n,
                               .a_at = a->at + 4 * heads,
                               .b_at = a->at + 2 * heads + first,
                               .c_at = a->at + 3 * heads + first,
                               .scratch = gemm};
        score_job job = {a, args, scores, first};

        SB_TRY(sb_ctx_poll(ctx));
        SB_TRY(sb_dnn_gemm_run(a->qk, &qk));
        sb_parallel_for(ctx, (size_t)(n * a->q_len),
                        (size_t)(4096 / (a->k_len + 1) + 1), score_rows, &job);
        SB_TRY(sb_dnn_gemm_run(a->pv, &pv));
    }
    return SB_OK;
}
