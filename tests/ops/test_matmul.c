/* MatMul and Gemm against a naive sum in double: sizes around the tile borders,
 * batches, vectors, transposes, integers; the same bytes for any number of
 * threads. */
#include "sbtest_node.h"

#include <stdio.h>
#include <string.h>

enum { CASES = 60 };

/* One element of a (maybe transposed) product. */
static double cell(const float *a, const float *b, int64_t k, int64_t a_step,
                   int64_t b_step)
{
    double sum = 0;

    for (int64_t i = 0; i < k; i++)
        sum += (double)a[i * a_step] * (double)b[i * b_step];
    return sum;
}

static int64_t odd_size(sb_rng *rng)
{
    static const int64_t sizes[] = {1,   2,   5,   16,  31, 64,
                                    191, 193, 256, 260, 400};

    return sizes[test_pick(rng, 0, (int64_t)SB_COUNT(sizes) - 1)];
}

static void test_matmul_2d(void **state)
{
    (void)state;
    sb_rng rng;

    sb_rng_init(&rng, test_seed(3));
    for (int i = 0; i < CASES; i++) {
        int64_t m = odd_size(&rng), k = odd_size(&rng), n = odd_size(&rng);
        sb_tensor *a = test_floats(&rng, 2, (int64_t[]){m, k});
        sb_tensor *b = test_floats(&rng, 2, (int64_t[]){k, n});
        test_node node = {.op = "MatMul",
                          .in = {a, b},
                          .n_in = 2,
                          .n_out = 1,
                          .constant = i % 2 ? 2u : 0};
        const float *x = a->data, *w = b->data;
        sb_tensor *y;

        test_node_threads(&node, &y);
        for (int t = 0; t < 200; t++) {
            int64_t r = test_pick(&rng, 0, m - 1),
                    c = test_pick(&rng, 0, n - 1);
            assert_close("element", ((float *)y->data)[r * n + c],
                         cell(x + r * k, w + c, k, 1, n),
                         2e-6 * (double)k + 1e-6);
        }
    }
}

/* [2,1,m,k] x [3,k,n] = [2,3,m,n], both ways. */
static void test_matmul_broadcast(void **state)
{
    (void)state;
    enum { M = 7, K = 40, N = 50 };
    sb_rng rng;
    sb_tensor *y;

    sb_rng_init(&rng, 4);
    sb_tensor *a = test_floats(&rng, 4, (int64_t[]){2, 1, M, K});
    sb_tensor *b = test_floats(&rng, 3, (int64_t[]){3, K, N});
    test_node node = {.op = "MatMul", .in = {a, b}, .n_in = 2, .n_out = 1};
    test_node_threads(&node, &y);
    assert_int_equal(y->rank, 4);
    assert_int_equal(y->dims[1], 3);
    for (int64_t i = 0; i < 6 * M * N; i++) {
        int64_t batch = i / (M * N), r = i / N % M, c = i % N;
        const float *x = (float *)a->data + batch / 3 * M * K + r * K;
        const float *w = (float *)b->data + batch % 3 * K * N + c;
        assert_close("element", ((float *)y->data)[i], cell(x, w, K, 1, N),
                     1e-5);
    }
}

static void test_matmul_vectors(void **state)
{
    (void)state;
    sb_tensor *y;
    sb_tensor *v = test_f32("3", 1, 2, 3);
    sb_tensor *m = test_f32("3x2", 1, 2, 3, 4, 5, 6);
    sb_tensor *mt = test_f32("2x3", 1, 3, 5, 2, 4, 6);
    test_node node = {.op = "MatMul", .in = {v, m}, .n_in = 2, .n_out = 1};

    test_node_run(&node, &y);
    assert_tensor("vector x matrix", y, test_f32("2", 22, 28), 0);
    node.in[0] = mt;
    node.in[1] = v;
    test_node_run(&node, &y);
    assert_tensor("matrix x vector", y, test_f32("2", 22, 28), 0);
    node.in[0] = v;
    test_node_run(&node, &y);
    assert_tensor("vector x vector", y, test_f32("", 14), 0);
}

static void test_matmul_integers(void **state)
{
    (void)state;
    static const sb_dtype types[] = {SB_DTYPE_I32, SB_DTYPE_U32, SB_DTYPE_I64,
                                     SB_DTYPE_U64};
    static const double a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8};
    static const double want[] = {19, 22, 43, 50};

    for (size_t i = 0; i < SB_COUNT(types); i++) {
        sb_tensor *y;
        test_node node = {.op = "MatMul",
                          .n_in = 2,
                          .n_out = 1,
                          .in = {test_tensor(types[i], "2x2", a),
                                 test_tensor(types[i], "2x2", b)}};
        test_node_run(&node, &y);
        assert_tensor("integers", y, test_tensor(types[i], "2x2", want), 0);
    }
}

static void test_matmul_empty(void **state)
{
    (void)state;
    sb_tensor *y;
    test_node node = {.op = "MatMul",
                      .n_in = 2,
                      .n_out = 1,
                      .in = {test_tensor(SB_DTYPE_F32, "2x0", NULL),
                             test_tensor(SB_DTYPE_F32, "0x3", NULL)}};

    test_node_run(&node, &y);
    assert_tensor("sum of nothing", y, test_f32("2x3", 0, 0, 0, 0, 0, 0), 0);
    node.in[0] = test_tensor(SB_DTYPE_F32, "0x4x2", NULL);
    node.in[1] = test_tensor(SB_DTYPE_F32, "2x3", NULL);
    test_node_run(&node, &y);
    assert_int_equal(y->dims[0], 0);
    assert_int_equal(y->dims[2], 3);
}

static void test_matmul_bad(void **state)
{
    (void)state;
    sb_tensor *y;
    test_node node = {.op = "MatMul",
                      .n_in = 2,
                      .n_out = 1,
                      .in = {test_tensor(SB_DTYPE_F32, "2x3", NULL),
                             test_tensor(SB_DTYPE_F32, "2x3", NULL)}};

    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    assert_error_has("3 columns times 2 rows");
    node.in[0] = test_tensor(SB_DTYPE_F32, "", NULL);
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    node.in[0] = test_tensor(SB_DTYPE_F32, "2x2x2", NULL);
    node.in[1] = test_tensor(SB_DTYPE_F32, "3x2x2", NULL);
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
}

/* The shapes that c may have. */
static sb_tensor *random_c(sb_rng *rng, int64_t m, int64_t n, int64_t *row,
                           int64_t *col)
{
    int kind = (int)test_pick(rng, 0, 4);

    *row = kind == 1 || kind == 2 ? (kind == 1 ? n : 1) : 0;
    *col = kind == 0 || kind == 1 ? 1 : 0;
    switch (kind) {
    case 0:
        *col = n == 1 ? 0 : 1;
        return test_floats(rng, 1, &n);
    case 1:
        return test_floats(rng, 2, (int64_t[]){m, n});
    case 2:
        return test_floats(rng, 2, (int64_t[]){m, 1});
    case 3:
        return test_floats(rng, 0, NULL);
    default:
        return NULL;
    }
}

static void test_gemm_is_the_naive_sum(void **state)
{
    (void)state;
    sb_rng rng;

    sb_rng_init(&rng, test_seed(8));
    for (int i = 0; i < CASES; i++) {
        int64_t m = odd_size(&rng), k = odd_size(&rng), n = odd_size(&rng);
        int64_t row = 0, col = 0;
        bool ta = test_pick(&rng, 0, 1), tb = test_pick(&rng, 0, 1);
        double alpha = i % 3 ? 1 : 0.5, beta = i % 2 ? 1 : 0.25;
        sb_tensor *a =
            test_floats(&rng, 2, (int64_t[]){ta ? k : m, ta ? m : k});
        sb_tensor *b =
            test_floats(&rng, 2, (int64_t[]){tb ? n : k, tb ? k : n});
        sb_tensor *c = random_c(&rng, m, n, &row, &col), *y;
        char attrs[128];

        (void)snprintf(attrs, sizeof attrs,
                       "transA=%d, transB=%d, alpha=%.2f, beta=%.2f", ta, tb,
                       alpha, beta);
        test_node node = {.op = "Gemm",
                          .attrs = attrs,
                          .in = {a, b, c},
                          .n_in = 3,
                          .n_out = 1,
                          .constant = i % 4 ? 2u : 0};
        test_node_threads(&node, &y);
        for (int t = 0; t < 200; t++) {
            int64_t r = test_pick(&rng, 0, m - 1),
                    q = test_pick(&rng, 0, n - 1);
            const float *x = (float *)a->data + (ta ? r : r * k);
            const float *w = (float *)b->data + (tb ? q * k : q);
            double want = alpha * cell(x, w, k, ta ? m : 1, tb ? 1 : n);
            if (c)
                want += beta * (double)((float *)c->data)[r * row + q * col];
            assert_close(attrs, ((float *)y->data)[r * n + q], want,
                         2e-6 * (double)k + 1e-6);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul_2d),
        cmocka_unit_test(test_matmul_broadcast),
        cmocka_unit_test(test_matmul_vectors),
        cmocka_unit_test(test_matmul_integers),
        cmocka_unit_test(test_matmul_empty),
        cmocka_unit_test(test_matmul_bad),
        cmocka_unit_test(test_gemm_is_the_naive_sum),
    };
    int rc = test_every_isa(argc, argv);

    return rc >= 0 ? rc
                   : cmocka_run_group_tests_name("matmul", tests, NULL, NULL);
}
