/* pipe.h - a learner that is one of several, each with a stage of the
 * network: blocks that follow each other.
 *
 * A batch is cut into pieces, which go through the stages one behind another,
 * forward with what the stage before has made, and back with gradients.  All
 * ranks go from tick to tick together; in a tick a rank does one piece back and
 * one forward, then neighbors exchange what they made:
 *
 *     rank 0   F0  F1  B0F2  B1F3  B2    B3
 *     rank 1       FB0 FB1   FB2   FB3              two ranks, four pieces
 *
 * The last rank goes back at once.  The others keep the activations of the
 * pieces that are under way, each in an executor of its own (a lane), at most
 * two for each stage behind them.  Gradients of parameters are summed over the
 * pieces by the number of labels that count, so that they are those of the
 * whole batch; only then there is an update, by each rank of its own. */
#ifndef SB_LEARN_PIPE_H
#define SB_LEARN_PIPE_H

#include "learn/learner.h"

/* One piece that is under way. */
typedef struct sb_lane {
    sb_exec *exec;                       /* NULL: not open yet */
    const sb_tensor **inputs, **outputs; /* of the learn graph */
    sb_tensor *pieces;       /* of the inputs of the network, and the target */
    sb_tensor hidden;        /* what came from the stage before */
    void *hidden_memory;     /* sb_memory_free() */
    const sb_kernel *paused; /* where it waits for the gradient, or NULL */
    int64_t count;           /* of random numbers */
    sb_tensor counter;
} sb_lane;

/* A tensor on its way to another rank, or from it. */
typedef struct sb_parcel {
    void *data; /* a head with type and shape, then the elements */
    size_t bytes, cap;
} sb_parcel;

typedef struct sb_pipe {
    sb_learner *l;
    size_t rank, ranks, pieces;
    sb_pipe_stage stage;
    int *owner;   /* [parameter] the rank that trains it */
    sb_map reads; /* names of the constants that this stage reads */
    sb_lane *lanes;
    size_t n_lanes;
    double *weights; /* [pieces] share of a piece in the loss; 0: left out */
    float *sum;      /* of gradients */
    sb_parcel next, previous; /* to them */
    void *from_next;          /* the gradient that came last */
    void *from_previous;      /* the activation that came last */
    size_t from_next_bytes, from_previous_bytes;
    double loss;
} sb_pipe;

/* Before the graphs are built: cuts the network, and refuses what cannot be
 * trained so.  Close it in any case. */
SB_MUST_USE sb_status sb_pipe_open(sb_learner *l);
void sb_pipe_close(sb_learner *l);
/* The executors are closed, since the graph will change. */
void sb_pipe_drop(sb_learner *l);
/* As sb_learner_gradient(), after sb_learner_set_inputs(): all ranks give the
 * whole batch, and the gradients are those of the parameters of this rank.  The
 * loss is known to the last rank only. */
SB_MUST_USE sb_status sb_pipe_gradient(sb_learner *l,
                                       const sb_tensor *const *inputs, size_t n,
                                       const sb_tensor *target, double *loss);

#endif
