/* Running derived graphs over kept batches. */
#include "quant/calibrate/replay.h"

#include "passes/pass.h"
#include "quant/calibrate/batch_store.h"
#include "quant/model/simulate.h"

/* ---- who gets which batches ---------------------------------------------- */

typedef struct replay_shares {
    size_t n;      /* batches */
    size_t judged; /* by which methods are judged */
    size_t rest;   /* which methods may see */
    size_t used;   /* that they run over */
    size_t twice;  /* twice as many samples */
    size_t wide;   /* four times */
} replay_shares;

/* Batches that hold so many samples; 0: all of `n`. */
static size_t replay_cover(const sb_quant_model *qm, int64_t samples, size_t n)
{
    int64_t each = n > 0 ? sb_batch_store_samples(qm->state.batches, 0) : 1;
    size_t want = (size_t)((samples + each - 1) / (each > 0 ? each : 1));

    return samples == 0 || want > n ? n : want;
}

/* On how many samples outputs are compared. */
static int64_t replay_judges(const sb_quant_model *qm, size_t n)
{
    int64_t each = n > 0 ? sb_batch_store_samples(qm->state.batches, 0) : 0;
    int64_t some = (int64_t)n * each / 8;

    if (qm->asked || some < SB_REFERENCE_SAMPLES)
        return SB_REFERENCE_SAMPLES;
    return some < SB_REFERENCE_MOST ? some : SB_REFERENCE_MOST;
}

static replay_shares replay_share(const sb_quant_model *qm)
{
    const sb_quant_schedule schedule = sb_quant_config_schedule(qm->config);
    int64_t most = schedule.refine_samples;
    replay_shares s = {.n = sb_batch_store_count(qm->state.batches)};
    /* What learns may learn by heart: some samples judge it, even if a
     * configuration asks for it. */
    size_t apart = !qm->asked ? s.n / 2 : qm->state.apart ? (s.n + 2) / 4 : 0;

    s.judged = replay_cover(qm, replay_judges(qm, s.n), s.n);
    s.rest = s.n;
    if (apart > 0) {
        s.judged = s.judged > apart ? apart : s.judged;
        s.rest = s.n - s.judged;
    }
    s.twice = replay_cover(qm, 2 * most, s.rest);
    s.wide = replay_cover(qm, 4 * most, s.rest);
    /* Fitting chooses more from the samples than rounding does. */
    s.used = !qm->asked && schedule.layerwise ? s.twice
                                              : replay_cover(qm, most, s.rest);
    return s;
}

/* The i-th of n, if `some` of them are taken, evenly spread. */
static bool replay_takes(size_t i, size_t some, size_t n)
{
    return (i + 1) * some / n > i * some / n;
}

bool sb_replay_is_for(const sb_quant_model *qm, sb_replay_part part, size_t i)
{
    const replay_shares s = replay_share(qm);
    bool apart = s.rest < s.n, judged = replay_takes(i, s.judged, s.n);
    bool seen = !(apart && judged);
    size_t at = apart ? i - i * s.judged / s.n : i; /* of the rest */

    switch (part) {
    case SB_REPLAY_USED:
        return seen && replay_takes(at, s.used, s.rest);
    case SB_REPLAY_TWICE:
        return seen && replay_takes(at, s.twice, s.rest);
    case SB_REPLAY_WIDE:
        return seen && replay_takes(at, s.wide, s.rest);
    case SB_REPLAY_SEEN:
        return seen;
    case SB_REPLAY_REST:
        return !(seen && replay_takes(at, s.wide, s.rest));
    default:
        return judged;
    }
}

bool sb_replay_judges_apart(const sb_quant_model *qm)
{
    const replay_shares s = replay_share(qm);

    return s.rest < s.n;
}

size_t sb_replay_batches(const sb_quant_model *qm)
{
    return replay_share(qm).used;
}

sb_status sb_replay_float(const sb_quant_model *qm, sb_graph **out)
{
    return sb_graph_clone(qm->graph, out);
}

sb_status sb_replay_quantized(sb_quant_model *qm, sb_graph **out)
{
    const bool weights = qm->run.weights_on, acts = qm->run.activations_on;

    qm->run.weights_on = qm->run.activations_on = true;
    sb_status status = sb_quant_simulated(qm, out);
    qm->run.weights_on = weights;
    qm->run.activations_on = acts;
    return status;
}

sb_status sb_replay_open(sb_quant_model *qm, sb_graph *graph,
                         const sb_exec_options *opt, sb_replay *r)
{
    sb_exec_options with = opt ? *opt : (sb_exec_options){0};

    *r = (sb_replay){.qm = qm, .graph = graph};
    with.exact = qm->exact;
    if (!with.workspace && qm->state.rooms)
        with.workspace = &qm->state.rooms[0];
    r->inputs = sb_alloc(qm->ctx, graph->n_inputs + 1, sizeof *r->inputs);
    r->outputs = sb_alloc(qm->ctx, graph->n_outputs + 1, sizeof *r->outputs);
    if (!r->inputs || !r->outputs)
        return SB_NO_MEMORY;
    SB_TRY(sb_passes_run(graph, "lower", NULL, NULL, NULL));
    return sb_exec_create(qm->ctx, graph, &with, &r->exec);
}

sb_status sb_replay_run(sb_replay *r, size_t batch)
{
    const sb_tensor *const *inputs = NULL;

    SB_TRY(sb_batch_store_get(r->qm->state.batches, batch, &inputs));
    for (size_t i = 0; i < r->qm->graph->n_inputs; i++)
        r->inputs[i] = inputs[i];
    return sb_exec_run(r->exec, r->inputs, NULL, r->outputs);
}

void sb_replay_close(sb_replay *r)
{
    if (!r->qm)
        return;
    sb_exec_free(r->exec);
    sb_graph_free(r->graph);
    sb_free(r->qm->ctx, r->inputs);
    sb_free(r->qm->ctx, r->outputs);
    *r = (sb_replay){0};
}
