/* three_bits.h - packed weights of 3 bits, which ONNX Runtime has no kernels
 * for, as 4 bits: for files that others are to run. */
#ifndef SB_PASSES_DEPLOY_THREE_BITS_H
#define SB_PASSES_DEPLOY_THREE_BITS_H

#include "graph/graph.h"

bool sb_graph_has_three_bits(const sb_graph *g);
/* The same weights in every MatMulNBits and GatherBlockQuantized. */
SB_MUST_USE sb_status sb_graph_widen_three_bits(sb_graph *g);

#endif
