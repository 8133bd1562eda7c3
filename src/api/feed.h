/* feed.h - what is behind the public sb_feed. */
#ifndef SB_API_FEED_H
#define SB_API_FEED_H

#include "api/model.h"

/* What an input took from an output of the run before. */
typedef struct sb_fed_state {
    size_t input;
    sb_tensor tensor; /* owned */
} sb_fed_state;

struct sb_feed {
    sb_ctx *ctx;
    const sb_model_io *io;
    sb_fed_state *states;
    size_t n_states, cap_states;
};

/* Reads what a caller handed in and checks that its tensors count the samples
 * where it says. */
SB_MUST_USE sb_status sb_batch_read(sb_ctx *ctx, const sb_batch *from,
                                    sb_batch *out);
/* An empty feed for inputs and outputs that outlive it. */
void sb_feed_init(sb_feed *feed, sb_ctx *ctx, const sb_model_io *io);
void sb_feed_clear(sb_feed *feed);
/* sb_feed_inputs() and sb_feed_keep() of a batch that was read. */
SB_MUST_USE sb_status sb_feed_bind(sb_feed *feed, const sb_batch *batch,
                                   const sb_tensor **inputs);
SB_MUST_USE sb_status sb_feed_store(sb_feed *feed, const sb_batch *batch,
                                    const sb_tensor *const *outputs);

/* The tensors of a batch in the order of a graph's inputs. */
typedef struct sb_bound_batch {
    sb_model_io io;
    sb_feed feed;
    sb_batch batch; /* as it was read */
    const sb_tensor **inputs;
} sb_bound_batch;

/* Close it in any case. */
SB_MUST_USE sb_status sb_bound_batch_open(sb_ctx *ctx, const sb_graph *graph,
                                          const sb_batch *batch,
                                          sb_bound_batch *out);
void sb_bound_batch_close(sb_ctx *ctx, sb_bound_batch *b);

#endif
