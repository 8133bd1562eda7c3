/* Running a quantized model: derive the graph that the present state asks for,
 * lower it, keep its executor until the state changes. */
#include <string.h>

#include "passes/pass.h"
#include "quant/calibrate/calibrate.h"
#include "quant/model/simulate.h"

void sb_quant_run_drop(sb_quant_model *qm)
{
    sb_exec_free(qm->run.exec);
    sb_graph_free(qm->run.graph);
    sb_free(qm->ctx, qm->run.outputs);
    qm->run = (sb_quant_run){
        .weights_on = qm->run.weights_on,
        .activations_on = qm->run.activations_on,
    };
}

void sb_quant_model_set_quant(sb_quant_model *qm, int weights, int activations)
{
    sb_quant_run_drop(qm);
    qm->run.weights_on = weights != 0;
    qm->run.activations_on = activations != 0;
}

/* ---- forward ------------------------------------------------------------ */

static sb_status make_exec(sb_quant_model *qm)
{
    sb_exec_options opt = {.exact = qm->exact};

    if (qm->state.calibrating)
        SB_TRY(sb_calibrate_graph(qm, &opt, &qm->run.graph));
    else
        SB_TRY(sb_quant_simulated(qm, &qm->run.graph));
    SB_TRY(sb_passes_run(qm->run.graph, "lower", NULL, NULL, NULL));
    return sb_exec_create(qm->ctx, qm->run.graph, &opt, &qm->run.exec);
}

/* While calibrating: are inputs only kept, to be run later? */
static bool run_only_keeps(const sb_quant_model *qm, size_t n_outputs)
{
    if (qm->state.blocks)
        return true;
    if (n_outputs > 0 || !qm->state.calibrating || !qm->state.batches ||
        qm->train)
        return false;
    for (uint32_t i = 0; i < qm->place.n_points; i++)
        if (sb_calibrate_observes(qm, i))
            return false;
    return true;
}

static sb_status make_run(sb_quant_model *qm, bool only_keeps)
{
    if (qm->run.outputs && (only_keeps || qm->run.exec))
        return SB_OK;
    if (!only_keeps)
        SB_TRY(make_exec(qm));
    /* The graph that runs may have outputs of its own behind the others. */
    const sb_graph *g = only_keeps ? qm->graph : qm->run.graph;
    sb_free(qm->ctx, qm->run.outputs);
    qm->run.outputs = sb_alloc(qm->ctx, g->n_outputs, sizeof(sb_tensor *));
    return qm->run.outputs ? SB_OK : SB_NO_MEMORY;
}

sb_status sb_quant_run_check(const sb_quant_model *qm,
                             const sb_tensor *const *inputs, size_t n_inputs,
                             size_t n_outputs)
{
    const sb_graph *g = qm->graph;

    if (n_inputs != g->n_inputs)
        return sb_fail(qm->ctx, SB_BAD_ARG, "got %zu inputs, want %zu",
                       n_inputs, g->n_inputs);
    if (n_outputs > g->n_outputs)
        return sb_fail(qm->ctx, SB_BAD_ARG, "got %zu outputs, want at most %zu",
                       n_outputs, g->n_outputs);
    for (size_t i = 0; i < n_inputs; i++) {
        const sb_value *v = sb_graph_value(g, g->inputs[i]);
        if (!inputs[i] && !v->is_constant)
            return sb_fail(qm->ctx, SB_BAD_ARG, "input %zu is missing", i);
        if (inputs[i] && v->is_constant)
            return sb_fail(qm->ctx, SB_BAD_ARG,
                           "input '%s' has a default: quantization keeps it, "
                           "want NULL",
                           v->name);
    }
    return SB_OK;
}

static size_t run_bytes(const sb_tensor *const *list, size_t n)
{
    size_t bytes = 0;

    for (size_t i = 0; i < n; i++)
        bytes += list[i] ? sb_tensor_bytes(list[i]) : 0;
    return bytes;
}

static size_t run_weight_bytes(const sb_graph *g)
{
    size_t bytes = 0;

    for (size_t i = 0; i < g->n_values; i++)
        if (g->values[i].is_constant)
            bytes += sb_tensor_bytes(&g->values[i].constant);
    return bytes;
}

/* Methods are judged by the outputs of the float network, which are kept if
 * they take no more room than the inputs, or all of them than the weights. */
static sb_status run_keep_outputs(sb_quant_model *qm,
                                  const sb_tensor *const *inputs)
{
    sb_quant_state *s = &qm->state;
    const sb_graph *g = qm->graph;

    if (!s->calibrating || !s->outputs)
        return SB_OK;
    bool texts = false; /* which a store does not hold */
    for (size_t i = 0; i < g->n_outputs; i++)
        texts = texts || qm->run.outputs[i]->dtype == SB_DTYPE_STRING;
    size_t bytes = run_bytes(qm->run.outputs, g->n_outputs);
    size_t batches = sb_batch_store_count(s->outputs) + 1;
    if (!texts && (bytes <= run_bytes(inputs, g->n_inputs) ||
                   bytes <= run_weight_bytes(g) / batches))
        return sb_batch_store_take(s->outputs, qm->run.outputs);
    sb_batch_store_free(s->outputs);
    s->outputs = NULL;
    return SB_OK;
}

sb_status sb_quant_model_forward(sb_quant_model *qm,
                                 const sb_tensor *const *inputs,
                                 size_t n_inputs, const sb_tensor **outputs,
                                 size_t n_outputs)
{
    SB_TRY(sb_quant_run_check(qm, inputs, n_inputs, n_outputs));
    bool only_keeps = run_only_keeps(qm, n_outputs);
    sb_status status = make_run(qm, only_keeps);
    if (status != SB_OK) {
        sb_quant_run_drop(qm);
        return status;
    }
    for (size_t i = 0; i < n_inputs && only_keeps; i++)
        SB_TRY(sb_exec_check_input(
            qm->ctx, sb_graph_value(qm->graph, qm->graph->inputs[i]),
            inputs[i]));
    if (qm->state.calibrating && qm->state.batches)
        SB_TRY(sb_batch_store_take(qm->state.batches, inputs));
    if (qm->state.blocks)
        SB_TRY(sb_blocks_take(qm->state.blocks, inputs));
    else if (!only_keeps) {
        SB_TRY(sb_exec_run(qm->run.exec, inputs, NULL, qm->run.outputs));
        SB_TRY(run_keep_outputs(qm, inputs));
    }
    if (n_outputs)
        memcpy(outputs, qm->run.outputs, n_outputs * sizeof *outputs);
    return SB_OK;
}
