/* All blocks of a network, one after another.
 *
 * Block by block (staged.h) the float network runs over all samples; the block
 * is learned, then runs quantized, as it is now, so that those behind it learn
 * to make up for what it lost. */
#include <string.h>

#include "quant/calibrate/batch_store.h"
#include "quant/calibrate/replay.h"
#include "quant/model/instrument.h"
#include "quant/model/overlay.h"
#include "quant/model/simulate.h"
#include "quant/reconstruct/blocks.h"

/* ---- weights ------------------------------------------------------------ */

static bool blocks_wants(const sb_quant_model *qm, const sb_quantizer *q)
{
    return sb_quantizer_is_constant(qm, q) && !sb_quantizer_is_off(qm, q) &&
           q->spec.kind == SB_QUANT_WEIGHT;
}

const char *sb_learns_no_blocks(const sb_quant_model *qm)
{
    if (sb_quant_config_schedule(qm->config).blockwise.steps == 0)
        return NULL;
    if (sb_quant_config_mode(qm->config) == SB_QUANT_DYNAMIC)
        return "activations have no scales before the network runs (A: "
               "dynamic)";
    return qm->known.n > 0 ? "the model is quantized already" : NULL;
}

bool sb_learns_blocks(const sb_quant_model *qm)
{
    if (sb_quant_config_schedule(qm->config).blockwise.steps == 0 ||
        sb_learns_no_blocks(qm))
        return false;
    for (size_t i = 0; i < qm->place.n_quantizers; i++)
        if (blocks_wants(qm, &qm->place.quantizers[i]))
            return true;
    return false;
}

/* Why a weight cannot be learned; NULL: it can. */
static const char *blocks_why_not(const sb_quant_model *qm,
                                  const sb_quantizer *q)
{
    const sb_value *value = sb_graph_value(qm->graph, q->value);

    if (value->constant.dtype != SB_DTYPE_F32)
        return "it is not of float32";
    if (q->def->map_weight || q->blocks)
        return "its integers stand for other numbers";
    if (q->n_uses != value->n_uses)
        return "it is read elsewhere, too";
    return NULL;
}

static void blocks_warn(const sb_quant_model *qm, const sb_quantizer *q,
                        const char *why)
{
    sb_warn(qm->ctx, "BLOCKWISE: '%s' is rounded to nearest: %s", q->name, why);
}

static sb_status blocks_find_weights(sb_blocks_walk *w, bool *layer)
{
    const sb_quant_model *qm = w->qm;

    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        const sb_quantizer *q = &qm->place.quantizers[i];

        if (!blocks_wants(qm, q))
            continue;
        const char *why = blocks_why_not(qm, q);
        if (why)
            blocks_warn(qm, q, why);
        else
            w->learn[q->value] = q;
        for (size_t u = 0; u < q->n_uses && !why; u++)
            layer[q->uses[u].node] = true;
    }
    return SB_OK;
}

/* A weight of several blocks belongs to none. */
static void blocks_check_weights(sb_blocks_walk *w)
{
    for (sb_value_id v = 0; v < w->qm->graph->n_values; v++) {
        const sb_quantizer *q = w->learn[v];

        for (size_t u = 1; q && u < q->n_uses; u++)
            if (w->plain.node_level[q->uses[u].node] !=
                w->plain.node_level[q->uses[0].node]) {
                blocks_warn(w->qm, q, "several blocks read it");
                w->learn[v] = NULL;
                break;
            }
    }
}

/* ---- samples ------------------------------------------------------------ */

/* Can the batch be taken apart along its first dimension? */
static bool blocks_splits(const sb_quant_model *qm, const sb_tensor *const *in,
                          int64_t samples)
{
    for (size_t i = 0; i < qm->graph->n_inputs; i++)
        if (in[i] && (in[i]->rank < 1 || in[i]->dims[0] != samples))
            return false;
    return qm->fixed_batch == 0;
}

static sb_status blocks_take_samples(sb_blocks_walk *w, sb_staged *s,
                                     const sb_tensor *const *in, int64_t n)
{
    size_t inputs = w->qm->graph->n_inputs;
    sb_tensor *row = sb_alloc(s->ctx, inputs + 1, sizeof *row);
    const sb_tensor **rows = sb_alloc(s->ctx, inputs + 1, sizeof *rows);
    sb_status status = row && rows ? SB_OK : SB_NO_MEMORY;

    for (int64_t k = 0; k < n && status == SB_OK; k++) {
        for (size_t i = 0; i < inputs; i++) {
            rows[i] = in[i] ? &row[i] : NULL;
            if (!in[i])
                continue;
            row[i] = *in[i];
            row[i].dims[0] = 1;
            row[i].data =
                (char *)in[i]->data + (size_t)k * sb_tensor_bytes(&row[i]);
        }
        status = sb_staged_take(s, rows);
    }
    sb_free(s->ctx, row);
    sb_free(s->ctx, rows);
    return status;
}

static sb_status blocks_take(sb_blocks_walk *w)
{
    sb_batch_store *store = w->qm->state.batches;

    w->samples = true;
    for (int again = 0; again < 2; again++) /* once to see, once to take */
        for (size_t i = 0; i < sb_batch_store_count(store); i++) {
            const sb_tensor *const *in = NULL;
            int64_t n = sb_batch_store_samples(store, i);

            if (!sb_replay_is_for(w->qm, SB_REPLAY_USED, i))
                continue;
            SB_TRY(sb_batch_store_get(store, i, &in));
            if (!again)
                w->samples = w->samples && blocks_splits(w->qm, in, n);
            else if (w->samples) {
                SB_TRY(blocks_take_samples(w, &w->plain, in, n));
                SB_TRY(blocks_take_samples(w, &w->quantized, in, n));
            } else {
                SB_TRY(sb_staged_take(&w->plain, in));
                SB_TRY(sb_staged_take(&w->quantized, in));
            }
        }
    return SB_OK;
}

/* ---- stages ------------------------------------------------------------- */

/* Outputs are made to be compared; what a block reads in float stays until it
 * is learned. */
static void blocks_mark(const sb_blocks_walk *w, sb_staged *s, bool plain)
{
    const sb_graph *g = s->g;

    for (size_t i = 0; i < g->n_outputs; i++)
        s->kept_until[g->outputs[i]] = w->n_blocks;
    sb_staged_mark(s);
    for (sb_value_id v = 0; v < g->n_values && plain; v++) {
        sb_node_id from = sb_graph_value(g, v)->producer;

        if (s->kept_until[v] != SB_NO_LEVEL &&
            (from == SB_NONE || s->node_level[from] != s->kept_until[v]))
            s->kept_until[v]++;
    }
}

static sb_status blocks_plan(sb_blocks_walk *w)
{
    sb_quant_model *qm = w->qm;
    size_t limit = qm->state.calibration.memory_limit;
    bool *layer = sb_alloc(qm->ctx, qm->graph->n_nodes + 1, sizeof *layer);

    w->learn = sb_alloc(qm->ctx, qm->graph->n_values + 1, sizeof *w->learn);
    sb_status status = layer && w->learn ? SB_OK : SB_NO_MEMORY;
    if (status == SB_OK)
        status = sb_staged_init(qm->ctx, qm->graph, limit, &w->plain);
    if (status == SB_OK)
        status = sb_staged_init(qm->ctx, qm->graph, limit, &w->quantized);
    if (status == SB_OK)
        status = blocks_find_weights(w, layer);
    if (status == SB_OK)
        status = sb_find_blocks(&w->plain, layer, &w->n_blocks);
    sb_free(qm->ctx, layer);
    SB_TRY(status);
    memcpy(w->quantized.node_level, w->plain.node_level,
           qm->graph->n_nodes * sizeof *w->plain.node_level);
    blocks_check_weights(w);
    blocks_mark(w, &w->plain, true);
    blocks_mark(w, &w->quantized, false);
    return blocks_take(w);
}

static sb_status blocks_put(void *user, sb_graph *g, uint32_t point,
                            sb_node_id beside, sb_value_id x, sb_value_id *y)
{
    const sb_layer_block *b = user;
    const sb_quant_model *qm = b->walk->qm;

    *y = x;
    return sb_stage_reads(&b->stage, &qm->place, point)
               ? sb_quant_put_simulated(qm, g, point, beside, x, y)
               : SB_OK;
}

/* Runs a block over all samples, in float or quantized. */
static sb_status blocks_run_stage(sb_blocks_walk *w, sb_layer_block *b)
{
    sb_quant_model *qm = w->qm;
    sb_stage *k = &b->stage;
    const sb_exec_options opt = {.exact = qm->exact};

    SB_TRY(sb_stage_open(k, 0));
    SB_TRY(sb_stage_list(k));
    if (k->n_out == 0)
        return SB_OK;
    if (k->s == &w->plain) {
        SB_TRY(sb_graph_clone(qm->graph, &k->graph));
    } else {
        SB_TRY(sb_quant_derive(qm, blocks_put, b, &k->graph));
        SB_TRY(sb_overlay_apply(qm, k->graph));
    }
    SB_TRY(sb_stage_cut(k, NULL));
    SB_TRY(sb_stage_start(k, &opt));
    for (size_t i = 0; i < k->s->n_batches; i++)
        SB_TRY(sb_stage_run(k, i));
    sb_stage_done(k);
    return SB_OK;
}

static sb_status blocks_stage(sb_blocks_walk *w, sb_staged *s, int32_t level)
{
    sb_layer_block b = {.walk = w, .stage = {.s = s, .level = level}};
    sb_status status = blocks_run_stage(w, &b);

    sb_stage_clear(&b.stage);
    return status;
}

/* ---- all of them -------------------------------------------------------- */

/* A block that no gradient goes through is left as it is. */
static sb_status blocks_skip(const sb_layer_block *b, sb_status status)
{
    const sb_quant_model *qm = b->walk->qm;

    if (status != SB_UNSUPPORTED)
        return status;
    sb_warn(
        qm->ctx,
        "BLOCKWISE: %zu weights, the first is '%s', are rounded to nearest: %s",
        b->n_weights, b->n_weights ? b->weights[0].q->name : "",
        sb_ctx_error(qm->ctx));
    return SB_OK;
}

static sb_status blocks_learn(sb_blocks_walk *w, int32_t level, size_t *layers)
{
    sb_layer_block b = {.walk = w,
                        .stage = {.s = &w->quantized, .level = level}};
    sb_status status = sb_block_open(&b);

    if (status == SB_OK && b.learner && b.n_learned > 0) {
        status = sb_block_learn(&b);
        if (status == SB_OK)
            *layers += b.n_learned;
        if (status == SB_OK && w->report)
            w->report(w->report_user, &b);
    }
    for (size_t i = b.n_learned; i < b.n_weights && status == SB_OK; i++)
        blocks_warn(w->qm, b.weights[i].q, "no result depends on it");
    status = blocks_skip(&b, status);
    sb_block_close(&b);
    return status;
}

static sb_status blocks_all(sb_blocks_walk *w, size_t *layers)
{
    SB_TRY(blocks_plan(w));
    if (w->plain.n_batches == 0) {
        sb_warn(w->qm->ctx, "BLOCKWISE: there are no samples to learn from");
        return SB_OK;
    }
    SB_TRY(sb_journal_open_blocks(w->qm, &w->how, (size_t)w->n_blocks,
                                  &w->journal));
    for (int32_t level = 0; level < w->n_blocks; level++) {
        SB_TRY(blocks_stage(w, &w->plain, level));
        SB_TRY(blocks_learn(w, level, layers));
        if (level + 1 < w->n_blocks)
            SB_TRY(blocks_stage(w, &w->quantized, level));
        for (sb_value_id v = 0; v < w->qm->graph->n_values; v++)
            if (w->plain.kept_until[v] == level + 1)
                sb_staged_drop(&w->plain, v);
    }
    if (w->journal.found > 0)
        sb_warn(w->qm->ctx, "%s: %zu of %d blocks are from an earlier run",
                w->journal.folder, w->journal.found, w->n_blocks);
    return SB_OK;
}

sb_status sb_blocks_walk_run(sb_blocks_walk *w, size_t *layers)
{
    sb_status status = blocks_all(w, layers);

    sb_staged_clear(&w->plain);
    sb_staged_clear(&w->quantized);
    sb_free(w->qm->ctx, w->learn);
    return status;
}

sb_status sb_learn_blocks(sb_quant_model *qm, size_t *layers)
{
    sb_blocks_walk w = {.qm = qm,
                        .how = sb_quant_config_schedule(qm->config).blockwise};

    return sb_blocks_walk_run(&w, layers);
}
