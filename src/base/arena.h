/* arena.h - bump allocation for structure that dies together.
 *
 * Nodes, names, attributes and shapes of a graph live in one arena and are
 * freed at once.  Built with SB_ARENA_DEBUG every object is its own malloc,
 * so that AddressSanitizer sees overruns between neighbors. */
#ifndef SB_BASE_ARENA_H
#define SB_BASE_ARENA_H

#include "base/alloc.h"

typedef struct sb_arena_chunk sb_arena_chunk;

typedef struct sb_arena {
    sb_ctx *ctx;
    sb_arena_chunk *chunks; /* newest first */
    size_t used;            /* bytes used of the newest chunk */
} sb_arena;

void sb_arena_init(sb_arena *arena, sb_ctx *ctx);
void sb_arena_free(sb_arena *arena);

/* `count * size` zeroed bytes aligned for any type; NULL when memory is out
 * (recorded in the context).  Never freed singly. */
void *sb_arena_alloc(sb_arena *arena, size_t count, size_t size);

/* Copies of a string (NUL added) and of bytes; NULL when memory is out. */
char *sb_arena_str(sb_arena *arena, const char *text);
char *sb_arena_strn(sb_arena *arena, const char *text, size_t len);
void *sb_arena_copy(sb_arena *arena, const void *src, size_t bytes);
char *sb_arena_printf(sb_arena *arena, const char *fmt, ...) SB_PRINTF(2, 3);

#endif
