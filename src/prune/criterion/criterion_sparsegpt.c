/* Criterion "sparsegpt" (E. Frantar and D. Alistarh, SparseGPT: massive
 * language models can be accurately pruned in one-shot, arXiv 2301.00774): the
 * weights whose loss the columns behind them can make up for best become zero,
 * column by column.
 *
 * In the terms of gram_factor.h: if all columns from `begin` on were free,
 * column i would be v_i, and a zero there costs (v_i R[i,i])^2.  Among a block
 * of columns the lowest go (of N:M among M input channels in a row); then the
 * zeros' errors are passed on. */
#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "prune/criterion/criterion.h"
#include "prune/lowest.h"
#include "quant/quantize/gram_factor.h"

enum { SPARSE_BLOCK = 128, SPARSE_M_MOST = 64 };
static const double sparse_damping = 0.01;

typedef struct sparse_job {
    const sb_thin_matrix *m;
    int64_t *order; /* of the columns: tap by tap, so that the input channels of
                       a tap follow each other */
    float *factor;  /* [cols, cols] */
    float *sums;    /* [rows, cols]: what columns get of those before */
    float *scores;  /* [rows, SPARSE_BLOCK] */
    uint8_t *gone;
    int64_t begin, end; /* the block */
} sparse_job;

/* What zeros in one row of the block would cost. */
static void sparse_score(const sparse_job *j, int64_t row, int64_t begin,
                         int64_t end, float *scores)
{
    const sb_thin_matrix *m = j->m;
    float c[SPARSE_BLOCK];

    memcpy(c, j->sums + row * m->cols + begin,
           (size_t)(end - begin) * sizeof *c);
    for (int64_t i = begin; i < end; i++) {
        const float *f = j->factor + i * m->cols;
        int64_t col = j->order[i];
        float v = m->w[row * m->cols + col] + c[i - begin];

        /* Nothing is multiplied with a dead column. */
        scores[i - begin] =
            m->gram[col * (m->cols + 1)] > 0 ? v * v * f[i] * f[i] : -1.0f;
        sb_gram_pass_on(f + i + 1, -c[i - begin], end - i - 1,
                        c + (i - begin) + 1);
    }
}

static void sparse_apply(const sparse_job *j, int64_t row, int64_t begin,
                         int64_t end, const uint8_t *gone)
{
    const sb_thin_matrix *m = j->m;
    float *sums = j->sums + row * m->cols;

    for (int64_t i = begin; i < end; i++) {
        float *w = &m->w[row * m->cols + j->order[i]];
        float was = *w;

        *w = gone[i - begin] ? 0.0f : was + sums[i];
        sb_gram_pass_on(j->factor + i * m->cols + i + 1, was - *w,
                        m->cols - i - 1, sums + i + 1);
    }
}

/* ---- any place -------------------------------------------------------------- */

static void sparse_score_rows(void *arg, size_t begin, size_t end)
{
    const sparse_job *j = arg;
    int64_t width = j->end - j->begin;

    for (size_t r = begin; r < end; r++)
        sparse_score(j, (int64_t)r, j->begin, j->end,
                     j->scores + (int64_t)r * width);
}

static void sparse_apply_rows(void *arg, size_t begin, size_t end)
{
    const sparse_job *j = arg;
    int64_t width = j->end - j->begin;

    for (size_t r = begin; r < end; r++)
        sparse_apply(j, (int64_t)r, j->begin, j->end,
                     j->gone + (int64_t)r * width);
}

/* Each block gets its share, and all together as many as are wanted. */
static sb_status sparse_blocks(sparse_job *j)
{
    const sb_thin_matrix *m = j->m;
    double share = (double)m->zeros / (double)m->cols;
    int64_t done = 0;

    for (; j->begin < m->cols; j->begin = j->end) {
        int64_t left = m->cols - j->begin;
        j->end = j->begin + (left < SPARSE_BLOCK ? left : SPARSE_BLOCK);
        size_t n = (size_t)(m->rows * (j->end - j->begin));
        int64_t now = j->end == m->cols
                          ? m->zeros
                          : (int64_t)floor(share * (double)j->end);

        SB_TRY(sb_ctx_poll(m->ctx));
        sb_parallel_for(m->ctx, (size_t)m->rows, 1, sparse_score_rows, j);
        memset(j->gone, 0, n);
        SB_TRY(sb_mark_lowest(m->ctx, j->scores, n, (size_t)(now - done),
                              j->gone));
        done = now;
        sb_parallel_for(m->ctx, (size_t)m->rows, 1, sparse_apply_rows, j);
    }
    return SB_OK;
}

/* ---- N of M ----------------------------------------------------------------- */

static void sparse_pick(const sb_thin_matrix *m, const float *scores,
                        uint8_t *gone)
{
    memset(gone, 0, (size_t)m->m_of);
    for (int drop = 0; drop < m->m_of - m->n_of; drop++) {
        int low = -1;
        for (int k = 0; k < m->m_of; k++)
            if (!gone[k] && (low < 0 || scores[k] < scores[low]))
                low = k;
        gone[low] = 1;
    }
}

static void sparse_nm_rows(void *arg, size_t begin, size_t end)
{
    const sparse_job *j = arg;
    const sb_thin_matrix *m = j->m;
    int64_t channels = m->cols / m->taps;
    static const uint8_t none[SPARSE_M_MOST] = {0};
    float scores[SPARSE_M_MOST];
    uint8_t gone[SPARSE_M_MOST];

    for (size_t r = begin; r < end; r++)
        for (int64_t i = 0, next; i < m->cols; i = next) {
            int64_t left = channels - i % channels;
            next = i + (left < m->m_of ? left : m->m_of);
            if (left >= m->m_of) {
                sparse_score(j, (int64_t)r, i, next, scores);
                sparse_pick(m, scores, gone);
            }
            sparse_apply(j, (int64_t)r, i, next, left >= m->m_of ? gone : none);
        }
}

/* ---- one matrix ------------------------------------------------------------- */

static sb_status sparse_run(sparse_job *j, sb_thin_matrix *m)
{
    int64_t channels = m->cols / m->taps;
    bool done = false;
    double added;

    for (int64_t i = 0; i < m->cols; i++)
        j->order[i] = i % channels * m->taps + i / channels;
    SB_TRY(sb_gram_factor(m->ctx, m->gram, m->cols, j->order, sparse_damping,
                          j->factor, &added, &done));
    if (!done) {
        m->why_not = "the products of its inputs have no Cholesky factor";
        return SB_OK;
    }
    if (!m->m_of)
        return sparse_blocks(j);
    sb_parallel_for(m->ctx, (size_t)m->rows, 1, sparse_nm_rows, j);
    return sb_ctx_poll(m->ctx);
}

static sb_status sparsegpt_thin(sb_thin_matrix *m)
{
    size_t n = (size_t)m->cols, rows = (size_t)m->rows;
    sparse_job j = {.m = m,
                    .order = sb_alloc(m->ctx, n, sizeof *j.order),
                    .factor = sb_alloc(m->ctx, n, n * sizeof *j.factor),
                    .sums = sb_alloc(m->ctx, rows, n * sizeof *j.sums),
                    .scores =
                        sb_alloc(m->ctx, rows, SPARSE_BLOCK * sizeof *j.scores),
                    .gone = sb_alloc(m->ctx, rows, SPARSE_BLOCK)};
    sb_status status = j.order && j.factor && j.sums && j.scores && j.gone
                           ? sparse_run(&j, m)
                           : SB_NO_MEMORY;

    sb_free(m->ctx, j.order);
    sb_free(m->ctx, j.factor);
    sb_free(m->ctx, j.sums);
    sb_free(m->ctx, j.scores);
    sb_free(m->ctx, j.gone);
    return status;
}

static sb_status sparsegpt_weigh(const sb_criterion_ask *ask, float *out)
{
    const sb_tensor *t = sb_const_of(ask->channels->graph, ask->weight);

    for (int64_t i = 0; i < sb_tensor_count(t); i++)
        out[i] = (float)fabs(sb_weight_at(t, i));
    return SB_OK;
}

const sb_criterion_def sb_criterion_sparsegpt = {
    .name = "sparsegpt",
    .summary = "what other weights make up for best, as they do (needs data)",
    .needs_data = true,
    .weigh = sparsegpt_weigh,
    .thin = sparsegpt_thin,
};
