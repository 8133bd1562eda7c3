/* threads.h - one pool (OpenMP's, which oneDNN shares), used through one call.
 *
 * Work is cut into ranges of whole items.  A kernel writes each item's result
 * independently of the cut, so results are the same for any thread count;
 * reductions across items use a fixed number of parts (SB_REDUCE_PARTS), not
 * the number of threads. */
#ifndef SB_BASE_THREADS_H
#define SB_BASE_THREADS_H

#include "base/ctx.h"

enum { SB_REDUCE_PARTS = 16 };

/* Called with a half-open range of items. */
typedef void (*sb_range_fn)(void *arg, size_t begin, size_t end);

/* Runs fn over [0, n) on the context's threads.  `grain` is the least number
 * of items worth a thread: below two grains the call stays on this thread. */
void sb_parallel_for(sb_ctx *ctx, size_t n, size_t grain, sb_range_fn fn,
                     void *arg);

#endif
