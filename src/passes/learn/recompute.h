/* recompute.h - less memory for more work, in a graph with gradients. */
#ifndef SB_PASSES_LEARN_RECOMPUTE_H
#define SB_PASSES_LEARN_RECOMPUTE_H

#include "graph/graph.h"

/* The first `n_forward` nodes are the forward pass, in any order; all others
 * came with the gradients.  Cuts the forward pass into that many blocks where
 * little crosses; what the backward pass reads of a block, but for the last, is
 * computed again there from what crosses.  Results stay the same to the last
 * bit. */
SB_MUST_USE sb_status sb_graph_recompute(sb_graph *g, size_t n_forward,
                                         size_t n_blocks);

#endif
