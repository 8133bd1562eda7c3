/* batch_store.h - the batches that calibration was given, kept for methods that
 * run the network again: in memory up to a limit, beyond it in a temporary
 * file. */
#ifndef SB_QUANT_CALIBRATE_BATCH_STORE_H
#define SB_QUANT_CALIBRATE_BATCH_STORE_H

#include "graph/graph.h"

typedef struct sb_batch_store sb_batch_store;

/* For `n` inputs; `limit` as in sb_spill_create(). */
SB_MUST_USE sb_status sb_batch_store_create(sb_ctx *ctx, size_t n, size_t limit,
                                            sb_batch_store **out);
/* As sb_spill_share(). */
void sb_batch_store_share(sb_batch_store *s, size_t *used);
void sb_batch_store_free(sb_batch_store *s); /* NULL is allowed */
/* Keeps a batch; NULL where an input has a default. */
SB_MUST_USE sb_status sb_batch_store_take(sb_batch_store *s,
                                          const sb_tensor *const *inputs);
size_t sb_batch_store_count(const sb_batch_store *s); /* NULL: 0 */
/* Samples of batch i: the first dimension of its first input. */
int64_t sb_batch_store_samples(const sb_batch_store *s, size_t i);
/* The inputs of batch i, valid until the next call. */
SB_MUST_USE sb_status sb_batch_store_get(sb_batch_store *s, size_t i,
                                         const sb_tensor *const **inputs);

#endif
