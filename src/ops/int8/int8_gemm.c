/* Exact integer matrix multiplication; see int8_gemm.h.
 *
 * Three kernels compute the same numbers: AVX-512 with VNNI, AVX2, and plain C
 * (which SSE2 or NEON compilers vectorize).  The first one that the processor
 * has is taken; integer sums do not depend on the choice. */
#include "ops/int8/int8_gemm.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define INT_GEMM_X86 1
#include <immintrin.h>
#endif

/* ---- packing ------------------------------------------------------------ */

static int16_t int8_gemm_element(sb_bytes_view v, int64_t i, int64_t j,
                                 int32_t zero)
{
    int64_t at = i * v.row + j * v.col;
    int32_t q = v.is_signed ? ((const int8_t *)v.data)[at]
                            : ((const uint8_t *)v.data)[at];

    return (int16_t)(q - zero);
}

void sb_int8_pack_block(sb_bytes_view a, int64_t m, int64_t k, int64_t block,
                        const int32_t *zero, int64_t zero_step, int16_t *out)
{
    memset(out, 0, (size_t)sb_int8_block_size(k) * sizeof *out);
    for (int64_t r = 0; r < SB_INT_MR; r++) {
        int64_t i = block * SB_INT_MR + r;

        if (i >= m)
            break;
        for (int64_t p = 0; p < k; p++)
            out[(p / 2 * SB_INT_MR + r) * 2 + p % 2] =
                int8_gemm_element(a, i, p, zero[i * zero_step]);
    }
}

void sb_int8_pack_panel(sb_bytes_view b, int64_t k, int64_t n, int64_t panel,
                        const int32_t *zero, int64_t zero_step, int16_t *out)
{
    int64_t first = panel * SB_INT_NR;
    int64_t count = n - first < SB_INT_NR ? n - first : SB_INT_NR;

    if (count < SB_INT_NR || k % 2 != 0)
        memset(out, 0, (size_t)sb_int8_panel_size(k) * sizeof *out);
    for (int64_t p = 0; p < k; p++) {
        int16_t *to = out + p / 2 * 2 * SB_INT_NR + p % 2;

        for (int64_t j = 0; j < count; j++)
            to[2 * j] = int8_gemm_element(b, p, first + j,
                                          zero[(first + j) * zero_step]);
    }
}

/* ---- kernels --------------------------------------------------------------
 * acc[MR][NR] = sum over pairs of a[pair][MR][2] * b[pair][NR][2]. */

typedef void (*tile_fn)(const int16_t *a, const int16_t *b, int64_t n_pair,
                        int32_t *acc);

static void tile_plain(const int16_t *a, const int16_t *b, int64_t n_pair,
                       int32_t *acc)
{
    uint32_t sum[SB_INT_MR][SB_INT_NR] = {{0}};

    for (int64_t p = 0; p < n_pair; p++) {
        for (int r = 0; r < SB_INT_MR; r++) {
            int32_t a0 = a[2 * r], a1 = a[2 * r + 1];

            for (int j = 0; j < SB_INT_NR; j++)
                sum[r][j] += (uint32_t)(a0 * b[2 * j] + a1 * b[2 * j + 1]);
        }
        a += 2 * SB_INT_MR;
        b += 2 * SB_INT_NR;
    }
    memcpy(acc, sum, sizeof sum);
}

#ifdef INT_GEMM_X86
static int32_t load_pair(const int16_t *a)
{
    int32_t pair;

    memcpy(&pair, a, sizeof pair);
    return pair;
}

/* Sixteen columns at a time: 6 x 2 sums fill 12 of the 16 registers. */
__attribute__((target("avx2"))) static void
tile_avx2(const int16_t *a, const int16_t *b, int64_t n_pair, int32_t *acc)
{
    for (int half = 0; half < 2; half++) {
        __m256i sum[SB_INT_MR][2];

        for (int r = 0; r < SB_INT_MR; r++)
            sum[r][0] = sum[r][1] = _mm256_setzero_si256();
        for (int64_t p = 0; p < n_pair; p++) {
            const int16_t *from = b + p * 2 * SB_INT_NR + half * SB_INT_NR;
            __m256i b0 =
                _mm256_loadu_si256((const __m256i *)(const void *)from);
            __m256i b1 =
                _mm256_loadu_si256((const __m256i *)(const void *)(from + 16));

            for (int r = 0; r < SB_INT_MR; r++) {
                __m256i x =
                    _mm256_set1_epi32(load_pair(a + p * 2 * SB_INT_MR + 2 * r));

                sum[r][0] =
                    _mm256_add_epi32(sum[r][0], _mm256_madd_epi16(x, b0));
                sum[r][1] =
                    _mm256_add_epi32(sum[r][1], _mm256_madd_epi16(x, b1));
            }
        }
        for (int r = 0; r < SB_INT_MR; r++) {
            int32_t *to = acc + r * SB_INT_NR + half * 16;

            _mm256_storeu_si256((__m256i *)(void *)to, sum[r][0]);
            _mm256_storeu_si256((__m256i *)(void *)(to + 8), sum[r][1]);
        }
    }
}

__attribute__((target("avx512f,avx512bw,avx512vnni"))) static void
tile_vnni(const int16_t *a, const int16_t *b, int64_t n_pair, int32_t *acc)
{
    __m512i sum[SB_INT_MR][2];

    for (int r = 0; r < SB_INT_MR; r++)
        sum[r][0] = sum[r][1] = _mm512_setzero_si512();
    for (int64_t p = 0; p < n_pair; p++) {
        __m512i b0 = _mm512_loadu_si512(b);
        __m512i b1 = _mm512_loadu_si512(b + SB_INT_NR);

        for (int r = 0; r < SB_INT_MR; r++) {
            __m512i x = _mm512_set1_epi32(load_pair(a + 2 * r));

            sum[r][0] = _mm512_dpwssd_epi32(sum[r][0], x, b0);
            sum[r][1] = _mm512_dpwssd_epi32(sum[r][1], x, b1);
        }
        a += 2 * SB_INT_MR;
        b += 2 * SB_INT_NR;
    }
    for (int r = 0; r < SB_INT_MR; r++) {
        _mm512_storeu_si512(acc + r * SB_INT_NR, sum[r][0]);
        _mm512_storeu_si512(acc + r * SB_INT_NR + 16, sum[r][1]);
    }
}
#endif

static tile_fn choose_tile(void)
{
#ifdef INT_GEMM_X86
    if (__builtin_cpu_supports("avx512vnni") &&
        __builtin_cpu_supports("avx512bw"))
        return tile_vnni;
    if (__builtin_cpu_supports("avx2"))
        return tile_avx2;
#endif
    return tile_plain;
}

void sb_int8_gemm_panel(const int16_t *a, int64_t m, int64_t k,
                        const int16_t *panel, int64_t col, int64_t n_col,
                        sb_int8_emit emit, const void *arg)
{
    tile_fn tile = choose_tile();
    int32_t acc[SB_INT_MR * SB_INT_NR];

    for (int64_t row = 0; row < m; row += SB_INT_MR) {
        tile(a, panel, (k + 1) / 2, acc);
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
