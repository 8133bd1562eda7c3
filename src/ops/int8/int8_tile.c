/* Sums of products of bytes; see int8_tile.h.
 *
 * Three kernels compute the same numbers: AVX-512 with VNNI, AVX2, and plain C
 * (which SSE2 or NEON compilers vectorize); each for four rows at once, or for
 * one. */
#include "ops/int8/int8_tile.h"

#include <stddef.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define INT_TILE_X86 1
#include <immintrin.h>
#endif

enum { ROWS = SB_INT_TILE_ROWS, COLS = SB_INT_TILE_COLS };

/* One kernel is a function of how many rows there are; a tile function for each
 * number that is asked for, in which it is known. */
#define TILE_FUNCTION(name, rows, sum, target)                               \
    target static void name(const uint8_t *w, const uint8_t *x,              \
                            const int64_t *offset, int64_t n,                \
                            const int32_t *init, int64_t cols, int32_t *acc) \
    {                                                                        \
        sum(rows, w, x, offset, n, init, cols, acc);                         \
    }

static inline const uint8_t *tile_quads(const uint8_t *x, const int64_t *offset,
                                        int64_t u)
{
    return x + 4 * (offset ? offset[u] : u * COLS);
}

static inline void sum_plain(int rows, const uint8_t *w, const uint8_t *x,
                             const int64_t *offset, int64_t n,
                             const int32_t *init, int64_t cols, int32_t *acc)
{
    uint32_t sum[ROWS][COLS];

    cols = (cols + 15) / 16 * 16;
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < COLS; j++)
            sum[r][j] = (uint32_t)init[r];
    for (int64_t u = 0; u < n; u++, w += 4 * rows) {
        const uint8_t *from = tile_quads(x, offset, u);

        for (int r = 0; r < rows; r++) {
            const int32_t w0 = (int8_t)w[4 * r], w1 = (int8_t)w[4 * r + 1];
            const int32_t w2 = (int8_t)w[4 * r + 2], w3 = (int8_t)w[4 * r + 3];

            for (int64_t j = 0; j < cols; j++)
                sum[r][j] +=
                    (uint32_t)(w0 * from[4 * j] + w1 * from[4 * j + 1] +
                               w2 * from[4 * j + 2] + w3 * from[4 * j + 3]);
        }
    }
    memcpy(acc, sum, (size_t)rows * sizeof sum[0]);
}

TILE_FUNCTION(plain_4, 4, sum_plain, )
TILE_FUNCTION(plain_1, 1, sum_plain, )

#ifdef INT_TILE_X86
#define AVX2 __attribute__((target("avx2")))

/* Sixteen columns at a time.  Bytes are widened in place: the first and third
 * of a quad, the second and fourth; the instruction that multiplies bytes would
 * saturate. */
AVX2 __attribute__((always_inline)) static inline void
sum_avx2(int rows, const uint8_t *w, const uint8_t *x, const int64_t *offset,
         int64_t n, const int32_t *init, int64_t cols, int32_t *acc)
{
    const __m256i low = _mm256_set1_epi16(255);

    for (int at = 0; at < cols; at += 16) {
        __m256i sum[ROWS][2];

        for (int r = 0; r < rows; r++)
            sum[r][0] = sum[r][1] = _mm256_set1_epi32(init[r]);
        for (int64_t u = 0; u < n; u++) {
            const uint8_t *from = tile_quads(x, offset, u) + 4 * at;
            __m256i x0 =
                _mm256_loadu_si256((const __m256i *)(const void *)from);
            __m256i x1 =
                _mm256_loadu_si256((const __m256i *)(const void *)(from + 32));
            __m256i even[2] = {_mm256_and_si256(x0, low),
                               _mm256_and_si256(x1, low)};
            __m256i odd[2] = {_mm256_srli_epi16(x0, 8),
                              _mm256_srli_epi16(x1, 8)};

            for (int r = 0; r < rows; r++) {
                __m256i v = _mm256_set1_epi32(
                    sb_int8_load_quad(w + (u * rows + r) * 4));
                __m256i v_even = _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8);
                __m256i v_odd = _mm256_srai_epi16(v, 8);

                for (int i = 0; i < 2; i++)
                    sum[r][i] = _mm256_add_epi32(
                        sum[r][i],
                        _mm256_add_epi32(_mm256_madd_epi16(even[i], v_even),
                                         _mm256_madd_epi16(odd[i], v_odd)));
            }
        }
        for (int r = 0; r < rows; r++) {
            int32_t *to = acc + r * COLS + at;

            _mm256_storeu_si256((__m256i *)(void *)to, sum[r][0]);
            _mm256_storeu_si256((__m256i *)(void *)(to + 8), sum[r][1]);
        }
    }
}

TILE_FUNCTION(avx2_4, 4, sum_avx2, AVX2)
TILE_FUNCTION(avx2_1, 1, sum_avx2, AVX2)

#define VNNI __attribute__((target("avx512f,avx512bw,avx512vnni")))

/* `vectors` of 16 columns each. */
VNNI __attribute__((always_inline)) static inline void
sum_vectors(int rows, int vectors, const uint8_t *w, const uint8_t *x,
            const int64_t *offset, int64_t n, const int32_t *init, int32_t *acc)
{
    __m512i sum[ROWS][COLS / 16];

    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            sum[r][j] = _mm512_set1_epi32(init[r]);
    for (int64_t u = 0; u < n; u++, w += 4 * rows) {
        const uint8_t *from = tile_quads(x, offset, u);
        __m512i quads[COLS / 16];

        for (int j = 0; j < vectors; j++)
            quads[j] = _mm512_loadu_si512(from + j * 64);
        for (int r = 0; r < rows; r++) {
            __m512i v = _mm512_set1_epi32(sb_int8_load_quad(w + 4 * r));

            for (int j = 0; j < vectors; j++)
                sum[r][j] = _mm512_dpbusd_epi32(sum[r][j], quads[j], v);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            _mm512_storeu_si512(acc + r * COLS + j * 16, sum[r][j]);
}

VNNI __attribute__((always_inline)) static inline void
sum_vnni(int rows, const uint8_t *w, const uint8_t *x, const int64_t *offset,
         int64_t n, const int32_t *init, int64_t cols, int32_t *acc)
{
    if (cols > 48)
        sum_vectors(rows, 4, w, x, offset, n, init, acc);
    else if (cols > 32)
        sum_vectors(rows, 3, w, x, offset, n, init, acc);
    else if (cols > 16)
        sum_vectors(rows, 2, w, x, offset, n, init, acc);
    else
        sum_vectors(rows, 1, w, x, offset, n, init, acc);
}

TILE_FUNCTION(vnni_4, 4, sum_vnni, VNNI)
TILE_FUNCTION(vnni_1, 1, sum_vnni, VNNI)
#endif

sb_int8_tile_fn sb_int8_tile_at(int64_t rows, int i)
{
#ifdef INT_TILE_X86
    if (i == 0 && __builtin_cpu_supports("avx512vnni") &&
        __builtin_cpu_supports("avx512bw"))
        return rows == 1 ? vnni_1 : vnni_4;
    if (i == 1 && __builtin_cpu_supports("avx2"))
        return rows == 1 ? avx2_1 : avx2_4;
#endif
    if (i == SB_INT_TILE_KINDS - 1)
        return rows == 1 ? plain_1 : plain_4;
    return NULL;
}

sb_int8_tile_fn sb_int8_tile_choose(int64_t rows)
{
    int i = 0;

    while (!sb_int8_tile_at(rows, i))
        i++;
    return sb_int8_tile_at(rows, i);
}
