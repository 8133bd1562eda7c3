/* learn_graph.h - the graphs that a learner runs, each with the states of the
 * store that it is bound to:
 *
 *     learn       inputs, target -> loss, output, gradients, next statistics
 *     accumulate  gradients, weight -> mean of gradients
 *     norm        gradients -> sum of squares
 *     update      gradients, learning rate, step -> parameters, moments
 *     eval        inputs -> outputs, in inference form
 */
#ifndef SB_LEARN_LEARN_GRAPH_H
#define SB_LEARN_LEARN_GRAPH_H

#include "learn/pipe_stages.h"
#include "learn/store.h"

typedef struct sb_bound_graph {
    sb_graph *graph;
    sb_exec_state *states;
    size_t n_states, cap_states;
    sb_exec *exec;
    const sb_tensor **inputs, **outputs; /* of a run; one for each */
} sb_bound_graph;

void sb_bound_graph_free(sb_bound_graph *b);
SB_MUST_USE sb_status sb_bound_graph_bind(sb_bound_graph *b, sb_value_id in,
                                          sb_value_id out, sb_state *state);
/* The executor, and places for inputs and outputs. */
SB_MUST_USE sb_status sb_bound_graph_open(sb_bound_graph *b,
                                          const sb_exec_options *opt);
SB_MUST_USE sb_status sb_bound_graph_run(sb_bound_graph *b);

/* Where things are in a learn graph. */
typedef struct sb_learn_places {
    size_t target;   /* input; SIZE_MAX: none */
    size_t features; /* input of the first */
    size_t counter;  /* input; SIZE_MAX: nothing is dropped */
    sb_dtype target_dtype;
    sb_node_id pause; /* where the caller computes the loss; SB_NONE: nowhere */
    /* Of a stage; SIZE_MAX: it has none. */
    size_t hidden;          /* input: what the stage before gives */
    size_t hidden_gradient; /* output */
    size_t hidden_out;      /* output: what the next stage is given */
} sb_learn_places;

/* Outputs of a learn graph: gradients come behind, or at once if the caller
 * computes the loss. */
enum { SB_LEARN_OUT_LOSS, SB_LEARN_OUT_OUTPUT, SB_LEARN_OUT_GRADIENTS };

/* `lowered`: as it is run, instead of as it is shown.  Says in the store which
 * parameters have a gradient.  `stage` NULL: the whole network; else only that
 * piece of it, whose loss, unless it is the last one, the caller computes: the
 * gradient that the next stage gives. */
SB_MUST_USE sb_status sb_learn_graph_build(const sb_graph *source,
                                           sb_store *store,
                                           const sb_learn_options *opt,
                                           const sb_pipe_stage *stage,
                                           bool lowered, sb_bound_graph *out,
                                           sb_learn_places *places);
/* May a loss of the caller be of output i? */
bool sb_learn_is_custom(const sb_graph *g, const sb_learn_options *opt,
                        size_t i);
/* The network in inference form; states are for the caller to bind. */
SB_MUST_USE sb_status sb_eval_graph_build(const sb_graph *source,
                                          const sb_store *store,
                                          sb_bound_graph *out);

/* update_graph.c */
/* Inputs of the update graph, by number; states come behind them. */
enum { SB_UPDATE_RATE, SB_UPDATE_STEP, SB_UPDATE_SCALE, SB_UPDATE_NUMBERS };

SB_MUST_USE sb_status sb_update_graph_build(sb_store *store,
                                            const sb_learn_options *opt,
                                            sb_bound_graph *out);
SB_MUST_USE sb_status sb_norm_graph_build(sb_store *store,
                                          const sb_learn_options *opt,
                                          sb_bound_graph *out);
/* Its only input that is no state is the weight of what was there before. */
SB_MUST_USE sb_status sb_accumulate_graph_build(sb_store *store,
                                                sb_bound_graph *out);

#endif
