/* prefetch.h - samples made ahead of their use, by threads, in order.
 *
 * Threads take the numbers of samples one after another and put what they make
 * into a ring of slots; the caller takes the slots in order.  So the order of
 * the samples never depends on the threads, and no more samples are in memory
 * than the ring has slots. */
#ifndef SB_DATA_PREFETCH_H
#define SB_DATA_PREFETCH_H

#include "data/image/transform.h"

typedef struct sb_prefetch sb_prefetch;

/* An image, and its mask if there is one. */
enum { SB_MADE_IMAGE, SB_MADE_MASK, SB_MADE };

/* Makes sample `i`, SB_MADE of them; called by any thread, with a context of
 * its own. */
typedef sb_status (*sb_make_fn)(const void *user, sb_ctx *ctx, size_t i,
                                sb_pixels *out);

/* What became of a sample. */
typedef struct sb_made {
    sb_pixels pixels[SB_MADE];
    sb_status status;
    char error[SB_ERROR_MAX];
} sb_made;

/* Samples [begin, end), at most `slots` ahead.  With no threads (or where none
 * can be started) they are made when taken. */
SB_MUST_USE sb_status sb_prefetch_start(sb_ctx *ctx, size_t begin, size_t end,
                                        size_t slots, int threads,
                                        sb_make_fn make, const void *user,
                                        sb_prefetch **out);
/* Waits for the next sample; SB_INTERRUPTED if the context is.  Valid until
 * the next call.  There must be one left. */
SB_MUST_USE sb_status sb_prefetch_take(sb_prefetch *p, const sb_made **out);
/* Stops the threads, after the samples that they have in hand. */
void sb_prefetch_stop(sb_prefetch *p); /* NULL is allowed */

#endif
