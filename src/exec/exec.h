/* exec.h - running a graph: plan once, run many.
 *
 * An executor holds a graph and its plans.  A plan belongs to one combination
 * of input shapes: order of nodes, concrete shapes, lifetimes, prepared
 * kernels. Plans share one workspace and the packed weights.  Running a plan
 * allocates nothing, except for nodes whose shapes depend on data; those reuse
 * grow-only buffers. */
#ifndef SB_EXEC_EXEC_H
#define SB_EXEC_EXEC_H

#include <sparsebit/run.h>

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

/* Memory that lives across runs: weights that are learned, optimizer moments,
 * running statistics, a cache of keys and values, results that the caller wants
 * in a place of its own.  Several executors may share one. */
typedef struct sb_state {
    /* Type, shape and memory, borrowed and aligned to the element size.  The
     * memory may be another at each run, type and shape may not. */
    sb_tensor t;
    /* Counts changes, so that packed copies know when they are stale: code that
     * writes to the memory adds one.  An executor does so for what it writes.
     */
    uint64_t version;
} sb_state;

/* Which values of the graph a state is.  Its elements are never folded, and
 * never part of a plan's key. */
typedef struct sb_exec_state {
    /* Reads it: a graph input, whose place in `inputs` of a run is then NULL,
     * or a constant, whose elements do not count any more; or SB_NONE. */
    sb_value_id in;
    /* A graph output that is written to it, as its kernel makes it where no
     * node reads the old elements later, else at the end of the run; or
     * SB_NONE.  After a run that failed the state is undefined. */
    sb_value_id out;
    sb_state *state; /* borrowed as long as the executor lives */
} sb_exec_state;

/* Memory for what runs compute; {0} at first. */
typedef struct sb_workspace {
    void *memory; /* as allocated */
    char *base;   /* aligned */
    size_t size;
} sb_workspace;

/* At least so much; what was there is lost. */
SB_MUST_USE sb_status sb_workspace_reserve(sb_ctx *ctx, size_t size,
                                           sb_workspace *w);
void sb_workspace_free(sb_ctx *ctx, sb_workspace *w);

typedef struct sb_exec_options {
    sb_dump_fn dump; /* (optional) sees every value right after it is made */
    void *dump_user;
    bool exact;            /* no faster algorithms that round differently */
    bool brief;            /* factors of products may be rounded to bfloat16 */
    sb_observe_fn observe; /* (optional) */
    sb_tap_fn tap;         /* (optional) */
    void *observe_user;
    /* Outputs are handed out in the layouts in which they were made, for who
     * gives them to an executor again. */
    bool as_made;
    bool ranks;                  /* the ranks of the context run it together */
    bool profile;                /* measure the time of every step */
    const sb_exec_state *states; /* (optional) copied; of the root graph */
    size_t n_states;
    /* (optional) Another executor of the same graph with the same states, whose
     * packed weights this one shares; it must live longer.  For runs that stop
     * half way while others of the graph go on. */
    sb_exec *like;
    /* (optional) Lasts longer than the executor, so that others that run after
     * it need not get new pages from the system.  What one has made lives until
     * another runs. */
    sb_workspace *workspace;
} sb_exec_options;

/* Borrows the graph, which must not change while the executor lives. */
SB_MUST_USE sb_status sb_exec_create(sb_ctx *ctx, const sb_graph *graph,
                                     const sb_exec_options *opt, sb_exec **out);
void sb_exec_free(sb_exec *exec);

/* `inputs`: one per graph input, NULL for its default or a state.  `captured`:
 * one per capture of a sub-graph (NULL for a root graph).  `outputs` receives
 * borrowed tensors that live until the next run, plain ones unless `as_made`.
 */
SB_MUST_USE sb_status sb_exec_run(sb_exec *exec, const sb_tensor *const *inputs,
                                  const sb_tensor *const *captured,
                                  const sb_tensor **outputs);
/* The same in two parts.  sb_exec_run_to() stops before a node of the graph and
 * gives its kernel: the inputs are made, the outputs are for the caller to fill
 * (they have shapes and memory), as if the node had run.  sb_exec_run_on() does
 * what is left; any other run forgets it. */
SB_MUST_USE sb_status sb_exec_run_to(sb_exec *exec,
                                     const sb_tensor *const *inputs,
                                     sb_node_id node, const sb_kernel **at);
SB_MUST_USE sb_status sb_exec_run_on(sb_exec *exec, const sb_tensor **outputs);
/* Does the tensor (NULL: none) fit the declared type of a graph input? */
SB_MUST_USE sb_status sb_exec_check_input(sb_ctx *ctx, const sb_value *value,
                                          const sb_tensor *t);
/* Bytes of activations that the last plan needs, and of packed weights that all
 * plans share. */
size_t sb_exec_workspace(const sb_exec *exec);
size_t sb_exec_packed_bytes(const sb_exec *exec);

/* What the runs of the last plan cost, by step: rows in order of execution,
 * and the same summed up by what they do.  Fails unless the executor was made
 * to measure.  Borrowed until the next call. */
SB_MUST_USE sb_status sb_exec_profile(sb_exec *exec, const sb_profile **out);

/* Computes one node whose inputs are all known, for constant folding.  The
 * tensors in `out` get buffers of their own; drop them. */
SB_MUST_USE sb_status sb_exec_eval(sb_ctx *ctx, const sb_graph *graph,
                                   const sb_node *node,
                                   const sb_tensor *const *in, sb_tensor *out);

#endif
