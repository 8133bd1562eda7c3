/* Facts about element types: one row each, numbered as ONNX numbers them. */
#include "tensor/dtype.h"

#include <string.h>

#include "base/alloc.h"
#include "base/simd.h"

/* clang-format off */
static const sb_dtype_info rows[SB_DTYPE_COUNT] = {
    [SB_DTYPE_NONE]       = {"none",    "undefined",      0,   SB_CLASS_OTHER},
    [SB_DTYPE_F32]        = {"f32",     "float",          32,  SB_CLASS_FLOAT},
    [SB_DTYPE_U8]         = {"u8",      "uint8",          8,   SB_CLASS_UINT},
    [SB_DTYPE_I8]         = {"i8",      "int8",           8,   SB_CLASS_INT},
    [SB_DTYPE_U16]        = {"u16",     "uint16",         16,  SB_CLASS_UINT},
    [SB_DTYPE_I16]        = {"i16",     "int16",          16,  SB_CLASS_INT},
    [SB_DTYPE_I32]        = {"i32",     "int32",          32,  SB_CLASS_INT},
    [SB_DTYPE_I64]        = {"i64",     "int64",          64,  SB_CLASS_INT},
    [SB_DTYPE_STRING]     = {"str",     "string",         128, SB_CLASS_OTHER},
    [SB_DTYPE_BOOL]       = {"bool",    "bool",           8,   SB_CLASS_BOOL},
    [SB_DTYPE_F16]        = {"f16",     "float16",        16,  SB_CLASS_FLOAT},
    [SB_DTYPE_F64]        = {"f64",     "double",         64,  SB_CLASS_FLOAT},
    [SB_DTYPE_U32]        = {"u32",     "uint32",         32,  SB_CLASS_UINT},
    [SB_DTYPE_U64]        = {"u64",     "uint64",         64,  SB_CLASS_UINT},
    [SB_DTYPE_C64]        = {"c64",     "complex64",      64,  SB_CLASS_OTHER},
    [SB_DTYPE_C128]       = {"c128",    "complex128",     128, SB_CLASS_OTHER},
    [SB_DTYPE_BF16]       = {"bf16",    "bfloat16",       16,  SB_CLASS_FLOAT},
    [SB_DTYPE_F8E4M3FN]   = {"f8e4m3fn",   "float8e4m3fn",   8, SB_CLASS_FLOAT},
    [SB_DTYPE_F8E4M3FNUZ] = {"f8e4m3fnuz", "float8e4m3fnuz", 8, SB_CLASS_FLOAT},
    [SB_DTYPE_F8E5M2]     = {"f8e5m2",     "float8e5m2",     8, SB_CLASS_FLOAT},
    [SB_DTYPE_F8E5M2FNUZ] = {"f8e5m2fnuz", "float8e5m2fnuz", 8, SB_CLASS_FLOAT},
    [SB_DTYPE_U4]         = {"u4",      "uint4",          4,   SB_CLASS_UINT},
    [SB_DTYPE_I4]         = {"i4",      "int4",           4,   SB_CLASS_INT},
    [SB_DTYPE_F4E2M1]     = {"f4e2m1",  "float4e2m1",     4,   SB_CLASS_FLOAT},
    [SB_DTYPE_F8E8M0]     = {"f8e8m0",  "float8e8m0",     8,   SB_CLASS_FLOAT},
    [SB_DTYPE_U2]         = {"u2",      "uint2",          2,   SB_CLASS_UINT},
    [SB_DTYPE_I2]         = {"i2",      "int2",           2,   SB_CLASS_INT},
};
/* clang-format on */

/* Its bytes are read by tensor/sequence.h only. */
static const sb_dtype_info sequence_row = {"seq", "sequence", 8,
                                           SB_CLASS_OTHER};

const sb_dtype_info *sb_dtype_get(sb_dtype dtype)
{
    if (dtype == SB_DTYPE_SEQUENCE)
        return &sequence_row;
    return &rows[(unsigned)dtype < SB_DTYPE_COUNT ? dtype : SB_DTYPE_NONE];
}

bool sb_dtype_valid(int number)
{
    return number > SB_DTYPE_NONE && number < SB_DTYPE_COUNT;
}

sb_dtype sb_dtype_find(const char *name)
{
    for (int i = SB_DTYPE_NONE + 1; i < SB_DTYPE_COUNT; i++)
        if (strcmp(name, rows[i].name) == 0 || strcmp(name, rows[i].onnx) == 0)
            return (sb_dtype)i;
    return SB_DTYPE_NONE;
}

bool sb_dtype_bytes(sb_dtype dtype, int64_t count, size_t *out)
{
    size_t bits = sb_dtype_get(dtype)->bits;
    size_t bytes = 0;

    if (count < 0 || (uint64_t)count > SIZE_MAX)
        return false;
    if (bits >= 8) {
        if (!sb_mul_size((size_t)count, bits / 8, &bytes))
            return false;
    } else if (bits > 0) {
        size_t per_byte = 8 / bits;
        bytes = (size_t)count / per_byte + ((size_t)count % per_byte != 0);
    }
    *out = bytes;
    return true;
}

size_t sb_dtype_size(sb_dtype dtype)
{
    if (dtype == SB_DTYPE_STRING)
        return 0;
    return sb_dtype_get(dtype)->bits / 8u;
}

bool sb_dtype_is_float(sb_dtype dtype)
{
    return sb_dtype_get(dtype)->cls == SB_CLASS_FLOAT;
}

bool sb_dtype_is_integral(sb_dtype dtype)
{
    sb_dtype_class cls = sb_dtype_get(dtype)->cls;

    return cls == SB_CLASS_INT || cls == SB_CLASS_UINT || cls == SB_CLASS_BOOL;
}

const char *sb_dtype_name(sb_dtype dtype)
{
    return sb_dtype_get(dtype)->onnx;
}

int sb_dtype_bits(sb_dtype dtype)
{
    return (int)sb_dtype_get(dtype)->bits;
}

/* ---- subnormal floats --------------------------------------------------- */

static bool f32_is_subnormal(uint32_t bits)
{
    return (bits & 0x7f800000u) == 0 && (bits & 0x007fffffu) != 0;
}

SB_HOT size_t sb_f32_subnormals(const void *x, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, (const char *)x + i * sizeof bits, sizeof bits);
        count += f32_is_subnormal(bits);
    }
    return count;
}

SB_HOT void sb_f32_flush(void *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, (char *)x + i * sizeof bits, sizeof bits);
        bits = f32_is_subnormal(bits) ? bits & 0x80000000u : bits;
        memcpy((char *)x + i * sizeof bits, &bits, sizeof bits);
    }
}
