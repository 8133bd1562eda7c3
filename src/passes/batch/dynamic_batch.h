/* dynamic_batch.h - a graph for any batch from one whose file fixes it. */
#ifndef SB_PASSES_BATCH_DYNAMIC_BATCH_H
#define SB_PASSES_BATCH_DYNAMIC_BATCH_H

#include "graph/graph.h"

/* Makes a copy of `graph` that runs with any number of samples: the first
 * dimension of all inputs is a symbol, and no shape in it still says how many
 * there are.  A graph that has no number there is only copied.
 *
 * *out is NULL (and the status SB_OK) if the samples cannot be told apart by
 * the first dimension of every input and output, or if they may mix; then run
 * as many as the file says. */
SB_MUST_USE sb_status sb_graph_make_batch_dynamic(const sb_graph *graph,
                                                  sb_graph **out);

/* batch_independence.c, of a graph whose inputs have a symbol as their first
 * dimension: is it known that no result of a sample depends on others? */
SB_MUST_USE sb_status sb_batch_is_independent(const sb_graph *graph,
                                              bool *apart);

#endif
