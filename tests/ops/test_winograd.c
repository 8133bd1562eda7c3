/* Winograd convolution against the definition in double, over sizes that do
 * and do not fill whole tiles and blocks, with pads, bias, sum and activation;
 * and the same bytes for any number of threads. */
#include "sbtest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "graph/text.h"
#include "passes/pass.h"

typedef struct sizes {
    int n, c, m, h, w; /* batch, channels in and out, input */
    int pad[4];        /* top, left, bottom, right */
    const char *after; /* lines that make y from `conv` */
} sizes;

static const sizes cases[] = {
    {1, 32, 32, 32, 32, {1, 1, 1, 1}, "y = Identity(conv)"},
    {1, 32, 48, 29, 31, {1, 1, 1, 1}, "y = Relu(conv)"},
    {2, 48, 32, 27, 30, {0, 0, 0, 0}, "y = Swish(conv)"},
    {3, 64, 64, 19, 18, {2, 0, 1, 2}, "y = Add(conv, z)"},
    {1, 32, 64, 61, 40, {0, 1, 1, 0}, "s = Add(conv, z)\n y = Relu(s)"},
    {1, 32, 32, 40, 40, {1, 1, 1, 1}, "r = LeakyRelu(conv)\n y = Add(r, z)"},
    {1, 32, 32, 30, 30, {1, 1, 1, 1}, "y = Gelu(conv)"},
    /* Weights that outweigh 49 tiles, which are one block. */
    {1, 256, 240, 25, 27, {1, 1, 1, 1}, "s = Add(conv, z)\n y = Relu(s)"},
};

/* y[n, m, i, j] + bias, in double. */
static double *definition(const sizes *s, const float *x, const float *w,
                          const float *b, int oh, int ow)
{
    double *y = calloc((size_t)(s->n * s->m * oh * ow), sizeof *y);

    for (int n = 0; n < s->n; n++)
        for (int m = 0; m < s->m; m++)
            for (int i = 0; i < oh; i++)
                for (int j = 0; j < ow; j++) {
                    double sum = (double)b[m];
                    for (int c = 0; c < s->c; c++)
                        for (int t = 0; t < 9; t++) {
                            int r = i + t / 3 - s->pad[0];
                            int q = j + t % 3 - s->pad[1];
                            if (r < 0 || r >= s->h || q < 0 || q >= s->w)
                                continue;
                            sum +=
                                (double)
                                    x[((n * s->c + c) * s->h + r) * s->w + q] *
                                (double)w[(m * s->c + c) * 9 + t];
                        }
                    y[((n * s->m + m) * oh + i) * ow + j] = sum;
                }
    return y;
}

static double after(const char *what, double v, double z)
{
    if (strstr(what, "Swish"))
        return v / (1 + exp(-v));
    if (strstr(what, "Gelu"))
        return v * 0.5 * (1 + erf(v / sqrt(2.0)));
    if (strstr(what, "LeakyRelu"))
        return (v < 0 ? 0.01 * v : v) + z;
    if (strstr(what, "Add"))
        v += z;
    return strstr(what, "Relu") && v < 0 ? 0 : v;
}

static void run(const sizes *s, int threads, bool exact, const sb_tensor **in,
                float **out, size_t *bytes)
{
    int oh = s->h + s->pad[0] + s->pad[2] - 2;
    int ow = s->w + s->pad[1] + s->pad[3] - 2;
    sb_exec_options opt = {.exact = exact};
    const sb_tensor *got = NULL;
    sb_exec *exec = NULL;
    sb_graph *g = NULL;
    sb_ctx *ctx = NULL;
    char text[1024];

    (void)snprintf(text, sizeof text,
                   "graph g(x: f32[%d,%d,%d,%d], z: f32[%d,%d,%d,%d]) -> "
                   "(y: f32[*]) {\n w: f32[%d,%d,3,3] = random(5)\n"
                   " b: f32[%d] = random(6)\n"
                   " conv = Conv(x, w, b) {pads=[%d,%d,%d,%d]}\n %s\n}\n",
                   s->n, s->c, s->h, s->w, s->n, s->m, oh, ow, s->m, s->c, s->m,
                   s->pad[0], s->pad[1], s->pad[2], s->pad[3], s->after);
    assert_ok(sb_ctx_create(NULL, &ctx));
    sb_ctx_set_threads(ctx, threads);
    assert_ok(sb_graph_parse(ctx, text, &g));
    assert_ok(sb_graph_infer(g));
    sb_pass_result *results = NULL;
    size_t n_results = 0;
    assert_ok(sb_passes_run(g, "fuse_conv", NULL, &results, &n_results));
    sb_free(ctx, results);
    assert_ok(sb_exec_create(ctx, g, &opt, &exec));
    assert_ok(sb_exec_run(exec, in, NULL, &got));
    *bytes = sb_tensor_bytes(got);
    *out = malloc(*bytes);
    memcpy(*out, got->data, *bytes);
    sb_exec_free(exec);
    sb_graph_free(g);
    sb_ctx_free(ctx);
}

static sb_tensor *weights(const char *shape, int seed)
{
    char text[256];

    (void)snprintf(text, sizeof text,
                   "graph g() -> (y: f32[*]) {\n w: f32[%s] = random(%d)\n"
                   " y = Identity(w)\n}\n",
                   shape, seed);
    return test_run1(text, NULL);
}

static void one_case(const sizes *s)
{
    int oh = s->h + s->pad[0] + s->pad[2] - 2;
    int ow = s->w + s->pad[1] + s->pad[3] - 2;
    char shape[64];

    (void)snprintf(shape, sizeof shape, "%dx%dx%dx%d", s->n, s->c, s->h, s->w);
    sb_tensor *x = test_random(SB_DTYPE_F32, shape, 7);
    (void)snprintf(shape, sizeof shape, "%dx%dx%dx%d", s->n, s->m, oh, ow);
    sb_tensor *z = test_random(SB_DTYPE_F32, shape, 8);
    (void)snprintf(shape, sizeof shape, "%d,%d,3,3", s->m, s->c);
    sb_tensor *w = weights(shape, 5);
    (void)snprintf(shape, sizeof shape, "%d", s->m);
    sb_tensor *b = weights(shape, 6);
    const sb_tensor *in[] = {x, z};
    double *want = definition(s, x->data, w->data, b->data, oh, ow);
    size_t n = (size_t)sb_tensor_count(z), bytes = 0;
    float *fast, *again, *exact;
    double most = 0;

    run(s, 1, false, in, &fast, &bytes);
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs(want[i]));
    for (size_t i = 0; i < n; i++)
        assert_close(s->after, fast[i],
                     after(s->after, want[i], (double)((float *)z->data)[i]),
                     3e-5 * most);
    for (int threads = 2; threads < 5; threads++) {
        run(s, threads, false, in, &again, &bytes);
        assert_memory_equal(fast, again, bytes);
        free(again);
    }
    /* Another algorithm: equal bytes would mean that it was not used. */
    run(s, 1, true, in, &exact, &bytes);
    assert_memory_not_equal(fast, exact, bytes);
    free(exact);
    free(fast);
    free(want);
}

static void test_against_the_definition(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++)
        one_case(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_the_definition),
    };
    return cmocka_run_group_tests_name("winograd", tests, NULL, NULL);
}
