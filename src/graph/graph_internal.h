/* graph_internal.h - what the files of src/graph share among themselves. */
#ifndef SB_GRAPH_GRAPH_INTERNAL_H
#define SB_GRAPH_GRAPH_INTERNAL_H

#include "graph/graph.h"

/* The graph that owns the arena. */
sb_graph *sb_graph_root(const sb_graph *g);
/* A name in the arena that no value of the whole tree has; NULL when memory is
 * out. */
char *sb_graph_fresh_name(sb_graph *g, const char *stem);
/* Records that `name`, a string in the arena, belongs to value `id`. */
SB_MUST_USE sb_status sb_graph_put_name(sb_graph *g, const char *name,
                                        sb_value_id id);
/* Makes room for `more` uses, so that adding them cannot fail. */
SB_MUST_USE sb_status sb_graph_reserve_uses(sb_graph *g, sb_value_id value,
                                            uint32_t more);
/* Removes captures of the node's sub-graphs that nothing in them reads. */
void sb_graph_drop_unused_captures(sb_graph *g, sb_node_id id);

#endif
