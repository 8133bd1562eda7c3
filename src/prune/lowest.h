/* lowest.h - exact counts of lowest scores. */
#ifndef SB_PRUNE_LOWEST_H
#define SB_PRUNE_LOWEST_H

#include "base/alloc.h"

/* Marks the k lowest of n finite scores; of equal ones the first. */
SB_MUST_USE sb_status sb_mark_lowest(sb_ctx *ctx, const float *scores, size_t n,
                                     size_t k, uint8_t *gone);

#endif
