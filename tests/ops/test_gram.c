/* Gram, ChannelMean and CorrectMean against their definitions in double. */
#include "sbtest.h"
#include "sbtest_node.h"

#include "exec/exec.h"
#include "graph/text.h"

typedef struct gram_case {
    const char *x, *w, *g, *attrs;
    int n, c, h, width, groups, kernel, stride, pad;
} gram_case;

static const gram_case cases[] = {
    {"2x3x5x6", "4x3x3x3", "1x27x27",
     "kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]", 2, 3, 5, 6, 1, 3, 2,
     1},
    {"3x4x6x5", "4x1x3x3", "4x9x9",
     "kernel_shape=[3,3], group=4, pads=[1,1,1,1]", 3, 4, 6, 5, 4, 3, 1, 1},
    {"2x80x4x4", "8x80x1x1", "1x80x80", "kernel_shape=[1,1]", 2, 80, 4, 4, 1, 1,
     1, 0},
};

/* What tap `t` of channel c meets at a place; 0 is padding. */
static double met(const gram_case *k, const sb_tensor *x, int n, int c, int t,
                  int row, int col)
{
    int y = row * k->stride - k->pad + t / k->kernel;
    int z = col * k->stride - k->pad + t % k->kernel;

    if (y < 0 || z < 0 || y >= k->h || z >= k->width)
        return 0;
    return sb_tensor_get_f64(x, ((n * k->c + c) * k->h + y) * k->width + z);
}

static double gram_want(const gram_case *k, const sb_tensor *x, int group,
                        int i, int j, double *count)
{
    int taps = k->kernel * k->kernel, per = k->c / k->groups;
    int rows = (k->h + 2 * k->pad - k->kernel) / k->stride + 1;
    int cols = (k->width + 2 * k->pad - k->kernel) / k->stride + 1;
    double sum = 0;

    for (int n = 0; n < k->n; n++)
        for (int p = 0; p < rows * cols; p++)
            sum += met(k, x, n, group * per + i / taps, i % taps, p / cols,
                       p % cols) *
                   met(k, x, n, group * per + j / taps, j % taps, p / cols,
                       p % cols);
    *count = (double)k->n * rows * cols;
    return sum;
}

static void test_patches_of_convolutions(void **state)
{
    (void)state;
    for (size_t c = 0; c < SB_COUNT(cases); c++) {
        const gram_case *k = &cases[c];
        sb_tensor *g = test_random(SB_DTYPE_F32, k->g, 1);
        sb_tensor *x = test_random(SB_DTYPE_F32, k->x, 2), *out[2];
        const test_node node = {.op = "Gram",
                                .domain = "sparsebit",
                                .attrs = k->attrs,
                                .in = {g, test_f32("1", 5.0), x,
                                       test_random(SB_DTYPE_F32, k->w, 3)},
                                .n_in = 4,
                                .n_out = 2};
        int64_t size = g->dims[1];
        double count = 0;

        test_node_threads(&node, out);
        for (int64_t i = 0; i < sb_tensor_count(g); i++) {
            double want =
                gram_want(k, x, (int)(i / (size * size)),
                          (int)(i / size % size), (int)(i % size), &count);
            assert_close(k->attrs, sb_tensor_get_f64(out[0], i),
                         want + sb_tensor_get_f64(g, i), 1e-3);
        }
        assert_close("count", sb_tensor_get_f64(out[1], 0), count + 5, 0);
    }
}

static void test_rows_of_products(void **state)
{
    (void)state;
    sb_tensor *x = test_random(SB_DTYPE_F32, "2x7x3", 4), *out[2];
    const test_node node = {.op = "Gram",
                            .domain = "sparsebit",
                            .attrs = "rows=1",
                            .in = {test_f32("1x3x3", 0, 0, 0, 0, 0, 0, 0, 0, 0),
                                   test_f32("1", 0.0), x,
                                   test_random(SB_DTYPE_F32, "3x4", 5)},
                            .n_in = 4,
                            .n_out = 2};

    test_node_threads(&node, out);
    for (int i = 0; i < 9; i++) {
        double want = 0;
        for (int r = 0; r < 14; r++)
            want += sb_tensor_get_f64(x, r * 3 + i / 3) *
                    sb_tensor_get_f64(x, r * 3 + i % 3);
        assert_close("sum", sb_tensor_get_f64(out[0], i), want, 1e-4);
    }
    assert_close("count", sb_tensor_get_f64(out[1], 0), 14, 0);
}

/* Of two inputs, with a 1 behind each term: of a convolution in two groups,
 * and of rows.  Every patch of 1x1 is a pixel. */
static void test_two_inputs_and_ones(void **state)
{
    sb_tensor *x = test_random(SB_DTYPE_F32, "2x4x3x2", 6), *out[2];
    sb_tensor *y = test_random(SB_DTYPE_F32, "2x4x3x2", 7);
    const test_node node = {.op = "Gram",
                            .domain = "sparsebit",
                            .attrs = "kernel_shape=[1,1], group=2, ones=1",
                            .in = {test_random(SB_DTYPE_F32, "2x3x3", 8),
                                   test_f32("1", 0.0), x,
                                   test_random(SB_DTYPE_F32, "2x2x1x1", 9), y},
                            .n_in = 5,
                            .n_out = 2};

    (void)state;
    test_node_threads(&node, out);
    for (int i = 0; i < 18; i++) {
        int group = i / 9, a = i % 9 / 3, b = i % 3;
        double want = sb_tensor_get_f64(node.in[0], i);
        for (int p = 0; p < 12; p++) {
            int at = (p / 6 * 4 + group * 2) * 6 + p % 6;
            want += (a < 2 ? sb_tensor_get_f64(y, at + a * 6) : 1) *
                    (b < 2 ? sb_tensor_get_f64(x, at + b * 6) : 1);
        }
        assert_close("sum", sb_tensor_get_f64(out[0], i), want, 1e-4);
    }
    assert_close("count", sb_tensor_get_f64(out[1], 0), 12, 0);
}

/* Columns 0, 1 and 2, 3 by themselves. */
static void test_parts_of_rows(void **state)
{
    sb_tensor *x = test_random(SB_DTYPE_F32, "5x4", 10), *out[2];
    const test_node node = {.op = "Gram",
                            .domain = "sparsebit",
                            .attrs = "rows=1, group=2",
                            .in = {test_f32("2x2x2", 0, 0, 0, 0, 0, 0, 0, 0),
                                   test_f32("1", 0.0), x,
                                   test_random(SB_DTYPE_F32, "4x3", 11)},
                            .n_in = 4,
                            .n_out = 2};

    (void)state;
    test_node_threads(&node, out);
    for (int i = 0; i < 8; i++) {
        double want = 0;
        for (int r = 0; r < 5; r++)
            want += sb_tensor_get_f64(x, r * 4 + i / 4 * 2 + i / 2 % 2) *
                    sb_tensor_get_f64(x, r * 4 + i / 4 * 2 + i % 2);
        assert_close("sum", sb_tensor_get_f64(out[0], i), want, 1e-5);
    }
}

/* Channels 0 and 1 of two samples are 1, 3 and 8, 12.  In two samples before,
 * 2 and -2 were missing, with squares 4 and 4; in these it is 6, 4 and 2, -2,
 * so that means of all four are 3 and -0.5. */
static void correct_means(const char *attrs, const double *shift)
{
    sb_tensor *x = test_f32("2x2x1x1", 1, 8, 3, 12), *mean[1], *out[3];
    const test_node means = {.op = "ChannelMean",
                             .domain = "sparsebit",
                             .in = {x},
                             .n_in = 1,
                             .n_out = 1};
    const test_node correct = {.op = "CorrectMean",
                               .domain = "sparsebit",
                               .attrs = attrs,
                               .in = {x, test_f32("2x2", 7, 10, 7, 10),
                                      test_f32("2x2", 2, -2, 4, 4),
                                      test_f32("1", 2.0)},
                               .n_in = 4,
                               .n_out = 3};
    const double seen[] = {12, -2, 56, 12};

    test_node_threads(&means, mean);
    test_node_threads(&correct, out);
    for (int i = 0; i < 4; i++) {
        double v = sb_tensor_get_f64(x, i);

        assert_close("mean", sb_tensor_get_f64(mean[0], i), v, 1e-6);
        assert_close("y", sb_tensor_get_f64(out[0], i), v + shift[i % 2], 1e-6);
        assert_close("seen", sb_tensor_get_f64(out[1], i), seen[i], 1e-6);
    }
    assert_close("count", sb_tensor_get_f64(out[2], 0), 4, 0);
}

static void test_means(void **state)
{
    (void)state;
    correct_means("axis=1", (double[]){3, -0.5});
}

/* The variance of the first mean is (56 / 4 - 9) / 3 = 5 / 3, of 9 a share of
 * 5 / 27; of the second (3 - 0.25) / 3, which is more than its square. */
static void test_sure_means(void **state)
{
    (void)state;
    correct_means("axis=1, sure=1", (double[]){3 * (1 - 5.0 / 27), 0});
}

enum { COLS = 260, ROWS = 46 };

/* Row r of x, y or z of the test below; behind them is a 1. */
static double brief_row(char name, int r, int c)
{
    return c == COLS     ? 1
           : name == 'x' ? (r * 7 + c * 5 + r * c % 11) % 13
           : name == 'y' ? (r * 3 + c) % 9 - 4
                         : 256 + (r * 3 + c) % 2;
}

static sb_tensor *brief_tensor(char name)
{
    sb_tensor *t = test_tensor(SB_DTYPE_F32, "2x23x260", NULL);

    for (int i = 0; i < ROWS * COLS; i++)
        ((float *)t->data)[i] = (float)brief_row(name, i / COLS, i % COLS);
    return t;
}

/* All sums of `first` times `second`, or those down to the diagonal. */
static void brief_check(const sb_tensor *sums, char first, char second,
                        bool upper)
{
    int size = (int)sums->dims[1];

    for (int i = 0; i < size; i++)
        for (int j = upper ? i : 0; j < size; j++) {
            double want = 2;

            for (int r = 0; r < ROWS; r++)
                want += brief_row(first, r, i) * brief_row(second, r, j);
            assert_close("sum", sb_tensor_get_f64(sums, i * size + j), want, 0);
        }
}

/* Where factors may be rounded to bfloat16, whole numbers up to 256 are the
 * same in it and so are their sums: with x itself down to the diagonal, and
 * with y.  With a 1 behind them, for means, they are not rounded: columns of
 * 256 and 257 keep their variance. */
static void test_brief_sums(void **state)
{
    static const char *const text =
        "graph g(s: f32[1,260,260], m: f32[1,261,261], n: f32[1], "
        "x: f32[2,23,260], y: f32[2,23,260], z: f32[2,23,260]) "
        "-> (a: f32[*], b: f32[*], c: f32[*], d: f32[*], e: f32[*], "
        "f: f32[*]) {\n"
        "  w: f32[260,1] = random(5)\n"
        "  a, b = sparsebit::Gram(s, n, x, w) {rows=1, upper=1}\n"
        "  c, d = sparsebit::Gram(s, n, x, w, y) {rows=1}\n"
        "  e, f = sparsebit::Gram(m, n, z, w) {rows=1, ones=1}\n}\n";
    sb_tensor *s = test_tensor(SB_DTYPE_F32, "1x260x260", NULL);
    sb_tensor *more = test_tensor(SB_DTYPE_F32, "1x261x261", NULL);
    const sb_tensor *in[] = {s,
                             more,
                             test_f32("1", 0.0),
                             brief_tensor('x'),
                             brief_tensor('y'),
                             brief_tensor('z')};
    const sb_tensor *out[6];
    sb_exec *exec = NULL;
    sb_graph *g = NULL;

    (void)state;
    for (int64_t i = 0; i < sb_tensor_count(s); i++)
        ((float *)s->data)[i] = 2;
    for (int64_t i = 0; i < sb_tensor_count(more); i++)
        ((float *)more->data)[i] = 2;
    assert_ok(sb_graph_parse(test_ctx(), text, &g));
    assert_ok(sb_graph_infer(g));
    assert_ok(sb_exec_create(test_ctx(), g, &(sb_exec_options){.brief = true},
                             &exec));
    assert_ok(sb_exec_run(exec, in, NULL, out));
    brief_check(out[0], 'x', 'x', true);
    brief_check(out[2], 'y', 'x', false);
    brief_check(out[4], 'z', 'z', false);
    assert_close("count", sb_tensor_get_f64(out[1], 0), ROWS, 0);
    sb_exec_free(exec);
    sb_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patches_of_convolutions),
        cmocka_unit_test(test_rows_of_products),
        cmocka_unit_test(test_two_inputs_and_ones),
        cmocka_unit_test(test_parts_of_rows),
        cmocka_unit_test(test_brief_sums),
        cmocka_unit_test(test_means),
        cmocka_unit_test(test_sure_means),
    };

    return cmocka_run_group_tests_name("gram", tests, NULL, NULL);
}
