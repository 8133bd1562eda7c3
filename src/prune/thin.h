/* thin.h - weights thinned out by criteria that change what is left.
 *
 * Layers are taken in the order of the network, as many at a time as their Gram
 * matrices have room for; those behind them see what they make now. */
#ifndef SB_PRUNE_THIN_H
#define SB_PRUNE_THIN_H

#include "prune/mask.h"

typedef struct sb_thinner sb_thinner;

/* Borrows all of it.  Weights without matrices are done at once, by weigh(). */
SB_MUST_USE sb_status sb_thinner_create(const sb_channels *ch,
                                        const sb_prune_args *args,
                                        sb_masked *list, size_t n,
                                        sb_thinner **out);
void sb_thinner_free(sb_thinner *t); /* NULL is allowed */
/* One batch. */
SB_MUST_USE sb_status sb_thinner_run(sb_thinner *t,
                                     const sb_tensor *const *inputs);
/* Thins out the layers that were looked at; *more: there are others, which need
 * all batches again. */
SB_MUST_USE sb_status sb_thinner_apply(sb_thinner *t, bool *more);
/* The network as it is now; borrowed. */
const sb_graph *sb_thinner_graph(const sb_thinner *t);

#endif
