/* pipe_stages.h - a network cut into consecutive pieces of about equal work,
 * one for each rank of a pipeline.
 *
 * A cut is a value through which everything goes that was multiplied with a
 * weight so far: in a language model what one block, or the attention of a
 * block, gives to the next.  What else a stage reads (positions, shapes) it
 * computes again from the inputs of the network. */
#ifndef SB_LEARN_PIPE_STAGES_H
#define SB_LEARN_PIPE_STAGES_H

#include "base/map.h"
#include "graph/graph.h"

typedef struct sb_pipe_stage {
    const char *in;  /* the value that comes from the stage before; NULL: first
                      */
    const char *out; /* that goes to the next one; NULL: last */
} sb_pipe_stage;

/* Cuts a graph with shapes; cut[k] is what goes from stage k to k + 1, n - 1
 * values.  Adapters have no influence on it.  SB_UNSUPPORTED if there are not
 * so many places. */
SB_MUST_USE sb_status sb_pipe_stages_find(const sb_graph *g, size_t n,
                                          sb_value_id *cut);
/* The stage `k` of `n` that such cuts make; names are those of the graph. */
sb_pipe_stage sb_pipe_stage_at(const sb_graph *g, const sb_value_id *cut,
                               size_t n, size_t k);
/* Puts the names of the constants that a stage reads into `names`. */
SB_MUST_USE sb_status sb_pipe_stage_constants(const sb_graph *g,
                                              const sb_pipe_stage *stage,
                                              sb_map *names);
/* Makes the graph that stage: `in` becomes its last input, `out` its only
 * output. */
SB_MUST_USE sb_status sb_pipe_stage_cut(sb_graph *g,
                                        const sb_pipe_stage *stage);

#endif
