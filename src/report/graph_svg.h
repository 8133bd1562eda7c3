/* graph_svg.h - a graph drawn for a page: pan, zoom and details come from
 * the page's script. */
#ifndef SB_REPORT_GRAPH_SVG_H
#define SB_REPORT_GRAPH_SVG_H

#include "graph/graph.h"

/* More nodes than this are not drawn. */
enum { SB_GRAPH_SVG_MOST = 6000 };

/* How bad, as a color: 0 nothing is known, 1 good, ..., 5 very bad. */
enum { SB_GRAPH_GRADES = 5 };
typedef struct sb_graph_mark {
    uint8_t async, sync;
} sb_graph_mark;

typedef struct sb_graph_paint {
    const sb_graph_mark *marks; /* by node ID */
    sb_node_id most;            /* the node to jump to, or SB_NONE ... */
    const char *jump;           /* ... and what the button says */
} sb_graph_paint;

/* `paint` NULL: without colors. */
SB_MUST_USE sb_status sb_graph_svg(const sb_graph *g,
                                   const sb_graph_paint *paint, sb_str *out);
/* What the colors mean, 0 to SB_GRAPH_GRADES. */
void sb_graph_key(const char *const *texts, sb_str *out);

#endif
