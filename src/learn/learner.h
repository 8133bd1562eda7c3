/* learner.h - what is behind the public sb_learner: a network, its parameters,
 * and the graphs that are run over them. */
#ifndef SB_LEARN_LEARNER_H
#define SB_LEARN_LEARNER_H

#include "learn/learn_graph.h"

struct sb_learner {
    sb_ctx *ctx;
    sb_learn_options opt; /* its lists are copied into the arena */
    sb_arena arena;
    sb_graph *source; /* the network as it was given */
    sb_store store;
    sb_bound_graph learn, accumulate, norm, update, eval;
    sb_learn_places places;
    sb_state *eval_states; /* by parameter: the memory that is evaluated */
    double rate;
    double gradient_norm;
    const sb_tensor *output;    /* of the last step, or NULL */
    const sb_tensor **features; /* for the next step; NULL: not given yet */
    const sb_kernel *paused;    /* where a step waits for the caller, or NULL */
    int64_t count;              /* that random numbers depend on */
    sb_tensor counter;          /* is it */
    sb_tensor wide;             /* the target in int64, if it was not */
    sb_arena profile;
    struct sb_pipe *pipe; /* it has a stage of the network; or NULL */
};

/* The inputs of the model, and the counter. */
SB_MUST_USE sb_status sb_learner_set_inputs(sb_learner *learner,
                                            const sb_tensor *const *inputs,
                                            size_t n);
/* learner_ranks.c: after gradients are there: they, and the loss, become the
 * means over all ranks. */
SB_MUST_USE sb_status sb_learner_join(sb_learner *learner, double *loss);
/* Then the update, as a whole. */
SB_MUST_USE sb_status sb_learner_finish(sb_learner *learner);

/* As sb_learner_create(), of a graph, which is copied.  `opt` is complete;
 * `roles` may be NULL (sb_store_find()). */
SB_MUST_USE sb_status sb_learner_create_graph(sb_ctx *ctx,
                                              const sb_graph *graph,
                                              const sb_learn_options *opt,
                                              const sb_map *roles,
                                              sb_learner **out);
/* As sb_learner_model() and sb_learner_graph(). */
SB_MUST_USE sb_status sb_learner_overlay(const sb_learner *learner,
                                         sb_learn_values values,
                                         sb_graph **out);
SB_MUST_USE sb_status sb_learner_show(sb_learner *learner, sb_graph **out);

/* learner_blame.c: the learn graph was run with these inputs, and `what` (loss,
 * gradient) is not finite: says which node made the first such value. */
SB_MUST_USE sb_status sb_learner_blame(sb_learner *learner, const char *what,
                                       double value);

#endif
