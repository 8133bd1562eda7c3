/* Allocation through the context's hooks, with checked size arithmetic.
 * This is the only file that calls malloc. */
#define _DEFAULT_SOURCE
#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/threads.h"

enum { HUGE_PAGE = 2 << 20, HUGE_LEAST = 8 << 20 };

/* Asks for large pages in a large piece of memory: fewer faults while it is
 * filled, fewer misses while it is used.  Only a wish. */
static void wish_huge_pages(void *ptr, size_t size)
{
#ifdef MADV_HUGEPAGE
    uintptr_t begin = ((uintptr_t)ptr + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    uintptr_t end = ((uintptr_t)ptr + size) / HUGE_PAGE * HUGE_PAGE;

    if (end > begin)
        (void)madvise((char *)ptr + (begin - (uintptr_t)ptr), end - begin,
                      MADV_HUGEPAGE);
#else
    (void)ptr;
    (void)size;
#endif
}

static void *default_realloc(void *user, void *ptr, size_t size)
{
    void *p = realloc(ptr, size);

    (void)user;
    if (p && size >= HUGE_LEAST)
        wish_huge_pages(p, size);
    return p;
}

static void default_free(void *user, void *ptr)
{
    (void)user;
    free(ptr);
}

static const sb_allocator default_allocator = {NULL, default_realloc,
                                               default_free};

static const sb_allocator *allocator_of(const sb_ctx *ctx)
{
    return ctx->alloc.resize ? &ctx->alloc : &default_allocator;
}

bool sb_mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

bool sb_add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

bool sb_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

bool sb_add_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static void *no_memory(sb_ctx *ctx, size_t bytes)
{
    (void)sb_fail(ctx, SB_NO_MEMORY, "out of memory: wanted %zu bytes", bytes);
    return NULL;
}

static void *resize(sb_ctx *ctx, void *ptr, size_t size)
{
    const sb_allocator *a = allocator_of(ctx);
    void *p = a->resize(a->user, ptr, size ? size : 1);

    return p ? p : no_memory(ctx, size);
}

void *sb_alloc_raw(sb_ctx *ctx, size_t count, size_t size)
{
    size_t bytes = 0;

    if (!sb_mul_size(count, size, &bytes)) {
        (void)sb_fail(ctx, SB_NO_MEMORY, "out of memory: %zu x %zu bytes",
                      count, size);
        return NULL;
    }
    return resize(ctx, NULL, bytes);
}

void *sb_alloc(sb_ctx *ctx, size_t count, size_t size)
{
    void *p = sb_alloc_raw(ctx, count, size);

    if (p)
        memset(p, 0, count * size);
    return p;
}

void sb_free(sb_ctx *ctx, void *ptr)
{
    const sb_allocator *a = allocator_of(ctx);

    if (ptr)
        a->free(a->user, ptr);
}

static void *map_pages(size_t bytes)
{
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Does the program bring hooks of its own? */
static bool has_hooks(const sb_ctx *ctx)
{
    return allocator_of(ctx)->resize != default_realloc;
}

void *sb_alloc_pages(sb_ctx *ctx, size_t bytes)
{
    if (has_hooks(ctx))
        return sb_alloc(ctx, bytes, 1);
    void *p = map_pages(bytes);
    return p == MAP_FAILED ? no_memory(ctx, bytes) : p;
}

void sb_take_pages(sb_ctx *ctx, void *ptr, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)ptr / page * page;

    if (!has_hooks(ctx))
        (void)madvise((char *)ptr - ((uintptr_t)ptr - begin),
                      (uintptr_t)ptr + bytes - begin, MADV_POPULATE_WRITE);
#else
    (void)ctx;
    (void)ptr;
    (void)bytes;
#endif
}

void sb_free_pages(sb_ctx *ctx, void *ptr, size_t bytes)
{
    if (has_hooks(ctx))
        sb_free(ctx, ptr);
    else if (ptr)
        (void)munmap(ptr, bytes);
}

sb_status sb_expect_memory(sb_ctx *ctx, size_t bytes)
{
    void *p = map_pages(bytes);

    if (p == MAP_FAILED) {
        (void)no_memory(ctx, bytes);
        return SB_NO_MEMORY;
    }
    (void)munmap(p, bytes);
    return SB_OK;
}

sb_status sb_grow(sb_ctx *ctx, void *ptr_to_array, size_t *cap, size_t want,
                  size_t size)
{
    size_t bytes = 0;
    size_t n = *cap ? *cap : 8;
    void *old = NULL;

    if (want <= *cap)
        return SB_OK;
    while (n < want && n <= SIZE_MAX / 2)
        n *= 2;
    if (n < want || !sb_mul_size(n, size, &bytes))
        return sb_fail(ctx, SB_NO_MEMORY, "out of memory: %zu x %zu bytes",
                       want, size);
    /* The caller's pointer may have any type; copy it without aliasing it. */
    memcpy(&old, ptr_to_array, sizeof old);
    void *p = resize(ctx, old, bytes);
    if (!p)
        return SB_NO_MEMORY;
    memcpy(ptr_to_array, &p, sizeof p);
    *cap = n;
    return SB_OK;
}

/* The context itself is the one object that exists before a context does. */
sb_status sb_ctx_create(const sb_allocator *alloc, sb_ctx **out)
{
    const sb_allocator *a = alloc ? alloc : &default_allocator;
    sb_ctx *ctx = a->resize(a->user, NULL, sizeof *ctx);

    if (!ctx)
        return SB_NO_MEMORY;
    memset(ctx, 0, sizeof *ctx);
    ctx->alloc = *a;
    sb_ctx_set_threads(ctx, 0);
    *out = ctx;
    return SB_OK;
}

void sb_ctx_free(sb_ctx *ctx)
{
    if (ctx) {
        sb_allocator a = ctx->alloc;
        sb_threads_stop(ctx);
        a.free(a.user, ctx);
    }
}
