/* Weights whose quantizers decide the rounding from samples ("gptq").
 *
 * Layers are taken in the order of the network: it runs quantized, with the
 * weights that are decided already, up to the layers that come next; then
 * theirs are decided.  So layers see what the quantized layers before them
 * make; Gram matrices that would not have room in memory together are summed up
 * in several runs. */
#include <string.h>

#include "quant/model/overlay.h"
#include "quant/reconstruct/gram_stages.h"
#include "quant/reconstruct/journal.h"
#include "tensor/mapped.h"

static const size_t ROUND_LIMIT = (size_t)1 << 30;

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

bool sb_learns_weights(const sb_quant_model *qm)
{
    if (sb_quant_config_mode(qm->config) == SB_QUANT_WEIGHTS_ONLY)
        return false;
    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        const sb_quantizer *q = &qm->place.quantizers[i];

        if (q->def->round_learns && round_is_wanted(qm, q))
            return true;
    }
    return sb_learns_blocks(qm);
}

/* ---- all of them -------------------------------------------------------- */

void sb_round_warn(const sb_quant_model *qm, const sb_quantizer *q,
                   const char *why)
{
    sb_warn(qm->ctx, "%s: '%s' is rounded to nearest: %s", q->def->name,
            q->name, why);
}

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
            sb_round_warn(qm, q, reason);
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

sb_status sb_round_list(const sb_quant_model *qm, bool warn,
                        sb_round_layer **out, size_t *n)
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
    if (warn)
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
    const sb_quant_model *qm = k->grams.qm;
    size_t limit = qm->state.calibration.memory_limit;

    limit = limit ? limit : sb_memory_share(qm->ctx, 4, ROUND_LIMIT);
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

/* Weights in mapped files that a level has read need no memory until they are
 * read again. */
static void round_release(const round_walk *k, int32_t level)
{
    const sb_quant_model *qm = k->grams.qm;
    size_t n = 0;
    const sb_node_id *nodes = sb_staged_level(&k->stages.quantized, level, &n);

    for (size_t i = 0; i < n; i++) {
        const sb_node *node = sb_graph_node(qm->graph, nodes[i]);

        for (uint32_t j = 0; j < node->n_in + node->n_implicit; j++) {
            sb_value_id v = node->inputs[j];

            if (v == SB_NONE || !sb_graph_value(qm->graph, v)->is_constant)
                continue;
            sb_tensor_release_pages(&sb_graph_value(qm->graph, v)->constant);
            sb_tensor_release_pages(sb_overlay_constant(qm, v));
        }
    }
}

static sb_status round_part(round_walk *k, size_t first, size_t *end)
{
    sb_quant_model *qm = k->grams.qm;

    SB_TRY(round_gather(k, first, end));
    SB_TRY(sb_gram_stages_run(&k->stages, k->layers[first].level,
                              round_same_level(k, first, *end)));
    round_release(k, k->layers[first].level);
    for (size_t i = first; i < *end; i++) {
        sb_round_layer *l = &k->layers[i];

        if (k->done[i])
            continue;
        SB_TRY(sb_round_layer_run(qm, l, &k->grams.v[l->gram]));
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
    const sb_round_watch *watch = k->grams.qm->state.watch;
    const size_t some = k->n / 4, few = 4;

    SB_TRY(sb_gram_stages_init(&k->grams, k->layers, k->n, &k->stages));
    SB_TRY(round_go_on(k));
    for (size_t i = 0, end; k->journal.found < k->n && i < k->n; i = end) {
        bool on = true;

        SB_TRY(round_part(k, i, &end));
        /* A layer behind these that is done: an earlier run went on. */
        if (watch && some >= few && i < some && end >= some && !k->done[end])
            SB_TRY(watch->goes_on(watch->user, &on));
        if (!on)
            k->n = end;
    }
    return SB_OK;
}

sb_status sb_round_weights(sb_quant_model *qm, size_t *n)
{
    round_walk k = {
        .grams = {.qm = qm,
                  .fit = sb_quant_config_schedule(qm->config).layerwise}};
    sb_status status = sb_round_list(qm, !qm->state.told, &k.layers, &k.n);

    qm->state.told = true; /* once, however often weights are rounded */
    if (status == SB_OK)
        status = round_all(&k);
    *n = k.n;
    sb_grams_clear(&k.grams);
    sb_gram_stages_clear(&k.stages);
    sb_free(qm->ctx, k.layers);
    sb_free(qm->ctx, k.done);
    return status;
}
