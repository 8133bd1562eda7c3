/* select.h - which channels go. */
#ifndef SB_PRUNE_SELECT_H
#define SB_PRUNE_SELECT_H

#include "prune/prune_config.h"

typedef struct sb_selection {
    uint8_t *gone;        /* by channel */
    uint32_t *candidates; /* by group: channels that might go */
    uint32_t *removed;    /* by group */
    bool *held;           /* by group: kept more than its ratio said, so that
                             something is left */
    double *scores;       /* by channel */
} sb_selection;

/* Room for the answers, and the scores; free it in any case. */
SB_MUST_USE sb_status sb_selection_make(const sb_channels *ch,
                                        const sb_prune_args *args,
                                        sb_selection *out);
void sb_selection_free(sb_ctx *ctx, sb_selection *s);
/* Chooses anew, with `ratio` where no pattern states another. */
SB_MUST_USE sb_status sb_select_channels(const sb_channels *ch,
                                         const sb_prune_args *args,
                                         double ratio, sb_selection *s);
/* The same with a ratio for each group, whatever SCOPE and patterns say. */
SB_MUST_USE sb_status sb_select_ratios(const sb_channels *ch,
                                       const sb_prune_args *args,
                                       const double *ratios, sb_selection *s);
/* The ratio of each group: what a pattern says of one of the layers that make
 * it, an exclusion before all else; `ratio` where none does. */
void sb_select_stated(const sb_channels *ch, const sb_prune_args *args,
                      double ratio, double *ratios, bool *stated);
/* By group: how many channels might go. */
void sb_select_sizes(const sb_channels *ch, const sb_prune_config *cfg,
                     uint32_t *sizes);
/* May this channel go at all, as the configuration is? */
bool sb_select_may(const sb_channels *ch, const sb_prune_config *cfg,
                   uint32_t channel);
/* The same of all channels, without those that patterns keep. */
SB_MUST_USE sb_status sb_select_allowed(const sb_channels *ch,
                                        const sb_prune_config *cfg, bool *out);

#endif
