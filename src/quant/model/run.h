/* run.h - running a quantized model: the graph of its present state and its
 * executor, kept until the state changes. */
#ifndef SB_QUANT_MODEL_RUN_H
#define SB_QUANT_MODEL_RUN_H

#include "exec/exec.h"

/* A derived graph, ready to run. */
typedef struct sb_quant_run {
    bool weights_on, activations_on;
    sb_graph *graph;
    sb_exec *exec;
    const sb_tensor **outputs; /* those of the model first */
} sb_quant_run;

/* The state has changed: the next run derives its graph anew. */
void sb_quant_run_drop(sb_quant_model *qm);
/* Are these what a run takes: one tensor for each input, but none for those
 * that have a default, which is kept? */
SB_MUST_USE sb_status sb_quant_run_check(const sb_quant_model *qm,
                                         const sb_tensor *const *inputs,
                                         size_t n_inputs, size_t n_outputs);

#endif
