/* Packed weights times rounded activations on AVX2.
 *
 * Half a group at a time: 32 bytes of each plane give eight lanes.  Products of
 * unsigned and signed bytes are added in pairs as 16 bits, which holds codes of
 * up to 7 bits; those of 8 are taken in two parts. */
#include "ops/int8/nbits_int8.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#include <string.h>

#define AVX2_TARGET __attribute__((target("avx2,fma")))
#define AVX2_INLINE __attribute__((always_inline)) static inline AVX2_TARGET

enum { HALF_LANES = SB_NBITS_LANES / 2, HALF_PLANE = SB_NBITS_PLANE / 2 };

/* 24 bytes as 32 pairs of 3-bit codes, a pair to a byte.  Each 16-bit lane gets
 * the two bytes its pair is in, and moves it up and down again. */
AVX2_INLINE __m256i avx2_pairs(const uint8_t *p)
{
    const __m256i first =
        _mm256_setr_epi8(0, 1, 0, 1, 1, 2, 2, 3, 3, 4, 3, 4, 4, 5, 5, 6, 4, 5,
                         4, 5, 5, 6, 6, 7, 7, 8, 7, 8, 8, 9, 9, 10);
    const __m256i up = _mm256_setr_epi16(1024, 16, 64, 256, 1024, 16, 64, 256,
                                         1024, 16, 64, 256, 1024, 16, 64, 256);
    __m256i v = _mm256_set_m128i(_mm_loadu_si128((const void *)(p + 8)),
                                 _mm_loadu_si128((const void *)p));
    __m256i a = _mm256_shuffle_epi8(v, first);
    __m256i b =
        _mm256_shuffle_epi8(v, _mm256_add_epi8(first, _mm256_set1_epi8(6)));

    return _mm256_packus_epi16(
        _mm256_srli_epi16(_mm256_mullo_epi16(a, up), 10),
        _mm256_srli_epi16(_mm256_mullo_epi16(b, up), 10));
}

/* Half of each plane. */
AVX2_INLINE void avx2_codes(const uint8_t *p, int64_t bits, __m256i out[4])
{
    const __m256i mask = _mm256_set1_epi8((char)((1 << bits) - 1));
    __m256i v = bits == 3 ? avx2_pairs(p) : _mm256_loadu_si256((const void *)p);

    out[0] = _mm256_and_si256(v, mask);
    if (bits == 3)
        out[1] = _mm256_and_si256(_mm256_srli_epi16(v, 3), mask);
    if (bits == 4)
        out[1] = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
    if (bits == 2) {
        out[1] = _mm256_and_si256(_mm256_srli_epi16(v, 2), mask);
        out[2] = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
        out[3] = _mm256_and_si256(_mm256_srli_epi16(v, 6), mask);
    }
}

AVX2_INLINE __m256i avx2_load(const int8_t *x, int plane)
{
    return _mm256_loadu_si256((const void *)(x + plane * SB_NBITS_PLANE));
}

AVX2_INLINE __m256i avx2_dot(const __m256i *codes, int64_t bits,
                             const int8_t *x)
{
    const __m256i ones = _mm256_set1_epi16(1), one = _mm256_set1_epi8(1);
    __m256i x0 = avx2_load(x, 0);

    if (bits == 8) {
        __m256i half = _mm256_and_si256(_mm256_srli_epi16(codes[0], 1),
                                        _mm256_set1_epi8(127));
        __m256i rest = _mm256_and_si256(codes[0], one);
        __m256i d = _mm256_madd_epi16(_mm256_maddubs_epi16(half, x0), ones);
        __m256i e = _mm256_madd_epi16(_mm256_maddubs_epi16(rest, x0), ones);

        return _mm256_add_epi32(_mm256_add_epi32(d, d), e);
    }
    __m256i sum =
        _mm256_add_epi16(_mm256_maddubs_epi16(codes[0], x0),
                         _mm256_maddubs_epi16(codes[1], avx2_load(x, 1)));
    if (bits == 2)
        sum = _mm256_add_epi16(
            sum,
            _mm256_add_epi16(_mm256_maddubs_epi16(codes[2], avx2_load(x, 2)),
                             _mm256_maddubs_epi16(codes[3], avx2_load(x, 3))));
    return _mm256_madd_epi16(sum, ones);
}

/* One row of weights, `rows` of activations. */
AVX2_INLINE void avx2_row(const sb_nbits_weights *w, int64_t bits, int64_t n,
                          const sb_nbits_acts *a, int64_t m, int rows,
                          float *out)
{
    const sb_nbits_shape *s = &a->shape;
    const uint8_t *row = w->codes + n * s->row;
    const bool middle = !w->zeros && !w->zero_bits;
    __m256 acc[SB_NBITS_ROWS];

    for (int r = 0; r < rows; r++)
        acc[r] = _mm256_setzero_ps();
    for (int64_t g = 0; g < s->groups; g++) {
        float scales[SB_NBITS_LANES], zeros[SB_NBITS_LANES];
        const uint8_t *from = row + g * s->bytes;
        uint8_t last[SB_NBITS_PLANE] = {0};

        sb_nbits_lanes(w, s, n, g, scales, zeros);
        if ((g + 1) * s->bytes > s->row)
            from = memcpy(last, from, (size_t)(s->row - g * s->bytes));
        for (int h = 0; h < 2; h++) {
            __m256 scale = _mm256_loadu_ps(scales + h * HALF_LANES);
            __m256 zero = _mm256_loadu_ps(zeros + h * HALF_LANES);
            __m256i codes[4];

            avx2_codes(from + h * s->bytes / 2, bits, codes);
            for (int r = 0; r < rows; r++) {
                int64_t at = (m + r) * s->stride + g;
                int64_t lane = at * SB_NBITS_LANES + h * HALF_LANES;
                __m256i d =
                    avx2_dot(codes, bits,
                             a->codes + at * s->planes * SB_NBITS_PLANE +
                                 h * HALF_PLANE);

                if (middle)
                    d = _mm256_add_epi32(
                        d,
                        _mm256_loadu_si256((const void *)(a->starts + lane)));
                __m256 y = _mm256_mul_ps(_mm256_cvtepi32_ps(d),
                                         _mm256_loadu_ps(a->scales + lane));
                if (!middle)
                    y = _mm256_fnmadd_ps(zero, _mm256_loadu_ps(a->sums + lane),
                                         y);
                acc[r] = _mm256_fmadd_ps(scale, y, acc[r]);
            }
        }
    }
    for (int r = 0; r < rows; r++) {
        float f[8];

        _mm256_storeu_ps(f, acc[r]);
        out[r] =
            ((f[0] + f[4]) + (f[1] + f[5])) + ((f[2] + f[6]) + (f[3] + f[7]));
    }
}

AVX2_INLINE void avx2_tile(const sb_nbits_weights *w, int64_t bits, int64_t n,
                           int64_t cols, const sb_nbits_acts *a, int64_t m,
                           int64_t rows, float *out)
{
    for (int64_t c = 0; c < cols; c++) {
        float sums[SB_NBITS_ROWS];

        if (rows == SB_NBITS_ROWS)
            avx2_row(w, bits, n + c, a, m, SB_NBITS_ROWS, sums);
        else
            for (int64_t r = 0; r < rows; r++)
                avx2_row(w, bits, n + c, a, m + r, 1, sums + r);
        for (int64_t r = 0; r < rows; r++)
            out[r * SB_NBITS_COLS + c] = sums[r];
    }
}

static AVX2_TARGET void avx2_run(const sb_nbits_weights *w, int64_t n,
                                 int64_t cols, const sb_nbits_acts *a,
                                 int64_t m, int64_t rows, float *out)
{
    if (w->bits == 2)
        avx2_tile(w, 2, n, cols, a, m, rows, out);
    else if (w->bits == 3)
        avx2_tile(w, 3, n, cols, a, m, rows, out);
    else if (w->bits == 4)
        avx2_tile(w, 4, n, cols, a, m, rows, out);
    else
        avx2_tile(w, 8, n, cols, a, m, rows, out);
}

static bool suits_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

const sb_nbits_kernel *sb_nbits_avx2(void)
{
    static const sb_nbits_kernel kernel = {
        .name = "avx2", .suits = suits_avx2, .fn = avx2_run};

    return &kernel;
}
#else
const sb_nbits_kernel *sb_nbits_avx2(void)
{
    return NULL;
}
#endif
