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
 * be quick.  Where that decides what stays, and calibration has many samples
 * anyway, on an eighth of them: at most so many. */
enum { SB_REFERENCE_SAMPLES = 16, SB_REFERENCE_MOST = 32 };

/* Without a configuration of the user, or if blocks are learned (state.h:
 * apart), methods are judged by samples that they did not see: what fits those
 * that were seen may fit no others.  All parts are spread over the batches,
 * which may come sorted. */
typedef enum sb_replay_part {
    SB_REPLAY_USED,   /* methods run over them: as many as SAMPLES says */
    SB_REPLAY_TWICE,  /* twice as many, for what chooses more from them */
    SB_REPLAY_WIDE,   /* four times, for ranges that must hold for others */
    SB_REPLAY_SEEN,   /* those, and others that do not judge */
    SB_REPLAY_REST,   /* all but the wide ones */
    SB_REPLAY_JUDGED, /* outputs are compared on them */
} sb_replay_part;

bool sb_replay_is_for(const sb_quant_model *qm, sb_replay_part part, size_t i);
/* Are those that judge not seen? */
bool sb_replay_judges_apart(const sb_quant_model *qm);
/* How many are used. */
size_t sb_replay_batches(const sb_quant_model *qm);

/* A copy of the float graph. */
SB_MUST_USE sb_status sb_replay_float(const sb_quant_model *qm, sb_graph **out);
/* The graph with all quantizers, whatever sb_quant_model_set_quant() says. */
SB_MUST_USE sb_status sb_replay_quantized(sb_quant_model *qm, sb_graph **out);

#endif
