/* op_registry.h - looking up operators, reading attributes, inferring. */
#ifndef SB_OPS_OP_REGISTRY_H
#define SB_OPS_OP_REGISTRY_H

#include "graph/op.h"

/* The row, or NULL if the operator is not known. */
const sb_op_def *sb_op_find(const char *domain, const char *name);
const sb_op_def *sb_op_of(const sb_node *node);
/* All rows, sorted by domain, then name. */
const sb_op_def *const *sb_op_all(size_t *n);

/* Reads the attributes of `node` by the row's table into `out`, which has
 * row->attrs_size bytes.  Wrong type or missing: SB_BAD_MODEL. */
SB_MUST_USE sb_status sb_op_read_attrs(sb_ctx *ctx, const sb_graph *graph,
                                       const sb_node *node, const sb_op_def *op,
                                       void *out);

/* Checks arity, reads attributes, calls row->infer.  `in` has node->n_in
 * entries (NULL: absent), `out` node->n_out.  Unknown operators leave
 * everything unknown and are SB_OK. */
SB_MUST_USE sb_status sb_op_infer(sb_ctx *ctx, const sb_graph *graph,
                                  const sb_node *node, const sb_fact *const *in,
                                  sb_fact *out);

/* What a tensor with data tells: type, constant, content. */
sb_fact sb_fact_of(const sb_tensor *t);
/* Nothing is known. */
sb_fact sb_fact_unknown(void);

/* Largest attrs_size of any row; such structs live on the stack. */
enum { SB_ATTRS_MAX = 512 };

/* Infers dtype and shape of every value of the graph and its sub-graphs, in
 * place, merging with what the file declares: a number beats a symbol.  Where
 * both are numbers and differ, the inferred one wins and a warning names the
 * value: exporters leave stale annotations behind. */
SB_MUST_USE sb_status sb_graph_infer(sb_graph *graph);

/* While passes run, every unknown dimension has a symbol of its own, from this
 * index on; it has no name, and one that the file gave takes precedence. */
enum { SB_SYMBOL_NAMELESS = 1 << 30 };

/* The same without changing the graph, into an array of facts, one a value
 * (with `content`, so that passes can fold shape arithmetic).  sb_free() it. */
SB_MUST_USE sb_status sb_graph_infer_facts(sb_graph *graph, sb_fact **out);

/* The lowest opset of the main domain in which every node of the graph means
 * what it means to us (1 if it has none). */
int64_t sb_graph_min_opset(const sb_graph *graph);

#endif
