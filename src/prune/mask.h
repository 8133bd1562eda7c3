/* mask.h - weights that become zero and stay where they are. */
#ifndef SB_PRUNE_MASK_H
#define SB_PRUNE_MASK_H

#include "prune/prune_config.h"

/* What became of one weight. */
typedef struct sb_masked {
    sb_value_id weight;
    sb_node_id node;       /* that it belongs to */
    int made, summed;      /* its axes; -1: none */
    int64_t count, zeroed; /* elements; those that are zero now */
    const char *left;      /* why it was left alone, or NULL */
    int64_t over;          /* elements that fill no M of N:M, and stay */
} sb_masked;

/* The float weights of layers; sb_free() the list. */
SB_MUST_USE sb_status sb_mask_weights(const sb_channels *ch, sb_masked **out,
                                      size_t *n);
/* The ratio of a weight; `left` says if, and why, it is left alone. */
double sb_mask_ratio(const sb_channels *ch, const sb_prune_args *args,
                     sb_masked *m, bool *stated);
/* One weight by itself, in a copy of the graph. */
SB_MUST_USE sb_status sb_mask_layer(const sb_channels *ch,
                                    const sb_prune_args *args, double ratio,
                                    sb_masked *m, sb_graph *out);
/* Says how many of its elements in the graph are zero. */
void sb_mask_count(const sb_graph *g, sb_masked *m);
/* A copy of the graph with weights zeroed as the configuration says, and what
 * became of each in `list`. */
SB_MUST_USE sb_status sb_mask_apply(const sb_channels *ch,
                                    const sb_prune_args *args, sb_masked *list,
                                    size_t n, sb_graph **out);
/* Zeroes the indices of these channels in a tensor that has the axis. */
void sb_mask_axis(const sb_channels *ch, const sb_prune_axis *a,
                  const uint8_t *gone, sb_tensor *t);
/* A copy with the weights that make these channels zeroed: what the original
 * does instead of removing them. */
SB_MUST_USE sb_status sb_mask_channels(const sb_channels *ch,
                                       const uint8_t *gone, sb_graph **out);

#endif
