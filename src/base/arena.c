/* Chunked bump allocator; chunks double up to a limit. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct sb_arena_chunk {
    sb_arena_chunk *next;
    size_t size; /* payload bytes */
    _Alignas(max_align_t) unsigned char data[];
};

enum { CHUNK_FIRST = 4096, CHUNK_MOST = 1 << 20 };

void sb_arena_init(sb_arena *arena, sb_ctx *ctx)
{
    *arena = (sb_arena){.ctx = ctx};
}

void sb_arena_free(sb_arena *arena)
{
    sb_arena_chunk *c = arena->chunks;

    while (c) {
        sb_arena_chunk *next = c->next;
        sb_free(arena->ctx, c);
        c = next;
    }
    sb_arena_init(arena, arena->ctx);
}

static bool add_chunk(sb_arena *arena, size_t bytes)
{
    size_t size = CHUNK_FIRST;
    size_t total = 0;

#ifdef SB_ARENA_DEBUG
    size = 0;
#else
    if (arena->chunks)
        size = arena->chunks->size < CHUNK_MOST / 2 ? arena->chunks->size * 2
                                                    : CHUNK_MOST;
#endif
    if (size < bytes)
        size = bytes;
    if (!sb_add_size(size, sizeof(sb_arena_chunk), &total))
        total = SIZE_MAX;
    sb_arena_chunk *c = sb_alloc(arena->ctx, 1, total);
    if (!c)
        return false;
    c->next = arena->chunks;
    c->size = size;
    arena->chunks = c;
    arena->used = 0;
    return true;
}

void *sb_arena_alloc(sb_arena *arena, size_t count, size_t size)
{
    const size_t align = _Alignof(max_align_t);
    size_t bytes = 0;

    if (!sb_mul_size(count, size, &bytes) || bytes > SIZE_MAX / 2) {
        (void)sb_fail(arena->ctx, SB_NO_MEMORY,
                      "out of memory: %zu x %zu bytes", count, size);
        return NULL;
    }
    bytes = (bytes + align - 1) & ~(align - 1);
    if (!arena->chunks || arena->chunks->size - arena->used < bytes)
        if (!add_chunk(arena, bytes))
            return NULL;
    void *p = arena->chunks->data + arena->used;
    arena->used += bytes;
#ifdef SB_ARENA_DEBUG
    arena->used = arena->chunks->size;
#endif
    return p;
}

void *sb_arena_copy(sb_arena *arena, const void *src, size_t bytes)
{
    void *p = sb_arena_alloc(arena, bytes ? bytes : 1, 1);

    if (p && bytes)
        memcpy(p, src, bytes);
    return p;
}

char *sb_arena_strn(sb_arena *arena, const char *text, size_t len)
{
    char *p = sb_arena_alloc(arena, len + 1, 1);

    if (p && len)
        memcpy(p, text, len);
    return p;
}

char *sb_arena_str(sb_arena *arena, const char *text)
{
    return sb_arena_strn(arena, text, strlen(text));
}

char *sb_arena_printf(sb_arena *arena, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *p = sb_arena_alloc(arena, n < 0 ? 1 : (size_t)n + 1, 1);
    if (!p || n < 0)
        return p;
    va_start(args, fmt);
    (void)vsnprintf(p, (size_t)n + 1, fmt, args);
    va_end(args);
    return p;
}
