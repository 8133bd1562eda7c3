/* iterate.h - what operators that run a body again and again share.
 *
 * Results of a body are borrowed until its next run, which may overwrite what
 * it reads.  So values that go from one run to the next are copied, between two
 * buffers in turn, and slices of results are copied into a growing stack. */
#ifndef SB_OPS_CONTROL_ITERATE_H
#define SB_OPS_CONTROL_ITERATE_H

#include "ops/infer_util.h"

/* A value that each run of the body takes over from the one before. */
typedef struct sb_carried {
    sb_tensor t; /* what the next run reads */
    sb_buf *room[2];
    int at; /* the room that `t` may lie in */
} sb_carried;

/* Results of all runs, one behind the other. */
typedef struct sb_stack {
    sb_tensor slice; /* type and shape of one */
    sb_buf *room;
    int64_t n;
} sb_stack;

/* One execution of the operator: room for all arguments of its body. */
typedef struct sb_iteration {
    sb_kernel *k;
    const sb_graph *body;
    size_t n_carried, n_stacks, first_out; /* results: other, carried, slices */
    sb_carried *carried;
    sb_stack *stacks;
    const sb_tensor **in, **out; /* of the body */
} sb_iteration;

/* `first_in` and `first_out` count arguments and results of the body that come
 * before the carried ones, whose start is given by the node's inputs from
 * `from` on.  End it, also when this fails. */
SB_MUST_USE sb_status sb_iteration_begin(sb_iteration *it, sb_kernel *k,
                                         const sb_graph *body, uint32_t from,
                                         size_t first_in, size_t first_out,
                                         size_t n_carried);
/* Runs the body once; `it->in` but for the carried values is the caller's. */
SB_MUST_USE sb_status sb_iteration_run(sb_iteration *it);
/* Gives the carried values to the first outputs of the node. */
SB_MUST_USE sb_status sb_iteration_finish(sb_iteration *it);
/* Gives stack `i` to an output: its slices become an axis, from the last to the
 * first if `reverse`. */
SB_MUST_USE sb_status sb_iteration_put_stack(const sb_iteration *it, size_t i,
                                             uint32_t output, int64_t axis,
                                             bool reverse);
void sb_iteration_end(sb_iteration *it);

/* Types of the node's outputs, by those of the body's results: what is carried,
 * then slices with an axis (NULL: 0) of `n` more. */
SB_MUST_USE sb_status sb_iteration_infer(sb_infer *in, const sb_graph *body,
                                         uint32_t from, size_t first_out,
                                         size_t n_carried, const sb_ints *axes,
                                         sb_dim n);
/* What two types have in common. */
sb_type sb_type_common(const sb_type *a, const sb_type *b);
/* A copy of the tensor as output i. */
SB_MUST_USE sb_status sb_kernel_give(sb_kernel *k, uint32_t i,
                                     const sb_tensor *t);

#endif
