/* Products of bfloat16.  Small whole numbers are exact in it, and so are their
 * sums: these are compared with sums of integers. */
#include "sbtest_node.h"

#include <math.h>
#include <string.h>

#include "dnn/bf16_product.h"
#include "exec/exec.h"
#include "graph/text.h"

enum { M = 101, N = 70, K = 37 }; /* no multiples of tiles, panels, pairs */

/* A whole number from -8 to 8 for a place. */
static float whole(int64_t i, int64_t j)
{
    return (float)((i * 31 + j * 17 + i * j % 7) % 17 - 8);
}

static int64_t want(int64_t i, int64_t j)
{
    int64_t sum = 0;

    for (int64_t t = 0; t < K; t++)
        sum += (int64_t)whole(i, t) * (int64_t)whole(t + 1000, j);
    return sum;
}

/* Freed at exit. */
static void *room(size_t bytes)
{
    char shape[32];

    (void)snprintf(shape, sizeof shape, "%zu", bytes / sizeof(float) + 1);
    return test_tensor(SB_DTYPE_F32, shape, NULL)->data;
}

static uint32_t *panels_of(const sb_bf16_source *from)
{
    size_t bytes = 0;

    assert_true(sb_bf16_bytes(from->k, from->n, &bytes));
    uint32_t *to = room(bytes);
    memset(to, 0xff, bytes); /* NaN where nothing is written */
    sb_bf16_pack(test_ctx(), from, to);
    return to;
}

/* b as it lies and turned; c with a bias, added to and clipped at 0. */
static void test_whole_numbers(void **state)
{
    static float a[M][K], b[K][N], turned[N][K], c[M][N + 3], bias[N];
    uint32_t *rows = room(sizeof *rows * M * (size_t)sb_bf16_pairs(K));
    const sb_dnn_post relu = {SB_DNN_RELU, 0, 0};

    (void)state;
    for (int64_t t = 0; t < K; t++) {
        for (int64_t i = 0; i < M; i++)
            a[i][t] = whole(i, t);
        for (int64_t j = 0; j < N; j++)
            b[t][j] = turned[j][t] = whole(t + 1000, j);
    }
    for (int64_t j = 0; j < N; j++)
        bias[j] = whole(j, 3);
    sb_bf16_rows(test_ctx(), a[0], K, M, K, rows);
    for (int turn = 0; turn < 2; turn++) {
        const sb_bf16_source from = {.x = turn ? turned[0] : b[0],
                                     .row = turn ? 1 : N,
                                     .col = turn ? K : 1,
                                     .k = K,
                                     .n = N};
        sb_bf16_product p = {.m = M,
                             .n = N,
                             .k = K,
                             .a = rows,
                             .b = panels_of(&from),
                             .c = c[0],
                             .c_row = N + 3,
                             .bias = bias};

        c[5][N] = 12345;
        sb_bf16_multiply(test_ctx(), &p);
        for (int64_t i = 0; i < M; i++)
            for (int64_t j = 0; j < N; j++)
                assert_int_equal((int64_t)c[i][j],
                                 want(i, j) + (int64_t)bias[j]);
        assert_int_equal((int)c[5][N], 12345);
        p.add = true;
        p.bias = NULL;
        p.posts = &relu;
        p.n_posts = 1;
        sb_bf16_multiply(test_ctx(), &p);
        for (int64_t i = 0; i < M; i++)
            for (int64_t j = 0; j < N; j++) {
                int64_t sum = 2 * want(i, j) + (int64_t)bias[j];

                assert_int_equal((int64_t)c[i][j], sum > 0 ? sum : 0);
            }
    }
}

/* Columns with themselves, down to the diagonal. */
static void test_columns_with_themselves(void **state)
{
    static float x[K][N], c[N][N];
    const sb_bf16_source from = {.x = x[0], .row = N, .col = 1, .k = K, .n = N};

    (void)state;
    for (int64_t t = 0; t < K; t++)
        for (int64_t j = 0; j < N; j++)
            x[t][j] = whole(t + 1000, j);
    const uint32_t *panels = panels_of(&from);
    const sb_bf16_product p = {.m = N,
                               .n = N,
                               .k = K,
                               .a = panels,
                               .a_panels = true,
                               .b = panels,
                               .c = c[0],
                               .c_row = N,
                               .upper = true};
    sb_bf16_multiply(test_ctx(), &p);
    for (int64_t i = 0; i < N; i++)
        for (int64_t j = i; j < N; j++) {
            int64_t sum = 0;

            for (int64_t t = 0; t < K; t++)
                sum += (int64_t)x[t][i] * (int64_t)x[t][j];
            assert_int_equal((int64_t)c[i][j], sum);
        }
}

/* To 8 bits, ties to even; what is no number stays so. */
static void test_rounding(void **state)
{
    const float x[] = {1 + 0x1p-8F,  1 + 0x3p-8F, 1 + 0x1.02p-8F,
                       -1 - 0x1p-9F, INFINITY,    NAN};
    const float rounded[] = {1, 1 + 0x1p-6F, 1 + 0x1p-7F, -1, INFINITY, NAN};
    uint32_t to[3];

    (void)state;
    sb_bf16_rows(test_ctx(), x, 6, 1, 6, to);
    for (int i = 0; i < 6; i++) {
        uint32_t bits = (i % 2 ? to[i / 2] >> 16 : to[i / 2] & 0xffff) << 16;
        float got;

        memcpy(&got, &bits, sizeof got);
        assert_true(isnan(rounded[i]) ? isnan(got) : got == rounded[i]);
    }
}

/* A product of the library with rounded factors is near to the exact one. */
static void test_brief_product(void **state)
{
    enum { SIDE = 168 };
    sb_rng rng;

    (void)state;
    sb_rng_init(&rng, 3);
    sb_tensor *a = test_floats(&rng, 2, (int64_t[]){SIDE, SIDE});
    sb_tensor *b = test_floats(&rng, 2, (int64_t[]){SIDE, SIDE});
    sb_tensor *c = test_floats(&rng, 2, (int64_t[]){SIDE, SIDE});
    const sb_dnn_gemm_desc desc = {.what = "test",
                                   .m = SIDE,
                                   .n = SIDE,
                                   .k = SIDE,
                                   .a_row = SIDE,
                                   .a_col = 1,
                                   .b_row = 1,
                                   .b_col = SIDE,
                                   .c_row = SIDE,
                                   .pack = true,
                                   .brief = true};
    sb_dnn_gemm *gemm = NULL;

    assert_ok(sb_dnn_gemm_create(test_ctx(), &desc, &gemm));
    const sb_dnn_packing *how = sb_dnn_gemm_packing(gemm);
    void *packed = room(how->bytes + how->scratch + 1);
    assert_ok(
        sb_dnn_gemm_pack(gemm, b->data, packed, (char *)packed + how->bytes));
    const sb_dnn_gemm_args args = {.a = a->data,
                                   .b = how->bytes ? packed : b->data,
                                   .c = c->data,
                                   .scratch =
                                       room(sb_dnn_gemm_scratch(gemm) + 1)};
    assert_ok(sb_dnn_gemm_run(gemm, &args));
    for (int64_t i = 0; i < SIDE; i++)
        for (int64_t j = 0; j < SIDE; j++) {
            double sum = 0, size = 0;

            for (int64_t t = 0; t < SIDE; t++) {
                double term = sb_tensor_get_f64(a, i * SIDE + t) *
                              sb_tensor_get_f64(b, j * SIDE + t);

                sum += term;
                size += fabs(term);
            }
            assert_close("sum", sb_tensor_get_f64(c, i * SIDE + j), sum,
                         size * 0x1p-8);
        }
    sb_dnn_gemm_free(gemm);
}

/* 256 times 1 + 2^-10, which bfloat16 does not have: rounded, the sum is 256,
 * else 256.25, both exact.  Only plans of calibration round, and only on
 * processors that multiply so. */
static void check_plan(const sb_exec_options *opt, float sum)
{
    sb_tensor *x = test_tensor(SB_DTYPE_F32, "256x256", NULL);
    const sb_tensor *in[] = {x}, *out[1];
    sb_graph *g = NULL;
    sb_exec *exec = NULL;

    for (int64_t i = 0; i < sb_tensor_count(x); i++)
        ((float *)x->data)[i] = 1 + 0x1p-10F;
    assert_ok(sb_graph_parse(test_ctx(),
                             "graph g(x: f32[256,256]) -> (y: f32[256,256]) {\n"
                             "  w: f32[256,256] = 1\n  y = MatMul(x, w)\n}\n",
                             &g));
    assert_ok(sb_graph_infer(g));
    assert_ok(sb_exec_create(test_ctx(), g, opt, &exec));
    assert_ok(sb_exec_run(exec, in, NULL, out));
    for (int64_t i = 0; i < sb_tensor_count(out[0]); i++)
        assert_true(((const float *)out[0]->data)[i] == sum);
    sb_exec_free(exec);
    sb_graph_free(g);
}

static void test_plans_that_are_not_for_calibration(void **state)
{
    (void)state;
    check_plan(&(sb_exec_options){0}, 256.25F);
    check_plan(&(sb_exec_options){.exact = true}, 256.25F);
}

static void test_plan_of_calibration(void **state)
{
    (void)state;
    if (!sb_bf16_is_fast()) {
        print_message("skipped: this processor has no products of bfloat16\n");
        check_plan(&(sb_exec_options){.brief = true}, 256.25F);
        skip();
    }
    check_plan(&(sb_exec_options){.brief = true}, 256);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_numbers),
        cmocka_unit_test(test_columns_with_themselves),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_brief_product),
        cmocka_unit_test(test_plans_that_are_not_for_calibration),
        cmocka_unit_test(test_plan_of_calibration),
    };
    return cmocka_run_group_tests_name("bf16_product", tests, NULL, NULL);
}
