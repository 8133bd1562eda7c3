/* upgrade.h - bringing nodes of the main domain to SB_CANONICAL_OPSET.
 *
 * A node is rewritten before it enters the graph, as a draft: a rewrite
 * changes the draft and may add nodes in front of it. */
#ifndef SB_ONNX_UPGRADE_H
#define SB_ONNX_UPGRADE_H

#include "graph/graph.h"

typedef struct sb_draft {
    sb_ctx *ctx;
    sb_graph *graph;
    const char *op, *domain, *name;
    int64_t version; /* opset that the node is written in */
    sb_value_id *in;
    size_t n_in, cap_in;
    sb_value_id *implicit; /* values that sub-graphs capture */
    size_t n_implicit, cap_implicit;
    sb_value_id *out;
    size_t n_out, cap_out;
    sb_attr *attrs; /* payloads in the arena of the graph */
    size_t n_attrs, cap_attrs;
} sb_draft;

void sb_draft_free(sb_draft *d);
/* Puts the node into the graph; the draft's attributes then belong to it. */
SB_MUST_USE sb_status sb_draft_add(sb_draft *d, sb_node_id *out);
/* For messages: the node's name, else its first output's. */
const char *sb_draft_label(const sb_draft *d);

/* Applies every row of the table that is newer than the draft's version. */
SB_MUST_USE sb_status sb_upgrade(sb_draft *d);

#endif
