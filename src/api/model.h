/* model.h - what is behind the public sb_model: a graph and answers about it.
 *
 * Answers are borrowed by the caller, so they are kept: names and shapes of
 * inputs and outputs are renewed with every change, counts when asked for. */
#ifndef SB_API_MODEL_H
#define SB_API_MODEL_H

#include "graph/graph.h"

struct sb_model {
    sb_ctx *ctx;
    sb_graph *graph;
    uint64_t file_bytes;
    sb_arena io_arena;
    sb_value_info *inputs, *outputs; /* inputs with a default left out */
    size_t n_inputs, n_outputs;
    sb_arena info_arena;
    sb_arena lint_arena;
    sb_pass_result *results; /* of the last simplify */
};

/* Renews names and shapes of inputs and outputs after a change. */
SB_MUST_USE sb_status sb_model_refresh(sb_model *model);

#endif
