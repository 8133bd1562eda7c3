/* refit.h - weights that read removed channels, fitted to what is left. */
#ifndef SB_PRUNE_REFIT_H
#define SB_PRUNE_REFIT_H

#include "prune/seen.h"

/* Changes weights and biases of `g`, a clone of the graph of `ch`, so that the
 * channels that are gone may be cut from it. */
SB_MUST_USE sb_status sb_refit(const sb_channels *ch,
                               const struct sb_prune_seen *seen,
                               const uint8_t *gone, sb_graph *g);

#endif
