/* Packed weights times activations rounded to int8: every implementation, where
 * rounding loses nothing, gives what a product in double gives. */
#include "sbtest.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "ops/int8/nbits_int8.h"

/* More than a tile of weights; rows of activations for all loops of a panel. */
enum { N = 19, M_MOST = 13 };

typedef enum zero_kind { ZERO_MIDDLE, ZERO_FLOATS, ZERO_PACKED } zero_kind;

/* One product.  Every array is as long as it must be, in memory of its own, so
 * that a sanitizer sees who reads beyond. */
typedef struct fixture {
    sb_nbits_weights w;
    uint8_t *codes, *zero_bits;
    float *scales, *zeros, *bias, *a, *y;
} fixture;

static uint8_t *random_bytes(sb_rng *rng, int64_t n)
{
    uint8_t *x = malloc((size_t)n);

    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (uint8_t)sb_rng_below(rng, 256);
    return x;
}

static float *random_floats(sb_rng *rng, int64_t n, float least, float range)
{
    float *x = malloc((size_t)n * sizeof *x);

    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = least + range * (float)sb_rng_uniform(rng);
    return x;
}

/* Activations are multiples of a power of two up to 127 of it, the largest in
 * every chunk of 16: int8 holds them exactly. */
static fixture make_fixture(sb_rng *rng, int64_t bits, int64_t block, int64_t k,
                            zero_kind kind)
{
    int64_t n_block = (k + block - 1) / block;
    fixture f = {
        .codes = random_bytes(rng, N * n_block * block * bits / 8),
        .zero_bits = random_bytes(rng, N * ((n_block * bits + 7) / 8)),
        .scales = random_floats(rng, N * n_block, -0.3f, 1),
        .zeros = random_floats(rng, N * n_block, 0, 10),
        .bias = random_floats(rng, N, 0, 1),
        .a = random_floats(rng, M_MOST * k, 0, 0),
        .y = random_floats(rng, M_MOST * N, 0, 0),
    };

    for (int64_t i = 0; i < M_MOST * k; i++)
        f.a[i] = (i % k % 16 == 3 || i % k == k - 1
                      ? 127
                      : (float)sb_rng_below(rng, 255) - 127) /
                 64;
    f.w = (sb_nbits_weights){
        .n = N,
        .k = k,
        .block = block,
        .n_block = n_block,
        .bits = bits,
        .codes = f.codes,
        .scales = f.scales,
        .zeros = kind == ZERO_FLOATS ? f.zeros : NULL,
        .zero_bits = kind == ZERO_PACKED ? f.zero_bits : NULL,
    };
    return f;
}

static void free_fixture(fixture *f)
{
    free(f->codes);
    free(f->zero_bits);
    free(f->scales);
    free(f->zeros);
    free(f->bias);
    free(f->a);
    free(f->y);
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

static double want_at(const fixture *f, int64_t n, int64_t r)
{
    const sb_nbits_weights *w = &f->w;
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

static void check_shape(const sb_nbits_kernel *kernel, fixture *f, int64_t m)
{
    const sb_nbits_weights *w = &f->w;
    sb_nbits_shape s = sb_nbits_shape_of(w->bits, w->block, w->k);
    sb_nbits_product p = {w, m, f->a, f->bias, f->y, 2, NULL};

    p.room = sb_alloc(test_ctx(), sb_nbits_room(&s, m, p.lanes), 1);
    assert_non_null(p.room);
    sb_nbits_int8_run_with(test_ctx(), kernel, &p);
    for (int64_t r = 0; r < m; r++)
        for (int64_t n = 0; n < N; n++) {
            double want = want_at(f, n, r);

            assert_close(kernel->name, f->y[r * N + n], want,
                         2e-3 + 1e-5 * (want < 0 ? -want : want));
        }
    sb_free(test_ctx(), p.room);
}

static void check_kernel(const sb_nbits_kernel *kernel, sb_rng *rng,
                         int64_t bits, int64_t block)
{
    static const int64_t widths[] = {1,   16,  32,  50,  64,
                                     129, 256, 288, 300, 600};

    for (size_t i = 0; i < SB_COUNT(widths); i++)
        for (int kind = ZERO_MIDDLE; kind <= ZERO_PACKED; kind++) {
            fixture f =
                make_fixture(rng, bits, block, widths[i], (zero_kind)kind);

            check_shape(kernel, &f, 1);
            check_shape(kernel, &f, M_MOST);
            free_fixture(&f);
        }
}

static void test_products_are_exact_where_rounding_is(void **state)
{
    static const int64_t blocks[] = {16, 32, 48, 64, 96, 128, 256};
    static const int64_t widths[] = {2, 3, 4, 8};
    const sb_nbits_kernel *kernel;
    sb_rng rng;
    size_t seen = 0;

    (void)state;
    sb_rng_init(&rng, 3);
    for (size_t k = 0; (kernel = sb_nbits_kernel_at(k)) != NULL; k++) {
        if (!kernel->suits())
            continue;
        for (size_t i = 0; i < SB_COUNT(blocks); i++)
            for (size_t j = 0; j < SB_COUNT(widths); j++)
                check_kernel(kernel, &rng, widths[j], blocks[i]);
        seen++;
    }
    assert_true(seen >= 1);
}

static void run_rows(const sb_nbits_kernel *kernel, const sb_nbits_weights *w,
                     int64_t m, const float *a, float *y)
{
    sb_nbits_shape s = sb_nbits_shape_of(w->bits, w->block, w->k);
    sb_nbits_product p = {w, m, a, NULL, y, 2, NULL};

    p.room = sb_alloc(test_ctx(), sb_nbits_room(&s, m, p.lanes), 1);
    assert_non_null(p.room);
    sb_nbits_int8_run_with(test_ctx(), kernel, &p);
    sb_free(test_ctx(), p.room);
}

/* The matrix without its first row: each row is at another place of a tile. */
static void check_rows_alone(const sb_nbits_kernel *kernel, fixture *f)
{
    sb_nbits_weights less = f->w;
    sb_nbits_shape s = sb_nbits_shape_of(less.bits, less.block, less.k);
    float y[M_MOST * (N - 1)];

    less.n--;
    less.codes += s.row;
    less.scales += less.n_block;
    if (less.zeros)
        less.zeros += less.n_block;
    if (less.zero_bits)
        less.zero_bits += (less.n_block * less.bits + 7) / 8;
    run_rows(kernel, &f->w, M_MOST, f->a, f->y);
    run_rows(kernel, &less, M_MOST, f->a, y);
    for (int64_t r = 0; r < M_MOST; r++)
        assert_true(memcmp(y + r * (N - 1), f->y + r * N + 1,
                           (N - 1) * sizeof *y) == 0);
}

/* Rows of activations one by one, after check_rows_alone(). */
static void check_acts_alone(const sb_nbits_kernel *kernel, fixture *f)
{
    float y[N];

    for (int64_t r = 0; r < M_MOST; r++) {
        run_rows(kernel, &f->w, 1, f->a + r * f->w.k, y);
        assert_true(memcmp(y, f->y + r * N, sizeof y) == 0);
    }
}

static void test_elements_do_not_depend_on_others(void **state)
{
    static const int64_t blocks[] = {16, 32, 96, 128}, widths[] = {2, 3, 4, 8};
    const sb_nbits_kernel *kernel;
    sb_rng rng;

    (void)state;
    sb_rng_init(&rng, 4);
    for (size_t k = 0; (kernel = sb_nbits_kernel_at(k)) != NULL; k++)
        for (size_t i = 0; kernel->suits() && i < 3 * 4 * 4; i++) {
            fixture f = make_fixture(&rng, widths[i % 4], blocks[i / 4 % 4],
                                     600, (zero_kind)(i / 16));

            check_rows_alone(kernel, &f);
            check_acts_alone(kernel, &f);
            free_fixture(&f);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_are_exact_where_rounding_is),
        cmocka_unit_test(test_elements_do_not_depend_on_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
