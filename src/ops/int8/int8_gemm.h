/* int8_gemm.h - exact integer matrix multiplication, C = A * B in int32.
 *
 * Operands are 8-bit with zero points.  Packing subtracts the zero point and
 * widens to int16, so that the kernel needs no corrections, signed and
 * unsigned mix freely, and padding is just 0.  Two neighbors along k lie side
 * by side: x86 multiplies such pairs and adds them in one instruction (pmaddwd,
 * with VNNI also accumulating).  A pair of products is at most 2 * 255^2, so
 * nothing saturates; int32 sums wrap as they do in ONNX Runtime.
 *
 *     A [m, k] -> blocks of SB_INT_MR rows, each [k/2][MR][2]
 *     B [k, n] -> panels of SB_INT_NR columns, each [k/2][NR][2]
 *
 * k is padded to a multiple of 2, m and n to whole blocks, with zeros.  Work is
 * done panel by panel; each output tile goes to a callback that adds bias,
 * rescales and stores, while it is still in registers or cache. */
#ifndef SB_OPS_INT8_INT8_GEMM_H
#define SB_OPS_INT8_INT8_GEMM_H

#include "base/ctx.h"

enum { SB_INT_MR = 6, SB_INT_NR = 32 };

/* 8-bit elements at data[i * row + j * col]. */
typedef struct sb_bytes_view {
    const void *data;
    int64_t row, col; /* strides */
    bool is_signed;
} sb_bytes_view;

/* int16 elements of one packed block of A, one packed panel of B. */
static inline int64_t sb_int8_block_size(int64_t k)
{
    return (k + 1) / 2 * 2 * SB_INT_MR;
}

static inline int64_t sb_int8_panel_size(int64_t k)
{
    return (k + 1) / 2 * 2 * SB_INT_NR;
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
                        const int32_t *zero, int64_t zero_step, int16_t *out);
/* Packs panel `panel` of B [k, n]; zero[j * zero_step] belongs to column j. */
void sb_int8_pack_panel(sb_bytes_view b, int64_t k, int64_t n, int64_t panel,
                        const int32_t *zero, int64_t zero_step, int16_t *out);

/* A finished tile: acc[i * SB_INT_NR + j] is element (row + i, col + j). */
typedef struct sb_int8_tile {
    const int32_t *acc;
    int64_t row, col;
    int64_t n_row, n_col;
} sb_int8_tile;

typedef void (*sb_int8_emit)(const void *arg, const sb_int8_tile *tile);

/* Multiplies packed blocks [0, blocks(m)) of A with one packed panel of B that
 * starts at column `col` and has `n_col` columns. */
void sb_int8_gemm_panel(const int16_t *a, int64_t m, int64_t k,
                        const int16_t *panel, int64_t col, int64_t n_col,
                        sb_int8_emit emit, const void *arg);

#endif
