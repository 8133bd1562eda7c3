/* tile_resize.h - enlarging by whole numbers as repetition; see tile_resize.c.
 */
#ifndef SB_PASSES_TILE_RESIZE_H
#define SB_PASSES_TILE_RESIZE_H

#include "graph/graph.h"

/* Rewrites the node if it is such a Resize; *done says whether. */
SB_MUST_USE sb_status sb_tile_resize(sb_graph *g, sb_node_id resize,
                                     bool *done);

#endif
