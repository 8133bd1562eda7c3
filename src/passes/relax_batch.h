/* relax_batch.h - a graph for any batch from one whose file fixes it. */
#ifndef SB_PASSES_RELAX_BATCH_H
#define SB_PASSES_RELAX_BATCH_H

#include "graph/graph.h"

/* Makes a copy of `graph` that runs with any number of samples: the first
 * dimension of all inputs is a symbol, and no shape in it still says how many
 * there are.  A graph that has no number there is only copied.
 *
 * *out is NULL (and the status SB_OK) if the samples cannot be told apart by
 * the first dimension of every input and output; then run one by one.
 *
 * `try_it`: run the network on random samples if there is doubt.  Without that
 * the copy may mix samples: it is not to be run with several. */
SB_MUST_USE sb_status sb_graph_relax_batch(const sb_graph *graph, bool try_it,
                                           sb_graph **out);

/* Of a graph whose inputs have a symbol as their first dimension
 * (samples_apart.c): could it be that samples do not keep apart?  Quick, and
 * true if in doubt. */
bool sb_samples_in_doubt(const sb_graph *graph);
/* Tries it on random samples.  What cannot be run does not keep them apart. */
SB_MUST_USE sb_status sb_samples_apart(sb_ctx *ctx, const sb_graph *graph,
                                       bool *apart);

#endif
