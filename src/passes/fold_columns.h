/* fold_columns.h - convolutions of images with few channels, several columns
 * at a time; see fold_columns.c. */
#ifndef SB_PASSES_FOLD_COLUMNS_H
#define SB_PASSES_FOLD_COLUMNS_H

#include "graph/graph.h"

/* Rewrites the convolution if it is one of those; *done says whether. */
SB_MUST_USE sb_status sb_fold_columns(sb_graph *g, sb_node_id conv, bool *done);

#endif
