/* Convolutions that are cut into parts, by rows, by pixels or by channels:
 * against a plain sum in double, and the same bits for any number of threads.
 */
#include "sbtest_node.h"

#include <math.h>
#include <stdlib.h>

#include "dnn/dnn.h"

typedef struct problem {
    const char *what;
    int64_t n, in_channels, out_channels, groups, size, kernel, stride, pad;
    int64_t dilation;
    size_t n_posts;
    sb_dnn_post posts[2];
    bool transposed;
    int64_t more; /* rows and columns of the output, if transposed */
} problem;

static const problem problems[] = {
    {"too small to cut",
     1,
     3,
     8,
     1,
     6,
     3,
     1,
     1,
     1,
     1,
     {{SB_DNN_RELU, 0, 0}},
     .transposed = false},
    {"bands of rows",
     1,
     16,
     32,
     1,
     30,
     3,
     1,
     1,
     1,
     0,
     {{0}},
     .transposed = false},
    {"uneven bands",
     1,
     8,
     24,
     1,
     37,
     5,
     1,
     2,
     1,
     1,
     {{SB_DNN_RELU, 0, 0}},
     .transposed = false},
    {"stride leaves rows over",
     2,
     16,
     32,
     1,
     33,
     3,
     2,
     0,
     1,
     0,
     {{0}},
     .transposed = false},
    {"pad as large as the kernel allows",
     1,
     8,
     16,
     1,
     28,
     3,
     2,
     2,
     1,
     0,
     {{0}},
     .transposed = false},
    {"dilated", 1, 16, 16, 1, 29, 3, 1, 3, 3, 0, {{0}}, .transposed = false},
    {"depthwise",
     2,
     48,
     48,
     48,
     31,
     3,
     1,
     1,
     1,
     1,
     {{SB_DNN_CLIP, 0, 0.5f}},
     .transposed = false},
    {"depthwise, stride",
     1,
     64,
     64,
     64,
     28,
     5,
     2,
     2,
     1,
     0,
     {{0}},
     .transposed = false},
    {"groups", 1, 32, 64, 2, 20, 3, 1, 1, 1, 0, {{0}}, .transposed = false},
    {"pixels", 3, 24, 40, 1, 17, 1, 1, 0, 1, 0, {{0}}, .transposed = false},
    {"pixels, sum, then activation",
     1,
     64,
     64,
     1,
     19,
     1,
     1,
     0,
     1,
     2,
     {{SB_DNN_SUM, 1, 0}, {SB_DNN_RELU, 0, 0}},
     .transposed = false},
    {"1x1, stride",
     2,
     32,
     64,
     1,
     15,
     1,
     2,
     0,
     1,
     0,
     {{0}},
     .transposed = false},
    {"by channels",
     1,
     256,
     144,
     1,
     6,
     3,
     1,
     1,
     1,
     1,
     {{SB_DNN_RELU, 0, 0}},
     .transposed = false},
    {"by channels, sum",
     2,
     160,
     304,
     1,
     4,
     3,
     1,
     1,
     1,
     1,
     {{SB_DNN_SUM, 1, 0}},
     .transposed = false},
    {"1x1, heavy weights",
     1,
     640,
     800,
     1,
     4,
     1,
     1,
     0,
     1,
     1,
     {{SB_DNN_RELU, 0, 0}},
     .transposed = false},
    {"1x1, heavy weights, sum, then activation",
     2,
     512,
     1000,
     1,
     3,
     1,
     1,
     0,
     1,
     2,
     {{SB_DNN_SUM, 1, 0}, {SB_DNN_RELU, 0, 0}},
     .transposed = false},
    {"transposed, stride 2", 1, 64, 32, 1, 28, 2, 2, 0, 1, .transposed = true},
    {"transposed, windows overlap",
     1,
     32,
     16,
     1,
     19,
     4,
     2,
     1,
     1,
     1,
     {{SB_DNN_RELU, 0, 0}},
     .transposed = true},
    {"transposed, uneven, sum",
     2,
     16,
     24,
     1,
     17,
     3,
     2,
     1,
     1,
     1,
     {{SB_DNN_SUM, 1, 0}},
     .transposed = true,
     .more = 1},
    {"transposed, groups", 1, 32, 64, 2, 15, 5, 3, 2, 1, .transposed = true,
     .more = 2},
    {"transposed, dilated", 3, 16, 16, 1, 21, 3, 1, 2, 2, .transposed = true},
    {"transposed, heavy weights", 1, 256, 160, 1, 5, 3, 1, 1, 1,
     .transposed = true},
};

static sb_dnn_conv_desc desc_of(const problem *p)
{
    int64_t reach = (p->kernel - 1) * p->dilation + 1;
    int64_t out = p->transposed
                      ? (p->size - 1) * p->stride + reach - 2 * p->pad + p->more
                      : (p->size + 2 * p->pad - reach) / p->stride + 1;
    sb_dnn_conv_desc d = {
        .what = p->what,
        .transposed = p->transposed,
        .n_spatial = 2,
        .n_batch = p->n,
        .in_channels = p->in_channels,
        .out_channels = p->out_channels,
        .groups = p->groups,
        .in = {p->size, p->size},
        .out = {out, out},
        .kernel = {p->kernel, p->kernel},
        .stride = {p->stride, p->stride},
        .dilation = {p->dilation, p->dilation},
        .pad_lo = {p->pad, p->pad},
        .src_layout = p->in_channels,
        .dst_layout = p->out_channels,
        .has_bias = true,
        .n_posts = p->n_posts,
    };

    memcpy(d.posts, p->posts, sizeof p->posts);
    return d;
}

/* What goes to an output place at a tap comes from this row or column of the
 * input, if not from below zero. */
static int64_t from_where(const problem *p, int64_t at, int64_t tap)
{
    int64_t turned = at + p->pad - tap * p->dilation;

    if (!p->transposed)
        return at * p->stride - p->pad + tap * p->dilation;
    return turned % p->stride == 0 ? turned / p->stride : -1;
}

static double weight_of(const problem *p, const float *w, int64_t m, int64_t c,
                        int64_t ky, int64_t kx)
{
    int64_t in = p->in_channels / p->groups, out = p->out_channels / p->groups;
    int64_t at =
        p->transposed ? (m / out * in + c) * out + m % out : m * in + c;

    return (double)w[(at * p->kernel + ky) * p->kernel + kx];
}

/* One output element, channels last. */
static double sum_of(const problem *p, const float *x, const float *w,
                     int64_t n, int64_t row, int64_t col, int64_t m)
{
    int64_t in = p->in_channels / p->groups, out = p->out_channels / p->groups;
    double sum = 0;

    for (int64_t ky = 0; ky < p->kernel; ky++)
        for (int64_t kx = 0; kx < p->kernel; kx++) {
            int64_t y = from_where(p, row, ky), z = from_where(p, col, kx);
            if (y < 0 || y >= p->size || z < 0 || z >= p->size)
                continue;
            const float *pixel =
                x + ((n * p->size + y) * p->size + z) * p->in_channels +
                m / out * in;
            for (int64_t c = 0; c < in; c++)
                sum += (double)pixel[c] * weight_of(p, w, m, c, ky, kx);
        }
    return sum;
}

/* Those that problems have; Relu is max(v, 0). */
static double post_of(const sb_dnn_post *post, double v, double before)
{
    assert_true(post->kind == SB_DNN_SUM || post->kind == SB_DNN_CLIP ||
                (post->kind == SB_DNN_RELU && post->alpha == 0));
    if (post->kind == SB_DNN_SUM)
        return v + before;
    return post->kind == SB_DNN_RELU
               ? fmax(v, 0)
               : fmin(fmax(v, (double)post->alpha), (double)post->beta);
}

static void expect(const problem *p, const sb_dnn_conv_desc *d, const float *x,
                   const float *w, const float *b, float *y)
{
    for (int64_t i = 0; i < d->n_batch * d->out[0] * d->out[1]; i++)
        for (int64_t m = 0; m < p->out_channels; m++) {
            float *at = &y[i * p->out_channels + m];
            double v = (double)b[m] + sum_of(p, x, w, i / d->out[0] / d->out[1],
                                             i / d->out[1] % d->out[0],
                                             i % d->out[1], m);
            for (size_t k = 0; k < p->n_posts; k++)
                v = post_of(&p->posts[k], v, (double)*at);
            *at = (float)v;
        }
}

static void compute(int threads, const sb_dnn_conv_desc *d, const float *x,
                    const float *w, const float *b, float *y)
{
    sb_ctx *ctx = NULL;
    sb_dnn_conv *conv = NULL;

    assert_ok(sb_ctx_create(NULL, &ctx));
    sb_ctx_set_threads(ctx, threads);
    sb_status status = sb_dnn_conv_create(ctx, d, &conv);
#ifndef __x86_64__
    if (status == SB_UNSUPPORTED) {
        sb_ctx_free(ctx);
        skip(); /* oneDNN's direct kernels are for x86 */
    }
#endif
    if (status != SB_OK)
        fail_msg("%s: %s", d->what, sb_ctx_error(ctx));
    const sb_dnn_packing *how = sb_dnn_conv_packing(conv);
    assert_true(how->bytes > 0);
    /* Else OpenMP's threads compute it, which wait for each other whatever else
     * the machine has to do. */
    assert_string_equal(how->form, "parts");
    void *packed = aligned_alloc(64, (how->bytes | 63) + 1);
    void *scratch = aligned_alloc(
        64, ((sb_dnn_conv_scratch(conv) + how->scratch) | 63) + 1);
    assert_non_null(packed);
    assert_non_null(scratch);
    assert_int_equal(sb_dnn_conv_pack(conv, w, packed, scratch), SB_OK);
    assert_int_equal(sb_dnn_conv_run(conv, x, packed, b, y, scratch, NULL),
                     SB_OK);
    free(scratch);
    free(packed);
    sb_dnn_conv_free(conv);
    sb_ctx_free(ctx);
}

static void test_parts_give_the_plain_sum_and_the_same_bits(void **state)
{
    (void)state;
    sb_rng rng;

    sb_rng_init(&rng, 7);
    for (size_t i = 0; i < SB_COUNT(problems); i++) {
        const problem *p = &problems[i];
        sb_tensor *x = test_floats(
            &rng, 4, (int64_t[]){p->n, p->size, p->size, p->in_channels});
        /* As many elements transposed, in another order. */
        sb_tensor *w =
            test_floats(&rng, 4,
                        (int64_t[]){p->out_channels, p->in_channels / p->groups,
                                    p->kernel, p->kernel});
        sb_tensor *b = test_floats(&rng, 1, &p->out_channels);
        sb_dnn_conv_desc d = desc_of(p);
        int64_t dims[] = {p->n, d.out[0], d.out[1], p->out_channels};
        sb_tensor *old = test_floats(&rng, 4, dims);
        sb_tensor *want = test_floats(&rng, 4, dims);
        size_t bytes = sb_tensor_bytes(old);
        float *first = NULL;

        memcpy(want->data, old->data, bytes);
        expect(p, &d, x->data, w->data, b->data, want->data);
        for (int threads = 1; threads <= 4; threads++) {
            sb_tensor *y = test_floats(&rng, 4, dims);
            memcpy(y->data, old->data, bytes);
            compute(threads, &d, x->data, w->data, b->data, y->data);
            if (!first) {
                first = y->data;
                assert_all_close(p->what, first, want->data, bytes / 4, 3e-4);
            }
            assert_memory_equal(first, y->data, bytes);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_give_the_plain_sum_and_the_same_bits)};

    return cmocka_run_group_tests_name("dnn_parts", tests, NULL, NULL);
}
