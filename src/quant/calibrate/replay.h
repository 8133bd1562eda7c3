/* replay.h - running a graph derived from a quantized model over the batches
 * that calibration was given. */
#ifndef SB_QUANT_CALIBRATE_REPLAY_H
#define SB_QUANT_CALIBRATE_REPLAY_H

#include "exec/exec.h"
#include "quant/model/quant_model.h"

typedef struct sb_replay {
    sb_quant_model *qm;
    sb_graph *graph;
    sb_exec *exec;
    const sb_tensor **inputs;  /* those of the model, then others */
    const sb_tensor **outputs; /* of the last run, those of the model first */
} sb_replay;

/* Takes the graph, which begins with the inputs and outputs of the model, and
 * lowers it; `opt` NULL: nothing special.  sb_replay_close() in any case. */
SB_MUST_USE sb_status sb_replay_open(sb_quant_model *qm, sb_graph *graph,
                                     const sb_exec_options *opt, sb_replay *r);
/* Runs batch i; other inputs are what the caller put into r->inputs. */
SB_MUST_USE sb_status sb_replay_run(sb_replay *r, size_t batch);
void sb_replay_close(sb_replay *r);

/* Outputs are compared on so many: enough to tell methods apart, few enough to
 * be quick. */
enum { SB_REFERENCE_SAMPLES = 16 };

/* Batches that methods run over: all, or those that hold as many samples as the
 * configuration says. */
size_t sb_replay_batches(const sb_quant_model *qm);

/* Samples that they, and what judges them, take at most; 0: all. */
int64_t sb_replay_samples(const sb_quant_model *qm);

/* A copy of the float graph. */
SB_MUST_USE sb_status sb_replay_float(const sb_quant_model *qm, sb_graph **out);
/* The graph with all quantizers, whatever sb_quant_model_set_quant() says. */
SB_MUST_USE sb_status sb_replay_quantized(sb_quant_model *qm, sb_graph **out);

#endif
