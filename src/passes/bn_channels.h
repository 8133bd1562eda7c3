/* bn_channels.h - what a BatchNormalization with constant parameters does to
 * each channel. */
#ifndef SB_PASSES_BN_CHANNELS_H
#define SB_PASSES_BN_CHANNELS_H

#include "graph/graph.h"

/* y = (x - mean) * r * gamma + beta, where r = 1 / sqrt(var + epsilon). */
typedef struct sb_bn_channel {
    float r, gamma, beta, mean;
} sb_bn_channel;

/* In inference form, in float32, with constants for `n` channels? */
bool sb_bn_is_plain(const sb_graph *g, const sb_node *node, int64_t n);
/* The channels of such a node; sb_free() them. */
SB_MUST_USE sb_status sb_bn_read(const sb_graph *g, const sb_node *bn,
                                 int64_t n, sb_bn_channel **out);
/* What x is multiplied by, and what a layer's bias becomes.  In float and in
 * this order, as PyTorch does it: what a weight is quantized to may hang on the
 * last bit. */
static inline float sb_bn_factor(const sb_bn_channel *c)
{
    return c->gamma * c->r;
}

static inline float sb_bn_bias(const sb_bn_channel *c, float bias)
{
    return (bias - c->mean) * c->r * c->gamma + c->beta;
}

#endif
