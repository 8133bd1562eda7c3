/* diagram.h - the graph as a diagram: Graphviz and Mermaid sources. */
#ifndef SB_REPORT_DIAGRAM_H
#define SB_REPORT_DIAGRAM_H

#include "graph/graph.h"

/* Nodes as boxes inside a frame for each top-level module, edges labeled with
 * shapes; weights are left out, sub-graphs are named only.  Of the view of a
 * quantized model (quant_view.h), quantizers are hexagons with their width and
 * scheme, dashed where they are fused away. */
SB_MUST_USE sb_status sb_report_dot(const sb_graph *g, sb_str *out);
SB_MUST_USE sb_status sb_report_mermaid(const sb_graph *g, sb_str *out);
/* Appends "1x64xHx56"; nothing of a value whose rank is unknown. */
void sb_report_shape(const sb_graph *g, const sb_value *v, sb_str *out);

#endif
