/* Floats narrower than 32 bits: half, bfloat16, the float8 and float4 kinds.
 *
 * float16 and bfloat16 are IEEE-like and converted by bit arithmetic.  The
 * 8 and 4 bit kinds differ only in a handful of facts (width of exponent and
 * mantissa, bias, how infinity and NaN are written), so one table and one
 * pair of functions serve them all.  With m mantissa bits and exponent e of
 * the value (no smaller than the least normal one), the code is
 *
 *     round_to_even(|x| * 2^(m - e)) + (e + bias - 1) * 2^m
 *
 * where a carry out of the rounding walks into the exponent by itself and
 * denormals need no case of their own. */
#include <math.h>
#include <string.h>

#include "tensor/dtype.h"

static uint32_t bits_of(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

/* For exponents of normal numbers. */
static float power_of_two(int e)
{
    return float_of((uint32_t)(e + 127) << 23);
}

float sb_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1fu;
    uint32_t mantissa = h & 0x3ffu;

    if (exponent == 0)
        return float_of(sign | bits_of((float)mantissa * 0x1p-24f));
    if (exponent == 31) /* NaN becomes quiet, as the hardware does it */
        return float_of(sign | 0x7f800000u | mantissa << 13 |
                        (mantissa ? 0x400000u : 0));
    return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t sb_f32_to_f16(float f)
{
    uint32_t u = bits_of(f);
    uint32_t sign = (u >> 16) & 0x8000u;
    uint32_t a = u & 0x7fffffffu;
    uint32_t h;

    if (a > 0x7f800000u) {
        h = 0x7e00u | ((a >> 13) & 0x3ffu); /* quiet, payload kept */
    } else if (a >= 0x477ff000u) {
        h = 0x7c00u; /* 65520 and above round to infinity */
    } else if (a < 0x38800000u) {
        /* Below 2^-14: the sum with 0.5 is rounded at 2^-24, which is the
         * step of half denormals. */
        h = bits_of(float_of(a) + 0.5f) - 0x3f000000u;
    } else {
        a += 0xfffu + ((a >> 13) & 1u);
        h = (a - (112u << 23)) >> 13;
    }
    return (uint16_t)(sign | h);
}

typedef struct {
    uint8_t mantissa;   /* bits */
    uint8_t sign;       /* the sign bit */
    uint8_t max;        /* code of the largest finite value */
    uint8_t inf;        /* code of infinity; 0: there is none */
    uint8_t nan;        /* code of NaN; 0: there is none */
    bool unsigned_zero; /* the code of -0 means NaN ("UZ") */
    int bias;
} format;

/* clang-format off */
static const format formats[] = {
    {3, 0x80, 0x7e, 0,    0x7f, false, 7},  /* F8E4M3FN */
    {3, 0x80, 0x7f, 0,    0x80, true,  8},  /* F8E4M3FNUZ */
    {2, 0x80, 0x7b, 0x7c, 0x7e, false, 15}, /* F8E5M2 */
    {2, 0x80, 0x7f, 0,    0x80, true,  16}, /* F8E5M2FNUZ */
    {1, 0x08, 0x07, 0,    0,    false, 1},  /* F4E2M1 */
};
/* clang-format on */

static const format *format_of(sb_dtype dtype)
{
    if (dtype == SB_DTYPE_F4E2M1)
        return &formats[4];
    return &formats[dtype - SB_DTYPE_F8E4M3FN];
}

/* E8M0 is a bare exponent: 2^(code - 127), 255 is NaN. */
static float e8m0_to_f32(uint8_t code)
{
    return code == 0xff ? NAN : ldexpf(1.0f, (int)code - 127);
}

/* Rounds up, as Cast does unless told otherwise.  Negative values have no
 * meaning here and become NaN. */
static uint8_t f32_to_e8m0(float f, bool saturate)
{
    uint32_t a = bits_of(f) & 0x7fffffffu;
    uint32_t code = (a >> 23) + ((a & 0x7fffffu) != 0);

    if (isnan(f) || f < 0)
        return 0xff;
    if (a < 0x400000u) /* below 2^-127 */
        return saturate ? 0 : 0xff;
    if (a == 0x400000u)
        return 0;
    if (code > 0xfe)
        return saturate ? 0xfe : 0xff;
    return (uint8_t)code;
}

float sb_small_float_to_f32(sb_dtype dtype, uint8_t bits)
{
    if (dtype == SB_DTYPE_F8E8M0)
        return e8m0_to_f32(bits);
    const format *fmt = format_of(dtype);
    bool negative = (bits & fmt->sign) != 0;
    int magnitude = bits & (fmt->sign - 1);
    float x;

    if (fmt->unsigned_zero && bits == fmt->nan)
        return NAN;
    if (magnitude > fmt->max) {
        x = fmt->inf && magnitude == fmt->inf ? INFINITY : NAN;
    } else {
        int e = magnitude >> fmt->mantissa;
        int m = magnitude & ((1 << fmt->mantissa) - 1);
        if (e > 0)
            m += 1 << fmt->mantissa;
        else
            e = 1;
        x = (float)m * power_of_two(e - fmt->bias - fmt->mantissa);
    }
    return negative ? -x : x;
}

/* The code of what lies beyond the largest finite value, sign apart. */
static uint8_t overflow_code(const format *fmt, bool saturate)
{
    if (saturate || (!fmt->inf && !fmt->nan))
        return fmt->max;
    return fmt->inf ? fmt->inf : fmt->nan;
}

uint8_t sb_f32_to_small_float(sb_dtype dtype, float f, bool saturate)
{
    if (dtype == SB_DTYPE_F8E8M0)
        return f32_to_e8m0(f, saturate);
    const format *fmt = format_of(dtype);
    uint8_t sign = signbit(f) ? fmt->sign : 0;
    uint8_t code;

    if (isnan(f)) {
        /* float4 has no NaN: ONNX's own cases give -0. */
        return (uint8_t)(fmt->nan ? fmt->nan | sign : 0x8);
    }
    if (isinf(f)) {
        code = overflow_code(fmt, saturate);
    } else {
        int least = 1 - fmt->bias;
        int e = (int)(bits_of(f) >> 23 & 0xff) - 127;
        if (e < least)
            e = least;
        if (e > 30)
            e = 30; /* far beyond any of the formats; keeps the sum small */
        /* Adding and taking away 2^23 rounds to a whole number, ties to
         * even; what is larger than that overflows anyway. */
        float steps = fabsf(f) * power_of_two(fmt->mantissa - e);
        steps = (steps + 0x1p23f) - 0x1p23f;
        float sum = steps + (float)((e + fmt->bias - 1) << fmt->mantissa);
        code =
            sum > (float)fmt->max ? overflow_code(fmt, saturate) : (uint8_t)sum;
    }
    if (fmt->unsigned_zero && (code == 0 || code == fmt->nan))
        return code;
    return code | sign;
}
