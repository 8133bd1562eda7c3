/* Sums of products along a line of pixels; see int8_conv_direct.h.
 *
 * Three kernels compute the same numbers, as in int8_gemm.c; each for four
 * output channels at once, or for one. */
#include <string.h>

#include "ops/int8/int8_conv_direct.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define INT_TILE_X86 1
#include <immintrin.h>
#endif

enum { ROWS = SB_INT_TILE_ROWS, COLS = SB_INT_TILE_COLS };

static inline void sum_plain(int rows, const int16_t *w, const uint32_t *x,
                             const int64_t *offset, int64_t n, int32_t *acc)
{
    uint32_t sum[ROWS][COLS] = {{0}};

    for (int64_t u = 0; u < n; u++, w += 2 * rows) {
        int16_t pair[COLS][2];

        memcpy(pair, x + offset[u], sizeof pair);
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < COLS; j++)
                sum[r][j] += (uint32_t)(w[2 * r] * pair[j][0] +
                                        w[2 * r + 1] * pair[j][1]);
    }
    memcpy(acc, sum, (size_t)rows * sizeof sum[0]);
}

static void plain_4(const int16_t *w, const uint32_t *x, const int64_t *offset,
                    int64_t n, int32_t *acc)
{
    sum_plain(4, w, x, offset, n, acc);
}

static void plain_1(const int16_t *w, const uint32_t *x, const int64_t *offset,
                    int64_t n, int32_t *acc)
{
    sum_plain(1, w, x, offset, n, acc);
}

#ifdef INT_TILE_X86
static inline int32_t load_pair(const int16_t *w)
{
    int32_t pair;

    memcpy(&pair, w, sizeof pair);
    return pair;
}

/* Sixteen positions at a time: 4 x 2 sums and what they are made of. */
__attribute__((target("avx2"), always_inline)) static inline void
sum_avx2(int rows, const int16_t *w, const uint32_t *x, const int64_t *offset,
         int64_t n, int32_t *acc)
{
    for (int at = 0; at < COLS; at += 16) {
        __m256i sum[ROWS][2];

        for (int r = 0; r < rows; r++)
            sum[r][0] = sum[r][1] = _mm256_setzero_si256();
        for (int64_t u = 0; u < n; u++) {
            const uint32_t *from = x + offset[u] + at;
            __m256i x0 =
                _mm256_loadu_si256((const __m256i *)(const void *)from);
            __m256i x1 =
                _mm256_loadu_si256((const __m256i *)(const void *)(from + 8));

            for (int r = 0; r < rows; r++) {
                __m256i v =
                    _mm256_set1_epi32(load_pair(w + (u * rows + r) * 2));

                sum[r][0] =
                    _mm256_add_epi32(sum[r][0], _mm256_madd_epi16(v, x0));
                sum[r][1] =
                    _mm256_add_epi32(sum[r][1], _mm256_madd_epi16(v, x1));
            }
        }
        for (int r = 0; r < rows; r++) {
            int32_t *to = acc + r * COLS + at;

            _mm256_storeu_si256((__m256i *)(void *)to, sum[r][0]);
            _mm256_storeu_si256((__m256i *)(void *)(to + 8), sum[r][1]);
        }
    }
}

__attribute__((target("avx2"))) static void avx2_4(const int16_t *w,
                                                   const uint32_t *x,
                                                   const int64_t *offset,
                                                   int64_t n, int32_t *acc)
{
    sum_avx2(4, w, x, offset, n, acc);
}

__attribute__((target("avx2"))) static void avx2_1(const int16_t *w,
                                                   const uint32_t *x,
                                                   const int64_t *offset,
                                                   int64_t n, int32_t *acc)
{
    sum_avx2(1, w, x, offset, n, acc);
}

#define VNNI "avx512f,avx512bw,avx512vnni"

__attribute__((target(VNNI), always_inline)) static inline void
sum_vnni(int rows, const int16_t *w, const uint32_t *x, const int64_t *offset,
         int64_t n, int32_t *acc)
{
    __m512i sum[ROWS][4];

    for (int r = 0; r < rows; r++)
        for (int j = 0; j < 4; j++)
            sum[r][j] = _mm512_setzero_si512();
    for (int64_t u = 0; u < n; u++, w += 2 * rows) {
        const uint32_t *from = x + offset[u];
        __m512i x0 = _mm512_loadu_si512(from);
        __m512i x1 = _mm512_loadu_si512(from + 16);
        __m512i x2 = _mm512_loadu_si512(from + 32);
        __m512i x3 = _mm512_loadu_si512(from + 48);

        for (int r = 0; r < rows; r++) {
            __m512i v = _mm512_set1_epi32(load_pair(w + 2 * r));

            sum[r][0] = _mm512_dpwssd_epi32(sum[r][0], v, x0);
            sum[r][1] = _mm512_dpwssd_epi32(sum[r][1], v, x1);
            sum[r][2] = _mm512_dpwssd_epi32(sum[r][2], v, x2);
            sum[r][3] = _mm512_dpwssd_epi32(sum[r][3], v, x3);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < 4; j++)
            _mm512_storeu_si512(acc + r * COLS + j * 16, sum[r][j]);
}

__attribute__((target(VNNI))) static void vnni_4(const int16_t *w,
                                                 const uint32_t *x,
                                                 const int64_t *offset,
                                                 int64_t n, int32_t *acc)
{
    sum_vnni(4, w, x, offset, n, acc);
}

__attribute__((target(VNNI))) static void vnni_1(const int16_t *w,
                                                 const uint32_t *x,
                                                 const int64_t *offset,
                                                 int64_t n, int32_t *acc)
{
    sum_vnni(1, w, x, offset, n, acc);
}
#endif

sb_int8_tile_fn sb_int8_tile_choose(int64_t rows)
{
#ifdef INT_TILE_X86
    if (__builtin_cpu_supports("avx512vnni") &&
        __builtin_cpu_supports("avx512bw"))
        return rows == 1 ? vnni_1 : vnni_4;
    if (__builtin_cpu_supports("avx2"))
        return rows == 1 ? avx2_1 : avx2_4;
#endif
    return rows == 1 ? plain_1 : plain_4;
}
