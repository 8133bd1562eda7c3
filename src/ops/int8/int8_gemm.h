/* int8_gemm.h - exact integer matrix multiplication, C = A * B in int32.
 *
 * Operands are 8-bit with zero points.  Packed, A is signed and B unsigned, as
 * x86 multiplies bytes (VNNI: four products added to a sum in one instruction);
 * an operand of the other kind has 128 moved from its elements to its zero
 * point.  Zero points are not subtracted before, as differences need nine bits,
 * but from the sums, in 32 bits, which wrap as they do in ONNX Runtime:
 *
 *     sum (a - za)(b - zb) = sum a b - za sum b - zb sum (a - za)
 *
 *     A [m, k] -> blocks of SB_INT_MR rows, each [k/4][MR][4], then MR times
 *                 sum (a - za), then MR zero points
 *     B [k, n] -> panels of SB_INT_NR columns, each [k/4][NR][4], then NR times
 *                 sum b, then NR zero points
 *
 * k is padded to a multiple of 4, m and n to whole blocks, with zeros.  Work is
 * done panel by panel; each output tile goes to a callback that adds bias,
 * rescales and stores, while it is still in registers or cache. */
#ifndef SB_OPS_INT8_INT8_GEMM_H
#define SB_OPS_INT8_INT8_GEMM_H

#include "base/ctx.h"
#include "ops/int8/int8_tile.h"

enum { SB_INT_MR = SB_INT_TILE_ROWS, SB_INT_NR = SB_INT_TILE_COLS };

/* 8-bit elements at data[i * row + j * col]. */
typedef struct sb_bytes_view {
    const void *data;
    int64_t row, col; /* strides */
    bool is_signed;
} sb_bytes_view;

/* Bytes of the elements of `lines` packed rows or columns. */
static inline int64_t sb_int8_quads(int64_t k, int64_t lines)
{
    return (k + 3) / 4 * 4 * lines;
}

/* Bytes of one packed block of A, one packed panel of B: multiples of 4. */
static inline int64_t sb_int8_block_size(int64_t k)
{
    return sb_int8_quads(k, SB_INT_MR) + 8 * SB_INT_MR;
}

static inline int64_t sb_int8_panel_size(int64_t k)
{
    return sb_int8_quads(k, SB_INT_NR) + 8 * SB_INT_NR;
}

static inline int64_t sb_int8_blocks(int64_t m)
{
    return (m + SB_INT_MR - 1) / SB_INT_MR;
}

static inline int64_t sb_int8_panels(int64_t n)
{
    return (n + SB_INT_NR - 1) / SB_INT_NR;
}

/* Packs block `block` of A [m, k]; zero[i * zero_step] belongs to row i. */
void sb_int8_pack_block(sb_bytes_view a, int64_t m, int64_t k, int64_t block,
                        const int32_t *zero, int64_t zero_step, uint8_t *out);
/* Packs panel `panel` of B [k, n]; zero[j * zero_step] belongs to column j. */
void sb_int8_pack_panel(sb_bytes_view b, int64_t k, int64_t n, int64_t panel,
                        const int32_t *zero, int64_t zero_step, uint8_t *out);
/* Four rows of unsigned elements of a panel, side by side. */
void sb_int8_pack_rows(const uint8_t (*rows)[SB_INT_NR], uint8_t *out);
/* Writes the one zero point behind elements that are packed, and, if A has zero
 * points, sums. */
void sb_int8_end_panel(uint8_t *panel, int64_t k, int32_t zero, bool sums);

/* A finished tile: acc[i * SB_INT_NR + j] is element (row + i, col + j). */
typedef struct sb_int8_tile {
    const int32_t *acc;
    int64_t row, col;
    int64_t n_row, n_col;
} sb_int8_tile;

typedef void (*sb_int8_emit)(const void *arg, const sb_int8_tile *tile);

/* Multiplies packed blocks [0, blocks(m)) of A with one packed panel of B that
 * starts at column `col` and has `n_col` columns. */
void sb_int8_gemm_panel(const uint8_t *a, int64_t m, int64_t k,
                        const uint8_t *panel, int64_t col, int64_t n_col,
                        sb_int8_emit emit, const void *arg);

#endif
