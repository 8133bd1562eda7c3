/* Weights whose quantizers decide the rounding from samples ("gptq").
 *
 * Layers are taken in the order of the network: it runs quantized, with the
 * weights that are decided already, up to the layers that come next; then
 * theirs are decided.  So layers see what the quantized layers before them
 * make; Gram matrices that would not have room in memory together are summed up
 * in several runs. */
#include <string.h>

#include "quant/calibrate/calibrate.h"
#include "quant/model/overlay.h"
#include "quant/model/weight.h"
#include "quant/reconstruct/gram_stages.h"
#include "quant/reconstruct/journal.h"

static const size_t ROUND_LIMIT = (size_t)1 << 30;
enum { ROUND_AGAIN = 4 }; /* times that a scale may grow */

/* Weights of a quantized file are rounded already, unless the user wants them
 * otherwise. */
static bool round_is_wanted(const sb_quant_model *qm, const sb_quantizer *q)
{
    return q->def->round && (qm->asked || qm->known.n == 0) &&
           !sb_quantizer_is_off(qm, q) && sb_quantizer_is_constant(qm, q) &&
           !qm->place.points[q->point].known;
}

bool sb_rounds_weights(const sb_quant_model *qm)
{
    for (size_t i = 0; i < qm->place.n_quantizers; i++)
        if (round_is_wanted(qm, &qm->place.quantizers[i]))
            return true;
    return false;
}

/* ---- one layer ---------------------------------------------------------- */

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

/* Scales of all rows of all groups, as a rounding wants them. */
static void round_scales(const sb_quant_model *qm, const sb_round_layer *l,
                         sb_rounding *r, float *scale, float *zero)
{
    const sb_qparams *p = sb_quantizer_qparams(qm, l->q);
    int64_t n = sb_rounding_groups(r);

    for (int64_t row = 0; row < l->groups * l->rows; row++)
        for (int64_t k = 0; k < n; k++) {
            int64_t at = round_scale_at(l, row, k * r->group);
            scale[row * n + k] = p->scale[at];
            zero[row * n + k] = p->zero_point[at];
        }
    r->qmin = p->qmin;
    r->qmax = p->qmax;
}

void sb_round_transpose(const float *from, int64_t rows, int64_t cols,
                        float *to)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            to[c * rows + r] = from[r * cols + c];
}

static void round_warn(const sb_quant_model *qm, const sb_quantizer *q,
                       const char *why)
{
    sb_warn(qm->ctx, "%s: '%s' is rounded to nearest: %s", q->def->name,
            q->name, why);
}

/* Rounds `t`, which holds the weight, by the sums of the layer's inputs. */
static sb_status round_groups(const sb_quant_model *qm, const sb_round_layer *l,
                              const sb_gram *gram, float *scale, float *w)
{
    int64_t group = l->q->block > 0 ? l->q->block : l->cols;
    sb_rounding r = {.ctx = qm->ctx,
                     .params = l->q->spec.quantizer_params,
                     .rows = l->rows,
                     .cols = l->cols,
                     .count = (double)gram->count,
                     .group = group};
    int64_t n = sb_rounding_groups(&r), all = l->groups * l->rows * n;

    round_scales(qm, l, &r, scale, scale + all);
    for (int64_t g = 0; g < l->groups; g++) {
        r.w = w + g * l->rows * l->cols;
        r.gram = gram->sums + g * l->cols * l->cols;
        r.scale = scale + g * l->rows * n;
        r.zero_point = r.scale + all;
        r.why_not = NULL;
        SB_TRY(l->q->def->round(&r));
        if (r.why_not)
            round_warn(qm, l->q, r.why_not);
    }
    return SB_OK;
}

/* Room for one layer; all [groups, rows, cols] but the last. */
typedef struct round_work {
    float *was;    /* the weight of the float network */
    float *wanted; /* what is rounded: the same, or fitted */
    float *w;      /* and rounded */
    float *scale;  /* scales and zero points of all rows */
    float *scales; /* the quantizer's, before rounding */
} round_work;

/* Where a row of the matrices is in the weight; its elements are `step`
 * apart. */
static int64_t round_row_at(const sb_round_layer *l, int64_t row, int64_t *step)
{
    int64_t part = l->parts ? row / l->rows : 0;
    int64_t from = l->parts ? row % l->rows : row;
    int64_t width = l->parts ? l->groups * l->cols : l->cols;

    *step = l->transposed ? l->rows : 1;
    return l->transposed ? part * l->cols * l->rows + from
                         : from * width + part * l->cols;
}

/* The matrices as a weight of the network. */
static void round_put(const sb_round_layer *l, const float *w, sb_tensor *t)
{
    int64_t step = 1;

    for (int64_t row = 0; row < l->groups * l->rows; row++) {
        float *to = (float *)t->data + round_row_at(l, row, &step);
        for (int64_t c = 0; c < l->cols; c++)
            to[c * step] = w[row * l->cols + c];
    }
}

static void round_take(const sb_round_layer *l, const sb_tensor *t, float *w)
{
    int64_t step = 1;

    for (int64_t row = 0; row < l->groups * l->rows; row++) {
        const float *from =
            (const float *)t->data + round_row_at(l, row, &step);
        for (int64_t c = 0; c < l->cols; c++)
            w[row * l->cols + c] = from[c * step];
    }
}

/* The weight as matrices, and what it should be before it is rounded, with
 * scales for that. */
static sb_status round_start(sb_quant_model *qm, const sb_round_layer *l,
                             const sb_gram *gram, const round_work *work,
                             sb_tensor *t)
{
    const sb_tensor *own = &sb_graph_value(qm->graph, l->q->value)->constant;
    size_t n = (size_t)sb_tensor_count(t);

    sb_convert(own->dtype, own->data, SB_DTYPE_F32, t->data, n);
    round_take(l, t, work->was);
    memcpy(work->wanted, work->was, n * sizeof *work->was);
    if (!gram->cross)
        return SB_OK;
    SB_TRY(sb_refit_weight(qm, l, gram, work->wanted));
    round_put(l, work->wanted, t);
    return sb_calibrate_weight(qm, l->q, t);
}

/* Lays the rounded weight over that of the network. */
static sb_status round_once(sb_quant_model *qm, const sb_round_layer *l,
                            const sb_gram *gram, const round_work *work,
                            const sb_tensor *like)
{
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, like->rank, like->dims);

    SB_TRY(sb_tensor_alloc(qm->ctx, &t));
    memcpy(work->w, work->wanted, sb_tensor_bytes(&t));
    sb_status status = round_groups(qm, l, gram, work->scale, work->w);
    if (status == SB_OK && gram->cross)
        status = sb_refit_bias(qm, l, gram, work->was, work->w);
    if (status == SB_OK) {
        round_put(l, work->w, &t);
        sb_overlay_set(qm, l->q->value, &t);
    }
    sb_tensor_drop(&t);
    return status;
}

/* Rounding otherwise than to nearest may make pairs too large again
 * (reduce_range.c): then with the scales that have grown. */
static sb_status round_until_small(sb_quant_model *qm, const sb_round_layer *l,
                                   const sb_gram *gram, const round_work *work,
                                   const sb_tensor *like)
{
    const sb_qparams *p = sb_quantizer_qparams(qm, l->q);
    size_t bytes = (size_t)p->n * sizeof *p->scale;
    bool again = true;

    for (int i = 0; again && i < ROUND_AGAIN; i++) {
        memcpy(work->scales, p->scale, bytes);
        SB_TRY(round_once(qm, l, gram, work, like));
        SB_TRY(sb_reduce_auto(qm, l->q));
        again = memcmp(work->scales, p->scale, bytes) != 0;
    }
    return SB_OK;
}

static sb_status round_layer(sb_quant_model *qm, const sb_round_layer *l,
                             const sb_gram *gram)
{
    const sb_tensor *own = &sb_graph_value(qm->graph, l->q->value)->constant;
    size_t n = (size_t)(l->groups * l->rows * l->cols);
    size_t scales = (size_t)sb_quantizer_qparams(qm, l->q)->n;
    size_t most = 2 * (n + (size_t)(l->groups * l->rows));
    float *room = sb_alloc(qm->ctx, 3 * n + most + scales, sizeof *room);
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, own->rank, own->dims);
    sb_status status = room ? sb_tensor_alloc(qm->ctx, &t) : SB_NO_MEMORY;

    if (status == SB_OK) {
        const round_work work = {room, room + n, room + 2 * n, room + 3 * n,
                                 room + 3 * n + most};

        status = round_start(qm, l, gram, &work, &t);
        if (status == SB_OK)
            status = round_until_small(qm, l, gram, &work, &t);
        sb_tensor_drop(&t);
    }
    sb_free(qm->ctx, room);
    return status;
}

/* ---- all of them -------------------------------------------------------- */

/* One line for each reason, of which there are a few, however many weights. */
static void round_warn_all(const sb_quant_model *qm, const char **why)
{
    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        const sb_quantizer *q = &qm->place.quantizers[i];
        const char *reason = why[i];
        size_t n = 0;

        for (size_t k = i; reason && k < qm->place.n_quantizers; k++)
            if (why[k] && strcmp(why[k], reason) == 0) {
                why[k] = NULL;
                n++;
            }
        if (n == 1)
            round_warn(qm, q, reason);
        else if (n > 1)
            sb_warn(qm->ctx,
                    "%s: %zu weights are rounded to nearest, the first is "
                    "'%s': %s",
                    q->def->name, n, q->name, reason);
    }
}

/* Of a large matrix only columns that are near to each other make up for each
 * other's errors: those of one channel and its neighbors are most alike, and
 * all of them take a time that grows with the third power.  A configuration of
 * the user gets all. */
static void round_split(const sb_quant_model *qm, sb_round_layer *l)
{
    enum { ROUND_MOST = 320, ROUND_LEAST = 64 };
    const sb_tensor *w = &sb_graph_value(qm->graph, l->weight)->constant;
    int64_t channels = l->conv ? w->dims[1] : l->cols, parts = 1;

    if (qm->asked || l->groups != 1 || l->q->block > 0)
        return;
    while (parts < channels &&
           (channels % parts != 0 || l->cols / parts > ROUND_MOST))
        parts++;
    if (parts == 1 || l->cols / parts < ROUND_LEAST)
        return;
    l->parts = true;
    l->groups = parts;
    l->cols /= parts;
}

static sb_status round_list(const sb_quant_model *qm, sb_round_layer **out,
                            size_t *n)
{
    const char **why =
        sb_alloc(qm->ctx, qm->place.n_quantizers + 1, sizeof *why);

    *n = 0;
    *out = sb_alloc(qm->ctx, qm->place.n_quantizers + 1, sizeof **out);
    if (!*out || !why) {
        sb_free(qm->ctx, why);
        return SB_NO_MEMORY;
    }
    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        const sb_quantizer *q = &qm->place.quantizers[i];

        if (!round_is_wanted(qm, q))
            continue;
        if (sb_round_layer_find(qm, q, &(*out)[*n], &why[i])) {
            why[i] = NULL;
            if (!sb_quant_config_schedule(qm->config).layerwise)
                round_split(qm, &(*out)[*n]);
            ++*n;
        }
    }
    round_warn_all(qm, why);
    sb_free(qm->ctx, why);
    return SB_OK;
}

/* Where rounding is. */
typedef struct round_walk {
    sb_round_layer *layers; /* by level */
    size_t n;
    bool *done; /* by layer: an earlier run has decided it */
    sb_grams grams;
    sb_gram_stages stages;
    sb_journal journal;
} round_walk;

static bool round_same_level(const round_walk *k, size_t first, size_t i)
{
    return i < k->n && k->layers[i].level == k->layers[first].level;
}

/* As many layers of one level from `first` on as have room; at least one. */
static sb_status round_gather(round_walk *k, size_t first, size_t *end)
{
    size_t limit = k->grams.qm->state.calibration.memory_limit;

    limit = limit ? limit : ROUND_LIMIT;
    for (*end = first; round_same_level(k, first, *end); ++*end) {
        sb_round_layer *l = &k->layers[*end];

        if (k->done[*end])
            continue;
        if (k->grams.n > 0 &&
            k->grams.bytes + sb_grams_bytes(&k->grams, l) > limit)
            break;
        SB_TRY(sb_grams_add(&k->grams, l));
    }
    return SB_OK;
}

static sb_status round_part(round_walk *k, size_t first, size_t *end)
{
    SB_TRY(round_gather(k, first, end));
    SB_TRY(sb_gram_stages_run(&k->stages, k->layers[first].level,
                              round_same_level(k, first, *end)));
    for (size_t i = first; i < *end; i++) {
        sb_round_layer *l = &k->layers[i];

        if (k->done[i])
            continue;
        SB_TRY(round_layer(k->grams.qm, l, &k->grams.v[l->gram]));
        SB_TRY(sb_journal_put(&k->journal, l, i));
    }
    sb_grams_clear(&k->grams);
    return SB_OK;
}

/* Takes what an earlier run has decided. */
static sb_status round_go_on(round_walk *k)
{
    sb_quant_model *qm = k->grams.qm;

    k->done = sb_alloc(qm->ctx, k->n + 1, sizeof *k->done);
    if (!k->done)
        return SB_NO_MEMORY;
    SB_TRY(sb_journal_open(qm, k->layers, k->n, &k->journal));
    for (size_t i = 0; i < k->n; i++)
        SB_TRY(sb_journal_get(&k->journal, &k->layers[i], i, &k->done[i]));
    if (k->journal.found > 0)
        sb_warn(qm->ctx, "%s: %zu of %zu layers are from an earlier run",
                k->journal.folder, k->journal.found, k->n);
    return SB_OK;
}

static sb_status round_all(round_walk *k)
{
    SB_TRY(sb_gram_stages_init(&k->grams, k->layers, k->n, &k->stages));
    SB_TRY(round_go_on(k));
    for (size_t i = 0, end; k->journal.found < k->n && i < k->n; i = end)
        SB_TRY(round_part(k, i, &end));
    return SB_OK;
}

sb_status sb_round_weights(sb_quant_model *qm, size_t *n)
{
    round_walk k = {
        .grams = {.qm = qm,
                  .fit = sb_quant_config_schedule(qm->config).layerwise}};
    sb_status status = round_list(qm, &k.layers, &k.n);

    if (status == SB_OK)
        status = round_all(&k);
    *n = k.n;
    sb_grams_clear(&k.grams);
    sb_gram_stages_clear(&k.stages);
    sb_free(qm->ctx, k.layers);
    sb_free(qm->ctx, k.done);
    return status;
}
