/* Running derived graphs over kept batches. */
#include "quant/calibrate/replay.h"

#include "passes/pass.h"
#include "quant/calibrate/batch_store.h"
#include "quant/model/simulate.h"

size_t sb_replay_batches(const sb_quant_model *qm)
{
    int64_t most = sb_quant_config_schedule(qm->config).refine_samples,
            seen = 0;
    size_t n = sb_batch_store_count(qm->state.batches), i = 0;

    for (; i < n && (most == 0 || seen < most); i++)
        seen += sb_batch_store_samples(qm->state.batches, i);
    return i;
}

int64_t sb_replay_samples(const sb_quant_model *qm)
{
    const sb_quant_schedule schedule = sb_quant_config_schedule(qm->config);
    int64_t most = schedule.refine_samples;

    if (schedule.equalization) /* what it changes is observed anew, on all */
        return 0;
    return most > 0 && most < SB_REFERENCE_SAMPLES ? SB_REFERENCE_SAMPLES
                                                   : most;
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
