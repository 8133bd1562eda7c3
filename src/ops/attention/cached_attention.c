/* Attention over a partly filled cache, one query of one head at a time. */
#include "ops/attention/cached_attention.h"

#include <math.h>

#include "base/simd.h"
#include "base/threads.h"
#include "ops/attention/cached_rows.h"
#include "ops/norm/softmax.h"

enum { LANES = 16 };

typedef struct cached_job {
    const sb_attention *a;
    const sb_cached_args *args;
    const sb_cached_rows *rows;
} cached_job;

SB_HOT static void dot_rows(const float *q, const float *k, int64_t step,
                            int64_t rows, int64_t n, float scale, float *out)
{
    for (int64_t r = 0; r < rows; r++, k += step) {
        float sum[LANES] = {0};
        int64_t i = 0;

        for (; i + LANES <= n; i += LANES) {
            SB_SIMD
            for (int j = 0; j < LANES; j++)
                sum[j] += q[i + j] * k[i + j];
        }
        for (; i < n; i++)
            sum[i % LANES] += q[i] * k[i];
        for (int j = 0; j < 8; j++)
            sum[j] += sum[j + 8];
        for (int j = 0; j < 4; j++)
            sum[j] += sum[j + 4];
        out[r] = ((sum[0] + sum[2]) + (sum[1] + sum[3])) * scale;
    }
}

/* Four rows at a time, so that y is written less often; in their order. */
SB_HOT static void sum_rows(const float *p, const float *v, int64_t step,
                            int64_t rows, int64_t n, float *y)
{
    int64_t r = 0;

    for (int64_t i = 0; i < n; i++)
        y[i] = 0;
    for (; r + 4 <= rows; r += 4, v += 4 * step) {
        const float *v1 = v + step, *v2 = v1 + step, *v3 = v2 + step;
        SB_SIMD
        for (int64_t i = 0; i < n; i++)
            y[i] =
                (((y[i] + p[r] * v[i]) + p[r + 1] * v1[i]) + p[r + 2] * v2[i]) +
                p[r + 3] * v3[i];
    }
    for (; r < rows; r++, v += step) {
        SB_SIMD
        for (int64_t i = 0; i < n; i++)
            y[i] += p[r] * v[i];
    }
}

const sb_cached_rows *sb_cached_rows_plain(void)
{
    static const sb_cached_rows rows = {dot_rows, sum_rows};

    return &rows;
}

static void cap_scores(float *row, int64_t n, float cap)
{
    for (int64_t i = 0; i < n; i++)
        row[i] = cap * tanhf(row[i] / cap);
}

static void cached_query(void *arg, size_t lane, size_t item)
{
    const cached_job *job = arg;
    const sb_attention *a = job->a;
    const sb_cached_args *args = job->args;
    int64_t query = (int64_t)item % a->q_len;
    int64_t head = (int64_t)item / a->q_len % a->q_heads;
    int64_t batch = (int64_t)item / a->q_len / a->q_heads;
    int64_t kv = head / (a->q_heads / a->kv_heads);
    int64_t len = args->lens[batch] < a->k_len ? args->lens[batch] : a->k_len;
    int64_t end =
        query + 1 +
        (args->first ? args->first[batch] : args->lens[batch] - a->q_len);
    end = args->all || (args->first && end > len) ? len : end;
    int64_t begin =
        args->left >= 0 && end - 1 > args->left ? end - 1 - args->left : 0;
    end = end > len ? len : end;
    int64_t n = end > begin ? end - begin : 0;
    float *scores = args->scratch + (int64_t)lane * (a->k_len + 1);
    const float *q = args->q + batch * a->q.b + head * a->q.h + query * a->q.s;
    const float *k = args->k + batch * a->k.b + kv * a->k.h + begin * a->k.s;
    const float *v = args->v + batch * a->v.b + kv * a->v.h + begin * a->v.s;
    float *y = args->y + batch * a->y.b + head * a->y.h + query * a->y.s;

    job->rows->dot(q, k, a->k.s, n, a->head_size, a->scale, scores);
    if (a->softcap > 0)
        cap_scores(scores, n, a->softcap);
    if (args->bias)
        args->bias(args->bias_arg, batch, head, query, begin, scores, n);
    if (args->sink)
        scores[n] = args->sinks ? args->sinks[head] : 0;
    if (n > 0)
        sb_softmax_f32(scores, scores, (size_t)n + args->sink);
    job->rows->sum(scores, v, a->v.s, n, a->v_head_size, y);
}

size_t sb_cached_bytes(const sb_attention *a, size_t lanes)
{
    return lanes * (size_t)(a->k_len + 1) * sizeof(float);
}

/* Below this many multiplications calling another thread takes longer than what
 * it would do. */
enum { ALONE = 1 << 17 };

static bool is_small(const sb_attention *a, const sb_cached_args *args)
{
    int64_t keys = 0, each = a->q_heads * a->q_len;

    for (int64_t b = 0; b < a->n_batch; b++)
        keys += args->lens[b] < a->k_len ? args->lens[b] : a->k_len;
    return keys < ALONE / (each * (a->head_size + a->v_head_size) + 1);
}

void sb_cached_attention(sb_ctx *ctx, const sb_attention *a,
                         const sb_cached_args *args)
{
    const sb_cached_rows *rows = sb_cached_rows_avx512();
    cached_job job = {a, args, rows ? rows : sb_cached_rows_plain()};

    sb_parallel_lanes(ctx, (size_t)(a->n_batch * a->q_heads * a->q_len),
                      is_small(a, args) ? 1 : args->lanes, cached_query, &job);
}
