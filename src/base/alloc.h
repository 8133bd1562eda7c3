/* alloc.h - every byte the library owns comes through here.
 *
 * A failed request records SB_NO_MEMORY in the context and returns NULL, so
 * the caller only has to `return SB_NO_MEMORY`. */
#ifndef SB_BASE_ALLOC_H
#define SB_BASE_ALLOC_H

#include "base/ctx.h"

/* malloc and free, for contexts without hooks of the program. */
extern const sb_allocator sb_default_allocator;

/* `count * size` bytes, zeroed; NULL on overflow or when memory is out.
 * A zero-sized request gives a valid pointer. */
void *sb_alloc(sb_ctx *ctx, size_t count, size_t size);

/* The same, not zeroed: for big buffers that are written before read. */
void *sb_alloc_raw(sb_ctx *ctx, size_t count, size_t size);

/* Frees; NULL is allowed. */
void sb_free(sb_ctx *ctx, void *ptr);

/* A copy of the bytes (NULL: not set yet), with a NUL behind them, that the
 * caller of the library gets through `out`, a char ** or void **, and frees
 * with sb_memory_free(). */
SB_MUST_USE sb_status sb_memory_create(sb_ctx *ctx, const void *data,
                                       size_t size, void *out);

/* Zeroed, and not a page of it is taken before something is written there: for
 * tables of which often only a part is used. */
void *sb_alloc_pages(sb_ctx *ctx, size_t bytes);
/* Frees them, all `bytes`; NULL is allowed. */
void sb_free_pages(sb_ctx *ctx, void *ptr, size_t bytes);

/* The `part`-th part of the memory that the program chose for the context, or
 * `none` if it chose nothing. */
size_t sb_memory_share(const sb_ctx *ctx, size_t part, size_t none);

/* Is there room for `bytes` more?  For calls of libraries that do not survive a
 * failure of their own allocations.  A look, nothing is kept. */
SB_MUST_USE sb_status sb_expect_memory(sb_ctx *ctx, size_t bytes);

/* Makes room for at least `want` elements of `size` bytes in the array *ptr
 * whose capacity is *cap, growing by doubling.  New elements are not zeroed.
 * On failure *ptr and *cap are untouched.  Built with SB_GROW_EXACT it takes no
 * more than asked, so that under AddressSanitizer every addition moves the
 * array and a pointer into it that was kept is found. */
SB_MUST_USE sb_status sb_grow(sb_ctx *ctx, void *ptr_to_array, size_t *cap,
                              size_t want, size_t size);

/* a * b and a + b, false on overflow (then *out is untouched). */
bool sb_mul_size(size_t a, size_t b, size_t *out);
bool sb_add_size(size_t a, size_t b, size_t *out);
bool sb_mul_i64(int64_t a, int64_t b, int64_t *out);
bool sb_add_i64(int64_t a, int64_t b, int64_t *out);

#endif
