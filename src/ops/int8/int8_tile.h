/* int8_tile.h - sums of products of bytes: the inner loop of integer matrix
 * products and convolutions.
 *
 * Elements stand in quads, four that are multiplied with four others and added
 * up: x86 does that in one instruction (VNNI), if the ones are unsigned and the
 * others signed. */
#ifndef SB_OPS_INT8_INT8_TILE_H
#define SB_OPS_INT8_INT8_TILE_H

#include <stdint.h>

enum { SB_INT_TILE_ROWS = 4, SB_INT_TILE_COLS = 64 };

/* acc[r][j] = init[r] + sum over u < n, i < 4 of
 *     (int8) w[u][r][i] * x[at(u) + j][i]
 * for 64 j and `r` below 4 or 1.  at(u) is offset[u], in quads, or without
 * offsets 64 u.  Sums wrap. */
typedef void (*sb_int8_tile_fn)(const uint8_t *w, const uint8_t *x,
                                const int64_t *offset, int64_t n,
                                const int32_t *init, int32_t *acc);

/* The i-th implementation for `rows` rows, 4 or 1, the fastest first; NULL past
 * the end, or if this processor cannot run it (the last one always runs). */
sb_int8_tile_fn sb_int8_tile_at(int64_t rows, int i);
enum { SB_INT_TILE_KINDS = 3 };

/* The fastest one of this processor. */
sb_int8_tile_fn sb_int8_tile_choose(int64_t rows);

/* Bytes signed as they are unsigned less 128, and the other way round: this
 * bit. */
enum { SB_INT_FLIP = 0x80 };

#endif
