/* channels.h - which channels of a network may go, and what goes with them.
 *
 * Atoms (ops/tie/tie.h) that are tied, over the whole graph, make a *channel*:
 * rows of the weights that make it, its bias and norms, columns of the weights
 * that read it.  Channels that come out of the same weights are a *group*,
 * among which a criterion chooses.  A channel that meets an axis that may not
 * change is none; the objection is kept. */
#ifndef SB_PRUNE_CHANNELS_H
#define SB_PRUNE_CHANNELS_H

#include "ops/tie/tie.h"

/* An axis of a value, or a part of one (value SB_NONE). */
typedef struct sb_prune_axis {
    sb_value_id value;
    int axis;
    uint32_t first, n; /* its atoms */
    sb_node_id maker;  /* whose weight's axis makes channels; SB_NONE: not so */
    sb_node_id reader; /* the same, summed over with ... */
    sb_axis_ref read;  /* ... this one; value SB_NONE: a part of one */
    bool scale;        /* one factor for each channel, of a normalization */
} sb_prune_axis;

/* Who objects: a node, or SB_NONE for inputs and outputs of the network. */
typedef struct sb_blame {
    sb_node_id node;
    const char *why;
} sb_blame;

typedef struct sb_channel {
    uint32_t first, n;     /* its atoms in `members` */
    uint32_t group, place; /* which one of the group it is */
    const sb_blame *stats; /* whose statistics change without it; or NULL */
} sb_channel;

typedef struct sb_channel_group {
    uint32_t first, n; /* its channels in `ordered` */
    sb_node_id maker;  /* the first one */
} sb_channel_group;

typedef struct sb_channels {
    const sb_graph *graph; /* borrowed */
    sb_atoms atoms;
    sb_prune_axis *axes; /* in the order of their atoms */
    size_t n_axes, cap_axes;
    uint32_t *channel_of;   /* by atom; SB_NONE */
    const sb_blame **blame; /* by atom, NULL where it may go */
    sb_channel *channels;
    uint32_t n_channels;
    uint32_t *members;
    sb_channel_group *groups;
    uint32_t n_groups;
    uint32_t *ordered;
    sb_arena arena;
} sb_channels;

/* Of a graph with shapes, whose constants of rank 1 have one consumer each
 * (sb_prune_unshare()).  Free it in any case. */
SB_MUST_USE sb_status sb_channels_find(const sb_graph *graph, sb_channels *out);
void sb_channels_free(sb_channels *ch);
/* Puts the channels, when they are known, into groups. */
SB_MUST_USE sb_status sb_channels_group(sb_channels *ch);
/* Gives each consumer of a bias or norm its own, so that layers that happen to
 * have equal ones are not tied by them. */
SB_MUST_USE sb_status sb_prune_unshare(sb_graph *graph);

/* The axis that an atom belongs to. */
const sb_prune_axis *sb_channels_axis(const sb_channels *ch, uint32_t atom);

/* Takes the channels whose flag is set out of `g`, a clone of the graph:
 * constants cut, sizes restated, shapes inferred anew and compared with what is
 * left.  Every axis must keep an index. */
SB_MUST_USE sb_status sb_channels_cut(const sb_channels *ch,
                                      const uint8_t *gone, sb_graph *g);

#endif
