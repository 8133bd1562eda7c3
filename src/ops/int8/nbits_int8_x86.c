/* Packed weights times rounded activations on AVX-512 VNNI and AVX2.
 *
 * A group is 64 bytes of weights.  4 bits: four chunks; the low halves of the
 * bytes are the even elements of all four, the high ones the odd, and so are
 * the activations laid out.  8 bits: one chunk after the other. */
#include "ops/int8/nbits_int8.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define VNNI_TARGET \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni,fma,avx2")))
#define AVX2_TARGET __attribute__((target("avx2,fma")))

/* Scales of the weights in a group, one for each chunk, and scales times zero
 * points; 0 beyond the end. */
typedef struct group_scales {
    float scale[4], zero[4];
} group_scales;

static inline void load_scales(const sb_nbits_weights *w,
                               const sb_nbits_shape *s, int64_t n, int64_t g,
                               group_scales *out)
{
    const float *scales = w->scales + n * w->n_block;

    for (int64_t i = 0; i < 4; i++) {
        int64_t c = g * s->group + i;
        bool in = i < s->group && c < s->chunks;
        int64_t block = !in ? 0 : s->per_block == 1 ? c : c / s->per_block;

        out->scale[i] = in ? scales[block] : 0;
        out->zero[i] = out->scale[i] * sb_nbits_zero(w, n, block);
    }
}

/* ---- AVX-512 ------------------------------------------------------------ */

/* What a tile is computed with; constants wherever this is inlined, but for the
 * pointers. */
typedef struct vnni_tile {
    const sb_nbits_weights *w;
    const sb_nbits_acts *a;
    int64_t n, m;
    int cols, rows;
    bool four;   /* bits */
    bool direct; /* one scale for each chunk, zero points as floats or none */
    bool zeros;
} vnni_tile;

typedef struct vnni_sums {
    __m512 acc[SB_NBITS_ROWS][SB_NBITS_COLS];
    __m128 fix[SB_NBITS_ROWS][SB_NBITS_COLS];
} vnni_sums;

#define VNNI_INLINE __attribute__((always_inline)) static inline VNNI_TARGET

/* Scales of a group's chunks and scales times zero points; without `zeros`
 * these are the scales, and the number comes later. */
VNNI_INLINE void vnni_scales(const vnni_tile *t, int64_t n, int64_t g,
                             __mmask8 mask, __m128 *scale, __m128 *zero)
{
    const sb_nbits_weights *w = t->w;
    const sb_nbits_shape *s = &t->a->shape;
    int64_t at = n * w->n_block + g * s->group;
    group_scales some;

    if (!t->direct) {
        load_scales(w, s, n, g, &some);
        *scale = _mm_loadu_ps(some.scale);
        *zero = _mm_loadu_ps(some.zero);
        return;
    }
    *scale = _mm_maskz_loadu_ps(mask, w->scales + at);
    *zero = t->zeros
                ? _mm_mul_ps(*scale, _mm_maskz_loadu_ps(mask, w->zeros + at))
                : *scale;
}

/* `next` bytes from here are the codes of later rows. */
VNNI_INLINE void vnni_group(const vnni_tile *t, int64_t g, __mmask64 bytes,
                            __mmask8 chunks, __m512i index, int64_t next,
                            vnni_sums *sums)
{
    const sb_nbits_shape *s = &t->a->shape;
    const __m512i low = _mm512_set1_epi8(15);
    int64_t row = t->w->n_block * t->w->block * t->w->bits / 8;
    int64_t width = t->four ? 128 : 64, all = s->groups * width;
    int64_t floats = s->groups * s->group;

    for (int c = 0; c < t->cols; c++) {
        const uint8_t *codes = t->w->codes + (t->n + c) * row + g * 64;
        __m512i v = _mm512_maskz_loadu_epi8(bytes, codes);
        __m512i even = t->four ? _mm512_and_si512(v, low) : v;
        __m512i odd = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
        __m128 scale, zero;

        _mm_prefetch((const void *)(codes + next), _MM_HINT_T0);
        vnni_scales(t, t->n + c, g, chunks, &scale, &zero);
        __m512 wide =
            _mm512_permutexvar_ps(index, _mm512_castps128_ps512(scale));
        for (int r = 0; r < t->rows; r++) {
            const int8_t *x = t->a->codes + (t->m + r) * all + g * width;
            const float *as =
                t->a->wide + ((t->m + r) * s->groups + g) * SB_NBITS_LANES;
            const float *sum = t->a->sums + (t->m + r) * floats + g * s->group;
            __m512i d = _mm512_dpbusd_epi32(_mm512_setzero_si512(), even,
                                            _mm512_loadu_si512(x));

            if (t->four)
                d = _mm512_dpbusd_epi32(d, odd, _mm512_loadu_si512(x + 64));
            sums->acc[r][c] = _mm512_fmadd_ps(
                _mm512_cvtepi32_ps(d), _mm512_mul_ps(wide, _mm512_loadu_ps(as)),
                sums->acc[r][c]);
            sums->fix[r][c] = _mm_fmadd_ps(
                zero,
                s->group == 4
                    ? _mm_loadu_ps(sum)
                    : _mm_castsi128_ps(_mm_loadl_epi64((const void *)sum)),
                sums->fix[r][c]);
        }
    }
}

VNNI_INLINE void vnni_tile_run(const vnni_tile *t, float *out)
{
    const sb_nbits_shape *s = &t->a->shape;
    const __m512i index =
        s->group == 4
            ? _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0)
            : _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
    const float middle =
        t->zeros || !t->direct ? 1 : (float)(1 << (t->w->bits - 1));
    int64_t bytes = t->w->n_block * t->w->block * t->w->bits / 8;
    int64_t whole = bytes / 64, rest = bytes % 64;
    /* Rows side by side are no order that a processor foresees: it is told what
     * is wanted of the next ones, but early enough. */
    const int64_t early = 2048, tile = SB_NBITS_COLS * bytes;
    int64_t next = tile > early ? tile : early;
    vnni_sums sums;

    for (int r = 0; r < t->rows; r++)
        for (int c = 0; c < t->cols; c++) {
            sums.acc[r][c] = _mm512_setzero_ps();
            sums.fix[r][c] = _mm_setzero_ps();
        }
    for (int64_t g = 0; g < whole; g++)
        vnni_group(t, g, ~(__mmask64)0, (__mmask8)((1u << s->group) - 1), index,
                   next, &sums);
    if (rest)
        vnni_group(t, whole, ((__mmask64)1 << rest) - 1,
                   (__mmask8)((1u << (s->chunks - whole * s->group)) - 1),
                   index, next, &sums);
    for (int r = 0; r < t->rows; r++)
        for (int c = 0; c < t->cols; c++) {
            float f[4];

            _mm_storeu_ps(f, sums.fix[r][c]);
            out[r * SB_NBITS_COLS + c] =
                _mm512_reduce_add_ps(sums.acc[r][c]) -
                middle * ((f[0] + f[1]) + (f[2] + f[3]));
        }
}

/* One function for each kind of weights, with loops of known length. */
VNNI_INLINE void vnni_sizes(const vnni_tile *t, float *out)
{
    vnni_tile part = *t;

    if (t->cols == SB_NBITS_COLS && t->rows == SB_NBITS_ROWS) {
        part.cols = SB_NBITS_COLS;
        part.rows = SB_NBITS_ROWS;
        vnni_tile_run(&part, out);
        return;
    }
    part.rows = 1;
    for (int r = 0; r < t->rows; r++, part.m++) {
        part.n = t->n;
        part.cols = SB_NBITS_COLS;
        if (t->cols == SB_NBITS_COLS) {
            vnni_tile_run(&part, out + r * SB_NBITS_COLS);
            continue;
        }
        part.cols = 1;
        for (int c = 0; c < t->cols; c++, part.n++)
            vnni_tile_run(&part, out + r * SB_NBITS_COLS + c);
    }
}

#define VNNI_KIND(name, is_four, is_direct, has_zeros)    \
    static VNNI_TARGET void name(vnni_tile t, float *out) \
    {                                                     \
        t.four = is_four;                                 \
        t.direct = is_direct;                             \
        t.zeros = has_zeros;                              \
        vnni_sizes(&t, out);                              \
    }

VNNI_KIND(four_plain, true, true, false)
VNNI_KIND(four_zeros, true, true, true)
VNNI_KIND(four_any, true, false, true)
VNNI_KIND(eight_plain, false, true, false)
VNNI_KIND(eight_zeros, false, true, true)
VNNI_KIND(eight_any, false, false, true)

static void vnni_run(const sb_nbits_weights *w, int64_t n, int64_t cols,
                     const sb_nbits_acts *a, int64_t m, int64_t rows,
                     float *out)
{
    const vnni_tile t = {
        .w = w, .a = a, .n = n, .m = m, .cols = (int)cols, .rows = (int)rows};
    bool any = a->shape.per_block != 1 || w->zero_bits != NULL;

    if (w->bits == 4)
        (any ? four_any : w->zeros ? four_zeros : four_plain)(t, out);
    else
        (any ? eight_any : w->zeros ? eight_zeros : eight_plain)(t, out);
}

/* ---- AVX2 --------------------------------------------------------------- */

/* Sums of products of 32 unsigned and signed bytes, as eight int32. */
static inline AVX2_TARGET __m256i dot_bytes(__m256i u, __m256i x)
{
    __m256i u0 = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(u));
    __m256i u1 = _mm256_cvtepu8_epi16(_mm256_extracti128_si256(u, 1));
    __m256i x0 = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(x));
    __m256i x1 = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(x, 1));

    return _mm256_add_epi32(_mm256_madd_epi16(u0, x0),
                            _mm256_madd_epi16(u1, x1));
}

/* The codes of chunk `c`, 32 of them; 4 bits: even ones, then odd ones. */
static inline AVX2_TARGET __m256i load_chunk(const sb_nbits_weights *w,
                                             const uint8_t *row, int64_t c)
{
    if (w->bits == 8)
        return _mm256_loadu_si256((const void *)(row + c * 32));
    __m128i v = _mm_loadu_si128((const void *)(row + c * 16));
    __m128i low = _mm_set1_epi8(15);
    return _mm256_set_m128i(_mm_and_si128(_mm_srli_epi16(v, 4), low),
                            _mm_and_si128(v, low));
}

static inline AVX2_TARGET __m256i load_acts(const sb_nbits_weights *w,
                                            const sb_nbits_shape *s,
                                            const int8_t *row, int64_t c)
{
    const int8_t *group = row + c / s->group * s->group * 32;
    int64_t i = c % s->group;

    if (w->bits == 8)
        return _mm256_loadu_si256((const void *)(group + i * 32));
    return _mm256_set_m128i(
        _mm_loadu_si128((const void *)(group + 64 + i * 16)),
        _mm_loadu_si128((const void *)(group + i * 16)));
}

__attribute__((always_inline)) static inline AVX2_TARGET void
dot_avx2(const sb_nbits_weights *w, int64_t n, const sb_nbits_acts *a,
         int64_t m, int rows, float *out)
{
    const sb_nbits_shape *s = &a->shape;
    int64_t all = s->groups * s->group;
    const uint8_t *row = w->codes + n * w->n_block * w->block * w->bits / 8;
    float fix[SB_NBITS_ROWS] = {0};
    __m256 acc[SB_NBITS_ROWS];

    for (int r = 0; r < rows; r++)
        acc[r] = _mm256_setzero_ps();
    for (int64_t c = 0; c < s->chunks; c++) {
        int64_t block = c / s->per_block;
        float scale = w->scales[n * w->n_block + block];
        float zero = scale * sb_nbits_zero(w, n, block);
        __m256i v = load_chunk(w, row, c);

        for (int r = 0; r < rows; r++) {
            __m256i x = load_acts(w, s, a->codes + (m + r) * all * 32, c);
            __m256 both = _mm256_set1_ps(scale * a->scales[(m + r) * all + c]);

            acc[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot_bytes(v, x)), both,
                                     acc[r]);
            fix[r] += zero * a->sums[(m + r) * all + c];
        }
    }
    for (int r = 0; r < rows; r++) {
        float f[8];

        _mm256_storeu_ps(f, acc[r]);
        out[r] = ((f[0] + f[4]) + (f[1] + f[5])) +
                 ((f[2] + f[6]) + (f[3] + f[7])) - fix[r];
    }
}

static AVX2_TARGET void avx2_run(const sb_nbits_weights *w, int64_t n,
                                 int64_t cols, const sb_nbits_acts *a,
                                 int64_t m, int64_t rows, float *out)
{
    for (int64_t c = 0; c < cols; c++) {
        float sums[SB_NBITS_ROWS];

        if (rows == SB_NBITS_ROWS)
            dot_avx2(w, n + c, a, m, SB_NBITS_ROWS, sums);
        else
            for (int64_t r = 0; r < rows; r++)
                dot_avx2(w, n + c, a, m + r, 1, sums + r);
        for (int64_t r = 0; r < rows; r++)
            out[r * SB_NBITS_COLS + c] = sums[r];
    }
}

static bool suits_vnni(const sb_nbits_shape *s)
{
    (void)s;
    return __builtin_cpu_supports("avx512vnni") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
}

static bool suits_avx2(const sb_nbits_shape *s)
{
    return s->chunk == 32 && __builtin_cpu_supports("avx2") &&
           __builtin_cpu_supports("fma");
}

static const sb_nbits_kernel kernels[] = {
    {"avx512vnni", suits_vnni, vnni_run},
    {"avx2", suits_avx2, avx2_run},
};

const sb_nbits_kernel *sb_nbits_kernel_x86(size_t i)
{
    return i < SB_COUNT(kernels) ? &kernels[i] : NULL;
}
#else
const sb_nbits_kernel *sb_nbits_kernel_x86(size_t i)
{
    (void)i;
    return NULL;
}
#endif
