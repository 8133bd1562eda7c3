/* integer_util.h - what passes share that write integer operators as float
 * ones between Q and DQ. */
#ifndef SB_PASSES_READBACK_INTEGER_UTIL_H
#define SB_PASSES_READBACK_INTEGER_UTIL_H

#include "graph/graph.h"

/* nbits_to_qdq.c: what kept a MatMulNBits from being read, to be said behind
 * its name; "" if that is something else. */
const char *sb_nbits_why_not(const sb_graph *g, const sb_node *node);

/* Adds a node with the result `y`, in the module and place of `like`, which
 * need not be in the graph any more. */
SB_MUST_USE sb_status sb_put_node(sb_graph *g, const sb_node *like,
                                  const char *op, const sb_value_id *in,
                                  size_t n_in, sb_value_id y, sb_node_id *out);
/* A fresh value with the shape of `x`. */
SB_MUST_USE sb_status sb_put_value(sb_graph *g, sb_value_id x, sb_dtype dtype,
                                   sb_value_id *out);
/* *out = DequantizeLinear(in[0], in[1], in[2]); the zero point may be SB_NONE.
 * Integer operators take per-channel scales with one zero point for all, or the
 * other way round; here both become as many. */
SB_MUST_USE sb_status sb_put_dequantize(sb_graph *g, const sb_node *like,
                                        const sb_value_id *in, int64_t axis,
                                        sb_value_id *out);

#endif
