/* One layer fitted and rounded, some rows of its weight at a time.
 *
 * Rows do not depend on each other once the factors of the Gram matrix are
 * made, so besides these only some rows are in memory; whole weights lie where
 * sb_tensor_alloc_weight() puts them.  How many rows depends on sizes alone, so
 * that results do not depend on how much memory there is. */
#include <string.h>

#include "quant/calibrate/calibrate.h"
#include "quant/model/overlay.h"
#include "quant/reconstruct/reconstruct.h"
#include "tensor/mapped.h"

enum {
    ROUND_AGAIN = 4,       /* times that a scale may grow */
    ROUND_PART = 1 << 22,  /* elements at a time */
    ROUND_LEAST = 1 << 10, /* rows: columns of a transposed weight are pages */
};

typedef struct round_job {
    sb_quant_model *qm;
    const sb_round_layer *l;
    sb_gram *gram;
    const sb_tensor *own;  /* of the float network */
    const sb_tensor *from; /* what is rounded: the same, or fitted */
    int64_t most;          /* rows at a time */
    float *was, *w;        /* [most, cols] */
    float *scale;          /* [2, most, blocks]: and zero points */
    float *scales;         /* the quantizer's, before rounding */
    void **kept; /* [groups] of the method: for other rows, and once more */
    bool warned;
} round_job;

/* ---- rows --------------------------------------------------------------- */

/* Some columns at a time, so that what is written together lies together. */
static void round_turn(const float *from, int64_t step, int64_t rows,
                       int64_t cols, float *to, int64_t to_step)
{
    enum { TILE = 16 };

    for (int64_t r = 0; r < rows; r += TILE) {
        int64_t end = r + TILE < rows ? r + TILE : rows;

        for (int64_t c = 0; c < cols; c++)
            for (int64_t k = r; k < end; k++)
                to[c * to_step + k] = from[k * step + c];
    }
}

void sb_round_transpose(const float *from, int64_t rows, int64_t cols,
                        float *to)
{
    round_turn(from, cols, rows, cols, to, rows);
}

/* Where rows of all groups are in the weight, from `first` on, and how far they
 * are apart, or, transposed, their elements. */
static int64_t round_rows_at(const sb_round_layer *l, int64_t first,
                             int64_t *apart)
{
    int64_t part = l->parts ? first / l->rows : 0;
    int64_t row = l->parts ? first % l->rows : first;

    *apart = l->transposed ? l->rows : l->parts ? l->groups * l->cols : l->cols;
    return l->transposed ? part * l->cols * l->rows + row
                         : row * *apart + part * l->cols;
}

/* `n` rows from `first` on, all of one group, and back. */
static void round_take(const round_job *j, const sb_tensor *t, int64_t first,
                       int64_t n, float *to)
{
    const sb_round_layer *l = j->l;
    int64_t apart = 0;
    const float *from =
        (const float *)t->data + round_rows_at(l, first, &apart);

    if (l->transposed)
        round_turn(from, apart, l->cols, n, to, l->cols);
    for (int64_t r = 0; r < n && !l->transposed; r++)
        memcpy(to + r * l->cols, from + r * apart,
               (size_t)l->cols * sizeof *to);
}

static void round_put(const round_job *j, const float *from, int64_t first,
                      int64_t n, const sb_tensor *t)
{
    const sb_round_layer *l = j->l;
    int64_t apart = 0;
    float *to = (float *)t->data + round_rows_at(l, first, &apart);

    if (l->transposed)
        round_turn(from, l->cols, n, l->cols, to, apart);
    for (int64_t r = 0; r < n && !l->transposed; r++)
        memcpy(to + r * apart, from + r * l->cols,
               (size_t)l->cols * sizeof *to);
}

/* Calls `each` for parts of the rows of a group. */
typedef sb_status (*round_fn)(round_job *j, int64_t first, int64_t n,
                              void *user);

static sb_status round_parts(round_job *j, int64_t group, round_fn each,
                             void *user)
{
    for (int64_t r = 0; r < j->l->rows; r += j->most) {
        int64_t left = j->l->rows - r;

        SB_TRY(sb_ctx_poll(j->qm->ctx));
        SB_TRY(each(j, group * j->l->rows + r, left < j->most ? left : j->most,
                    user));
    }
    return SB_OK;
}

/* ---- the fit ------------------------------------------------------------ */

typedef struct round_fit {
    const float *h; /* the factor, NULL: none, rows stay as they are */
    int64_t group;
    const sb_tensor *to;
} round_fit;

static sb_status round_fit_rows(round_job *j, int64_t first, int64_t n,
                                void *user)
{
    const round_fit *fit = user;

    round_take(j, j->own, first, n, j->w);
    if (fit->h)
        SB_TRY(sb_refit_rows(j->qm->ctx, j->gram, fit->group, fit->h, j->w, n));
    round_put(j, j->w, first, n, fit->to);
    sb_tensor_release_pages(j->own);
    sb_tensor_release_pages(fit->to);
    return SB_OK;
}

/* What the weight should be before it is rounded, and scales for that. */
static sb_status round_fit_all(round_job *j, const sb_tensor *to)
{
    sb_ctx *ctx = j->qm->ctx;
    size_t n = (size_t)j->l->cols;
    float *h = sb_alloc_raw(ctx, n, n * sizeof *h);
    sb_status status = h ? SB_OK : SB_NO_MEMORY;

    for (int64_t g = 0; g < j->l->groups && status == SB_OK; g++) {
        bool done = false;

        status = sb_refit_factor(ctx, j->gram, g, h, &done);
        round_fit fit = {done ? h : NULL, g, to};
        if (status == SB_OK)
            status = round_parts(j, g, round_fit_rows, &fit);
    }
    sb_free(ctx, h);
    SB_TRY(status);
    j->from = to;
    return j->l->q->blocks ? SB_OK : sb_calibrate_weight(j->qm, j->l->q, to);
}

/* ---- rounding ----------------------------------------------------------- */

/* Where the scale of a row and column is. */
static int64_t round_scale_at(const sb_round_layer *l, int64_t row, int64_t col)
{
    const sb_quantizer *q = l->q;
    int64_t n_block = q->block > 0 ? (l->cols + q->block - 1) / q->block : 0;

    if (q->axis < 0)
        return 0;
    if (q->block == 0)
        return l->parts ? row % l->rows : row;
    return l->transposed ? col / q->block * l->rows + row
                         : row * n_block + col / q->block;
}

/* Scales of some rows, as a rounding wants them. */
static void round_scales(const round_job *j, int64_t first, sb_rounding *r)
{
    const sb_qparams *p = sb_quantizer_qparams(j->qm, j->l->q);
    int64_t n = sb_rounding_groups(r);
    float *zero = j->scale + j->most * n;

    for (int64_t row = 0; row < r->rows; row++)
        for (int64_t k = 0; k < n; k++) {
            int64_t at = round_scale_at(j->l, first + row, k * r->group);
            j->scale[row * n + k] = p->scale[at];
            zero[row * n + k] = p->zero_point[at];
        }
    r->scale = j->scale;
    r->zero_point = zero;
    r->qmin = p->qmin;
    r->qmax = p->qmax;
}

typedef struct round_out {
    int64_t group;
    const sb_tensor *to;
    sb_tensor *bias; /* without memory if there is none to change */
} round_out;

static sb_status round_rows(round_job *j, int64_t first, int64_t n, void *user)
{
    const round_out *out = user;
    const sb_round_layer *l = j->l;
    sb_rounding r = {.ctx = j->qm->ctx,
                     .params = l->q->spec.quantizer_params,
                     .rows = n,
                     .cols = l->cols,
                     .w = j->w,
                     .gram = j->gram->sums + out->group * l->cols * l->cols,
                     .count = (double)j->gram->count,
                     .group = l->q->block > 0 ? l->q->block : l->cols,
                     .kept = &j->kept[out->group]};

    round_take(j, j->from, first, n, j->w);
    round_scales(j, first, &r);
    SB_TRY(l->q->def->round(&r));
    if (r.why_not && !j->warned)
        sb_round_warn(j->qm, l->q, r.why_not);
    j->warned |= r.why_not != NULL;
    if (out->bias->buf) {
        round_take(j, j->own, first, n, j->was);
        sb_refit_bias_rows(j->gram, out->group, first, n, j->was, j->w,
                           out->bias);
    }
    round_put(j, j->w, first, n, out->to);
    sb_tensor_release_pages(j->own);
    sb_tensor_release_pages(j->from);
    sb_tensor_release_pages(out->to);
    return SB_OK;
}

static void round_forget(const round_job *j, int64_t group)
{
    sb_free(j->qm->ctx, j->kept[group]);
    j->kept[group] = NULL;
}

/* Lays the rounded weight over that of the network, and its bias. */
static sb_status round_once(round_job *j)
{
    const sb_round_layer *l = j->l;
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, j->own->rank, j->own->dims);
    sb_tensor bias = {0};
    sb_value_id biased = SB_NONE;
    round_out out = {.to = &t, .bias = &bias};

    SB_TRY(sb_tensor_alloc_weight_raw(j->qm->ctx, &t));
    sb_status status = sb_refit_bias_open(j->qm, l, j->gram, &bias, &biased);
    for (; out.group < l->groups && status == SB_OK; out.group++) {
        status = round_parts(j, out.group, round_rows, &out);
        if (j->qm->state.calibration.memory_limit)
            round_forget(j, out.group);
    }
    if (status == SB_OK)
        sb_overlay_set(j->qm, l->q->value, &t);
    if (status == SB_OK && bias.buf)
        sb_overlay_set(j->qm, biased, &bias);
    sb_tensor_drop(&bias);
    sb_tensor_drop(&t);
    return status;
}

/* Rounding otherwise than to nearest may make pairs too large again
 * (reduce_range.c): then with the scales that have grown. */
static sb_status round_until_small(round_job *j)
{
    const sb_qparams *p = sb_quantizer_qparams(j->qm, j->l->q);
    size_t bytes = (size_t)p->n * sizeof *p->scale;
    bool again = true;

    for (int i = 0; again && i < ROUND_AGAIN; i++) {
        memcpy(j->scales, p->scale, bytes);
        SB_TRY(round_once(j));
        SB_TRY(sb_reduce_auto(j->qm, j->l->q));
        again = memcmp(j->scales, p->scale, bytes) != 0;
    }
    return SB_OK;
}

/* ---- all of it ---------------------------------------------------------- */

int64_t sb_round_part(const sb_round_layer *l)
{
    int64_t rows = ROUND_PART / (l->cols + 1) + 1;

    rows = rows < ROUND_LEAST ? ROUND_LEAST : rows;
    return rows < l->rows ? rows : l->rows;
}

static sb_status round_run(round_job *j)
{
    sb_tensor fitted = sb_tensor_make(SB_DTYPE_F32, j->own->rank, j->own->dims);
    sb_status status = SB_OK;

    if (j->gram->cross) {
        SB_TRY(sb_tensor_alloc_weight_raw(j->qm->ctx, &fitted));
        status = round_fit_all(j, &fitted);
    }
    if (status == SB_OK && j->l->q->blocks)
        status = sb_block_scales(j->qm, j->l->q, j->from, j->gram->sums);
    if (status == SB_OK)
        status = round_until_small(j);
    sb_tensor_drop(&fitted);
    return status;
}

/* The weight as floats, in its own memory if it holds them. */
static sb_status round_own(sb_ctx *ctx, const sb_tensor *w, sb_tensor *out)
{
    if (w->dtype == SB_DTYPE_F32 && sb_tensor_is_aligned(w)) {
        *out = sb_tensor_share(w);
        return SB_OK;
    }
    *out = sb_tensor_make(SB_DTYPE_F32, w->rank, w->dims);
    SB_TRY(sb_tensor_alloc_weight_raw(ctx, out));
    sb_convert(w->dtype, w->data, SB_DTYPE_F32, out->data,
               (size_t)sb_tensor_count(w));
    return SB_OK;
}

sb_status sb_round_layer_run(sb_quant_model *qm, const sb_round_layer *l,
                             sb_gram *gram)
{
    int64_t most = sb_round_part(l);
    int64_t block = l->q->block > 0 ? l->q->block : l->cols;
    size_t part = (size_t)(most * l->cols);
    size_t scales = (size_t)(2 * most * ((l->cols + block - 1) / block));
    size_t all = 2 * part + scales + (size_t)sb_quantizer_qparams(qm, l->q)->n;
    sb_tensor own = {0};

    SB_TRY(round_own(qm->ctx, &sb_graph_value(qm->graph, l->q->value)->constant,
                     &own));
    float *room = sb_alloc_raw(qm->ctx, all, sizeof *room);
    round_job j = {
        .qm = qm,
        .l = l,
        .gram = gram,
        .own = &own,
        .from = &own,
        .most = most,
        .kept = sb_alloc(qm->ctx, (size_t)l->groups + 1, sizeof *j.kept)};
    sb_status status = SB_NO_MEMORY;
    if (room && j.kept) {
        j.was = room;
        j.w = room + part;
        j.scale = room + 2 * part;
        j.scales = room + 2 * part + scales;
        status = round_run(&j);
    }
    for (int64_t g = 0; j.kept && g < l->groups; g++)
        round_forget(&j, g);
    sb_free(qm->ctx, j.kept);
    sb_free(qm->ctx, room);
    sb_tensor_drop(&own);
    return status;
}
