/* int8_tile.h - sums of products of bytes: the inner loop of integer matrix
 * products and convolutions.
 *
 * Elements stand in quads, four that are multiplied with four others and added
 * up: x86 does that in one instruction (VNNI), if the ones are unsigned and the
 * others signed. */
#ifndef SB_OPS_INT8_INT8_TILE_H
#define SB_OPS_INT8_INT8_TILE_H

#include <stdint.h>
#include <string.h>

enum { SB_INT_TILE_ROWS = 4, SB_INT_TILE_COLS = 64 };

/* acc[r][j] = init[r] + sum over u < n, i < 4 of
 *
 *     (int8) w[u][r][i] * x[at(u) + j][i]
 *
 * for j < cols, at most 64, and `r` below 4 or 1; rows of acc are 64 apart.
 * at(u) is offset[u], in quads, or without offsets 64 u; it may be read, and
 * acc written, to a multiple of 16 columns.  Sums wrap. */
typedef void (*sb_int8_tile_fn)(const uint8_t *w, const uint8_t *x,
                                const int64_t *offset, int64_t n,
                                const int32_t *init, int64_t cols,
                                int32_t *acc);

/* The i-th implementation for `rows` rows, 4 or 1, the fastest first; NULL past
 * the end, or if this processor cannot run it (the last one always runs). */
sb_int8_tile_fn sb_int8_tile_at(int64_t rows, int i);
enum { SB_INT_TILE_KINDS = 3 };

/* The fastest one of this processor. */
sb_int8_tile_fn sb_int8_tile_choose(int64_t rows);

/* Bytes signed as they are unsigned less 128, and the other way round: this
 * bit. */
enum { SB_INT_FLIP = 0x80 };

/* Four bytes, for all lanes of a vector. */
static inline int32_t sb_int8_load_quad(const uint8_t *from)
{
    int32_t quad;

    memcpy(&quad, from, sizeof quad);
    return quad;
}

/* ---- quads from four lines of bytes ------------------------------------- */

typedef uint8_t sb_bytes16 __attribute__((vector_size(16)));

static inline sb_bytes16 sb_int8_load16(const uint8_t *from)
{
    sb_bytes16 v;

    memcpy(&v, from, sizeof v);
    return v;
}

#define SB_INT_MIX(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#define SB_INT_MIX_LOW(a, b) \
    SB_INT_MIX(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define SB_INT_MIX_HIGH(a, b)                                                  \
    SB_INT_MIX(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, \
               31)

/* quads[i] = four of them: elements 4 i to 4 i + 3 of all lines. */
static inline void sb_int8_interleave(sb_bytes16 a, sb_bytes16 b, sb_bytes16 c,
                                      sb_bytes16 d, sb_bytes16 quads[4])
{
    /* First lines 0 and 2, 1 and 3, then these with one another: all by one
     * pattern. */
    sb_bytes16 low = SB_INT_MIX_LOW(a, c), low2 = SB_INT_MIX_LOW(b, d);
    sb_bytes16 high = SB_INT_MIX_HIGH(a, c), high2 = SB_INT_MIX_HIGH(b, d);

    quads[0] = SB_INT_MIX_LOW(low, low2);
    quads[1] = SB_INT_MIX_HIGH(low, low2);
    quads[2] = SB_INT_MIX_LOW(high, high2);
    quads[3] = SB_INT_MIX_HIGH(high, high2);
}

#endif
