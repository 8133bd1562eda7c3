/* Packed weights times activations rounded to int8: every implementation, where
 * rounding loses nothing, gives what a product in double gives. */
#include "sbtest.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "ops/int8/nbits_int8.h"

enum { N = 7, M_MOST = 9, K_MOST = 600, BLOCKS_MOST = 40 };

typedef enum zero_kind { ZERO_MIDDLE, ZERO_FLOATS, ZERO_PACKED } zero_kind;

typedef struct fixture {
    uint8_t codes[N * (K_MOST + 256)], zero_bits[N * BLOCKS_MOST];
    float scales[N * BLOCKS_MOST], zeros[N * BLOCKS_MOST], bias[N];
    float a[M_MOST * K_MOST], y[M_MOST * N];
} fixture;

/* Multiples of a power of two up to 127 of it, the largest in every chunk of
 * 16: int8 holds them exactly. */
static void fill_fixture(fixture *f, sb_rng *rng)
{
    for (size_t i = 0; i < sizeof f->codes; i++)
        f->codes[i] = (uint8_t)sb_rng_below(rng, 256);
    for (size_t i = 0; i < sizeof f->zero_bits; i++)
        f->zero_bits[i] = (uint8_t)sb_rng_below(rng, 256);
    for (size_t i = 0; i < SB_COUNT(f->scales); i++) {
        f->scales[i] = (float)sb_rng_uniform(rng) - 0.3f;
        f->zeros[i] = 10 * (float)sb_rng_uniform(rng);
    }
    for (size_t i = 0; i < SB_COUNT(f->bias); i++)
        f->bias[i] = (float)sb_rng_uniform(rng);
}

static void fill_activations(fixture *f, sb_rng *rng, int64_t m, int64_t k)
{
    for (int64_t r = 0; r < m; r++)
        for (int64_t i = 0; i < k; i++)
            f->a[r * k + i] = (i % 16 == 3 || i == k - 1
                                   ? 127
                                   : (float)sb_rng_below(rng, 255) - 127) /
                              64;
}

/* Number `i` of `bits` bits each, low ones first. */
static int bits_at(const uint8_t *from, int64_t i, int64_t bits)
{
    int code = 0;

    for (int64_t b = 0, at = i * bits; b < bits; b++, at++)
        code |= (from[at / 8] >> (at % 8) & 1) << b;
    return code;
}

static double zero_at(const sb_nbits_weights *w, int64_t n, int64_t block)
{
    if (w->zeros)
        return (double)w->zeros[n * w->n_block + block];
    if (!w->zero_bits)
        return 1 << (w->bits - 1);
    return bits_at(w->zero_bits + n * ((w->n_block * w->bits + 7) / 8), block,
                   w->bits);
}

static double want_at(const fixture *f, const sb_nbits_weights *w, int64_t n,
                      int64_t r)
{
    double sum = (double)f->bias[n];

    for (int64_t i = 0; i < w->k; i++) {
        int64_t block = i / w->block;
        int code = bits_at(w->codes, n * w->n_block * w->block + i, w->bits);

        sum += (double)f->a[r * w->k + i] *
               (double)w->scales[n * w->n_block + block] *
               (code - zero_at(w, n, block));
    }
    return sum;
}

static void check_shape(const sb_nbits_kernel *kernel, fixture *f,
                        const sb_nbits_weights *w, int64_t m)
{
    sb_nbits_shape s = sb_nbits_shape_of(w->bits, w->block, w->k);
    void *room = sb_alloc(test_ctx(), sb_nbits_acts_bytes(&s, m), 1);

    assert_non_null(room);
    sb_nbits_int8_run_with(test_ctx(), kernel, w, f->a, m, f->bias, f->y, room);
    for (int64_t r = 0; r < m; r++)
        for (int64_t n = 0; n < N; n++) {
            double want = want_at(f, w, n, r);

            assert_close(kernel->name, f->y[r * N + n], want,
                         2e-3 + 1e-5 * (want < 0 ? -want : want));
        }
    sb_free(test_ctx(), room);
}

static void check_kernel(const sb_nbits_kernel *kernel, fixture *f, sb_rng *rng,
                         int64_t bits, int64_t block)
{
    static const int64_t widths[] = {1,   16,  32,  50,  64,
                                     129, 256, 288, 300, 600};

    for (size_t i = 0; i < SB_COUNT(widths); i++)
        for (int kind = ZERO_MIDDLE; kind <= ZERO_PACKED; kind++) {
            sb_nbits_weights w = {.n = N,
                                  .k = widths[i],
                                  .block = block,
                                  .n_block = (widths[i] + block - 1) / block,
                                  .bits = bits,
                                  .codes = f->codes,
                                  .scales = f->scales};

            w.zeros = kind == ZERO_FLOATS ? f->zeros : NULL;
            w.zero_bits = kind == ZERO_PACKED ? f->zero_bits : NULL;
            fill_activations(f, rng, M_MOST, widths[i]);
            check_shape(kernel, f, &w, 1);
            check_shape(kernel, f, &w, M_MOST);
        }
}

static void test_products_are_exact_where_rounding_is(void **state)
{
    static const int64_t blocks[] = {16, 32, 48, 64, 128, 256};
    static const int64_t widths[] = {2, 3, 4, 8};
    fixture *f = calloc(1, sizeof *f);
    const sb_nbits_kernel *kernel;
    sb_rng rng;
    size_t seen = 0;

    (void)state;
    assert_non_null(f);
    sb_rng_init(&rng, 3);
    fill_fixture(f, &rng);
    for (size_t k = 0; (kernel = sb_nbits_kernel_at(k)) != NULL; k++) {
        if (!kernel->suits())
            continue;
        for (size_t i = 0; i < SB_COUNT(blocks); i++)
            for (size_t j = 0; j < SB_COUNT(widths); j++)
                check_kernel(kernel, f, &rng, widths[j], blocks[i]);
        seen++;
    }
    assert_true(seen >= 1);
    free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_are_exact_where_rounding_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
