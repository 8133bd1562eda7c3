/* Arrays of float16, eight at a time where the processor can (F16C), with the
 * same results as one by one. */
#include "tensor/dtype.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

/* Both return how many elements they did: a multiple of eight. */
__attribute__((target("avx,f16c"))) static size_t
widen_eights(const uint16_t *src, float *dst, size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(src + i));
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(h));
    }
    return i;
}

__attribute__((target("avx,f16c"))) static size_t
narrow_eights(const float *src, uint16_t *dst, size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256 x = _mm256_loadu_ps(src + i);
        _mm_storeu_si128((__m128i *)(void *)(dst + i),
                         _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    }
    return i;
}

static bool has_f16c(void)
{
    /* Every processor with AVX2 has F16C; clang 14 knows only the former. */
    return __builtin_cpu_supports("avx2");
}
#else
static size_t widen_eights(const uint16_t *src, float *dst, size_t n)
{
    (void)src;
    (void)dst;
    (void)n;
    return 0;
}

static size_t narrow_eights(const float *src, uint16_t *dst, size_t n)
{
    (void)src;
    (void)dst;
    (void)n;
    return 0;
}

static bool has_f16c(void)
{
    return false;
}
#endif

void sb_f16_to_f32_array(const uint16_t *src, float *dst, size_t n)
{
    size_t done = has_f16c() ? widen_eights(src, dst, n) : 0;

    for (size_t i = done; i < n; i++)
        dst[i] = sb_f16_to_f32(src[i]);
}

void sb_f32_to_f16_array(const float *src, uint16_t *dst, size_t n)
{
    size_t done = has_f16c() ? narrow_eights(src, dst, n) : 0;

    for (size_t i = done; i < n; i++)
        dst[i] = sb_f32_to_f16(src[i]);
}
