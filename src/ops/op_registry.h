/* op_registry.h - looking up operators, reading attributes, inferring. */
#ifndef SB_OPS_OP_REGISTRY_H
#define SB_OPS_OP_REGISTRY_H

#include "graph/op.h"

/* The row, or NULL if the operator is not known. */
const sb_op_def *sb_op_find(const char *domain, const char *name);
const sb_op_def *sb_op_of(const sb_node *node);
/* The role of the node's row; SB_ROLE_UNKNOWN if it has none. */
sb_quant_role sb_node_role(const sb_node *node);
/* Is the node the sum of two values (Add)? */
bool sb_node_adds(const sb_node *node);
/* Has the row of the node one of these flags? */
bool sb_node_flag(const sb_node *node, uint32_t flags);
/* Is it a function of its inputs alone, its sub-graphs included? */
bool sb_node_is_pure(const sb_node *node);
/* Bounds of output 0 of the node, whatever its inputs are; infinite where none
 * are known.  The row's range, or NULL. */
const sb_result_range *sb_node_range(const sb_graph *g, const sb_node *node,
                                     double *lo, double *hi);
/* All rows, sorted by domain, then name. */
const sb_op_def *const *sb_op_all(size_t *n);

/* The axis of the node's weight, of this rank, that counts output channels; -1
 * if it has none: a vector that is summed over. */
int sb_op_weight_axis(const sb_node *node, int rank);
/* Does the node compute with quantized integers, and which input is its weight
 * (0: none; `weight` may be NULL)?  Operators without a row count if ONNX
 * Runtime has them. */
bool sb_op_is_integer(const sb_node *node, uint32_t *weight);

/* An integer attribute of a node, or what its row says for nodes without it; 0
 * if the row (NULL: none) does not know it. */
int64_t sb_op_int(const sb_op_def *op, const sb_node *node, const char *name);

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

/* The same without changing the graph, into an array of facts, one per value
 * (with `content`, so that passes can fold shape arithmetic).  sb_free() it. */
SB_MUST_USE sb_status sb_graph_infer_facts(sb_graph *graph, sb_fact **out);

/* ---- opsets (older_form.c) ------------------------------------------------ */

/* The lowest opset of the main domain in which the node, written as we write
 * it, means what it means to us; 1 for other domains. */
int64_t sb_node_since(const sb_graph *graph, const sb_node *node);
/* The same of all nodes of the graph. */
int64_t sb_graph_min_opset(const sb_graph *graph);
/* SB_UNSUPPORTED, naming a node, if that is above `opset`. */
SB_MUST_USE sb_status sb_graph_check_opset(const sb_graph *graph,
                                           int64_t opset);
/* Are there nodes with another form in a file of this opset?  use_older() gives
 * it to them; such a graph can only be saved. */
bool sb_graph_wants_older(const sb_graph *graph, int64_t opset);
SB_MUST_USE sb_status sb_graph_use_older(sb_graph *graph, int64_t opset);

/* attention/window_form.c: a window as a mask, and back after loading. */
int64_t sb_attention_since(const sb_node *node);
bool sb_attention_wants_mask(const sb_node *node, int64_t opset);
SB_MUST_USE sb_status sb_attention_use_mask(sb_graph *g, sb_node_id id);
SB_MUST_USE sb_status sb_graph_find_windows(sb_graph *g);

#endif
