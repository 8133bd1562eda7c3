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

/* Lanes of sums that belong to each chunk of a group. */
static inline VNNI_TARGET __m512i lane_index(const sb_nbits_shape *s)
{
    if (s->group == 4)
        return _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    return _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
}

static inline VNNI_TARGET __m512i load_group(const uint8_t *row, int64_t g,
                                             int64_t bytes)
{
    int64_t rest = bytes - g * 64;
    __mmask64 mask = rest >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << rest) - 1;

    return _mm512_maskz_loadu_epi8(mask, row + g * 64);
}

static inline VNNI_TARGET __m128 group_floats(const float *x, int64_t n)
{
    return n == 4 ? _mm_loadu_ps(x)
                  : _mm_castsi128_ps(_mm_loadl_epi64((const void *)x));
}

/* The same scales in registers; usually there is one for each chunk. */
static inline VNNI_TARGET void vnni_scales(const sb_nbits_weights *w,
                                           const sb_nbits_shape *s, int64_t n,
                                           int64_t g, __m128 *scale,
                                           __m128 *zero)
{
    int64_t at = n * w->n_block + g * s->group, rest = s->chunks - g * s->group;
    __mmask8 mask = (__mmask8)((1u << (rest < s->group ? rest : s->group)) - 1);
    group_scales t;

    if (s->per_block == 1 && !w->zero_bits) {
        *scale = _mm_maskz_loadu_ps(mask, w->scales + at);
        *zero = _mm_mul_ps(*scale,
                           w->zeros ? _mm_maskz_loadu_ps(mask, w->zeros + at)
                                    : _mm_set1_ps((float)(1 << (w->bits - 1))));
        return;
    }
    load_scales(w, s, n, g, &t);
    *scale = _mm_loadu_ps(t.scale);
    *zero = _mm_loadu_ps(t.zero);
}

__attribute__((always_inline)) static inline VNNI_TARGET void
dot_vnni(const sb_nbits_weights *w, int64_t n, const sb_nbits_acts *a,
         int64_t m, int rows, float *out)
{
    const sb_nbits_shape *s = &a->shape;
    int64_t all = s->groups * s->group, width = s->group * s->chunk;
    int64_t bytes = w->n_block * w->block * w->bits / 8;
    const uint8_t *row = w->codes + n * bytes;
    const __m512i low = _mm512_set1_epi8(15), index = lane_index(s);
    __m512 acc[SB_NBITS_ROWS];
    __m128 fix[SB_NBITS_ROWS];

    for (int r = 0; r < rows; r++) {
        acc[r] = _mm512_setzero_ps();
        fix[r] = _mm_setzero_ps();
    }
    for (int64_t g = 0; g < s->groups; g++) {
        __m512i v = load_group(row, g, bytes);
        __m512i even = _mm512_and_si512(v, low);
        __m512i odd = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
        __m128 scale, zero;

        vnni_scales(w, s, n, g, &scale, &zero);
        for (int r = 0; r < rows; r++) {
            const int8_t *x = a->codes + (m + r) * all * s->chunk + g * width;
            const float *as = a->scales + (m + r) * all + g * s->group;
            const float *sum = a->sums + (m + r) * all + g * s->group;
            __m512i d = _mm512_setzero_si512();

            if (w->bits == 4) {
                d = _mm512_dpbusd_epi32(d, even, _mm512_loadu_si512(x));
                d = _mm512_dpbusd_epi32(d, odd, _mm512_loadu_si512(x + 64));
            } else {
                d = _mm512_dpbusd_epi32(d, v, _mm512_loadu_si512(x));
            }
            __m128 both = _mm_mul_ps(scale, group_floats(as, s->group));
            acc[r] = _mm512_fmadd_ps(
                _mm512_cvtepi32_ps(d),
                _mm512_permutexvar_ps(index, _mm512_castps128_ps512(both)),
                acc[r]);
            fix[r] = _mm_fmadd_ps(zero, group_floats(sum, s->group), fix[r]);
        }
    }
    for (int r = 0; r < rows; r++) {
        float f[4];

        _mm_storeu_ps(f, fix[r]);
        out[r] = _mm512_reduce_add_ps(acc[r]) - ((f[0] + f[1]) + (f[2] + f[3]));
    }
}

static VNNI_TARGET void vnni_one(const sb_nbits_weights *w, int64_t n,
                                 const sb_nbits_acts *a, int64_t m, float *out)
{
    dot_vnni(w, n, a, m, 1, out);
}

static VNNI_TARGET void vnni_rows(const sb_nbits_weights *w, int64_t n,
                                  const sb_nbits_acts *a, int64_t m, float *out)
{
    dot_vnni(w, n, a, m, SB_NBITS_ROWS, out);
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

static AVX2_TARGET void avx2_one(const sb_nbits_weights *w, int64_t n,
                                 const sb_nbits_acts *a, int64_t m, float *out)
{
    dot_avx2(w, n, a, m, 1, out);
}

static AVX2_TARGET void avx2_rows(const sb_nbits_weights *w, int64_t n,
                                  const sb_nbits_acts *a, int64_t m, float *out)
{
    dot_avx2(w, n, a, m, SB_NBITS_ROWS, out);
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
    {"avx512vnni", suits_vnni, {vnni_one, vnni_rows}},
    {"avx2", suits_avx2, {avx2_one, avx2_rows}},
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
