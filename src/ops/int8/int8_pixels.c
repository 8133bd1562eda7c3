/* Sums of products of bytes, channel beside channel; see int8_pixels.h.
 *
 * Three implementations compute the same numbers: AVX-512 with VNNI, AVX2, and
 * plain C.  The first keeps as many sums in registers as there are: six pixels
 * of 64 channels, or as many more as there are fewer channels. */
#include "ops/int8/int8_pixels.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define PIXELS_X86 1
#include <immintrin.h>
#endif

#define PIXELS_INLINE __attribute__((always_inline)) static inline

enum { LANE = SB_PIXEL_LANE, ROWS = 4 };

/* ---- plain C ------------------------------------------------------------ */

/* `n` sums of one pixel, with a number for each, to y. */
SB_HOT static void end_sums(const sb_int8_conv_end *e, const int32_t *sum,
                            const float *multiplier, const float *add,
                            int64_t n, void *y)
{
    bool is_int8 = e->dtype == SB_DTYPE_I8;
    const float lo = (float)((is_int8 ? -128 : 0) - e->zero);
    const float hi = (float)((is_int8 ? 127 : 255) - e->zero);
    const int32_t zero = e->zero;
    uint8_t *to = y;

    if (e->dtype == SB_DTYPE_I32) {
        memcpy(y, sum, (size_t)n * sizeof *sum);
        return;
    }
    if (e->dtype == SB_DTYPE_F32) {
        for (int64_t j = 0; j < n; j++)
            ((float *)y)[j] = (float)sum[j] * multiplier[j];
        for (int64_t j = 0; add && j < n; j++)
            ((float *)y)[j] += add[j];
        return;
    }
    SB_SIMD
    for (int64_t j = 0; j < n; j++)
        to[j] =
            (uint8_t)(sb_round_clamp((float)sum[j] * multiplier[j], lo, hi) +
                      zero);
}

static void *result_at(const sb_int8_conv_end *e, void *y, int64_t at)
{
    return (char *)y + (size_t)at * (sb_is_byte(e->dtype) ? 1 : 4);
}

/* acc[r][j] = sums of up to four pixels and sixteen channels. */
typedef void (*small_tile)(const sb_int8_pixels *p, int64_t first, int64_t at,
                           int64_t step, int32_t acc[ROWS][LANE]);

static void plain_tile(const sb_int8_pixels *p, int64_t first, int64_t at,
                       int64_t step, int32_t acc[ROWS][LANE])
{
    const uint8_t *w = p->w + 4 * at;
    uint32_t sum[ROWS][LANE];

    for (int r = 0; r < ROWS; r++)
        memcpy(sum[r], p->init + at, sizeof sum[r]);
    for (int64_t run = 0; run < p->n_run; run++)
        for (int64_t q = 0; q < p->n_quad; q++, w += step)
            for (int r = 0; r < ROWS; r++) {
                const uint8_t *x =
                    p->at[run * SB_PIXEL_BLOCK + first + r] + 4 * q;
                const int32_t x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];
                const int8_t *v = (const int8_t *)w;

                for (int j = 0; j < LANE; j++)
                    sum[r][j] +=
                        (uint32_t)(x0 * v[4 * j] + x1 * v[4 * j + 1] +
                                   x2 * v[4 * j + 2] + x3 * v[4 * j + 3]);
            }
    memcpy(acc, sum, sizeof sum);
}

/* All of a block, four pixels at a time; the last ones, where there are fewer
 * than four left, are computed twice. */
static void small_tiles(const sb_int8_pixels *p, int64_t n_pixel,
                        small_tile tile)
{
    int64_t width = (p->cols + LANE - 1) / LANE * LANE;

    for (int64_t i = 0; i < n_pixel; i += ROWS)
        for (int64_t at = 0; at < p->cols; at += LANE) {
            int64_t n = p->cols - at < LANE ? p->cols - at : LANE;
            int32_t acc[ROWS][LANE];

            tile(p, i, at, 4 * width, acc);
            for (int64_t r = 0; r < ROWS && i + r < n_pixel; r++)
                end_sums(p->end, acc[r], p->multiplier + at,
                         p->add ? p->add + at : NULL, n,
                         result_at(p->end, p->y, (i + r) * p->y_step + at));
        }
}

static void plain_pixels(const sb_int8_pixels *p, int64_t n_pixel)
{
    small_tiles(p, n_pixel, plain_tile);
}

SB_HOT static void add_tap(const uint8_t *x, const int8_t *w, int64_t n,
                           int32_t *sum)
{
    SB_SIMD
    for (int64_t j = 0; j < n; j++)
        sum[j] = (int32_t)((uint32_t)sum[j] + (uint32_t)(x[j] * w[j]));
}

static void plain_depth(const sb_int8_depth *d)
{
    enum { PIECE = 256 };
    int64_t line =
        (d->n_channel + SB_DEPTH_LANE - 1) / SB_DEPTH_LANE * SB_DEPTH_LANE;
    int32_t sum[PIECE];

    for (int64_t c = 0; c < d->n_channel; c += PIECE) {
        int64_t n = d->n_channel - c < PIECE ? d->n_channel - c : PIECE;

        memcpy(sum, d->init + c, (size_t)n * sizeof *sum);
        for (int64_t t = 0; t < d->n_tap; t++)
            add_tap(d->tap[t] + c, (const int8_t *)d->w + t * line + c, n, sum);
        end_sums(d->end, sum, d->multiplier + c, NULL, n,
                 result_at(d->end, d->y, c));
    }
}

#ifdef PIXELS_X86
/* ---- AVX2 --------------------------------------------------------------- */

#define AVX2 __attribute__((target("avx2")))

/* Bytes are widened in place, as in int8_tile.c. */
AVX2 static void avx2_tile(const sb_int8_pixels *p, int64_t first, int64_t at,
                           int64_t step, int32_t acc[ROWS][LANE])
{
    const __m256i low = _mm256_set1_epi16(255);
    const uint8_t *w = p->w + 4 * at;
    __m256i sum[ROWS][2];

    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < 2; i++)
            sum[r][i] = _mm256_loadu_si256(
                (const __m256i *)(const void *)(p->init + at + 8 * i));
    for (int64_t run = 0; run < p->n_run; run++) {
        const uint8_t *const *x = p->at + run * SB_PIXEL_BLOCK + first;

        for (int64_t q = 0; q < p->n_quad; q++, w += step) {
            __m256i even[2], odd[2];

            for (int i = 0; i < 2; i++) {
                __m256i v = _mm256_loadu_si256(
                    (const __m256i *)(const void *)(w + 32 * i));

                even[i] = _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8);
                odd[i] = _mm256_srai_epi16(v, 8);
            }
            for (int r = 0; r < ROWS; r++) {
                __m256i v = _mm256_set1_epi32(sb_int8_load_quad(x[r] + 4 * q));
                __m256i v_even = _mm256_and_si256(v, low);
                __m256i v_odd = _mm256_srli_epi16(v, 8);

                for (int i = 0; i < 2; i++)
                    sum[r][i] = _mm256_add_epi32(
                        sum[r][i],
                        _mm256_add_epi32(_mm256_madd_epi16(v_even, even[i]),
                                         _mm256_madd_epi16(v_odd, odd[i])));
            }
        }
    }
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < 2; i++)
            _mm256_storeu_si256((__m256i *)(void *)(acc[r] + 8 * i), sum[r][i]);
}

static void avx2_pixels(const sb_int8_pixels *p, int64_t n_pixel)
{
    small_tiles(p, n_pixel, avx2_tile);
}

/* ---- VNNI --------------------------------------------------------------- */

#define VNNI \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))

enum { MOST_ROWS = 12 };

/* How sums become bytes.  Numbers above the greatest are brought down to it;
 * those below the least, and NaN, become it when they are packed. */
typedef struct pixel_end {
    __m512 most;
    __m512i zero; /* 16 bits each */
    bool is_int8;
} pixel_end;

VNNI PIXELS_INLINE pixel_end end_of(const sb_int8_conv_end *e)
{
    bool is_int8 = e->dtype == SB_DTYPE_I8;

    return (pixel_end){
        _mm512_set1_ps((float)((is_int8 ? 127 : 255) - e->zero)),
        _mm512_set1_epi16((int16_t)e->zero),
        is_int8,
    };
}

VNNI PIXELS_INLINE __m512i round_sums(const pixel_end *e, __m512i sum,
                                      const float *multiplier)
{
    __m512 v =
        _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_loadu_ps(multiplier));

    return _mm512_cvtps_epi32(_mm512_min_ps(e->most, v));
}

/* Rounded sums of up to 64 channels as bytes. */
VNNI PIXELS_INLINE __m512i pack_sums(const pixel_end *e, int vectors,
                                     const __m512i *sum,
                                     const float *multiplier)
{
    /* Packing leaves four channels of each vector side by side. */
    const __m512i order =
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i v[4];

    for (int j = 0; j < 4; j++)
        v[j] = j < vectors ? round_sums(e, sum[j], multiplier + j * LANE)
                           : _mm512_setzero_si512();
    __m512i low = _mm512_adds_epi16(_mm512_packs_epi32(v[0], v[1]), e->zero);
    __m512i high =
        vectors < 3
            ? low
            : _mm512_adds_epi16(_mm512_packs_epi32(v[2], v[3]), e->zero);
    __m512i bytes = e->is_int8 ? _mm512_packs_epi16(low, high)
                               : _mm512_packus_epi16(low, high);
    return _mm512_permutexvar_epi32(order, bytes);
}

/* Sixteen sums that stay as long as they are: int32, or floats. */
VNNI PIXELS_INLINE void end_words(const sb_int8_pixels *p, int64_t col,
                                  __m512i sum, int64_t at)
{
    int64_t left = p->cols - col;
    __mmask16 mask = (__mmask16)(left >= LANE ? 0xffff : (1u << left) - 1u);
    __m512 v = _mm512_castsi512_ps(sum);

    if (p->end->dtype == SB_DTYPE_F32) {
        v = _mm512_mul_ps(_mm512_cvtepi32_ps(sum),
                          _mm512_loadu_ps(p->multiplier + col));
        if (p->add)
            v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, p->add + col));
    }
    if (left >= LANE) /* masks make stores slow */
        _mm512_storeu_ps((float *)p->y + at + col, v);
    else
        _mm512_mask_storeu_ps((float *)p->y + at + col, mask, v);
}

VNNI PIXELS_INLINE void end_vectors(const sb_int8_pixels *p, int vectors,
                                    const pixel_end *e, const __m512i *sum,
                                    int64_t pixel)
{
    int64_t at = pixel * p->y_step;
    uint8_t *y = (uint8_t *)p->y + at;

    if (!sb_is_byte(p->end->dtype)) {
        for (int j = 0; j < vectors; j++)
            end_words(p, j * LANE, sum[j], at);
        return;
    }
    __m512i bytes = pack_sums(e, vectors, sum, p->multiplier);
    if (vectors == 4 && p->cols == 64)
        _mm512_storeu_si512(y, bytes);
    else if (vectors == 2 && p->cols == 32)
        _mm256_storeu_si256((__m256i *)(void *)y,
                            _mm512_castsi512_si256(bytes));
    else if (vectors == 1 && p->cols == 16)
        _mm_storeu_si128((__m128i *)(void *)y, _mm512_castsi512_si128(bytes));
    else
        _mm512_mask_storeu_epi8(y, (__mmask64)(UINT64_MAX >> (64 - p->cols)),
                                bytes);
}

/* `rows` pixels from `first` on, `vectors` of 16 channels each. */
VNNI PIXELS_INLINE void sum_pixels(int vectors, int rows,
                                   const sb_int8_pixels *p, const pixel_end *e,
                                   int64_t first)
{
    const uint8_t *w = p->w;
    __m512i sum[MOST_ROWS][4];

    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            sum[r][j] = _mm512_loadu_si512(p->init + j * LANE);
    for (int64_t run = 0; run < p->n_run; run++) {
        const uint8_t *const *at = p->at + run * SB_PIXEL_BLOCK + first;
        const uint8_t *x[MOST_ROWS];

        for (int r = 0; r < rows; r++)
            x[r] = at[r];
        for (int64_t q = 0; q < p->n_quad; q++, w += 64 * vectors) {
            __m512i v[4];

            for (int j = 0; j < vectors; j++)
                v[j] = _mm512_loadu_si512(w + 64 * j);
            for (int r = 0; r < rows; r++) {
                __m512i quad =
                    _mm512_set1_epi32(sb_int8_load_quad(x[r] + 4 * q));

                for (int j = 0; j < vectors; j++)
                    sum[r][j] = _mm512_dpbusd_epi32(sum[r][j], quad, v[j]);
            }
        }
    }
    for (int r = 0; r < rows; r++)
        end_vectors(p, vectors, e, sum[r], first + r);
}

/* Pixels in tiles of `most`, then of four, two and one. */
#define VNNI_PIXELS(name, vectors, most)                      \
    VNNI static void name(const sb_int8_pixels *p, int64_t n) \
    {                                                         \
        const pixel_end e = end_of(p->end);                   \
        int64_t i = 0;                                        \
                                                              \
        for (; i + (most) <= n; i += (most))                  \
            sum_pixels(vectors, most, p, &e, i);              \
        for (; i + 4 <= n; i += 4)                            \
            sum_pixels(vectors, 4, p, &e, i);                 \
        for (; i + 2 <= n; i += 2)                            \
            sum_pixels(vectors, 2, p, &e, i);                 \
        for (; i < n; i++)                                    \
            sum_pixels(vectors, 1, p, &e, i);                 \
    }

VNNI_PIXELS(vnni_16, 1, 12)
VNNI_PIXELS(vnni_32, 2, 12)
VNNI_PIXELS(vnni_48, 3, 8)
VNNI_PIXELS(vnni_64, 4, 6)

static void vnni_pixels(const sb_int8_pixels *p, int64_t n_pixel)
{
    static const sb_int8_pixels_fn by_width[] = {vnni_16, vnni_32, vnni_48,
                                                 vnni_64};

    by_width[(p->cols - 1) / LANE](p, n_pixel);
}

/* Up to 32 channels of four taps as quads, of which each quarter holds four
 * channels of either half. */
VNNI PIXELS_INLINE void quads_of_taps(const sb_int8_depth *d, int64_t n_tap,
                                      int64_t t, int64_t c, __mmask32 mask,
                                      __m256i out[4])
{
    __m256i x[4];

    for (int i = 0; i < 4; i++)
        x[i] = t + i < n_tap ? _mm256_maskz_loadu_epi8(mask, d->tap[t + i] + c)
                             : _mm256_setzero_si256();
    __m256i low = _mm256_unpacklo_epi8(x[0], x[2]);
    __m256i low2 = _mm256_unpacklo_epi8(x[1], x[3]);
    __m256i high = _mm256_unpackhi_epi8(x[0], x[2]);
    __m256i high2 = _mm256_unpackhi_epi8(x[1], x[3]);
    out[0] = _mm256_unpacklo_epi8(low, low2);
    out[1] = _mm256_unpackhi_epi8(low, low2);
    out[2] = _mm256_unpacklo_epi8(high, high2);
    out[3] = _mm256_unpackhi_epi8(high, high2);
}

/* 32 rounded sums as bytes, in the order of their channels: what interleaving
 * has taken apart, packing puts together. */
VNNI PIXELS_INLINE __m256i bytes_of_sums(const pixel_end *e, const __m256i *sum,
                                         const float *multiplier)
{
    const __m256 most = _mm512_castps512_ps256(e->most);
    const __m256i zero = _mm512_castsi512_si256(e->zero);
    __m256i v[4];

    for (int i = 0; i < 4; i++)
        v[i] = _mm256_cvtps_epi32(_mm256_min_ps(
            most, _mm256_mul_ps(_mm256_cvtepi32_ps(sum[i]),
                                _mm256_loadu_ps(multiplier + 8 * i))));
    __m256i low = _mm256_adds_epi16(_mm256_packs_epi32(v[0], v[1]), zero);
    __m256i high = _mm256_adds_epi16(_mm256_packs_epi32(v[2], v[3]), zero);
    return e->is_int8 ? _mm256_packs_epi16(low, high)
                      : _mm256_packus_epi16(low, high);
}

/* Sums of 32 channels as int32, in the order of channels. */
VNNI static void store_sums(const __m256i sum[4], int64_t n, int32_t *y)
{
    int32_t ordered[32];

    for (int i = 0; i < 4; i++) {
        _mm_storeu_si128((__m128i *)(void *)(ordered + 4 * i),
                         _mm256_castsi256_si128(sum[i]));
        _mm_storeu_si128((__m128i *)(void *)(ordered + 16 + 4 * i),
                         _mm256_extracti128_si256(sum[i], 1));
    }
    memcpy(y, ordered, (size_t)n * sizeof *y);
}

VNNI PIXELS_INLINE void sum_depth(const sb_int8_depth *d, int64_t n_tap)
{
    const pixel_end end = end_of(d->end);
    const uint8_t *w = d->w;

    for (int64_t c = 0; c < d->n_channel; c += 32) {
        int64_t n = d->n_channel - c < 32 ? d->n_channel - c : 32;
        __mmask32 mask = (__mmask32)(UINT64_C(0xffffffff) >> (32 - n));
        __m256i sum[4], quads[4];

        for (int i = 0; i < 4; i++)
            sum[i] = _mm256_loadu_si256(
                (const __m256i *)(const void *)(d->init + c + 8 * i));
        for (int64_t t = 0; t < n_tap; t += 4, w += 128) {
            quads_of_taps(d, n_tap, t, c, mask, quads);
            for (int i = 0; i < 4; i++)
                sum[i] = _mm256_dpbusd_epi32(
                    sum[i], quads[i],
                    _mm256_loadu_si256(
                        (const __m256i *)(const void *)(w + 32 * i)));
        }
        if (d->end->dtype == SB_DTYPE_I32)
            store_sums(sum, n, (int32_t *)d->y + c);
        else
            _mm256_mask_storeu_epi8(
                (uint8_t *)d->y + c, mask,
                bytes_of_sums(&end, sum, d->multiplier + c));
    }
}

VNNI static void vnni_depth(const sb_int8_depth *d)
{
    if (d->n_tap == 9) /* known: no loop, no questions */
        sum_depth(d, 9);
    else
        sum_depth(d, d->n_tap);
}
#endif

/* ---- choosing ----------------------------------------------------------- */

const sb_int8_pixel_kind *sb_int8_pixel_kind_at(int i)
{
    static const sb_int8_pixel_kind plain = {plain_pixels, plain_depth, false};
#ifdef PIXELS_X86
    static const sb_int8_pixel_kind avx2 = {avx2_pixels, plain_depth, false};
    static const sb_int8_pixel_kind vnni = {vnni_pixels, vnni_depth, true};

    if (i == 0 && __builtin_cpu_supports("avx512vnni") &&
        __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        return &vnni;
    if (i == 1 && __builtin_cpu_supports("avx2"))
        return &avx2;
#endif
    return i == SB_PIXEL_KINDS - 1 ? &plain : NULL;
}

const sb_int8_pixel_kind *sb_int8_pixel_choose(void)
{
    int i = 0;

    while (!sb_int8_pixel_kind_at(i))
        i++;
    return sb_int8_pixel_kind_at(i);
}
