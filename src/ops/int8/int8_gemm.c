/* Exact integer matrix multiplication; see int8_gemm.h. */
#include "ops/int8/int8_gemm.h"

#include <string.h>

#include "base/simd.h"

/* ---- packing ------------------------------------------------------------ */

/* What stands behind the elements of a block or panel. */
typedef struct line_ends {
    int32_t *sum, *zero;
} line_ends;

static line_ends ends_of(const uint8_t *packed, int64_t k, int64_t lines)
{
    uint8_t *end = (uint8_t *)(uintptr_t)packed + sb_int8_quads(k, lines);
    int32_t *sum = (int32_t *)(void *)end;

    return (line_ends){sum, sum + lines};
}

/* The value of a signed byte, to be added to a sum that wraps. */
static inline uint32_t signed_byte(int bits)
{
    int32_t value = (int8_t)bits;

    return (uint32_t)value;
}

/* Signed elements of one row, `step` apart, to to[p / 4][MR][p % 4]; returns
 * their sum.  `flip` is set for those that are unsigned. */
SB_HOT static uint32_t pack_row(const uint8_t *from, int64_t step, int64_t k,
                                uint8_t flip, uint8_t *to)
{
    const uint32_t flips = flip * 0x01010101u;
    uint32_t sum = 0;
    int64_t whole = step == 1 ? k / 4 * 4 : 0;

    for (int64_t p = 0; p < whole; p += 4) {
        uint32_t quad;

        memcpy(&quad, from + p, sizeof quad);
        quad ^= flips;
        memcpy(to + p * SB_INT_MR, &quad, sizeof quad);
    }
    for (int64_t p = 0; p < whole; p++)
        sum += signed_byte(from[p] ^ flip);
    for (int64_t p = whole; p < k; p++) {
        uint8_t v = from[p * step] ^ flip;

        to[p / 4 * 4 * SB_INT_MR + p % 4] = v;
        sum += signed_byte(v);
    }
    return sum;
}

void sb_int8_pack_block(sb_bytes_view a, int64_t m, int64_t k, int64_t block,
                        const int32_t *zero, int64_t zero_step, uint8_t *out)
{
    line_ends end = ends_of(out, k, SB_INT_MR);
    const uint8_t flip = a.is_signed ? 0 : SB_INT_FLIP;
    int64_t first = block * SB_INT_MR;

    if (m - first < SB_INT_MR || k % 4 != 0)
        memset(out, 0, (size_t)sb_int8_block_size(k));
    for (int64_t r = 0; r < SB_INT_MR && first + r < m; r++) {
        uint32_t sum = pack_row((const uint8_t *)a.data + (first + r) * a.row,
                                a.col, k, flip, out + 4 * r);

        end.zero[r] = zero[(first + r) * zero_step] - flip;
        end.sum[r] = (int32_t)(sum - (uint32_t)k * (uint32_t)end.zero[r]);
    }
}

void sb_int8_pack_rows(const uint8_t (*rows)[SB_INT_NR], uint8_t *out)
{
    for (int j = 0; j < SB_INT_NR; j += 16) {
        sb_bytes16 quads[4];

        sb_int8_interleave(
            sb_int8_load16(rows[0] + j), sb_int8_load16(rows[1] + j),
            sb_int8_load16(rows[2] + j), sb_int8_load16(rows[3] + j), quads);
        memcpy(out + 4 * j, quads, sizeof quads);
    }
}

SB_HOT void sb_int8_end_panel(uint8_t *panel, int64_t k, int32_t zero,
                              bool sums)
{
    line_ends end = ends_of(panel, k, SB_INT_NR);
    uint32_t sum[SB_INT_NR] = {0};

    for (int64_t p = 0; sums && p < k; p += 4) {
        uint32_t quad[SB_INT_NR];

        memcpy(quad, panel + p * SB_INT_NR, sizeof quad);
        SB_SIMD
        for (int j = 0; j < SB_INT_NR; j++)
            sum[j] += (quad[j] & 255) + (quad[j] >> 8 & 255) +
                      (quad[j] >> 16 & 255) + (quad[j] >> 24);
    }
    memcpy(end.sum, sum, sizeof sum);
    for (int64_t j = 0; j < SB_INT_NR; j++)
        end.zero[j] = zero;
}

/* Row p of B as unsigned elements, zeros beyond its end. */
static void load_row(sb_bytes_view b, int64_t p, int64_t first, int64_t count,
                     uint8_t *row)
{
    const uint8_t flip = b.is_signed ? SB_INT_FLIP : 0;
    const uint8_t *from = (const uint8_t *)b.data + p * b.row + first * b.col;

    memset(row + count, 0, (size_t)(SB_INT_NR - count));
    if (b.col == 1)
        for (int64_t j = 0; j < count; j++)
            row[j] = from[j] ^ flip;
    else
        for (int64_t j = 0; j < count; j++)
            row[j] = from[j * b.col] ^ flip;
}

void sb_int8_pack_panel(sb_bytes_view b, int64_t k, int64_t n, int64_t panel,
                        const int32_t *zero, int64_t zero_step, uint8_t *out)
{
    line_ends end = ends_of(out, k, SB_INT_NR);
    const int32_t flip = b.is_signed ? SB_INT_FLIP : 0;
    int64_t first = panel * SB_INT_NR;
    int64_t count = n - first < SB_INT_NR ? n - first : SB_INT_NR;
    uint8_t rows[4][SB_INT_NR];

    for (int64_t p = 0; p < k; p += 4) {
        for (int64_t i = 0; i < 4; i++)
            if (p + i < k)
                load_row(b, p + i, first, count, rows[i]);
            else
                memset(rows[i], 0, sizeof rows[i]);
        sb_int8_pack_rows((const uint8_t(*)[SB_INT_NR])rows,
                          out + p * SB_INT_NR);
    }
    sb_int8_end_panel(out, k, zero[first * zero_step] + flip, true);
    for (int64_t j = 0; j < count; j++)
        end.zero[j] = zero[(first + j) * zero_step] + flip;
}

/* ---- products ----------------------------------------------------------- */

/* Subtracts what zero points have added to sums of products; where all columns
 * have one, that of B is subtracted already. */
SB_HOT static void correct(const line_ends *a, const line_ends *b,
                           bool one_zero, int32_t *acc)
{
    for (int64_t r = 0; r < SB_INT_MR; r++, acc += SB_INT_NR) {
        const uint32_t zero = (uint32_t)a->zero[r];
        const uint32_t sum = one_zero ? 0 : (uint32_t)a->sum[r];

        SB_SIMD
        for (int64_t j = 0; j < SB_INT_NR; j++)
            acc[j] = (int32_t)((uint32_t)acc[j] - zero * (uint32_t)b->sum[j] -
                               sum * (uint32_t)b->zero[j]);
    }
}

static bool all_equal(const int32_t *v, int64_t n, int32_t to)
{
    for (int64_t i = 0; i < n; i++)
        if (v[i] != to)
            return false;
    return true;
}

void sb_int8_gemm_panel(const uint8_t *a, int64_t m, int64_t k,
                        const uint8_t *panel, int64_t col, int64_t n_col,
                        sb_int8_emit emit, const void *arg)
{
    sb_int8_tile_fn tile = sb_int8_tile_choose(SB_INT_MR);
    line_ends b_end = ends_of(panel, k, SB_INT_NR);
    /* One zero point for all columns is a constant of each row. */
    bool one_zero = all_equal(b_end.zero, n_col, b_end.zero[0]);
    int32_t acc[SB_INT_MR * SB_INT_NR];

    for (int64_t row = 0; row < m; row += SB_INT_MR) {
        line_ends a_end = ends_of(a, k, SB_INT_MR);
        int32_t init[SB_INT_MR] = {0};

        for (int64_t r = 0; one_zero && r < SB_INT_MR; r++)
            init[r] =
                (int32_t) - ((uint32_t)b_end.zero[0] * (uint32_t)a_end.sum[r]);
        tile(a, panel, NULL, (k + 3) / 4, init, n_col, acc);
        if (!one_zero || !all_equal(a_end.zero, SB_INT_MR, 0))
            correct(&a_end, &b_end, one_zero, acc);
        a += sb_int8_block_size(k);
        const sb_int8_tile out = {
            .acc = acc,
            .row = row,
            .col = col,
            .n_row = m - row < SB_INT_MR ? m - row : SB_INT_MR,
            .n_col = n_col,
        };
        emit(arg, &out);
    }
}
