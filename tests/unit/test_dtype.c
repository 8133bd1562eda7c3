/* Element types: sizes, names, and every conversion of the narrow floats.
 *
 * Checksums and tables were made with NumPy and ml_dtypes (float8 saturation
 * with onnx.numpy_helper): FNV-1a over the results as whole numbers, NaN in
 * one fixed form. */
#include "sbtest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/dtype.h"

#include "small_float_tables.h"

enum { PATTERNS = 1 << 18, DENSE = 1 << 16 };

static uint64_t mixed(uint64_t h, uint32_t x)
{
    return (h ^ x) * 1099511628211u;
}

#define FNV_START 1469598103934665603u

static uint32_t bits_of(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    return isnan(f) ? 0x7fc00000u : u;
}

/* Bit patterns spread over all of float32. */
static float pattern(uint32_t i)
{
    uint32_t u = i * 2654435761u;
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

/* The patterns, then three stretches around the ranges of the small floats. */
static float sample(uint32_t i)
{
    if (i < PATTERNS)
        return pattern(i);
    i -= PATTERNS;
    if (i < DENSE)
        return (float)((double)i / 64.0 - 512);
    i -= DENSE;
    if (i < DENSE)
        return (float)((double)i * 2.0 - 65536);
    return (float)((double)(i - DENSE) * 0x1p-22);
}

enum { SAMPLES = PATTERNS + 3 * DENSE };

static void test_all_halves(void **state)
{
    (void)state;
    uint64_t h = FNV_START, b = FNV_START;

    for (uint32_t i = 0; i < 65536; i++) {
        h = mixed(h, bits_of(sb_f16_to_f32((uint16_t)i)));
        b = mixed(b, bits_of(sb_bf16_to_f32((uint16_t)i)));
    }
    assert_int_equal(h, 0xfc726d7d95a58383u);
    assert_int_equal(b, 0xc1b0cee806e90383u);
}

static uint16_t canon_half(uint16_t h, float from)
{
    return isnan(from) ? 0x7e00 : h;
}

static void test_to_halves(void **state)
{
    (void)state;
    uint64_t h = FNV_START, b = FNV_START, mids = FNV_START;

    for (uint32_t i = 0; i < PATTERNS; i++) {
        float f = pattern(i);
        h = mixed(h, canon_half(sb_f32_to_f16(f), f));
        b = mixed(b, canon_half(sb_f32_to_bf16(f), f));
    }
    assert_int_equal(h, 0x10406985a0aa1ca2u);
    assert_int_equal(b, 0x3fbcee0c0712898fu);
    /* Ties between neighbors, and both sides of them. */
    for (uint32_t i = 0; i < 0x7bff; i++) {
        float mid =
            (sb_f16_to_f32((uint16_t)i) + sb_f16_to_f32((uint16_t)(i + 1))) / 2;
        mids = mixed(mids, sb_f32_to_f16(nextafterf(mid, 0)));
        mids = mixed(mids, sb_f32_to_f16(mid));
        mids = mixed(mids, sb_f32_to_f16(nextafterf(mid, INFINITY)));
    }
    assert_int_equal(mids, 0x8ffe87353859ed76u);
}

/* Whatever instruction does it: bit for bit the same as one by one. */
static void test_half_arrays(void **state)
{
    (void)state;
    enum { N = 65536 };
    static uint16_t halves[N], back[N];
    static float wide[N], samples[N];

    for (uint32_t i = 0; i < N; i++) {
        halves[i] = (uint16_t)i;
        samples[i] = pattern(i * 5);
    }
    for (size_t n = N - 17; n <= N; n++)
        sb_f16_to_f32_array(halves, wide, n);
    for (uint32_t i = 0; i < N; i++) {
        float one = sb_f16_to_f32((uint16_t)i);
        assert_memory_equal(&wide[i], &one, sizeof one);
    }
    sb_f32_to_f16_array(samples, back, N);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(back[i], sb_f32_to_f16(samples[i]));
}

static void test_half_edges(void **state)
{
    (void)state;
    static const struct {
        float f;
        uint16_t h, b;
    } rows[] = {
        {0.0f, 0x0000, 0x0000},       {-0.0f, 0x8000, 0x8000},
        {1.0f, 0x3c00, 0x3f80},       {65504.0f, 0x7bff, 0x4780},
        {65519.0f, 0x7bff, 0x4780},   {65520.0f, 0x7c00, 0x4780},
        {-INFINITY, 0xfc00, 0xff80},  {0x1p-24f, 0x0001, 0x3380},
        {0x1p-25f, 0x0000, 0x3300},   {0x1.8p-25f, 0x0001, 0x3340},
        {0x1.004p0f, 0x3c01, 0x3f80}, {0x1.fep-15f, 0x03fc, 0x387f},
    };

    for (size_t i = 0; i < SB_COUNT(rows); i++) {
        assert_int_equal(sb_f32_to_f16(rows[i].f), rows[i].h);
        assert_int_equal(sb_f32_to_bf16(rows[i].f), rows[i].b);
    }
    assert_true(isnan(sb_f16_to_f32(sb_f32_to_f16(NAN))));
    assert_true(isnan(sb_bf16_to_f32(sb_f32_to_bf16(NAN))));
    assert_true(isinf(sb_bf16_to_f32(sb_f32_to_bf16(3.4e38f))));
}

/* ---- small floats ------------------------------------------------------- */

static const struct {
    sb_dtype dtype;
    const uint32_t *table;
    uint32_t n;
    uint64_t plain, saturated; /* checksums of encoding all samples */
} small[] = {
    {SB_DTYPE_F8E4M3FN, table_f8e4m3fn, 256, 0xb573c3122962fdd0u,
     0x5986811b7bf23fe0u},
    {SB_DTYPE_F8E4M3FNUZ, table_f8e4m3fnuz, 256, 0x5f9b57af1214bfd4u,
     0x3a3b69f846806f71u},
    {SB_DTYPE_F8E5M2, table_f8e5m2, 256, 0x608eef6c3ef0e886u,
     0x334189b7693483aeu},
    {SB_DTYPE_F8E5M2FNUZ, table_f8e5m2fnuz, 256, 0xbee9f582ab058eb8u,
     0x77b72af58e06f5e0u},
    {SB_DTYPE_F8E8M0, table_f8e8m0, 256, 0xd8a8645355cacbd5u,
     0x4ac91e860fadef9au},
    {SB_DTYPE_F4E2M1, table_f4e2m1, 16, 0x835d5434b89ab31eu,
     0x835d5434b89ab31eu},
};

static void test_small_float_tables(void **state)
{
    (void)state;
    for (size_t t = 0; t < SB_COUNT(small); t++)
        for (uint32_t i = 0; i < small[t].n; i++)
            assert_int_equal(
                bits_of(sb_small_float_to_f32(small[t].dtype, (uint8_t)i)),
                small[t].table[i]);
}

/* Which samples went into the checksum, and in which form. */
static bool used(sb_dtype dtype, float *f)
{
    if (dtype == SB_DTYPE_F8E8M0)
        *f = fabsf(*f);
    return dtype == SB_DTYPE_F8E8M0   ? isfinite(*f) && *f >= 0x1p-126f
           : dtype == SB_DTYPE_F4E2M1 ? !isnan(*f)
                                      : true;
}

static uint64_t encoded(sb_dtype dtype, bool saturate)
{
    uint64_t h = FNV_START;

    for (uint32_t i = 0; i < SAMPLES; i++) {
        float f = sample(i);
        if (!used(dtype, &f))
            continue;
        uint8_t code = sb_f32_to_small_float(dtype, f, saturate);
        if (dtype != SB_DTYPE_F8E8M0 &&
            isnan(sb_small_float_to_f32(dtype, code)))
            code = 0xee;
        h = mixed(h, code);
    }
    return h;
}

static void test_to_small_floats(void **state)
{
    (void)state;
    for (size_t t = 0; t < SB_COUNT(small); t++) {
        assert_int_equal(encoded(small[t].dtype, false), small[t].plain);
        assert_int_equal(encoded(small[t].dtype, true), small[t].saturated);
    }
}

/* The tables of Cast in the ONNX specification. */
static void test_small_float_edges(void **state)
{
    (void)state;
    static const struct {
        sb_dtype dtype;
        float f;
        uint8_t saturated, plain;
    } rows[] = {
        {SB_DTYPE_F8E4M3FN, INFINITY, 0x7e, 0x7f},
        {SB_DTYPE_F8E4M3FN, -INFINITY, 0xfe, 0xff},
        {SB_DTYPE_F8E4M3FN, 500.0f, 0x7e, 0x7f},
        {SB_DTYPE_F8E4M3FN, -0.0f, 0x80, 0x80},
        {SB_DTYPE_F8E4M3FNUZ, INFINITY, 0x7f, 0x80},
        {SB_DTYPE_F8E4M3FNUZ, -INFINITY, 0xff, 0x80},
        {SB_DTYPE_F8E4M3FNUZ, -0.0f, 0x00, 0x00},
        {SB_DTYPE_F8E4M3FNUZ, -1e-9f, 0x00, 0x00},
        {SB_DTYPE_F8E5M2, INFINITY, 0x7b, 0x7c},
        {SB_DTYPE_F8E5M2, -1e6f, 0xfb, 0xfc},
        {SB_DTYPE_F8E5M2FNUZ, INFINITY, 0x7f, 0x80},
        {SB_DTYPE_F8E5M2FNUZ, -0.0f, 0x00, 0x00},
        {SB_DTYPE_F4E2M1, 5.0f, 0x06, 0x06},
        {SB_DTYPE_F4E2M1, -100.0f, 0x0f, 0x0f},
        {SB_DTYPE_F8E8M0, 0.0f, 0x00, 0xff},
        {SB_DTYPE_F8E8M0, 0x1p-128f, 0x00, 0xff},
        {SB_DTYPE_F8E8M0, 0x1p-127f, 0x00, 0x00},
        {SB_DTYPE_F8E8M0, 0x1.8p-127f, 0x01, 0x01},
        {SB_DTYPE_F8E8M0, INFINITY, 0xfe, 0xff},
        {SB_DTYPE_F8E8M0, 3.0f, 0x81, 0x81},
    };

    for (size_t i = 0; i < SB_COUNT(rows); i++) {
        assert_int_equal(sb_f32_to_small_float(rows[i].dtype, rows[i].f, true),
                         rows[i].saturated);
        assert_int_equal(sb_f32_to_small_float(rows[i].dtype, rows[i].f, false),
                         rows[i].plain);
    }
    for (sb_dtype d = SB_DTYPE_F8E4M3FN; d <= SB_DTYPE_F8E5M2FNUZ; d++)
        assert_true(isnan(
            sb_small_float_to_f32(d, sb_f32_to_small_float(d, NAN, true))));
}

/* ---- sb_convert --------------------------------------------------------- */

static void test_double_to_half_rounds_once(void **state)
{
    (void)state;
    uint64_t h = FNV_START;

    for (uint32_t i = 0; i < SAMPLES; i++) {
        double x = (double)sample(i) * 1.0000000001;
        uint16_t half = 0;
        sb_convert(SB_DTYPE_F64, &x, SB_DTYPE_F16, &half, 1);
        h = mixed(h, canon_half(half, (float)x));
    }
    assert_int_equal(h, 0x462a429d5a2e2df3u);
}

static void test_float_to_int(void **state)
{
    (void)state;
    static const float x[] = {0.9f, -0.9f,  1e10f,   -1e10f,
                              NAN,  200.0f, INFINITY};
    int8_t i8[7];
    uint8_t u8[7], b[7];
    int32_t i32[7];
    int64_t i64[7];
    uint64_t u64[7];
    const double big = 0x1p63;
    static const int8_t want_i8[] = {0, 0, 127, -128, 0, 127, 127};
    static const uint8_t want_u8[] = {0, 0, 255, 0, 0, 200, 255};
    static const uint8_t want_b[] = {1, 1, 1, 1, 1, 1, 1};

    sb_convert(SB_DTYPE_F32, x, SB_DTYPE_I8, i8, 7);
    sb_convert(SB_DTYPE_F32, x, SB_DTYPE_U8, u8, 7);
    sb_convert(SB_DTYPE_F32, x, SB_DTYPE_BOOL, b, 7);
    sb_convert(SB_DTYPE_F32, x, SB_DTYPE_I32, i32, 7);
    sb_convert(SB_DTYPE_F32, x, SB_DTYPE_I64, i64, 7);
    sb_convert(SB_DTYPE_F32, x, SB_DTYPE_U64, u64, 7);
    assert_memory_equal(i8, want_i8, sizeof i8);
    assert_memory_equal(u8, want_u8, sizeof u8);
    assert_memory_equal(b, want_b, sizeof b);
    assert_int_equal(i32[2], INT32_MAX);
    assert_int_equal(i32[3], INT32_MIN);
    assert_int_equal(i64[2], 10000000000);
    assert_int_equal(i64[6], INT64_MAX);
    assert_int_equal(u64[3], 0);
    assert_true(u64[6] == UINT64_MAX);
    sb_convert(SB_DTYPE_F64, &big, SB_DTYPE_U64, u64, 1);
    assert_true(u64[0] == (uint64_t)1 << 63);
}

static void test_int_to_int_wraps(void **state)
{
    (void)state;
    static const int16_t x[] = {200, -1, 300, -129};
    int8_t i8[4];
    uint64_t u64[4];
    uint8_t i4[2];
    const uint64_t huge = UINT64_MAX;
    float f = 0;
    double d = 0;

    sb_convert(SB_DTYPE_I16, x, SB_DTYPE_I8, i8, 4);
    assert_int_equal(i8[0], -56);
    assert_int_equal(i8[3], 127);
    sb_convert(SB_DTYPE_I16, x, SB_DTYPE_U64, u64, 4);
    assert_true(u64[1] == UINT64_MAX);
    sb_convert(SB_DTYPE_I16, x, SB_DTYPE_I4, i4, 4);
    assert_int_equal(i4[0], 0xf8); /* 200 = 0xc8, -1 = 0x..f */
    assert_int_equal(i4[1], 0xfc); /* 300 = 0x12c, -129 = 0x..7f */
    sb_convert(SB_DTYPE_U64, &huge, SB_DTYPE_F32, &f, 1);
    assert_true(f == 0x1p64f);
    sb_convert(SB_DTYPE_U64, &huge, SB_DTYPE_F64, &d, 1);
    assert_true(d == 0x1p64);
}

/* Values that every type can hold survive a way through any other. */
static void test_every_pair(void **state)
{
    (void)state;
    enum { N = 515 }; /* more than one block, and not a whole byte */
    float from[N], back[N];
    _Alignas(16) static unsigned char a[N * 8], b[N * 8];

    for (int i = 0; i < N; i++)
        from[i] = (float)((i * 7 / 3) % 2);
    for (int s = 1; s < SB_DTYPE_COUNT; s++) {
        for (int t = 1; t < SB_DTYPE_COUNT; t++) {
            sb_dtype_class cs = sb_dtype_get((sb_dtype)s)->cls;
            sb_dtype_class ct = sb_dtype_get((sb_dtype)t)->cls;
            /* E8M0 has no zero. */
            if (cs == SB_CLASS_OTHER || ct == SB_CLASS_OTHER ||
                s == SB_DTYPE_F8E8M0 || t == SB_DTYPE_F8E8M0)
                continue;
            sb_convert(SB_DTYPE_F32, from, (sb_dtype)s, a, N);
            sb_convert((sb_dtype)s, a, (sb_dtype)t, b, N);
            sb_convert((sb_dtype)t, b, SB_DTYPE_F32, back, N);
            for (int i = 0; i < N; i++) {
                bool signed_bit = s == SB_DTYPE_I2 || t == SB_DTYPE_I2;
                assert_true(back[i] == from[i] ||
                            (signed_bit && back[i] == -from[i]));
            }
        }
    }
}

static void test_packing_is_low_first(void **state)
{
    (void)state;
    static const int32_t x[] = {-8, 7, 1, -1, 5};
    static const int32_t y[] = {0, 1, 2, 3, 1};
    uint8_t p[3] = {0};
    int32_t back[5];

    sb_convert(SB_DTYPE_I32, x, SB_DTYPE_I4, p, 5);
    assert_int_equal(p[0], 0x78);
    assert_int_equal(p[1], 0xf1);
    assert_int_equal(p[2] & 0x0f, 0x05);
    sb_convert(SB_DTYPE_I4, p, SB_DTYPE_I32, back, 5);
    assert_memory_equal(back, x, sizeof x);
    sb_convert(SB_DTYPE_I32, y, SB_DTYPE_U2, p, 5);
    assert_int_equal(p[0], 0xe4);
    sb_convert(SB_DTYPE_U2, p, SB_DTYPE_I32, back, 5);
    assert_memory_equal(back, y, sizeof y);
}

static void test_names_and_sizes_of_types(void **state)
{
    (void)state;
    size_t bytes = 0;

    assert_int_equal(sb_dtype_find("f32"), SB_DTYPE_F32);
    assert_int_equal(sb_dtype_find("float"), SB_DTYPE_F32);
    assert_int_equal(sb_dtype_find("uint4"), SB_DTYPE_U4);
    assert_int_equal(sb_dtype_find("float99"), SB_DTYPE_NONE);
    assert_string_equal(sb_dtype_name((sb_dtype)1000), "undefined");
    assert_false(sb_dtype_valid(0));
    assert_false(sb_dtype_valid(-5));
    assert_true(sb_dtype_valid(SB_DTYPE_I2));
    assert_true(sb_dtype_bytes(SB_DTYPE_I4, 5, &bytes));
    assert_int_equal(bytes, 3);
    assert_true(sb_dtype_bytes(SB_DTYPE_U2, 5, &bytes));
    assert_int_equal(bytes, 2);
    assert_true(sb_dtype_bytes(SB_DTYPE_C128, 3, &bytes));
    assert_int_equal(bytes, 48);
    assert_false(sb_dtype_bytes(SB_DTYPE_F32, INT64_MAX, &bytes));
    assert_false(sb_dtype_bytes(SB_DTYPE_F32, -1, &bytes));
    assert_int_equal(sb_dtype_size(SB_DTYPE_I4), 0);
    assert_int_equal(sb_dtype_size(SB_DTYPE_STRING), 0);
    assert_int_equal(sb_dtype_size(SB_DTYPE_BF16), 2);
    for (int i = 1; i < SB_DTYPE_COUNT; i++) {
        assert_int_equal(sb_dtype_find(sb_dtype_get((sb_dtype)i)->name), i);
        assert_int_equal(sb_dtype_find(sb_dtype_get((sb_dtype)i)->onnx), i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_halves),
        cmocka_unit_test(test_to_halves),
        cmocka_unit_test(test_half_arrays),
        cmocka_unit_test(test_half_edges),
        cmocka_unit_test(test_small_float_tables),
        cmocka_unit_test(test_to_small_floats),
        cmocka_unit_test(test_small_float_edges),
        cmocka_unit_test(test_double_to_half_rounds_once),
        cmocka_unit_test(test_float_to_int),
        cmocka_unit_test(test_int_to_int_wraps),
        cmocka_unit_test(test_every_pair),
        cmocka_unit_test(test_packing_is_low_first),
        cmocka_unit_test(test_names_and_sizes_of_types),
    };
    return cmocka_run_group_tests_name("dtype", tests, NULL, NULL);
}
