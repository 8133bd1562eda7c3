/* map.h - hash map from strings to 32-bit numbers (IDs, indices).
 *
 * Keys are borrowed: they must outlive the map (arena strings do). */
#ifndef SB_BASE_MAP_H
#define SB_BASE_MAP_H

#include "base/alloc.h"

#define SB_MAP_NONE UINT32_MAX

typedef struct sb_map_slot {
    const char *key; /* NULL: free */
    uint32_t value;
} sb_map_slot;

typedef struct sb_map {
    sb_ctx *ctx;
    sb_map_slot *slots;
    size_t cap; /* a power of two, or 0 */
    size_t count;
} sb_map;

void sb_map_init(sb_map *map, sb_ctx *ctx);
void sb_map_free(sb_map *map);
/* Adds or overwrites. */
SB_MUST_USE sb_status sb_map_put(sb_map *map, const char *key, uint32_t value);
/* SB_MAP_NONE if absent. */
uint32_t sb_map_get(const sb_map *map, const char *key);

#endif
