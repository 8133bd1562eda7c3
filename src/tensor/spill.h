/* spill.h - tensors set aside for later: in memory up to a limit, beyond it in
 * a temporary file.
 *
 *     sb_spill *s;
 *     SB_TRY(sb_spill_create(ctx, limit, &s));
 *     SB_TRY(sb_spill_put(s, &x, &kept));
 *     ...
 *     SB_TRY(sb_spill_get(s, &kept, &x));
 *     ... sb_tensor_drop(&x);
 *     sb_spill_drop(s, &kept);
 *     sb_spill_free(s);
 *
 * The file has no name from the start, so nothing is left behind however the
 * program ends.  It lies in $TMPDIR, else in /var/tmp or /tmp. */
#ifndef SB_TENSOR_SPILL_H
#define SB_TENSOR_SPILL_H

#include "tensor/tensor.h"

typedef struct sb_spill sb_spill;

/* One tensor that was put; {0} stands for none. */
typedef struct sb_spilled_tensor {
    sb_tensor t; /* without data if it lies in the file */
    uint64_t offset;
    bool in_file, there;
    bool lent; /* its memory is another's, too */
} sb_spilled_tensor;

/* `limit`: bytes to hold in memory at most; 0: 512 MB, or a sixteenth of what
 * the context may have. */
SB_MUST_USE sb_status sb_spill_create(sb_ctx *ctx, size_t limit,
                                      sb_spill **out);
/* Its limit is for all piles that share `used`, the bytes that they hold in
 * memory, 0 at first; before anything is put. */
void sb_spill_share(sb_spill *s, size_t *used);
/* Frees the memory of the pile itself; what was put must have been dropped. */
void sb_spill_free(sb_spill *s); /* NULL is allowed */

/* Copies a tensor, in its layout; texts are SB_UNSUPPORTED. */
SB_MUST_USE sb_status sb_spill_put(sb_spill *s, const sb_tensor *t,
                                   sb_spilled_tensor *out);
/* The same without a copy, if another pile holds the tensor in memory. */
SB_MUST_USE sb_status sb_spill_lend(sb_spill *s, const sb_tensor *t,
                                    sb_spilled_tensor *out);
/* The tensor again, to be read: the buffer may be the one that is kept;
 * sb_tensor_drop() it. */
SB_MUST_USE sb_status sb_spill_get(sb_spill *s, const sb_spilled_tensor *kept,
                                   sb_tensor *out);
/* Gives back its memory or its place in the file; {0} is allowed. */
void sb_spill_drop(sb_spill *s, sb_spilled_tensor *kept);

#endif
