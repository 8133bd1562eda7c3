/* deploy.h - rewrites that make one runtime faster.
 *
 * They run at export, when scales and weights are settled, so they say where
 * every value that they make comes from: scales, and integers of weights, are
 * carried over and not computed anew. */
#ifndef SB_PASSES_DEPLOY_DEPLOY_H
#define SB_PASSES_DEPLOY_DEPLOY_H

#include "graph/graph.h"

/* `value` holds the elements of `from`, moved about, perhaps with zeros
 * between them. */
typedef struct sb_origin {
    sb_value_id value, from;
    /* Of a constant: for each of its elements the number of that of `from`,
     * -1 for a zero.  Else NULL. */
    const int32_t *gather;
} sb_origin;

typedef struct sb_origins {
    sb_origin *v;
    size_t n, cap;
} sb_origins;

/* How a rewrite is asked for; all of it is optional. */
typedef struct sb_deploy {
    /* May the node be rewritten? */
    bool (*may)(void *user, const sb_graph *g, const sb_node *node);
    void *user;
    sb_origins *origins; /* filled; sb_free() its list */
} sb_deploy;

typedef struct sb_rewrite_def {
    const char *name; /* that of the pass */
    /* Is it of use only between nodes that the runtime computes on
     * integers? */
    bool between_kernels;
    /* Is it of use only to layers on integers? */
    bool integers;
    sb_status (*run)(sb_graph *g, const sb_deploy *how, size_t *changes);
} sb_rewrite_def;

extern const sb_rewrite_def sb_rewrite_chain_pools, sb_rewrite_focus_to_conv,
    sb_rewrite_fold_columns, sb_rewrite_tile_resize;

/* Those that serve any runtime, as a list that ends with NULL. */
extern const sb_rewrite_def *const sb_rewrites_common[];

/* ---- for rewrites ------------------------------------------------------- */

bool sb_deploy_may(const sb_deploy *how, const sb_graph *g,
                   const sb_node *node);
SB_MUST_USE sb_status sb_deploy_origin(const sb_graph *g, const sb_deploy *how,
                                       sb_value_id value, sb_value_id from,
                                       const int32_t *gather);
/* An array for `n` elements of a gather, all zeros; it lives as long as the
 * graph. */
SB_MUST_USE sb_status sb_deploy_gather(sb_graph *g, int64_t n, int32_t **out);
/* Puts a new constant, of these dimensions and elements, in place of the one
 * that input `input` of the node is, a tensor of floats. */
SB_MUST_USE sb_status sb_deploy_constant(sb_graph *g, const sb_deploy *how,
                                         sb_node_id node, uint32_t input,
                                         int rank, const int64_t *dims,
                                         const int32_t *gather);

#endif
