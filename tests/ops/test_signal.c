/* DFT and STFT against the plain sum in double, windows and mel filters
 * against hand values. */
#include "sbtest.h"

#include <math.h>

#define INPUTS(...) ((const sb_tensor *[]){__VA_ARGS__})
#define VALUES(...) ((const double[]){__VA_ARGS__})

static const double PI = 3.14159265358979323846;

/* Bin k of x[n] (complex), forward or inverse. */
static void naive_bin(const double *x, int n, int k, bool inverse, double *re,
                      double *im)
{
    *re = *im = 0;
    for (int j = 0; j < n; j++) {
        double angle =
            (inverse ? 2 : -2) * PI * (double)((int64_t)j * k % n) / (double)n;

        *re += x[2 * j] * cos(angle) - x[2 * j + 1] * sin(angle);
        *im += x[2 * j] * sin(angle) + x[2 * j + 1] * cos(angle);
    }
    if (inverse) {
        *re /= n;
        *im /= n;
    }
}

static void load_complex(const sb_tensor *t, int n, int parts, double *x)
{
    for (int j = 0; j < n; j++) {
        x[2 * j] = sb_tensor_get_f64(t, (int64_t)j * parts);
        x[2 * j + 1] =
            parts > 1 ? sb_tensor_get_f64(t, (int64_t)j * parts + 1) : 0;
    }
}

static void test_dft_lengths(void **state)
{
    static const int lengths[] = {1, 2, 3, 7, 8, 15, 17, 30, 64, 97, 100, 255};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(lengths); i++)
        for (int inverse = 0; inverse < 2; inverse++) {
            int n = lengths[i];
            char text[256], shape[32];
            double x[512], re, im;

            (void)snprintf(shape, sizeof shape, "1x%dx2", n);
            (void)snprintf(text, sizeof text,
                           "graph g(x: f32[1,%d,2]) -> (y: f32[1,%d,2]) {\n"
                           "  a: i64[] = 1\n"
                           "  y = DFT(x, _, a) {inverse=%d}\n}\n",
                           n, n, inverse);
            sb_tensor *t = test_random(SB_DTYPE_F32, shape, (uint64_t)n);
            sb_tensor *y = test_run1(text, INPUTS(t));

            load_complex(t, n, 2, x);
            for (int k = 0; k < n; k++) {
                naive_bin(x, n, k, inverse != 0, &re, &im);
                assert_close("re", ((float *)y->data)[2 * k], re, 1e-5);
                assert_close("im", ((float *)y->data)[2 * k + 1], im, 1e-5);
            }
        }
}

static void test_dft_one_sided(void **state)
{
    (void)state;
    sb_tensor *t = test_random(SB_DTYPE_F32, "2x6x3x1", 5);
    sb_tensor *half =
        test_run1("graph g(x: f32[2,6,3,1]) -> (y: f32[2,5,3,2]) {\n"
                  "  n: i64[] = 9\n  a: i64[] = -3\n"
                  "  y = DFT(x, n, a) {onesided=1}\n}\n",
                  INPUTS(t));
    /* Zero-padded to 9, transformed along axis 1. */
    for (int b = 0; b < 2; b++)
        for (int c = 0; c < 3; c++) {
            double x[18] = {0}, re, im;

            for (int j = 0; j < 6; j++)
                x[2 * j] = sb_tensor_get_f64(t, (b * 6 + j) * 3 + c);
            for (int k = 0; k < 5; k++) {
                naive_bin(x, 9, k, false, &re, &im);
                int64_t at = ((b * 5 + k) * 3 + c) * 2;
                assert_close("re", ((float *)half->data)[at], re, 1e-5);
                assert_close("im", ((float *)half->data)[at + 1], im, 1e-5);
            }
        }
    /* And back: a half spectrum gives the real signal with its padding. */
    sb_tensor *back =
        test_run1("graph g(x: f32[2,5,3,2]) -> (y: f32[2,9,3,1]) {\n"
                  "  n: i64[] = 9\n  a: i64[] = 1\n"
                  "  y = DFT(x, n, a) {onesided=1, inverse=1}\n}\n",
                  INPUTS(half));
    for (int b = 0; b < 2; b++)
        for (int j = 0; j < 9; j++)
            for (int c = 0; c < 3; c++)
                assert_close("back", ((float *)back->data)[(b * 9 + j) * 3 + c],
                             j < 6 ? sb_tensor_get_f64(t, (b * 6 + j) * 3 + c)
                                   : 0,
                             1e-6);
}

static void test_stft_is_the_plain_sum(void **state)
{
    (void)state;
    sb_tensor *t = test_random(SB_DTYPE_F32, "1x20x1", 6);
    sb_tensor *w = test_random(SB_DTYPE_F32, "6", 7);
    sb_tensor *y =
        test_run1("graph g(x: f32[1,20,1], w: f32[6]) -> (y: f32[1,5,4,2]) {\n"
                  "  s: i64[] = 3\n  n: i64[] = 6\n  y = STFT(x, s, w, n)\n}\n",
                  INPUTS(t, w));

    for (int f = 0; f < 5; f++) {
        double x[12], re, im;

        for (int j = 0; j < 6; j++) {
            x[2 * j] =
                sb_tensor_get_f64(t, f * 3 + j) * sb_tensor_get_f64(w, j);
            x[2 * j + 1] = 0;
        }
        for (int k = 0; k < 4; k++) {
            naive_bin(x, 6, k, false, &re, &im);
            assert_close("re", ((float *)y->data)[(f * 4 + k) * 2], re, 1e-5);
            assert_close("im", ((float *)y->data)[(f * 4 + k) * 2 + 1], im,
                         1e-5);
        }
    }
}

static void test_windows_by_hand(void **state)
{
    (void)state;
    assert_tensor("hann, periodic",
                  test_run1("graph g() -> (y: f32[4]) {\n  n: i64[] = 4\n"
                            "  y = HannWindow(n)\n}\n",
                            NULL),
                  test_f32("4", 0, 0.5, 1, 0.5), 1e-7);
    assert_tensor("hann, symmetric",
                  test_run1("graph g() -> (y: f32[5]) {\n  n: i64[] = 5\n"
                            "  y = HannWindow(n) {periodic=0}\n}\n",
                            NULL),
                  test_f32("5", 0, 0.5, 1, 0.5, 0), 1e-7);
    assert_tensor("hamming",
                  test_run1("graph g() -> (y: f64[4]) {\n  n: i32[] = 4\n"
                            "  y = HammingWindow(n) {output_datatype=11}\n}\n",
                            NULL),
                  test_tensor(SB_DTYPE_F64, "4",
                              VALUES(4.0 / 46, 25.0 / 46, 1, 25.0 / 46)),
                  1e-12);
    assert_tensor("blackman",
                  test_run1("graph g() -> (y: f32[4]) {\n  n: i64[] = 4\n"
                            "  y = BlackmanWindow(n)\n}\n",
                            NULL),
                  test_f32("4", 0, 0.34, 1, 0.34), 1e-7);
}

/* 2 filters over a spectrum of 9 bins from 0 to 4000 Hz: the edges are
 * 0, 427, 1114, 2220 Hz, bins 0, 0, 2, 4 of 17 * f / 8000. */
static void test_mel_filters_by_hand(void **state)
{
    (void)state;
    assert_tensor("filters",
                  test_run1("graph g() -> (y: f32[9,2]) {\n  b: i64[] = 2\n"
                            "  n: i64[] = 16\n  r: i64[] = 8000\n"
                            "  lo: f32[] = 0\n  hi: f32[] = 4000\n"
                            "  y = MelWeightMatrix(b, n, r, lo, hi)\n}\n",
                            NULL),
                  test_f32("9x2", 1, 0, 0.5, 0.5, 0, 1, 0, 0.5, 0, 0, 0, 0, 0,
                           0, 0, 0, 0, 0),
                  1e-6);
}

static void test_wrong_axes_and_lengths_are_refused(void **state)
{
    (void)state;
    sb_tensor *x = test_random(SB_DTYPE_F32, "1x8x1", 1);

    assert_status(test_try_run("graph g(x: f32[1,8,1]) -> (y: f32[*]) {\n"
                               "  a: i64[] = 2\n  y = DFT(x, _, a)\n}\n",
                               INPUTS(x)),
                  SB_BAD_MODEL);
    assert_status(test_try_run("graph g(x: f32[1,8,1]) -> (y: f32[*]) {\n"
                               "  n: i64[] = 0\n  y = DFT(x, n)\n}\n",
                               INPUTS(x)),
                  SB_BAD_MODEL);
    assert_status(test_try_run("graph g(x: f32[1,8,1]) -> (y: f32[*]) {\n"
                               "  s: i64[] = 0\n  y = STFT(x, s)\n}\n",
                               INPUTS(x)),
                  SB_BAD_MODEL);
    assert_status(test_try_run("graph g() -> (y: f32[*]) {\n"
                               "  n: i64[] = -1\n  y = HannWindow(n)\n}\n",
                               NULL),
                  SB_BAD_MODEL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dft_lengths),
        cmocka_unit_test(test_dft_one_sided),
        cmocka_unit_test(test_stft_is_the_plain_sum),
        cmocka_unit_test(test_windows_by_hand),
        cmocka_unit_test(test_mel_filters_by_hand),
        cmocka_unit_test(test_wrong_axes_and_lengths_are_refused),
    };
    return cmocka_run_group_tests_name("signal", tests, NULL, NULL);
}
