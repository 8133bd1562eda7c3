/* vec_math.h - exp, tanh, erf, ... of floats, written so that a loop over them
 * becomes vector code: no branches, no calls, no tables.
 *
 * Each argument is reduced to a short interval on which a polynomial, fitted
 * there for least relative error, is exact to below half a unit in the last
 * place; rounding in the evaluation brings the whole to about 2 units (the
 * test measures it).  Infinities, NaN, zeros and results below the normal
 * range come out as C's functions give them; floating-point exceptions are not
 * kept. */
#ifndef SB_DNN_VEC_MATH_H
#define SB_DNN_VEC_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* A call in the loop would keep it from becoming vector code. */
#if defined(__GNUC__)
#define SB_VEC_INLINE static inline __attribute__((always_inline))
#else
#define SB_VEC_INLINE static inline
#endif

SB_VEC_INLINE uint32_t sb_bits_of(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    return u;
}

SB_VEC_INLINE float sb_float_of(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

/* x = n ln 2 + r with |r| <= ln(2)/2, and q = e^r - 1.  Adding 1.5 * 2^23
 * rounds to an integer, which then stands in the low bits.  ln 2 is split in
 * two, so that n times its first part is exact. */
SB_VEC_INLINE float sb_exp_reduce(float x, int32_t *n)
{
    const float magic = 12582912.0f;
    float shifted = x * 1.44269504f + magic;
    float whole = shifted - magic;
    float r = (x - whole * 0.693359375f) - whole * -2.12194440e-4f;
    float p = 1.3814467e-3f;

    p = p * r + 8.368781e-3f;
    p = p * r + 4.1668393e-2f;
    p = p * r + 1.666652e-1f;
    p = p * r + 4.9999994e-1f;
    *n = (int32_t)(sb_bits_of(shifted) - sb_bits_of(magic));
    return p * r * r + r;
}

/* 2^n for -126 <= n <= 127 */
SB_VEC_INLINE float sb_exp2_int(int32_t n)
{
    return sb_float_of(((uint32_t)n + 127u) << 23);
}

/* e^x.  The scale is applied in two halves, because 2^128 and 2^-150 are no
 * normal floats. */
SB_VEC_INLINE float sb_vec_expf(float x)
{
    int32_t n;

    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    float q = sb_exp_reduce(x, &n);
    int32_t half = n >> 1;
    return (q + 1.0f) * sb_exp2_int(half) * sb_exp2_int(n - half);
}

/* e^x - 1 for x <= 0, exact near 0. */
SB_VEC_INLINE float sb_vec_expm1f_neg(float x)
{
    int32_t n;

    x = x < -80.0f ? -80.0f : x;
    float q = sb_exp_reduce(x, &n);
    float scale = sb_exp2_int(n);
    return scale * q + (scale - 1.0f);
}

/* 1 / (1 + e^-x), without overflow and exact at both ends. */
SB_VEC_INLINE float sb_vec_sigmoidf(float x)
{
    float e = sb_vec_expf(-fabsf(x));
    float p = 1.0f / (1.0f + e);
    float q = e * p;

    return x < 0 ? q : p;
}

/* Odd polynomial near 0, 1 - 2 / (e^2|x| + 1) beyond. */
SB_VEC_INLINE float sb_vec_tanhf(float x)
{
    float a = fabsf(x), z = x * x;
    float p = -5.717045e-3f;

    p = p * z + 2.0650588e-2f;
    p = p * z - 5.3743497e-2f;
    p = p * z + 1.3331491e-1f;
    p = p * z - 3.3333284e-1f;
    float near = a + a * z * p;
    float far = 1.0f - 2.0f / (sb_vec_expf(2.0f * a) + 1.0f);
    return copysignf(a < 0.625f ? near : far, x);
}

/* Odd polynomial below 1; beyond it 1 - e^p(|x|), where p is fitted to the
 * logarithm of erfc. */
SB_VEC_INLINE float sb_vec_erff(float x)
{
    float a = fabsf(x), z = x * x;
    float s = 7.8538615e-5f;

    s = s * z - 8.0101937e-4f;
    s = s * z + 5.1883277e-3f;
    s = s * z - 2.6853813e-2f;
    s = s * z + 1.12835854e-1f;
    s = s * z - 3.7612626e-1f;
    s = s * z + 1.28379163e-1f;
    float near = a + a * s;
    float b = a > 4.0f ? 4.0f : a; /* erf(4) rounds to 1 */
    float p = -2.1686752e-5f;
    p = p * b + 4.4133517e-4f;
    p = p * b - 4.2045554e-3f;
    p = p * b + 2.5208239e-2f;
    p = p * b - 1.0841855e-1f;
    p = p * b - 6.332199e-1f;
    p = p * b - 1.1295784f;
    p = p * b + 1.8803663e-4f;
    float far = 1.0f - sb_vec_expf(p);
    return copysignf(a < 1.0f ? near : far, x);
}

/* x = 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2); log(1 + f) by a polynomial. */
SB_VEC_INLINE float sb_vec_logf(float x)
{
    float big = x < 1.17549435e-38f ? x * 8388608.0f : x;
    float shift = x < 1.17549435e-38f ? -23.0f : 0.0f;
    uint32_t bits = sb_bits_of(big) - 0x3f3504f3u; /* sqrt(1/2) */
    float k = (float)((int32_t)bits >> 23) + shift;
    float f = sb_float_of((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    float p = -7.8596175e-2f;

    p = p * f + 1.288165e-1f;
    p = p * f - 1.3128753e-1f;
    p = p * f + 1.4181192e-1f;
    p = p * f - 1.6624554e-1f;
    p = p * f + 2.0002286e-1f;
    p = p * f - 2.500081e-1f;
    p = p * f + 3.3333316e-1f;
    float ff = f * f;
    float y = p * f * ff + k * -2.12194440e-4f;
    y = (y - 0.5f * ff + f) + k * 0.693359375f;
    y = x > 3.40282347e38f ? x : y;
    y = x == 0 ? -INFINITY : y;
    return x >= 0 ? y : NAN;
}

/* log(1 + e) for 0 <= e <= 1: what rounding 1 + e lost is added back. */
SB_VEC_INLINE float sb_vec_log1pf_unit(float e)
{
    float u = 1.0f + e;

    return sb_vec_logf(u) + (e - (u - 1.0f)) / u;
}

#endif
