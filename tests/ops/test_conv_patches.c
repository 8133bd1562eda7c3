/* Convolution by patches against a naive sum in double: one to three
 * dimensions, groups, depthwise, strides, dilations, padding that differs at
 * both ends, 1x1, several blocks of lines, one to three threads. */
#include "sbtest.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "ops/conv/conv_im2col.h"

typedef struct problem {
    const char *what;
    int n;
    int64_t batch, in, out, groups;
    int64_t size[3], kernel[3], stride[3], dilation[3], lo[3], hi[3];
} problem;

/* clang-format off */
static const problem problems[] = {
    {"along a line", 1, 2, 5, 7, 1, {19}, {4}, {2}, {1}, {1}, {2}},
    {"1x1", 2, 3, 24, 40, 1, {9, 7}, {1, 1}, {1, 1}, {1, 1}, {0}, {0}},
    {"1x1, stride", 2, 1, 8, 16, 1, {9, 7}, {1, 1}, {2, 2}, {1, 1}, {0}, {0}},
    {"3x3", 2, 2, 16, 20, 1, {11, 13}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"first layer", 2, 1, 3, 16, 1, {30, 31}, {7, 7}, {2, 2}, {1, 1}, {3, 3},
     {2, 2}},
    {"dilated", 2, 1, 6, 6, 1, {15, 15}, {3, 2}, {1, 2}, {3, 4}, {4, 0}, {1, 3}},
    {"groups", 2, 2, 12, 18, 3, {8, 9}, {3, 3}, {2, 1}, {1, 1}, {1, 0}, {1, 2}},
    {"depthwise", 2, 2, 33, 33, 33, {10, 9}, {3, 3}, {2, 1}, {1, 2}, {1, 2},
     {1, 2}},
    {"two a channel", 2, 1, 8, 16, 8, {6, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1},
     {1, 1}},
    {"cube", 3, 1, 4, 6, 2, {5, 6, 7}, {3, 2, 3}, {1, 2, 1}, {1, 1, 2},
     {1, 0, 2}, {1, 1, 2}},
    {"many blocks", 2, 1, 64, 8, 1, {40, 41}, {5, 5}, {1, 1}, {1, 1}, {2, 2},
     {2, 2}},
};
/* clang-format on */

static sb_conv conv_of(const problem *p)
{
    sb_conv c = {.n_batch = p->batch,
                 .in_channels = p->in,
                 .out_channels = p->out,
                 .groups = p->groups};
    sb_window *w = &c.w;

    w->n = p->n;
    w->in_count = w->out_count = w->taps = 1;
    for (int i = 0; i < p->n; i++) {
        w->in[i] = p->size[i];
        w->kernel[i] = p->kernel[i];
        w->stride[i] = p->stride[i];
        w->dilation[i] = p->dilation[i];
        w->pad_lo[i] = p->lo[i];
        w->pad_hi[i] = p->hi[i];
        w->out[i] = (p->size[i] + p->lo[i] + p->hi[i] -
                     (p->kernel[i] - 1) * p->dilation[i] - 1) /
                        p->stride[i] +
                    1;
        w->in_count *= w->in[i];
        w->out_count *= w->out[i];
        w->taps *= w->kernel[i];
    }
    return c;
}

static float *numbers(int64_t n, uint64_t seed)
{
    char shape[32];

    (void)snprintf(shape, sizeof shape, "%lld", (long long)n);
    return test_random(SB_DTYPE_F32, shape, seed)->data;
}

/* Output channel m at place (a, b, c) of three dimensions, the missing ones in
 * front of size 1. */
static double naive(const sb_conv *c, const float *x, const float *w,
                    const int64_t place[3], int64_t image, int64_t m)
{
    int64_t in = c->in_channels / c->groups, out = c->out_channels / c->groups;
    int64_t size[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, first[3] = {0};
    int64_t step[3] = {1, 1, 1};
    double sum = 0;

    for (int i = 0; i < c->w.n; i++) {
        int at = 3 - c->w.n + i;
        size[at] = c->w.in[i];
        kernel[at] = c->w.kernel[i];
        step[at] = c->w.dilation[i];
        first[at] = place[at] * c->w.stride[i] - c->w.pad_lo[i];
    }
    for (int64_t t = 0; t < c->w.taps * in; t++) {
        int64_t tap = t % c->w.taps, channel = t / c->w.taps;
        int64_t p[3] = {first[0] + tap / kernel[2] / kernel[1] * step[0],
                        first[1] + tap / kernel[2] % kernel[1] * step[1],
                        first[2] + tap % kernel[2] * step[2]};
        if (p[0] < 0 || p[0] >= size[0] || p[1] < 0 || p[1] >= size[1] ||
            p[2] < 0 || p[2] >= size[2])
            continue;
        int64_t pixel =
            ((image * size[0] + p[0]) * size[1] + p[1]) * size[2] + p[2];
        sum += (double)x[pixel * c->in_channels + m / out * in + channel] *
               (double)w[(m * in + channel) * c->w.taps + tap];
    }
    return sum;
}

static void run_one(const sb_conv *c, const float *x, const float *w,
                    const float *bias, int threads, float *y)
{
    sb_im2col *p = NULL;

    sb_ctx_set_threads(test_ctx(), threads);
    assert_ok(sb_im2col_create(test_ctx(), "conv", c, &p));
    const sb_dnn_packing *how = sb_im2col_packing(p);
    void *packed = aligned_alloc(64, (how->bytes | 63) + 1);
    void *scratch =
        aligned_alloc(64, ((sb_im2col_scratch(p) + how->scratch) | 63) + 1);
    assert_non_null(packed);
    assert_non_null(scratch);
    assert_ok(sb_im2col_pack(p, w, packed, scratch));
    assert_ok(sb_im2col_run(p, x, packed, bias, y, scratch));
    free(scratch);
    free(packed);
    sb_im2col_free(p);
    sb_ctx_set_threads(test_ctx(), 1);
}

static void check(const problem *p, bool with_bias)
{
    sb_conv c = conv_of(p);
    int64_t n = c.n_batch * c.w.out_count * c.out_channels;
    const float *x = numbers(c.n_batch * c.w.in_count * c.in_channels, 1);
    const float *w = numbers(c.w.taps * p->in / p->groups * p->out, 2);
    const float *b = with_bias ? numbers(p->out, 3) : NULL;
    float *y = numbers(n, 4), *other = numbers(n, 5);
    int64_t out[3] = {1, 1, 1}, products = c.w.taps * p->in / p->groups;

    for (int i = 0; i < p->n; i++)
        out[3 - p->n + i] = c.w.out[i];
    run_one(&c, x, w, b, 1, y);
    for (int64_t i = 0; i < n; i++) {
        int64_t m = i % p->out, at = i / p->out;
        int64_t place[3] = {at / out[2] / out[1] % out[0], at / out[2] % out[1],
                            at % out[2]};
        double want = naive(&c, x, w, place, at / c.w.out_count, m) +
                      (b ? (double)b[m] : 0);
        /* Products are below 4; each sum may round. */
        assert_close(p->what, y[i], want, 5e-7 * (double)(products + 1));
    }
    for (int threads = 2; threads <= 3; threads++) {
        run_one(&c, x, w, b, threads, other);
        assert_memory_equal(y, other, (size_t)n * sizeof *y);
    }
}

static void test_patches_give_the_naive_sum(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(problems); i++) {
        check(&problems[i], true);
        check(&problems[i], false);
    }
}

static void test_other_convolutions_are_refused(void **state)
{
    sb_conv c = conv_of(&problems[0]);
    sb_im2col *p = NULL;

    (void)state;
    c.transposed = true;
    assert_int_equal(sb_im2col_create(test_ctx(), "conv", &c, &p),
                     SB_UNSUPPORTED);
    assert_null(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patches_give_the_naive_sum),
        cmocka_unit_test(test_other_convolutions_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
