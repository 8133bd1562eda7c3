/* How much memory rounding takes at least, before anything is read: a limit
 * that cannot be kept is better known now than in an hour. */
#include "quant/reconstruct/gram_stages.h"

static const size_t MEMORY_BASE = (size_t)8 << 20; /* graphs, tables, threads */
enum {
    MEMORY_COPIES = 3, /* of a weight that runs: float; rounded, packed */
    MEMORY_POINT = 40, /* bytes: a scale, a zero point, and an observer's */
    MEMORY_MEGA = 1 << 20,
};

static size_t memory_of_weight(const sb_round_layer *l)
{
    return (size_t)(l->groups * l->rows * l->cols) * sizeof(float);
}

/* To sum up for a layer, while those of the level before it run. */
static size_t memory_to_run(const sb_round_layer *layers, size_t n, size_t i)
{
    size_t sum = 0;

    for (size_t k = 0; k < n; k++)
        if (layers[k].level == layers[i].level - 1)
            sum += MEMORY_COPIES * memory_of_weight(&layers[k]);
    return sum;
}

/* To round it: some rows, as they were and as they become, what the method
 * takes, and the weight. */
static size_t memory_to_round(const sb_round_layer *l)
{
    const sb_quantizer_def *def = l->q->def;
    size_t cols = (size_t)l->cols, rows = (size_t)sb_round_part(l);

    /* A method that does not say what it takes has a Gram matrix at least. */
    size_t squares = def->round_squares ? def->round_squares : 1;

    return cols * (cols * squares + rows * (2 + def->round_arrays)) *
               sizeof(float) +
           memory_of_weight(l);
}

/* Of the scales of all weights. */
static size_t memory_of_scales(const sb_quant_model *qm)
{
    size_t sum = 0;

    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        const sb_quantizer *q = &qm->place.quantizers[i];
        const sb_value *v = sb_graph_value(qm->graph, q->value);

        if (v->is_constant && q->block > 0)
            sum += (size_t)(sb_tensor_count(&v->constant) / q->block) *
                   MEMORY_POINT;
    }
    return sum;
}

/* The most of all layers, and which it is. */
static size_t memory_most(const sb_grams *grams, const sb_round_layer *layers,
                          size_t n, size_t *which)
{
    size_t most = 0;

    for (size_t i = 0; i < n; i++) {
        size_t run = memory_to_run(layers, n, i);
        size_t round = memory_to_round(&layers[i]);
        size_t sum =
            sb_grams_bytes(grams, &layers[i]) + (run > round ? run : round);

        if (sum > most) {
            most = sum;
            *which = i;
        }
    }
    return most;
}

sb_status sb_round_check_memory(sb_quant_model *qm)
{
    const size_t limit = sb_memory_share(qm->ctx, 1, 0);
    const sb_grams grams = {
        .qm = qm, .fit = sb_quant_config_schedule(qm->config).layerwise};
    sb_round_layer *layers = NULL;
    size_t n = 0, which = 0;

    if (limit == 0 || !sb_rounds_weights(qm))
        return SB_OK;
    sb_status status = sb_round_list(qm, false, &layers, &n);
    if (status == SB_OK)
        status = sb_gram_stages_order(qm, layers, n);
    if (status == SB_OK && n > 0) {
        size_t most = memory_most(&grams, layers, n, &which);
        /* Three sixteenths are for what is kept between layers (spill.h). */
        size_t least = (most + memory_of_scales(qm) + MEMORY_BASE) / 13 * 16;

        if (limit < least)
            status = sb_fail(
                qm->ctx, SB_NO_MEMORY,
                "out of memory: the limit is %.1f MB, and rounding '%s' takes "
                "%.1f MB; the smallest limit for this model is %zuM",
                (double)limit / MEMORY_MEGA, layers[which].q->name,
                (double)most / MEMORY_MEGA, least / MEMORY_MEGA + 1);
    }
    sb_free(qm->ctx, layers);
    return status;
}
