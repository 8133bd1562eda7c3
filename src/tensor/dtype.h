/* dtype.h - element types, numbered as ONNX numbers them.
 *
 * The public header declares the enum; here are the facts about each type. */
#ifndef SB_TENSOR_DTYPE_H
#define SB_TENSOR_DTYPE_H

#include <string.h>

#include <sparsebit/tensor.h>

#include "base/ctx.h"

typedef enum sb_dtype_class {
    SB_CLASS_OTHER, /* string, complex, undefined */
    SB_CLASS_FLOAT, /* everything from float4 to double */
    SB_CLASS_INT,
    SB_CLASS_UINT,
    SB_CLASS_BOOL,
} sb_dtype_class;

typedef struct sb_dtype_info {
    const char *name; /* short: f32, i8, u4 */
    const char *onnx; /* long: float, int8, uint4 */
    uint8_t bits;     /* per element; below 8 elements are packed, low first */
    sb_dtype_class cls;
} sb_dtype_info;

/* Never NULL: unknown numbers give the row of SB_DTYPE_NONE. */
const sb_dtype_info *sb_dtype_get(sb_dtype dtype);
bool sb_dtype_valid(int number);
/* By short or long name; SB_DTYPE_NONE if there is none such. */
sb_dtype sb_dtype_find(const char *name);
/* Bytes for `count` elements, packed if sub-byte; false on overflow. */
bool sb_dtype_bytes(sb_dtype dtype, int64_t count, size_t *out);
/* Bytes of one element; 0 for sub-byte types and strings. */
size_t sb_dtype_size(sb_dtype dtype);
bool sb_dtype_is_float(sb_dtype dtype);
/* int, uint or bool */
bool sb_dtype_is_integral(sb_dtype dtype);

/* Single values. */
float sb_f16_to_f32(uint16_t h);
uint16_t sb_f32_to_f16(float f); /* round to nearest even */
/* The same for arrays, by the processor's own instruction where it has one. */
void sb_f16_to_f32_array(const uint16_t *src, float *dst, size_t n);
void sb_f32_to_f16_array(const float *src, uint16_t *dst, size_t n);

static inline float sb_bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

/* Rounds to nearest even; NaN becomes quiet. */
static inline uint16_t sb_f32_to_bf16(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40u);
    u += 0x7fffu + ((u >> 16) & 1u);
    return (uint16_t)(u >> 16);
}

/* How many of `n` floats are subnormal, too small for full precision; makes
 * them zero.  They may lie at any byte. */
size_t sb_f32_subnormals(const void *x, size_t n);
void sb_f32_flush(void *x, size_t n);

/* Small floats; `dtype` is one of the float8/float4 types. `saturate` as
 * ONNX Cast defines it. */
float sb_small_float_to_f32(sb_dtype dtype, uint8_t bits);
uint8_t sb_f32_to_small_float(sb_dtype dtype, float f, bool saturate);

/* Converts `n` elements between any two numeric types (sub-byte ones packed,
 * starting at element 0), with C-like truncation of float to int, made total:
 * NaN gives 0, values out of range saturate... except int to int, which wraps
 * as ONNX Cast does.  Complex and string are not allowed. */
void sb_convert(sb_dtype from, const void *src, sb_dtype to, void *dst,
                size_t n);

#endif
