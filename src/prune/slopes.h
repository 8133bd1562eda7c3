/* slopes.h - what weights and channels mean for the loss, to first order.
 *
 * A weight w that becomes zero changes the loss by -w dL/dw, a channel that is
 * cut by the sum of that over the weights that read it.  Both are summed up,
 * batch by batch, as magnitudes and as squares. */
#ifndef SB_PRUNE_SLOPES_H
#define SB_PRUNE_SLOPES_H

#include "prune/channels/channels.h"
#include "prune/prune_config.h"

/* Of one weight, element by element; in the order of its elements. */
typedef struct sb_slope {
    sb_value_id weight;
    float *magnitude, *square;
} sb_slope;

typedef struct sb_slopes sb_slopes;

/* Of single weights instead of channels if `cfg` prunes those.  `seed`: of what
 * stands in for labels.  SB_UNSUPPORTED, with the nodes, if gradients do not
 * reach through the network. */
SB_MUST_USE sb_status sb_slopes_create(const sb_channels *ch,
                                       const sb_prune_config *cfg,
                                       uint64_t seed, sb_slopes **out);
void sb_slopes_free(sb_slopes *s); /* NULL is allowed */
/* One batch.  `labels`: a class for each of its n samples, or NULL. Without
 * labels, or if the network does not end with scores of classes, the loss is a
 * random sum of the outputs: its gradients, squared, are on average those of
 * the squared error of the outputs (the diagonal of Gauss and Newton). */
SB_MUST_USE sb_status sb_slopes_run(sb_slopes *s,
                                    const sb_tensor *const *inputs,
                                    const int64_t *labels, size_t n);
/* NULL if gradients do not reach the weight. */
const sb_slope *sb_slopes_of(const sb_slopes *s, sb_value_id weight);
/* Of a channel: the sum of magnitudes, or of squares. */
double sb_slopes_channel(const sb_slopes *s, uint32_t channel, bool square);

#endif
