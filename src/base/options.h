/* options.h - structs that come from a program which may have been built with
 * an older or a newer header.
 *
 * They begin with `size_t struct_size` and only ever grow at the end.  A new
 * field must raise sizeof: one that would fit into the padding at the end of
 * the struct needs a field before it that takes this place, since old programs
 * leave padding unset. */
#ifndef SB_BASE_OPTIONS_H
#define SB_BASE_OPTIONS_H

#include "base/ctx.h"

/* Copies what the caller gave into `out`, which has `size` bytes, over a copy
 * of `defaults`: a shorter struct leaves the rest as it is there, NULL all of
 * it.  SB_BAD_ARG if fields are set that this version does not have. */
SB_MUST_USE sb_status sb_options_read(sb_ctx *ctx, const char *name,
                                      const void *from, const void *defaults,
                                      size_t size, void *out);

/* Copies a result of `size` bytes into a struct of the caller, whose size
 * sb_options_read() has checked, as far as that has fields for it. */
void sb_options_write(const void *from, size_t size, void *out);

/* SB_BAD_ARG, which calls the number `name`, unless it is from `lo` to `hi`;
 * NaN never is. */
SB_MUST_USE sb_status sb_options_range(sb_ctx *ctx, const char *name, double v,
                                       double lo, double hi);

/* SB_BAD_ARG, which calls the object `what`, unless it is of the context. */
SB_MUST_USE sb_status sb_ctx_check(sb_ctx *ctx, const sb_ctx *other,
                                   const char *what);

#endif
