/* rewrite.h - what passes share: questions about constants and shapes, and
 * changes that keep names. */
#ifndef SB_PASSES_REWRITE_H
#define SB_PASSES_REWRITE_H

#include "graph/graph.h"

/* ---- constants -----------------------------------------------------------
 * A value may be SB_NONE everywhere: the answer is then "no". */

/* One element, and close to `want` for its type: exporters write sqrt(2) with
 * different numbers of digits, and half precision rounds it. */
bool sb_const_close(const sb_graph *g, sb_value_id value, double want);
/* A numeric constant all of whose elements are exactly `want`. */
bool sb_const_all(const sb_graph *g, sb_value_id value, double want);
/* The elements of an integral constant; the count, or -1 if it is not one or
 * has more than `max`. */
int sb_const_ints(const sb_graph *g, sb_value_id value, int64_t *out, int max);
/* A constant int64 vector. */
SB_MUST_USE sb_status sb_rewrite_ints(sb_graph *g, const char *stem,
                                      const int64_t *v, int n,
                                      sb_value_id *out);
/* A constant of `dtype` with one number in every element. */
SB_MUST_USE sb_status sb_rewrite_fill(sb_graph *g, const char *stem,
                                      sb_dtype dtype, const sb_shape *shape,
                                      double number, sb_value_id *out);

/* ---- attributes --------------------------------------------------------- */
SB_MUST_USE sb_status sb_rewrite_set_float(sb_graph *g, sb_node_id node,
                                           const char *name, float v);
/* `text` must be a literal or live in the arena. */
SB_MUST_USE sb_status sb_rewrite_set_string(sb_graph *g, sb_node_id node,
                                            const char *name, const char *text);

/* ---- shapes ------------------------------------------------------------- */
/* Rank and every dimension agree, symbols included. */
bool sb_value_same_shape(const sb_graph *g, sb_value_id a, sb_value_id b);
/* The permutation of a Transpose, the default one (reversal) included; the
 * rank, or -1 if it is not known or not a permutation. */
int sb_node_perm(const sb_graph *g, const sb_node *node, int64_t *perm);
/* The target that makes Reshape turn a tensor of shape `from` into `to`:
 * numbers, 0 for a symbol that keeps its place, -1 at most once.  False if
 * there is none. */
bool sb_reshape_target(const sb_shape *from, const sb_shape *to,
                       int64_t *target);

/* ---- changes ------------------------------------------------------------ */
/* Removes a node of one output and puts another operator in its place, which
 * takes over output, name, module and position. */
SB_MUST_USE sb_status sb_rewrite_node(sb_graph *g, sb_node_id node,
                                      const char *op, const sb_value_id *in,
                                      size_t n_in, sb_node_id *out);
/* The same with all that another node has, its name included, but the inputs.
 */
SB_MUST_USE sb_status sb_rewrite_as(sb_graph *g, sb_node_id node,
                                    sb_node_id like, const sb_value_id *in,
                                    size_t n_in);
/* sb_rewrite_node() for output `k` of a node none of whose other outputs is
 * used. */
SB_MUST_USE sb_status sb_rewrite_output(sb_graph *g, sb_node_id node,
                                        uint32_t k, const char *op,
                                        const sb_value_id *in, size_t n_in,
                                        sb_node_id *out);
/* Adds a node before `like` that shares its module; the result is a fresh
 * value of the given type. */
SB_MUST_USE sb_status sb_rewrite_add(sb_graph *g, sb_node_id like,
                                     const char *op, const sb_value_id *in,
                                     size_t n_in, const sb_type *type,
                                     sb_node_id *out);
/* Consumers of the node's output 0 read `value` instead; then the node and
 * what only it needed are removed.  *done is false, and nothing changed, where
 * the name of a graph output stands against it. */
SB_MUST_USE sb_status sb_rewrite_forward(sb_graph *g, sb_node_id node,
                                         sb_value_id value, bool *done);
/* Removes the node if nothing needs it, and then what only it needed. */
SB_MUST_USE sb_status sb_rewrite_prune(sb_graph *g, sb_node_id node);
/* The node's only result becomes a constant; the node goes away, or turns into
 * an Identity if the result is an output of the graph.  Shares `t`. */
SB_MUST_USE sb_status sb_rewrite_constant(sb_graph *g, sb_node_id node,
                                          const sb_tensor *t);

#endif
