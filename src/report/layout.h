/* layout.h - places for the boxes of a drawing: layer by layer from top to
 * bottom, few crossings, long lines straight, deep graphs in columns.
 *
 *     sb_layout_graph l = {.n = n, .from = ..., .to = ..., .n_edges = ...};
 *     SB_TRY(sb_layout_make(ctx, &l));
 *     ... box i at l.at[i]; edge k bends at l.bends[first[k]] to [first[k+1]]
 *     sb_layout_free(ctx, &l);
 */
#ifndef SB_REPORT_LAYOUT_H
#define SB_REPORT_LAYOUT_H

#include "base/alloc.h"

typedef struct sb_layout_point {
    float x, y;
} sb_layout_point;

typedef struct sb_layout_graph {
    /* Given: boxes in an order in which no edge goes back, and edges, sorted by
     * where they go to. */
    uint32_t n;
    const uint32_t *from, *to; /* [n_edges] from < to */
    uint32_t n_edges;
    float box_width, box_height, gap_x, gap_y;
    /* Found: the middle of each box, bends of edges, and the size of all. */
    sb_layout_point *at;    /* [n] */
    uint32_t *first;        /* [n_edges + 1] */
    sb_layout_point *bends; /* between both ends */
    float *columns;         /* [n_columns] x of the gap on the left of each */
    uint32_t n_columns;
    float width, height;
} sb_layout_graph;

SB_MUST_USE sb_status sb_layout_make(sb_ctx *ctx, sb_layout_graph *l);
void sb_layout_free(sb_ctx *ctx, sb_layout_graph *l);

#endif
