/* exec.h - running a graph: plan once, run many.
 *
 * A session holds a graph and its plans.  A plan belongs to one combination of
 * input shapes: order of nodes, concrete shapes, lifetimes, one workspace,
 * prepared kernels.  Running a plan allocates nothing, except for nodes whose
 * shapes depend on data; those reuse grow-only buffers. */
#ifndef SB_EXEC_EXEC_H
#define SB_EXEC_EXEC_H

#include "ops/op_registry.h"

typedef struct sb_plan sb_plan;
typedef struct sb_exec sb_exec;

/* Sees the input of each Observe node while the graph runs, in the layout it
 * has; an error ends the run. */
typedef sb_status (*sb_observe_fn)(void *user, int64_t id, const sb_tensor *x);

/* Asked before that input is made: may set `tap` to see it in pieces, on the
 * threads that make them. */
typedef sb_status (*sb_tap_fn)(void *user, int64_t id, const sb_tensor *x,
                               sb_tap *tap);

typedef struct sb_exec_options {
    sb_dump_fn dump; /* (optional) sees every value right after it is made */
    void *dump_user;
    bool exact;            /* no faster algorithms that round differently */
    sb_observe_fn observe; /* (optional) */
    sb_tap_fn tap;         /* (optional) */
    void *observe_user;
    bool profile; /* measure the time of every step */
} sb_exec_options;

/* Borrows the graph, which must not change while the executor lives. */
SB_MUST_USE sb_status sb_exec_create(sb_ctx *ctx, const sb_graph *graph,
                                     const sb_exec_options *opt, sb_exec **out);
void sb_exec_free(sb_exec *exec);

/* `inputs`: one per graph input.  `captured`: one per capture of a sub-graph
 * (NULL for a root graph).  `outputs` receives borrowed plain tensors that
 * live until the next run. */
SB_MUST_USE sb_status sb_exec_run(sb_exec *exec, const sb_tensor *const *inputs,
                                  const sb_tensor *const *captured,
                                  const sb_tensor **outputs);
/* Does the tensor (NULL: none) fit the declared type of a graph input? */
SB_MUST_USE sb_status sb_exec_check_input(sb_ctx *ctx, const sb_value *value,
                                          const sb_tensor *t);
size_t sb_exec_workspace(const sb_exec *exec);

/* What the runs of the last plan cost, by step: rows in order of execution,
 * and the same summed up by what they do.  Fails unless the executor was made
 * to measure.  Borrowed until the next call. */
SB_MUST_USE sb_status sb_exec_profile(sb_exec *exec, sb_profile *out);

/* Computes one node whose inputs are all known, for constant folding.  The
 * tensors in `out` get buffers of their own; drop them. */
SB_MUST_USE sb_status sb_exec_eval(sb_ctx *ctx, const sb_graph *graph,
                                   const sb_node *node,
                                   const sb_tensor *const *in, sb_tensor *out);

#endif
