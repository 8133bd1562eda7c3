/* fuse_epilogue.h - what passes share that put an activation or a sum behind a
 * convolution or a matrix product. */
#ifndef SB_PASSES_LOWER_FUSE_EPILOGUE_H
#define SB_PASSES_LOWER_FUSE_EPILOGUE_H

#include "graph/op.h"

/* An activation that fused operators know. */
typedef struct sb_fused_act {
    const char *name;
    float params[2];
    size_t n_params;
} sb_fused_act;

/* Is the node such an activation, with constant parameters? */
bool sb_fused_act_of(const sb_graph *g, const sb_node *node, sb_fused_act *out);
/* Writes it into the attributes of a fused node. */
SB_MUST_USE sb_status sb_fused_act_set(sb_graph *g, sb_node_id node,
                                       const sb_fused_act *act);
/* Puts a node of the executor's domain with the first `n_in` of `in` in the
 * place of `next`, whose result it makes; name and module are those of `node`,
 * which goes on existing until it is pruned. */
SB_MUST_USE sb_status sb_fused_replace(sb_graph *g, sb_node_id node,
                                       sb_node_id next, const char *op,
                                       const sb_value_id *in, size_t n_in,
                                       sb_node_id *out);
/* If the node adds to `y` another f32 tensor of exactly its shape that is not a
 * constant: that tensor, else SB_NONE. */
sb_value_id sb_fused_addend(const sb_graph *g, const sb_node *node,
                            sb_value_id y);
/* The only consumer of the node's only result, where nothing else reads it and
 * it is f32; SB_NONE otherwise. */
sb_node_id sb_fused_next(const sb_graph *g, const sb_node *node);

#endif
