/* Sums of products of bytes, channel beside channel, by every implementation of
 * this processor against plain sums. */
#include "sbtest.h"

#include <math.h>
#include <string.h>

#include "ops/int8/int8_pixels.h"

enum { RUNS = 3, QUADS = 5, COLS = 64, BLOCK = SB_PIXEL_BLOCK };

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Pixels and weights of all sizes, the largest products among them, whose sums
 * would saturate in 16 bits. */
static void fill(uint8_t *to, size_t n, uint8_t most, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++)
        to[i] = i % 97 < 40 ? most : (uint8_t)next_random(seed);
}

/* What becomes of a sum: the definition of int8_conv.h, in double. */
static double wanted(sb_dtype dtype, int32_t sum, float multiplier,
                     int32_t zero, float add)
{
    double lo = dtype == SB_DTYPE_I8 ? -128 : 0;
    double hi = dtype == SB_DTYPE_I8 ? 127 : 255;

    if (dtype == SB_DTYPE_I32)
        return sum;
    float product = (float)sum * multiplier;
    if (dtype == SB_DTYPE_F32)
        return (double)(product + add);
    return fmax(lo, fmin(hi, nearbyint((double)product) + zero));
}

static double result_at(sb_dtype dtype, const void *y, int64_t i)
{
    switch (dtype) {
    case SB_DTYPE_I8:
        return ((const int8_t *)y)[i];
    case SB_DTYPE_U8:
        return ((const uint8_t *)y)[i];
    case SB_DTYPE_I32:
        return ((const int32_t *)y)[i];
    default:
        return (double)((const float *)y)[i];
    }
}

static const sb_dtype dtypes[] = {SB_DTYPE_U8, SB_DTYPE_I8, SB_DTYPE_I32,
                                  SB_DTYPE_F32};

static void check_pixels(const sb_int8_pixel_kind *kind, sb_dtype dtype,
                         int cols, int n, uint64_t *seed)
{
    int width = (cols + 15) / 16 * 16;
    static uint8_t x[RUNS * BLOCK * QUADS * 4], w[RUNS * QUADS * COLS * 4];
    const uint8_t *at[RUNS * BLOCK];
    int32_t init[COLS], y[BLOCK * (COLS + 3)];
    float multiplier[COLS], add[COLS];

    fill(x, sizeof x, 255, seed);
    fill(w, sizeof w, 0x80, seed);
    for (int i = 0; i < RUNS * BLOCK; i++)
        at[i] = x + (size_t)(next_random(seed) % (RUNS * BLOCK)) * QUADS * 4;
    for (int j = 0; j < COLS; j++) {
        init[j] = (int32_t)(next_random(seed) % 20000) - 10000;
        multiplier[j] = (float)(next_random(seed) % 1000) * 1e-6f;
        add[j] = (float)(next_random(seed) % 100);
    }
    const sb_int8_conv_end end = {.dtype = dtype, .zero = 3};
    const sb_int8_pixels p = {
        .at = at,
        .n_run = RUNS,
        .n_quad = QUADS,
        .w = w,
        .init = init,
        .multiplier = multiplier,
        .add = add,
        .cols = cols,
        .end = &end,
        .y = y,
        .y_step = cols + 3,
    };

    memset(y, 0x55, sizeof y);
    kind->pixels(&p, n);
    for (int i = 0; i < n * (cols + 3); i++) {
        int pixel = i / (cols + 3), j = i % (cols + 3);

        if (j >= cols) { /* nothing is written between pixels */
            assert_int_equal(
                ((const uint8_t *)y)[(size_t)i * (sb_is_byte(dtype) ? 1 : 4)],
                0x55);
            continue;
        }
        int64_t sum = init[j];
        for (int b = 0; b < RUNS * QUADS * 4; b++)
            sum += at[b / (QUADS * 4) * BLOCK + pixel][b % (QUADS * 4)] *
                   (int8_t)w[(b / 4 * width + j) * 4 + b % 4];
        assert_true(result_at(dtype, y, i) ==
                    wanted(dtype, (int32_t)sum, multiplier[j], 3, add[j]));
    }
}

static void test_pixels(void **state)
{
    uint64_t seed = 1;
    int tried = 0;

    (void)state;
    for (int k = 0; k < SB_PIXEL_KINDS; k++) {
        const sb_int8_pixel_kind *kind = sb_int8_pixel_kind_at(k);

        for (int i = 0; kind && i < 64; i++) {
            int n = 1 + (int)(next_random(&seed) % BLOCK);

            check_pixels(kind, dtypes[i % 4], i + 1, n, &seed);
            tried++;
        }
    }
    assert_true(tried >= 64);
}

static void check_depth(const sb_int8_pixel_kind *kind, sb_dtype dtype,
                        int channels, int taps, uint64_t *seed)
{
    enum { CHANNELS = 320, TAPS = 25 };
    int line = (channels + SB_DEPTH_LANE - 1) / SB_DEPTH_LANE * SB_DEPTH_LANE;
    static uint8_t x[TAPS * CHANNELS], w[(TAPS + 3) * CHANNELS];
    static int8_t plain[TAPS][CHANNELS];
    const uint8_t *tap[TAPS];
    int32_t init[CHANNELS] = {0}, y[CHANNELS];
    float multiplier[CHANNELS] = {0};

    fill(x, sizeof x, 255, seed);
    fill((uint8_t *)plain, sizeof plain, 0x80, seed);
    memset(w, 0, sizeof w);
    for (int t = 0; t < taps; t++) {
        tap[t] = x + t * CHANNELS;
        for (int c = 0; c < channels; c++)
            w[sb_int8_depth_weight(kind->quads, taps, line, t, c)] =
                (uint8_t)plain[t][c];
    }
    for (int c = 0; c < channels; c++) {
        init[sb_int8_depth_slot(kind->quads, c)] = 1000 - c;
        multiplier[sb_int8_depth_slot(kind->quads, c)] =
            (float)(1 + c % 7) * 1e-3f;
    }
    const sb_int8_conv_end end = {.dtype = dtype, .zero = 3};
    const sb_int8_depth d = {
        .tap = tap,
        .n_tap = taps,
        .n_channel = channels,
        .w = w,
        .init = init,
        .multiplier = multiplier,
        .end = &end,
        .y = y,
    };

    kind->depth(&d);
    for (int c = 0; c < channels; c++) {
        int32_t sum = 1000 - c;

        for (int t = 0; t < taps; t++)
            sum += tap[t][c] * plain[t][c];
        assert_true(result_at(dtype, y, c) ==
                    wanted(dtype, sum, (float)(1 + c % 7) * 1e-3f, 3, 0));
    }
}

static void test_depth(void **state)
{
    uint64_t seed = 2;

    (void)state;
    for (int k = 0; k < SB_PIXEL_KINDS; k++) {
        const sb_int8_pixel_kind *kind = sb_int8_pixel_kind_at(k);
        static const int taps[] = {9, 1, 4, 25, 6};

        for (int i = 0; kind && i < 60; i++)
            check_depth(kind, dtypes[i % 3], 1 + i * 5, taps[i % 5], &seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pixels),
        cmocka_unit_test(test_depth),
    };
    return cmocka_run_group_tests_name("int_pixels", tests, NULL, NULL);
}
