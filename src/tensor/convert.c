/* Conversion between element types.
 *
 * The few pairs that real networks use often have direct loops.  All others go
 * through a block of int64 (from integers) or double (from floats): two small
 * switches instead of one for each pair of types. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "tensor/dtype.h"

enum { BLOCK = 256 };

typedef struct {
    bool is_float;
    bool is_u64; /* the int64s are uint64 bit patterns */
    int64_t i[BLOCK];
    double f[BLOCK];
} block;

/* ---- sub-byte elements: low bits first ---------------------------------- */

static unsigned packed_get(const uint8_t *p, size_t i, unsigned bits)
{
    size_t bit = i * bits;

    return ((unsigned)p[bit / 8] >> (bit % 8)) & ((1u << bits) - 1);
}

static void packed_set(uint8_t *p, size_t i, unsigned bits, unsigned v)
{
    size_t bit = i * bits;
    unsigned mask = ((1u << bits) - 1) << (bit % 8);

    p[bit / 8] = (uint8_t)((p[bit / 8] & ~mask) | ((v << (bit % 8)) & mask));
}

/* ---- loading ------------------------------------------------------------ */

#define LOAD(type, field)                                                    \
    for (size_t k = 0; k < n; k++) {                                         \
        type v;                                                              \
        memcpy(&v, (const uint8_t *)src + (first + k) * sizeof v, sizeof v); \
        b->field[k] = v;                                                     \
    }                                                                        \
    break

static void load_ints(sb_dtype from, const void *src, size_t first, size_t n,
                      block *b)
{
    unsigned bits = sb_dtype_get(from)->bits;

    switch (from) {
    case SB_DTYPE_U8:
        LOAD(uint8_t, i);
    case SB_DTYPE_I8:
        LOAD(int8_t, i);
    case SB_DTYPE_U16:
        LOAD(uint16_t, i);
    case SB_DTYPE_I16:
        LOAD(int16_t, i);
    case SB_DTYPE_U32:
        LOAD(uint32_t, i);
    case SB_DTYPE_I32:
        LOAD(int32_t, i);
    case SB_DTYPE_I64:
    case SB_DTYPE_U64:
        memcpy(b->i, (const int64_t *)src + first, n * sizeof b->i[0]);
        break;
    case SB_DTYPE_BOOL:
        for (size_t k = 0; k < n; k++)
            b->i[k] = ((const uint8_t *)src)[first + k] != 0;
        break;
    default: /* 2 and 4 bits */
        for (size_t k = 0; k < n; k++) {
            unsigned v = packed_get(src, first + k, bits);
            unsigned sign = 1u << (bits - 1);
            b->i[k] = sb_dtype_get(from)->cls == SB_CLASS_INT
                          ? (int64_t)(v ^ sign) - (int64_t)sign
                          : (int64_t)v;
        }
    }
}

static void load_floats(sb_dtype from, const void *src, size_t first, size_t n,
                        block *b)
{
    const uint16_t *half = (const uint16_t *)src + first;
    const uint8_t *byte = (const uint8_t *)src + first;

    switch (from) {
    case SB_DTYPE_F32:
        for (size_t k = 0; k < n; k++)
            b->f[k] = (double)((const float *)src)[first + k];
        break;
    case SB_DTYPE_F64:
        memcpy(b->f, (const double *)src + first, n * sizeof b->f[0]);
        break;
    case SB_DTYPE_F16:
        for (size_t k = 0; k < n; k++)
            b->f[k] = (double)sb_f16_to_f32(half[k]);
        break;
    case SB_DTYPE_BF16:
        for (size_t k = 0; k < n; k++)
            b->f[k] = (double)sb_bf16_to_f32(half[k]);
        break;
    case SB_DTYPE_F4E2M1:
        for (size_t k = 0; k < n; k++)
            b->f[k] = (double)sb_small_float_to_f32(
                from, (uint8_t)packed_get(src, first + k, 4));
        break;
    default: /* float8 kinds */
        for (size_t k = 0; k < n; k++)
            b->f[k] = (double)sb_small_float_to_f32(from, byte[k]);
    }
}

static void convert_load(sb_dtype from, const void *src, size_t first, size_t n,
                         block *b)
{
    b->is_float = sb_dtype_is_float(from);
    b->is_u64 = from == SB_DTYPE_U64;
    if (b->is_float)
        load_floats(from, src, first, n, b);
    else
        load_ints(from, src, first, n, b);
}

/* ---- storing ------------------------------------------------------------ */

/* Truncates toward zero into [lo, hi]; NaN is 0.  `hi` is compared as a
 * double that may round up to one more, hence the >=. */
static int64_t convert_truncated(double x, int64_t lo, int64_t hi)
{
    if (isnan(x))
        return 0;
    if (x >= (double)hi)
        return hi;
    if (x <= (double)lo)
        return lo;
    return (int64_t)x;
}

static uint64_t truncated_u64(double x)
{
    if (isnan(x) || x <= 0)
        return 0;
    return x >= 0x1p64 ? UINT64_MAX : (uint64_t)x;
}

static void floats_to_ints(block *b, sb_dtype to, size_t n)
{
    unsigned bits = sb_dtype_get(to)->bits;
    sb_dtype_class cls = sb_dtype_get(to)->cls;
    int64_t hi =
        (int64_t)(UINT64_MAX >> (cls == SB_CLASS_INT ? 65 - bits : 64 - bits));
    int64_t lo = cls == SB_CLASS_INT ? -hi - 1 : 0;

    for (size_t k = 0; k < n; k++) {
        if (cls == SB_CLASS_BOOL)
            b->i[k] = b->f[k] != 0;
        else if (to == SB_DTYPE_U64)
            b->i[k] = (int64_t)truncated_u64(b->f[k]);
        else
            b->i[k] = convert_truncated(b->f[k], lo, hi);
    }
}

#define STORE(type)                               \
    for (size_t k = 0; k < n; k++)                \
        ((type *)dst)[first + k] = (type)b->i[k]; \
    break

static void store_ints(block *b, sb_dtype to, void *dst, size_t first, size_t n)
{
    unsigned bits = sb_dtype_get(to)->bits;

    if (b->is_float)
        floats_to_ints(b, to, n);
    switch (to) {
    case SB_DTYPE_U8:
    case SB_DTYPE_I8:
        STORE(uint8_t);
    case SB_DTYPE_U16:
    case SB_DTYPE_I16:
        STORE(uint16_t);
    case SB_DTYPE_U32:
    case SB_DTYPE_I32:
        STORE(uint32_t);
    case SB_DTYPE_I64:
    case SB_DTYPE_U64:
        STORE(int64_t);
    case SB_DTYPE_BOOL:
        for (size_t k = 0; k < n; k++)
            ((uint8_t *)dst)[first + k] = b->i[k] != 0;
        break;
    default: /* 2 and 4 bits */
        for (size_t k = 0; k < n; k++)
            packed_set(dst, first + k, bits, (unsigned)(uint64_t)b->i[k]);
    }
}

/* A float that rounds to any narrower one just as the double would: where the
 * conversion is inexact the last bit is made odd, so no later rounding can
 * take it for a tie. */
static float round_to_odd(double x)
{
    float f = (float)x;
    uint32_t u;

    if (isnan(x) || isinf(f) || (double)f == x)
        return f;
    if (fabs((double)f) > fabs(x))
        f = nextafterf(f, 0.0f);
    memcpy(&u, &f, sizeof u);
    u |= 1u;
    memcpy(&f, &u, sizeof f);
    return f;
}

static double int_to_double(const block *b, size_t k)
{
    return b->is_u64 ? (double)(uint64_t)b->i[k] : (double)b->i[k];
}

/* float32 straight from int64, since a stop at double would round twice. */
static float as_f32(const block *b, size_t k)
{
    if (b->is_float)
        return (float)b->f[k];
    return b->is_u64 ? (float)(uint64_t)b->i[k] : (float)b->i[k];
}

static float as_f32_odd(const block *b, size_t k)
{
    return round_to_odd(b->is_float ? b->f[k] : int_to_double(b, k));
}

static void store_floats(const block *b, sb_dtype to, void *dst, size_t first,
                         size_t n)
{
    for (size_t k = 0; k < n; k++) {
        size_t at = first + k;
        switch (to) {
        case SB_DTYPE_F32:
            ((float *)dst)[at] = as_f32(b, k);
            break;
        case SB_DTYPE_F64:
            ((double *)dst)[at] = b->is_float ? b->f[k] : int_to_double(b, k);
            break;
        case SB_DTYPE_F16:
            ((uint16_t *)dst)[at] = sb_f32_to_f16(as_f32_odd(b, k));
            break;
        case SB_DTYPE_BF16:
            ((uint16_t *)dst)[at] = sb_f32_to_bf16(as_f32_odd(b, k));
            break;
        case SB_DTYPE_F4E2M1:
            packed_set(dst, at, 4,
                       sb_f32_to_small_float(to, as_f32_odd(b, k), true));
            break;
        default:
            ((uint8_t *)dst)[at] =
                sb_f32_to_small_float(to, as_f32_odd(b, k), true);
        }
    }
}

/* ---- direct loops for the usual pairs ----------------------------------- */

#define DIRECT(src_type, dst_type, expr) \
    do {                                 \
        const src_type *s = src;         \
        dst_type *d = dst;               \
        for (size_t k = 0; k < n; k++)   \
            d[k] = expr;                 \
        return true;                     \
    } while (0)

#define PAIR(from, to) ((unsigned)(from) << 8 | (unsigned)(to))

static bool convert_direct(sb_dtype from, const void *src, sb_dtype to,
                           void *dst, size_t n)
{
    switch (PAIR(from, to)) {
    case PAIR(SB_DTYPE_F16, SB_DTYPE_F32):
        sb_f16_to_f32_array(src, dst, n);
        return true;
    case PAIR(SB_DTYPE_F32, SB_DTYPE_F16):
        sb_f32_to_f16_array(src, dst, n);
        return true;
    case PAIR(SB_DTYPE_BF16, SB_DTYPE_F32):
        DIRECT(uint16_t, float, sb_bf16_to_f32(s[k]));
    case PAIR(SB_DTYPE_F32, SB_DTYPE_BF16):
        DIRECT(float, uint16_t, sb_f32_to_bf16(s[k]));
    case PAIR(SB_DTYPE_F64, SB_DTYPE_F32):
        DIRECT(double, float, (float)s[k]);
    case PAIR(SB_DTYPE_F32, SB_DTYPE_F64):
        DIRECT(float, double, (double)s[k]);
    case PAIR(SB_DTYPE_U8, SB_DTYPE_F32):
        DIRECT(uint8_t, float, (float)s[k]);
    case PAIR(SB_DTYPE_I8, SB_DTYPE_F32):
        DIRECT(int8_t, float, (float)s[k]);
    case PAIR(SB_DTYPE_I32, SB_DTYPE_F32):
        DIRECT(int32_t, float, (float)s[k]);
    case PAIR(SB_DTYPE_I64, SB_DTYPE_F32):
        DIRECT(int64_t, float, (float)s[k]);
    case PAIR(SB_DTYPE_BOOL, SB_DTYPE_F32):
        DIRECT(uint8_t, float, s[k] ? 1.0f : 0.0f);
    case PAIR(SB_DTYPE_F32, SB_DTYPE_BOOL):
        DIRECT(float, uint8_t, s[k] != 0);
    case PAIR(SB_DTYPE_I32, SB_DTYPE_I64):
        DIRECT(int32_t, int64_t, s[k]);
    case PAIR(SB_DTYPE_I64, SB_DTYPE_I32):
        DIRECT(int64_t, int32_t, (int32_t)s[k]);
    default:
        return false;
    }
}

static bool convert_numeric(sb_dtype dtype)
{
    return sb_dtype_is_float(dtype) || sb_dtype_is_integral(dtype);
}

void sb_convert(sb_dtype from, const void *src, sb_dtype to, void *dst,
                size_t n)
{
    block b;
    size_t bytes = 0;

    assert(convert_numeric(from) && convert_numeric(to));
    (void)convert_numeric; /* without assertions it is not called */
    if (n == 0)
        return;
    if (from == to) {
        /* A view may lie on its own source. */
        if (src != dst && sb_dtype_bytes(from, (int64_t)n, &bytes))
            memmove(dst, src, bytes);
        return;
    }
    if (convert_direct(from, src, to, dst, n))
        return;
    for (size_t first = 0; first < n; first += BLOCK) {
        size_t len = n - first < BLOCK ? n - first : BLOCK;
        convert_load(from, src, first, len, &b);
        if (sb_dtype_is_float(to))
            store_floats(&b, to, dst, first, len);
        else
            store_ints(&b, to, dst, first, len);
    }
}
