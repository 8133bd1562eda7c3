/* Quantizer "gptq": rounds column after column of a weight, and lets the
 * columns that follow make up for the error (E. Frantar et al., GPTQ: accurate
 * post-training quantization for generative pre-trained transformers, arXiv
 * 2210.17323).
 *
 * How, without an inverse, is in gram_factor.h; each column rounds what would
 * make its term zero.
 *
 * Scales are those of the original columns, so that columns may be taken in
 * any order: those that matter most come first, while there is freedom left.
 *
 * The last columns have no others behind them, and the first did not know what
 * those behind them would lose.  So afterwards each element is rounded anew,
 * given all others (PASSES): none of these steps makes the error larger. */
#include <string.h>

#include "base/threads.h"
#include "quant/quantize/gram_factor.h"
#include "quant/quantize/quantizer.h"
#include "quant/quantize/rounding.h"

enum {
    GPTQ_BLOCK = 64, /* columns whose errors go on together */
};

typedef struct gptq_params {
    double damping;
    bool act_order;
    int64_t passes;
} gptq_params;

static const sb_param_def gptq_table[] = {
    {.name = "DAMPING",
     .type = SB_PARAM_FLOAT,
     .offset = offsetof(gptq_params, damping),
     .preset = "0.01",
     .min = 0,
     .max = 1,
     .help = "added to the diagonal, as a share of its mean; more if there are "
             "fewer than 25 inputs for each column"},
    {.name = "ACT_ORDER",
     .type = SB_PARAM_BOOL,
     .offset = offsetof(gptq_params, act_order),
     .preset = "true",
     .help = "columns with the largest inputs first, instead of in order"},
    {.name = "PASSES",
     .type = SB_PARAM_INT,
     .offset = offsetof(gptq_params, passes),
     .preset = "-1",
     .min = -1,
     .max = 100,
     .help = "times that each element is rounded anew at the end, given all "
             "others (-1: twice where one scale serves a row, not with "
             "groups)"},
    {0},
};

typedef struct gptq_job {
    const sb_rounding *r;
    const float *factor; /* R[j,i] / R[i,i] */
    const int64_t *order;
    /* [rows / SB_TILE, cols, SB_TILE], columns in that order: what they get of
     * errors before them, and once they are rounded their terms, times R[i,i].
     */
    float *sums;
    float *slopes; /* [rows, cols], NULL: no passes */
    float added;   /* to the diagonal */
} gptq_job;

/* ---- the order of columns ------------------------------------------------ */

/* Larger diagonals first; a stable sort, so that the order is one. */
static void gptq_sort(const sb_rounding *r, int64_t *order, int64_t *other)
{
    int64_t n = r->cols;

    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t at = 0; at < n; at += 2 * width) {
            int64_t mid = at + width < n ? at + width : n;
            int64_t end = at + 2 * width < n ? at + 2 * width : n;
            int64_t a = at, b = mid;

            for (int64_t k = at; k < end; k++) {
                bool left =
                    b >= end || (a < mid && r->gram[order[a] * (n + 1)] >=
                                                r->gram[order[b] * (n + 1)]);
                other[k] = left ? order[a++] : order[b++];
            }
        }
        memcpy(order, other, (size_t)n * sizeof *order);
    }
}

/* ---- rows --------------------------------------------------------------- */

/* One tile: up to SB_TILE rows that a row of R serves while it is near. */
typedef struct gptq_tile {
    const gptq_job *j;
    int64_t first, rows;
    float *sums; /* [cols, SB_TILE] */
} gptq_tile;

/* Columns [begin, end); what is left over goes to those of the same block. */
static void gptq_block(const gptq_tile *t, int64_t begin, int64_t end,
                       float error[GPTQ_BLOCK][SB_TILE])
{
    const gptq_job *j = t->j;
    const sb_rounding *r = j->r;
    int64_t n = r->cols;
    float want[SB_TILE] = {0}, now[SB_TILE];

    for (int64_t i = begin; i < end; i++) {
        float square = j->factor[i * n + i] * j->factor[i * n + i];
        float *w = r->w + t->first * n + j->order[i];
        float *sums = t->sums + i * SB_TILE, *lost = error[i - begin];

        for (int64_t k = 0; k < t->rows; k++)
            want[k] = w[k * n] + sums[k];
        sb_rounding_tile(r, t->first, t->rows, j->order[i], want, now);
        for (int64_t k = 0; k < t->rows; k++) {
            lost[k] = w[k * n] - now[k];
            sums[k] = (want[k] - now[k]) * square;
            w[k * n] = now[k];
        }
        sb_tile_pass_on(j->factor + i * n + i + 1, end - i - 1, lost,
                        sums + SB_TILE);
    }
}

/* What columns behind a block get from it is added at its end, in the same
 * order. */
static void gptq_columns(const gptq_tile *t)
{
    int64_t n = t->j->r->cols;
    float error[GPTQ_BLOCK][SB_TILE] = {0}; /* of rows that there are */

    for (int64_t b = 0, e; b < n; b = e) {
        e = b + GPTQ_BLOCK < n ? b + GPTQ_BLOCK : n;
        gptq_block(t, b, e, error);
        sb_tile_pass_all(t->j->factor + b * n + e, n, e - b, n - e, error[0],
                         t->sums + e * SB_TILE);
    }
}

/* ---- passes ------------------------------------------------------------- */

/* The slopes of the squared error, half of them, along each element.  With t_i
 * the terms of gram_factor.h, whose squares make the error, that of element j
 * is the sum over i >= j of t_i R[j,i], less than zero if it should grow. */
static void gptq_slopes(const gptq_tile *t)
{
    const gptq_job *j = t->j;
    int64_t n = j->r->cols;
    float behind[SB_TILE];

    for (int64_t i = 0; i < n; i++) {
        const float *left = t->sums + i * SB_TILE;
        float *slopes = j->slopes + t->first * n + j->order[i];

        sb_tile_gather(j->factor + i * n + i + 1, left + SB_TILE, n - i - 1,
                       behind);
        for (int64_t k = 0; k < t->rows; k++)
            slopes[k * n] = 0 - left[k] - behind[k];
    }
}

/* Along one column the error is a parabola, whose lowest place is rounded.  Few
 * rows change: each passes its own on. */
static void gptq_anew(const gptq_tile *t, int64_t col)
{
    const gptq_job *j = t->j;
    const sb_rounding *r = j->r;
    int64_t n = r->cols;
    const float *gram = r->gram + col * n;
    float curve = gram[col] + j->added, want[SB_TILE] = {0}, now[SB_TILE];
    float *w = r->w + t->first * n + col, *at = j->slopes + t->first * n;

    for (int64_t k = 0; k < t->rows; k++)
        want[k] = w[k * n] - at[k * n + col] / curve;
    sb_rounding_tile(r, t->first, t->rows, col, want, now);
    for (int64_t k = 0; k < t->rows; k++) {
        float more = now[k] - w[k * n];

        if (now[k] == w[k * n])
            continue;
        w[k * n] = now[k];
        sb_gram_pass_on(gram, more, n, at + k * n);
        at[k * n + col] += more * j->added;
    }
}

/* Where groups have scales of their own, steps are finer, and passes were seen
 * to gain nothing for their time. */
static int64_t gptq_pass_count(const sb_rounding *r)
{
    const gptq_params *p = r->params;

    return p->passes >= 0 ? p->passes : r->group < r->cols ? 0 : 2;
}

static void gptq_passes(const gptq_tile *t)
{
    const sb_rounding *r = t->j->r;
    int64_t n = r->cols, passes = gptq_pass_count(r);

    gptq_slopes(t);
    for (int64_t k = 0; k < passes; k++)
        for (int64_t c = 0; c < n; c++)
            if (r->gram[c * (n + 1)] > 0)
                gptq_anew(t, c);
}

/* Items are tiles of rows. */
static void gptq_tiles(void *arg, size_t begin, size_t end)
{
    const gptq_job *j = arg;
    const sb_rounding *r = j->r;

    for (size_t i = begin; i < end; i++) {
        int64_t first = (int64_t)i * SB_TILE, left = r->rows - first;
        const gptq_tile t = {.j = j,
                             .first = first,
                             .rows = left < SB_TILE ? left : SB_TILE,
                             .sums = j->sums + first * r->cols};

        gptq_columns(&t);
        if (j->slopes)
            gptq_passes(&t);
    }
}

/* Columns whose inputs were zero in all samples.  Nothing is known of them, so
 * that they are rounded to nearest, as their part of the factor has it: other
 * samples may show them, and without their weights a network can be ruined. */
static int64_t gptq_count_dead(const sb_rounding *r)
{
    int64_t n = 0;

    for (int64_t c = 0; c < r->cols; c++)
        n += !(r->gram[c * (r->cols + 1)] > 0);
    return n;
}

/* What is made of the sums, for all rows. */
typedef struct gptq_plan {
    bool done;    /* there is a factor */
    double added; /* to the diagonal */
    int64_t *order;
    float *h;
} gptq_plan;

/* Sums of few terms say little of the directions that these terms do not have:
 * errors passed on there are seen in other inputs.  A quarter of the columns
 * for each term is near the best of what two language models had with 1024 to
 * 4096 tokens. */
static double gptq_damping(const sb_rounding *r)
{
    const gptq_params *p = r->params;
    double few = r->count > 0 ? (double)r->cols / (4 * r->count) : 0;

    return few > p->damping ? (few < 1 ? few : 1) : p->damping;
}

static sb_status gptq_plan_make(const sb_rounding *r, gptq_plan **out)
{
    const gptq_params *p = r->params;
    size_t n = (size_t)r->cols;
    gptq_plan *plan = sb_alloc_raw(
        r->ctx, sizeof *plan + 2 * n * sizeof *plan->order + n * n * 4, 1);

    if (!plan)
        return SB_NO_MEMORY;
    plan->order = (int64_t *)(plan + 1);
    plan->h = (float *)(plan->order + 2 * n);
    for (size_t i = 0; i < n; i++)
        plan->order[i] = (int64_t)i;
    if (p->act_order)
        gptq_sort(r, plan->order, plan->order + n);
    sb_status status =
        sb_gram_factor(r->ctx, r->gram, r->cols, plan->order, gptq_damping(r),
                       plan->h, &plan->added, &plan->done);
    if (status == SB_OK)
        *out = plan;
    else
        sb_free(r->ctx, plan);
    return status;
}

static sb_status gptq_run(sb_rounding *r, const gptq_plan *plan)
{
    const size_t n = (size_t)(r->rows * r->cols);
    const size_t tiles = (size_t)((r->rows + SB_TILE - 1) / SB_TILE);
    const size_t whole = tiles * SB_TILE * (size_t)r->cols;
    const bool passes = gptq_pass_count(r) > 0;

    if (!plan->done) {
        r->why_not = "the products of its inputs have no Cholesky factor";
        sb_rounding_all_nearest(r);
        return SB_OK;
    }
    float *sums = sb_alloc(r->ctx, passes ? whole + n : whole, sizeof *sums);
    if (!sums)
        return SB_NO_MEMORY;
    gptq_job job = {.r = r,
                    .factor = plan->h,
                    .order = plan->order,
                    .sums = sums,
                    .slopes = passes ? sums + whole : NULL,
                    .added = (float)plan->added};
    r->dead += gptq_count_dead(r);
    sb_parallel_for(r->ctx, tiles, 1, gptq_tiles, &job);
    sb_free(r->ctx, sums);
    return sb_ctx_poll(r->ctx);
}

static sb_status gptq_round(sb_rounding *r)
{
    gptq_plan *plan = r->kept ? *r->kept : NULL;

    if (!plan)
        SB_TRY(gptq_plan_make(r, &plan));
    if (r->kept)
        *r->kept = plan;
    sb_status status = gptq_run(r, plan);
    if (!r->kept)
        sb_free(r->ctx, plan);
    return status;
}

const sb_quantizer_def sb_quantizer_gptq = {
    .name = "gptq",
    .summary =
        "rounds columns, each making up for errors before it; needs samples",
    .uses = {[SB_QUANT_WEIGHT] = {.schemes = SB_SCHEMES_ALL},
             [SB_QUANT_ACTIVATION] = {0, "gptq decides for each weight which "
                                         "way to round"}},
    .params = gptq_table,
    .params_size = sizeof(gptq_params),
    .round = gptq_round,
    .round_arrays = 2,
    .round_squares = 1,
    .training = {[SB_QUANT_WEIGHT] = &sb_quant_training_fixed},
};
