/* Rows of keys and values in AVX-512: sixteen keys at a time, whose sums are
 * halved together, and results that stay in registers over all values. */
#include "ops/attention/cached_rows.h"

#include <stddef.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define ROWS_TARGET __attribute__((target("avx512f")))
#define ROWS_INLINE __attribute__((always_inline)) static inline ROWS_TARGET

enum { LANES = 16, SLICES = 4 }; /* of a result that are in registers */

ROWS_INLINE __mmask16 lanes_of(int64_t n)
{
    return n < LANES ? (__mmask16)((1u << n) - 1) : (__mmask16)0xffff;
}

/* The 16 partial sums of q times k. */
ROWS_INLINE __m512 rows_partial(const float *q, const float *k, int64_t n)
{
    __m512 sum = _mm512_setzero_ps();
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        sum = _mm512_add_ps(
            sum, _mm512_mul_ps(_mm512_loadu_ps(q + i), _mm512_loadu_ps(k + i)));
    __mmask16 rest = lanes_of(n - i);
    return _mm512_mask_add_ps(
        sum, rest, sum,
        _mm512_mul_ps(_mm512_maskz_loadu_ps(rest, q + i),
                      _mm512_maskz_loadu_ps(rest, k + i)));
}

/* The sum of each of 16 vectors.  Each step adds the halves of what belongs to
 * a row and puts two vectors into one. */
ROWS_INLINE __m512 rows_halve(__m512 *s)
{
    const __m512i order =
        _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15);

    for (int r = 0; r < 8; r++)
        s[r] = _mm512_add_ps(_mm512_shuffle_f32x4(s[r], s[r + 8], 0x44),
                             _mm512_shuffle_f32x4(s[r], s[r + 8], 0xee));
    for (int r = 0; r < 4; r++)
        s[r] = _mm512_add_ps(_mm512_shuffle_f32x4(s[r], s[r + 4], 0x88),
                             _mm512_shuffle_f32x4(s[r], s[r + 4], 0xdd));
    for (int r = 0; r < 2; r++)
        s[r] = _mm512_add_ps(_mm512_shuffle_ps(s[r], s[r + 2], 0x44),
                             _mm512_shuffle_ps(s[r], s[r + 2], 0xee));
    s[0] = _mm512_add_ps(_mm512_shuffle_ps(s[0], s[1], 0x88),
                         _mm512_shuffle_ps(s[0], s[1], 0xdd));
    return _mm512_permutexvar_ps(order, s[0]);
}

static ROWS_TARGET void rows_dot(const float *q, const float *k, int64_t step,
                                 int64_t rows, int64_t n, float scale,
                                 float *out)
{
    __m512 by = _mm512_set1_ps(scale), s[LANES];

    for (; rows >= LANES; rows -= LANES, k += LANES * step, out += LANES) {
        for (int r = 0; r < LANES; r++)
            s[r] = rows_partial(q, k + r * step, n);
        _mm512_storeu_ps(out, _mm512_mul_ps(rows_halve(s), by));
    }
    for (int r = 0; r < LANES; r++)
        s[r] =
            r < rows ? rows_partial(q, k + r * step, n) : _mm512_setzero_ps();
    _mm512_mask_storeu_ps(out, lanes_of(rows),
                          _mm512_mul_ps(rows_halve(s), by));
}

/* `slices` vectors of the result, the last with the lanes of `last`. */
ROWS_INLINE void rows_slices(const float *p, const float *v, int64_t step,
                             int64_t rows, int slices, __mmask16 last, float *y)
{
    __m512 sum[SLICES];

    for (int i = 0; i < slices; i++)
        sum[i] = _mm512_setzero_ps();
    for (int64_t r = 0; r < rows; r++, v += step) {
        __m512 by = _mm512_set1_ps(p[r]);

        for (int i = 0; i < slices; i++) {
            __m512 x = i + 1 < slices
                           ? _mm512_loadu_ps(v + i * LANES)
                           : _mm512_maskz_loadu_ps(last, v + i * LANES);
            sum[i] = _mm512_add_ps(sum[i], _mm512_mul_ps(by, x));
        }
    }
    for (int i = 0; i < slices; i++)
        _mm512_mask_storeu_ps(
            y + i * LANES, i + 1 < slices ? (__mmask16)0xffff : last, sum[i]);
}

static ROWS_TARGET void rows_sum(const float *p, const float *v, int64_t step,
                                 int64_t rows, int64_t n, float *y)
{
    for (; n > 0; n -= SLICES * LANES) {
        int64_t slices = (n + LANES - 1) / LANES;
        __mmask16 last = lanes_of(n - (slices - 1) * LANES);

        if (slices == 1)
            rows_slices(p, v, step, rows, 1, last, y);
        else if (slices == 2)
            rows_slices(p, v, step, rows, 2, last, y);
        else if (slices == 3)
            rows_slices(p, v, step, rows, 3, last, y);
        else
            rows_slices(p, v, step, rows, SLICES,
                        slices > SLICES ? (__mmask16)0xffff : last, y);
        v += SLICES * LANES;
        y += SLICES * LANES;
    }
}

const sb_cached_rows *sb_cached_rows_avx512(void)
{
    static const sb_cached_rows rows = {rows_dot, rows_sum};

    return __builtin_cpu_supports("avx512f") ? &rows : NULL;
}
#else
const sb_cached_rows *sb_cached_rows_avx512(void)
{
    return NULL;
}
#endif
