/* threads.h - one pool for each context, used through two calls.
 *
 * Work is cut into pieces of whole items.  A kernel writes each item's result
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
 * of items worth a thread: below two grains the call stays on this thread.
 * A call from inside another one stays on its thread, too.  Where
 * sb_ctx_cut_allow() says so, an interruption leaves the rest undone. */
void sb_parallel_for(sb_ctx *ctx, size_t n, size_t grain, sb_range_fn fn,
                     void *arg);

/* memcpy() on the context's threads: they share what it takes to read, and to
 * get pages that were never written.  An interruption as above. */
void sb_parallel_copy(sb_ctx *ctx, void *to, const void *from, size_t size);

/* Called with one item, and with the number of the thread that does it, so
 * that it finds memory that no other thread uses meanwhile. */
typedef void (*sb_lane_fn)(void *arg, size_t lane, size_t item);

/* Runs fn for each item in [0, n) on at most `lanes` threads, numbered from
 * 0. */
void sb_parallel_lanes(sb_ctx *ctx, size_t n, size_t lanes, sb_lane_fn fn,
                       void *arg);

/* Sees a result while it is computed: code that computes it in pieces may call
 * `look` for each, on the thread that made it (its lane, below the context's
 * number of threads), as long as it is in the cache.  No piece twice. */
typedef struct sb_tap {
    void (*look)(void *arg, size_t lane, const float *x, size_t n);
    void *arg;
} sb_tap;

/* How often this process is the child of one that called this before: threads
 * that were started at another count do not exist here. */
unsigned sb_threads_forks(void);

/* Ends the threads; they come back when there is work. */
void sb_threads_stop(sb_ctx *ctx);

#endif
