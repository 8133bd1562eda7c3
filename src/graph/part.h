/* part.h - some nodes of a graph as a graph of their own.
 *
 * What looks at one part after the other of a long network must not look at all
 * of it each time. */
#ifndef SB_GRAPH_PART_H
#define SB_GRAPH_PART_H

#include "graph/graph.h"

typedef struct sb_graph_part {
    sb_node_id *nodes; /* ascending: nodes[i] is node i of the part */
    size_t n;
    sb_value_id *value_of; /* [value] its ID in the part; SB_NONE: not in it */
} sb_graph_part;

/* A copy of the nodes, and of the values that they read and make, as
 * sb_graph_clone() makes them; it has no inputs and outputs yet.  Fills
 * value_of. */
SB_MUST_USE sb_status sb_graph_clone_part(const sb_graph *graph,
                                          const sb_graph_part *part,
                                          sb_graph **out);
/* The ID in the part, SB_NONE if it is not in it; `part` NULL: the same. */
sb_node_id sb_graph_part_node(const sb_graph_part *part, sb_node_id id);

static inline sb_value_id sb_graph_part_value(const sb_graph_part *part,
                                              sb_value_id id)
{
    return part ? part->value_of[id] : id;
}

#endif
