/* Open addressing with linear probing, FNV-1a, at most two thirds full. */
#include "base/map.h"

#include <string.h>

static size_t map_hash(const char *key)
{
    uint64_t h = 1469598103934665603u;

    for (const unsigned char *p = (const unsigned char *)key; *p; p++)
        h = (h ^ *p) * 1099511628211u;
    return (size_t)(h ^ (h >> 32));
}

void sb_map_init(sb_map *map, sb_ctx *ctx)
{
    *map = (sb_map){.ctx = ctx};
}

void sb_map_free(sb_map *map)
{
    sb_free(map->ctx, map->slots);
    sb_map_init(map, map->ctx);
}

static sb_map_slot *map_find(const sb_map *map, const char *key)
{
    size_t i = map_hash(key) & (map->cap - 1);

    while (map->slots[i].key && strcmp(map->slots[i].key, key) != 0)
        i = (i + 1) & (map->cap - 1);
    return &map->slots[i];
}

static sb_status map_enlarge(sb_map *map)
{
    sb_map bigger = {.ctx = map->ctx, .cap = map->cap ? map->cap * 2 : 64};

    bigger.slots = sb_alloc(map->ctx, bigger.cap, sizeof *bigger.slots);
    if (!bigger.slots)
        return SB_NO_MEMORY;
    bigger.count = map->count;
    for (size_t i = 0; i < map->cap; i++)
        if (map->slots[i].key)
            *map_find(&bigger, map->slots[i].key) = map->slots[i];
    sb_free(map->ctx, map->slots);
    *map = bigger;
    return SB_OK;
}

sb_status sb_map_put(sb_map *map, const char *key, uint32_t value)
{
    if ((map->count + 1) * 3 > map->cap * 2)
        SB_TRY(map_enlarge(map));
    sb_map_slot *slot = map_find(map, key);
    if (!slot->key) {
        slot->key = key;
        map->count++;
    }
    slot->value = value;
    return SB_OK;
}

uint32_t sb_map_get(const sb_map *map, const char *key)
{
    if (map->count == 0)
        return SB_MAP_NONE;
    const sb_map_slot *slot = map_find(map, key);
    return slot->key ? slot->value : SB_MAP_NONE;
}
