/* Reductions against naive sums in double: random shapes and axes; empty
 * sets; what NumPy says about integers. */
#include "sbtest.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define INPUTS(...) ((const sb_tensor *[]){__VA_ARGS__})

static uint64_t rng_state = 7;

static uint32_t rng(uint32_t n)
{
    rng_state =
        rng_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33) % n;
}

/* ---- the naive reference ------------------------------------------------ */

typedef struct tally {
    double sum, abs, square, prod, max, min, exps;
    int64_t n;
} tally;

static void count(tally *t, double x)
{
    t->sum += x;
    t->abs += fabs(x);
    t->square += x * x;
    t->prod *= x;
    t->exps += exp(x);
    t->max = x > t->max ? x : t->max;
    t->min = x < t->min ? x : t->min;
    t->n++;
}

static double result(const char *op, const tally *t)
{
    if (strcmp(op, "ReduceSum") == 0)
        return t->sum;
    if (strcmp(op, "ReduceMean") == 0)
        return t->sum / (double)t->n;
    if (strcmp(op, "ReduceProd") == 0)
        return t->prod;
    if (strcmp(op, "ReduceMax") == 0)
        return t->max;
    if (strcmp(op, "ReduceMin") == 0)
        return t->min;
    if (strcmp(op, "ReduceL1") == 0)
        return t->abs;
    if (strcmp(op, "ReduceL2") == 0)
        return sqrt(t->square);
    if (strcmp(op, "ReduceSumSquare") == 0)
        return t->square;
    if (strcmp(op, "ReduceLogSum") == 0)
        return log(t->sum);
    return log(t->exps); /* ReduceLogSumExp */
}

/* Which element of the result (with all dimensions kept) does element i go
 * to? */
static int64_t target(const sb_tensor *x, int64_t i, uint32_t mask)
{
    int64_t at = 0, stride = 1;

    for (int d = x->rank - 1; d >= 0; d--) {
        int64_t index = i % x->dims[d];

        i /= x->dims[d];
        if (mask >> d & 1)
            continue;
        at += index * stride;
        stride *= x->dims[d];
    }
    return at;
}

static void check(const char *op, sb_dtype type)
{
    static const int sizes[] = {1, 2, 3, 5, 33, 150};
    char shape[64] = "", list[64] = "", axes[64] = "", text[512];
    uint32_t rank = 1 + rng(4), mask = 0, keep = rng(2);
    int n_axes = 0;

    for (uint32_t d = 0; d < rank; d++) {
        int n = sizes[rng(rank > 2 ? 4 : 6)];
        size_t used = strlen(shape);

        (void)snprintf(shape + used, 64 - used, "%s%d", d ? "x" : "", n);
        (void)snprintf(list + used, 64 - used, "%s%d", d ? "," : "", n);
        if (rng(2)) {
            used = strlen(axes);
            (void)snprintf(axes + used, 64 - used, "%s%d", n_axes ? "," : "",
                           rng(2) ? (int)d : (int)d - (int)rank);
            mask |= 1u << d;
            n_axes++;
        }
    }
    if (n_axes == 0)
        mask = (1u << rank) - 1; /* no axes: all of them */
    sb_tensor *x = test_random(type, shape, rng(1000));
    const char *name = sb_dtype_get(type)->name;
    (void)snprintf(text, sizeof text,
                   "graph g(x: %s[%s]) -> (y: %s[*]) {\n"
                   "  a: i64[%d] = [%s]\n  y = %s(x, a) {keepdims=%u}\n}\n",
                   name, list, name, n_axes, axes, op, keep);
    sb_tensor *y = test_run1(text, INPUTS(x));
    int64_t n_out = sb_tensor_count(y);
    assert_int_equal(y->rank, keep ? x->rank : n_axes ? x->rank - n_axes : 0);
    for (int64_t o = 0; o < n_out; o++) {
        tally t = {.prod = 1, .max = -INFINITY, .min = INFINITY};

        for (int64_t i = 0; i < sb_tensor_count(x); i++)
            if (target(x, i, mask) == o)
                count(&t, sb_tensor_get_f64(x, i));
        double want = result(op, &t);
        if (!sb_dtype_is_float(type)) {
            if (!(fabs(want) < 100)) /* may wrap in int8 */
                continue;
            want = trunc(want);
        }
        double tol = type == SB_DTYPE_F16 ? 2e-3 : 1e-6;
        if (type == SB_DTYPE_F16 && fabs(want) > 60000)
            continue;
        assert_close(text, sb_tensor_get_f64(y, o), want,
                     tol + tol * fabs(want));
    }
}

static void test_random_axes(void **state)
{
    static const char *const ops[] = {
        "ReduceSum",    "ReduceMean",     "ReduceProd", "ReduceMax",
        "ReduceMin",    "ReduceL1",       "ReduceL2",   "ReduceSumSquare",
        "ReduceLogSum", "ReduceLogSumExp"};
    static const sb_dtype types[] = {SB_DTYPE_F32, SB_DTYPE_F32, SB_DTYPE_F64,
                                     SB_DTYPE_I64, SB_DTYPE_I32, SB_DTYPE_I8,
                                     SB_DTYPE_F16};

    (void)state;
    for (int round = 0; round < 400; round++)
        check(ops[rng(SB_COUNT(ops))], types[rng(SB_COUNT(types))]);
}

/* ---- edges -------------------------------------------------------------- */

static void test_nothing_to_reduce(void **state)
{
    static const struct {
        const char *op;
        double want;
    } cases[] = {
        {"ReduceSum", 0},
        {"ReduceProd", 1},
        {"ReduceMax", -INFINITY},
        {"ReduceL1", 0},
        {"ReduceMin", INFINITY},
        {"ReduceLogSum", -INFINITY},
        {"ReduceMean", NAN},
        {"ReduceSumSquare", 0},
        {"ReduceLogSumExp", -INFINITY},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        char text[256];

        (void)snprintf(text, sizeof text,
                       "graph g(x: f32[2,0,4]) -> (y: f32[2,1,4]) {\n"
                       "  a: i64[1] = [1]\n  y = %s(x, a)\n}\n",
                       cases[i].op);
        sb_tensor *y =
            test_run1(text, INPUTS(test_tensor(SB_DTYPE_F32, "2x0x4", NULL)));
        assert_int_equal(sb_tensor_count(y), 8);
        for (int64_t j = 0; j < 8; j++)
            assert_close(cases[i].op, sb_tensor_get_f64(y, j), cases[i].want,
                         0);
    }
    sb_tensor *y = test_run1("graph g(x: i8[0]) -> (y: i8[1]) {\n"
                             "  a: i64[1] = [0]\n  y = ReduceMax(x, a)\n}\n",
                             INPUTS(test_tensor(SB_DTYPE_I8, "0", NULL)));
    assert_close("least int8", sb_tensor_get_f64(y, 0), -128, 0);
}

/* Reducing over no axes still applies the function. */
static void test_no_axes_still_apply_the_function(void **state)
{
    (void)state;
    sb_tensor *x = test_f32("3", -1, 2, -3);

    assert_tensor("square",
                  test_run1("graph g(x: f32[3]) -> (y: f32[3]) {\n"
                            "  y = ReduceSumSquare(x) "
                            "{noop_with_empty_axes=1}\n}\n",
                            INPUTS(x)),
                  test_f32("3", 1, 4, 9), 0);
    assert_tensor("all",
                  test_run1("graph g(x: f32[3]) -> (y: f32[]) {\n"
                            "  y = ReduceSum(x) {keepdims=0}\n}\n",
                            INPUTS(x)),
                  test_f32("", -2), 0);
}

static void test_log_sum_exp_is_stable(void **state)
{
    (void)state;
    /* log(2 e^1000) = 1000 + log 2; with an infinity the sum is infinite. */
    sb_tensor *y = test_run1(
        "graph g(x: f32[3,2]) -> (y: f32[3]) {\n"
        "  a: i64[1] = [1]\n"
        "  y = ReduceLogSumExp(x, a) {keepdims=0}\n}\n",
        INPUTS(test_f32("3x2", 1000, 1000, INFINITY, 1, -INFINITY, -INFINITY)));
    assert_tensor("lse", y,
                  test_f32("3", 1000 + 0.69314718, INFINITY, -INFINITY), 1e-6);
}

static void test_bool_and_unsigned(void **state)
{
    (void)state;
    sb_tensor *y = test_run1(
        "graph g(x: bool[2,2]) -> (y: bool[2]) {\n"
        "  a: i64[1] = [1]\n"
        "  y = ReduceMax(x, a) {keepdims=0}\n}\n",
        INPUTS(test_tensor(SB_DTYPE_BOOL, "2x2", (double[]){0, 1, 0, 0})));
    assert_int_equal(((uint8_t *)y->data)[0], 1);
    assert_int_equal(((uint8_t *)y->data)[1], 0);
    sb_tensor *x = test_tensor(SB_DTYPE_U64, "2", NULL);
    ((uint64_t *)x->data)[0] = UINT64_MAX;
    ((uint64_t *)x->data)[1] = 1;
    y = test_run1("graph g(x: u64[2]) -> (y: u64[1]) {\n"
                  "  y = ReduceMax(x)\n}\n",
                  INPUTS(x));
    assert_true(*(uint64_t *)y->data == UINT64_MAX);
}

static void test_bad_axes_are_refused(void **state)
{
    (void)state;
    assert_status(test_try_run("graph g(x: f32[2,2]) -> (y: f32[*]) {\n"
                               "  a: i64[1] = [2]\n  y = ReduceSum(x, a)\n}\n",
                               INPUTS(test_f32("2x2", 1, 2, 3, 4))),
                  SB_BAD_MODEL);
    assert_error_has("axis");
}

/* ONNX gives a meaning to 0 and 1 only, and runtimes read other numbers
 * differently. */
static void test_flags_are_0_or_1(void **state)
{
    static const char *const nodes[] = {
        "ReduceSum(x) {keepdims=2}",
        "ReduceSum(x) {noop_with_empty_axes=-3}",
        "ArgMax(x) {select_last_index=12}",
        "Trilu(x) {upper=2}",
        "Gemm(x, x) {transB=-1}",
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(nodes); i++) {
        char text[200];
        (void)snprintf(text, sizeof text,
                       "graph g(x: f32[2,2]) -> (y) {\n  y = %s\n}\n",
                       nodes[i]);
        assert_status(test_try_run(text, INPUTS(test_f32("2x2", 1, 2, 3, 4))),
                      SB_BAD_MODEL);
        assert_error_has("want 0 or 1");
    }
}

/* A large sum in one thread and in four; the result is exact in double. */
static void test_threads_change_nothing(void **state)
{
    const char *text = "graph g(x: f32[64,1000]) -> (y: f32[64]) {\n"
                       "  a: i64[1] = [1]\n  y = ReduceSum(x, a) {keepdims=0}"
                       "\n}\n";
    sb_tensor *x = test_random(SB_DTYPE_F32, "64x1000", 5);

    (void)state;
    sb_ctx_set_threads(test_ctx(), 1);
    sb_tensor *one = test_run1(text, INPUTS(x));
    sb_ctx_set_threads(test_ctx(), 4);
    sb_tensor *four = test_run1(text, INPUTS(x));
    assert_memory_equal(one->data, four->data, sb_tensor_bytes(one));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_axes),
        cmocka_unit_test(test_nothing_to_reduce),
        cmocka_unit_test(test_no_axes_still_apply_the_function),
        cmocka_unit_test(test_log_sum_exp_is_stable),
        cmocka_unit_test(test_bool_and_unsigned),
        cmocka_unit_test(test_bad_axes_are_refused),
        cmocka_unit_test(test_flags_are_0_or_1),
        cmocka_unit_test(test_threads_change_nothing),
    };
    return cmocka_run_group_tests_name("reduce", tests, NULL, NULL);
}
