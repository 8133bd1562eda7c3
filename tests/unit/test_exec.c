/* The executor: what a plan shares, folds, keeps and refuses.
 *
 * Expected values are worked out by hand; operators themselves are tested
 * elsewhere. */
#include "sbtest.h"

#include <stdio.h>
#include <string.h>

#include "exec/exec.h"
#include "graph/text.h"

#define INPUTS(...) ((const sb_tensor *[]){__VA_ARGS__})

/* A parsed graph with its executor. */
typedef struct fixture {
    sb_graph *graph;
    sb_exec *exec;
    const sb_tensor *out[4];
} fixture;

static void open_graph(fixture *f, sb_ctx *ctx, const char *text,
                       const sb_exec_options *opt)
{
    *f = (fixture){0};
    assert_ok(sb_graph_parse(ctx, text, &f->graph));
    assert_ok(sb_graph_infer(f->graph));
    assert_ok(sb_exec_create(ctx, f->graph, opt, &f->exec));
}

static void close_graph(fixture *f)
{
    sb_exec_free(f->exec);
    sb_graph_free(f->graph);
}

/* ---- results do not suffer from sharing memory -------------------------- */

static void test_in_place_keeps_values_that_are_still_read(void **state)
{
    (void)state;
    /* a is read after Relu(a); b is not read after Neg(b). */
    sb_tensor *y = test_run1("graph g(x: f32[4]) -> (y: f32[4]) {\n"
                             "  a = Neg(x)\n"
                             "  b = Relu(a)\n"
                             "  c = Neg(b)\n"
                             "  y = Add(a, c)\n"
                             "}\n",
                             INPUTS(test_f32("4", -2, -1, 1, 2)));
    /* a = 2 1 -1 -2; b = 2 1 0 0; c = -2 -1 0 0; y = a + c */
    assert_tensor("y", y, test_f32("4", 0, 0, -1, -2), 0);
}

static void test_input_is_never_overwritten(void **state)
{
    (void)state;
    sb_tensor *x = test_f32("2x2", -1, 2, -3, 4);
    sb_tensor *y = test_run1("graph g(x: f32[2,2]) -> (y: f32[4]) {\n"
                             "  s: i64[1] = [4]\n"
                             "  v = Reshape(x, s)\n"
                             "  y = Relu(v)\n"
                             "}\n",
                             INPUTS(x));
    assert_tensor("y", y, test_f32("4", 0, 2, 0, 4), 0);
    assert_tensor("x", x, test_f32("2x2", -1, 2, -3, 4), 0);
}

static void test_view_shares_and_outlives(void **state)
{
    (void)state;
    /* v is a view of a; a dies before v does. */
    sb_tensor *out[2];
    test_run("graph g(x: f32[2,2]) -> (v: f32[4], y: f32[2,2]) {\n"
             "  s: i64[1] = [4]\n"
             "  a = Neg(x)\n"
             "  v = Reshape(a, s)\n"
             "  b = Relu(x)\n"
             "  y = Neg(b)\n"
             "}\n",
             INPUTS(test_f32("2x2", -1, 2, -3, 4)), out, 2);
    assert_tensor("v", out[0], test_f32("4", 1, -2, 3, -4), 0);
    assert_tensor("y", out[1], test_f32("2x2", 0, -2, 0, -4), 0);
}

static void test_outputs_that_no_node_makes(void **state)
{
    (void)state;
    sb_tensor *out[3];
    test_run("graph g(x: f32[2]) -> (x: f32[2], c: f32[2], y: f32[2]) {\n"
             "  c: f32[2] = [5, 6]\n"
             "  y = Add(x, c)\n"
             "}\n",
             INPUTS(test_f32("2", 1, 2)), out, 3);
    assert_tensor("x", out[0], test_f32("2", 1, 2), 0);
    assert_tensor("c", out[1], test_f32("2", 5, 6), 0);
    assert_tensor("y", out[2], test_f32("2", 6, 8), 0);
}

static void test_same_value_twice_in_one_node(void **state)
{
    (void)state;
    sb_tensor *y = test_run1("graph g(x: f32[3]) -> (y: f32[3]) {\n"
                             "  a = Neg(x)\n"
                             "  y = Mul(a, a)\n"
                             "}\n",
                             INPUTS(test_f32("3", 1, -2, 3)));
    assert_tensor("y", y, test_f32("3", 1, 4, 9), 0);
}

/* ---- shapes ------------------------------------------------------------- */

static void test_one_executor_many_shapes(void **state)
{
    (void)state;
    fixture f;
    char shape[32];

    open_graph(&f, test_ctx(),
               "graph g(x: f32[N,2]) -> (y: f32[?]) {\n"
               "  s: i64[1] = [-1]\n"
               "  a = Neg(x)\n"
               "  y = Reshape(a, s)\n"
               "}\n",
               NULL);
    /* More shapes than plans are kept, twice over. */
    for (int i = 0; i < 60; i++) {
        int n = 1 + i % 30;
        (void)snprintf(shape, sizeof shape, "%dx2", n);
        sb_tensor *x = test_random(SB_DTYPE_F32, shape, (uint64_t)n);
        assert_ok(sb_exec_run(f.exec, INPUTS(x), NULL, f.out));
        assert_int_equal(f.out[0]->rank, 1);
        assert_int_equal(f.out[0]->dims[0], 2 * n);
        const float *want = x->data, *got = f.out[0]->data;
        for (int j = 0; j < 2 * n; j++)
            assert_close("element", got[j], -want[j], 0);
    }
    close_graph(&f);
}

static void test_shape_arithmetic_is_settled_while_planning(void **state)
{
    (void)state;
    /* Flatten by Shape/Gather/Concat, as exporters write it. */
    sb_tensor *y = test_run1("graph g(x: f32[N,2,2]) -> (y: f32[?,?]) {\n"
                             "  i: i64 = 0\n"
                             "  m: i64[1] = [-1]\n"
                             "  ax: i64[1] = [0]\n"
                             "  s = Shape(x)\n"
                             "  n = Gather(s, i)\n"
                             "  u = Unsqueeze(n, ax)\n"
                             "  t = Concat(u, m) {axis=0}\n"
                             "  y = Reshape(x, t)\n"
                             "}\n",
                             INPUTS(test_f32("1x2x2", 1, 2, 3, 4)));
    assert_tensor("y", y, test_f32("1x4", 1, 2, 3, 4), 0);
}

static void test_shapes_that_depend_on_data(void **state)
{
    (void)state;
    fixture f;

    /* Indices of non-zero elements, then the elements themselves. */
    open_graph(&f, test_ctx(),
               "graph g(x: f32[4]) -> (y: f32[?]) {\n"
               "  ax: i64[1] = [0]\n"
               "  i = NonZero(x)\n"
               "  j = Squeeze(i, ax)\n"
               "  v = Gather(x, j)\n"
               "  y = Neg(v)\n"
               "}\n",
               NULL);
    assert_ok(
        sb_exec_run(f.exec, INPUTS(test_f32("4", 0, 5, 0, 7)), NULL, f.out));
    assert_tensor("two", f.out[0], test_f32("2", -5, -7), 0);
    assert_ok(
        sb_exec_run(f.exec, INPUTS(test_f32("4", 1, 2, 3, 4)), NULL, f.out));
    assert_tensor("four", f.out[0], test_f32("4", -1, -2, -3, -4), 0);
    assert_ok(
        sb_exec_run(f.exec, INPUTS(test_f32("4", 0, 0, 0, 0)), NULL, f.out));
    assert_int_equal(f.out[0]->dims[0], 0);
    close_graph(&f);
}

static const char if_text[] =
    "graph g(c: bool, x: f32[2]) -> (y: f32[?]) {\n"
    "  two: f32[1] = [2]\n"
    "  a = Neg(x)\n"
    "  y = If(c) {\n"
    "    then_branch=graph t() -> (p: f32[2]) { p = Mul(a, two) },\n"
    "    else_branch=graph e() -> (q: f32[4]) { q = Concat(x, a) {axis=0} }}\n"
    "}\n";

static void test_if_runs_the_chosen_branch(void **state)
{
    (void)state;
    fixture f;
    sb_tensor *yes = test_tensor(SB_DTYPE_BOOL, "", (const double[]){1});
    sb_tensor *no = test_tensor(SB_DTYPE_BOOL, "", (const double[]){0});
    sb_tensor *x = test_f32("2", 1, 2);

    open_graph(&f, test_ctx(), if_text, NULL);
    for (int round = 0; round < 2; round++) {
        assert_ok(sb_exec_run(f.exec, INPUTS(yes, x), NULL, f.out));
        assert_tensor("then", f.out[0], test_f32("2", -2, -4), 0);
        assert_ok(sb_exec_run(f.exec, INPUTS(no, x), NULL, f.out));
        assert_tensor("else", f.out[0], test_f32("4", 1, 2, -1, -2), 0);
    }
    close_graph(&f);
}

/* The branch that is not for inputs of this shape says so when it runs, not
 * before. */
static void test_if_whose_other_branch_does_not_fit(void **state)
{
    (void)state;
    static const char text[] =
        "graph g(c: bool, x: f32[1,2]) -> (y: f32[?]) {\n"
        "  one: i64[1] = [1]\n"
        "  zero: i64[1] = [0]\n"
        "  y = If(c) {\n"
        "    then_branch=graph t() -> (p: f32[?]) { p = Squeeze(x, one) },\n"
        "    else_branch=graph e() -> (q: f32[?]) { q = Squeeze(x, zero) }}\n"
        "}\n";
    fixture f;
    sb_tensor *yes = test_tensor(SB_DTYPE_BOOL, "", (const double[]){1});
    sb_tensor *no = test_tensor(SB_DTYPE_BOOL, "", (const double[]){0});
    sb_tensor *x = test_f32("1x2", 1, 2);

    open_graph(&f, test_ctx(), text, NULL);
    assert_ok(sb_exec_run(f.exec, INPUTS(no, x), NULL, f.out));
    assert_tensor("else", f.out[0], test_f32("2", 1, 2), 0);
    assert_int_equal(sb_exec_run(f.exec, INPUTS(yes, x), NULL, f.out),
                     SB_BAD_MODEL);
    close_graph(&f);
}

/* ---- element types ------------------------------------------------------ */

static void test_half_precision_goes_through_f32(void **state)
{
    (void)state;
    const double v[] = {-1.5, 0.25, 3, -0.125};
    sb_tensor *x = test_tensor(SB_DTYPE_F16, "4", v);
    sb_tensor *y = test_run1("graph g(x: f16[4]) -> (y: f16[4]) {\n"
                             "  y = Sigmoid(x)\n"
                             "}\n",
                             INPUTS(x));
    /* 1/(1+e^-x), from a table, to half precision. */
    const double want[] = {0.182425, 0.562177, 0.952574, 0.468791};
    assert_tensor("y", y, test_tensor(SB_DTYPE_F16, "4", want), 1e-3);
}

/* ---- promises ----------------------------------------------------------- */

static void test_a_run_allocates_nothing(void **state)
{
    (void)state;
    test_heap heap = {0};
    sb_allocator hooks = test_heap_hooks(&heap);
    sb_ctx *ctx = NULL;
    fixture f;

    assert_ok(sb_ctx_create(&hooks, &ctx));
    open_graph(&f, ctx,
               "graph g(x: f32[1,3,8,8]) -> (y: f32[1,10]) {\n"
               "  w: f32[4,3,3,3] = random(1)\n"
               "  v: f32[256,10] = random(2)\n"
               "  c = Conv(x, w) {pads=[1,1,1,1]}\n"
               "  r = Relu(c)\n"
               "  m = Flatten(r)\n"
               "  g = MatMul(m, v)\n"
               "  y = Softmax(g)\n"
               "}\n",
               NULL);
    sb_tensor *x = test_random(SB_DTYPE_F32, "1x3x8x8", 3);
    assert_ok(sb_exec_run(f.exec, INPUTS(x), NULL, f.out));
    size_t before = heap.calls;
    for (int i = 0; i < 5; i++)
        assert_ok(sb_exec_run(f.exec, INPUTS(x), NULL, f.out));
    assert_int_equal(heap.calls, before);
    close_graph(&f);
    sb_ctx_free(ctx);
    assert_int_equal(heap.live, 0);
}

static void test_workspace_is_what_is_alive_not_the_sum(void **state)
{
    (void)state;
    fixture f;
    char text[8192] = "graph g(x: f32[1000]) -> (v99: f32[1000]) {\n"
                      "  v0 = Transpose(x)\n";
    for (int i = 1; i < 100; i++) {
        size_t used = strlen(text);
        (void)snprintf(text + used, sizeof text - used,
                       "  v%d = CumSum(v%d, ax)\n", i, i - 1);
    }
    strcat(text, "  ax: i64 = 0\n}\n");
    open_graph(&f, test_ctx(), text, NULL);
    sb_tensor *x = test_random(SB_DTYPE_F32, "1000", 1);
    assert_ok(sb_exec_run(f.exec, INPUTS(x), NULL, f.out));
    /* Two tensors of 4000 bytes, rounded up to 64, whatever the length. */
    assert_true(sb_exec_workspace(f.exec) <= 2 * 4032 + 256);
    close_graph(&f);
}

static sb_status count_dumped(void *user, const char *name, const sb_tensor *t)
{
    char *seen = user;

    (void)t;
    strcat(seen, name);
    strcat(seen, " ");
    return SB_OK;
}

static void test_dump_sees_every_value_in_order(void **state)
{
    (void)state;
    char seen[128] = "";
    sb_exec_options opt = {.dump = count_dumped, .dump_user = seen};
    fixture f;

    open_graph(&f, test_ctx(),
               "graph g(x: f32[2]) -> (y: f32[2]) {\n"
               "  one: f32[1] = [1]\n"
               "  k = Neg(one)\n" /* folded, still shown */
               "  a = Neg(x)\n"
               "  dead = Relu(a)\n"
               "  y = Add(a, k)\n"
               "}\n",
               &opt);
    assert_ok(sb_exec_run(f.exec, INPUTS(test_f32("2", 1, 2)), NULL, f.out));
    assert_string_equal(seen, "k a dead y ");
    close_graph(&f);
}

/* ---- refusals ----------------------------------------------------------- */

static void test_inputs_that_do_not_fit(void **state)
{
    (void)state;
    fixture f;
    const sb_tensor *none = NULL;

    open_graph(&f, test_ctx(),
               "graph g(x: f32[N,2]) -> (y: f32[N,2]) {\n  y = Neg(x)\n}\n",
               NULL);
    assert_status(
        sb_exec_run(f.exec, INPUTS(test_f32("1x3", 1, 2, 3)), NULL, f.out),
        SB_BAD_DATA);
    assert_error_has("'x'");
    assert_status(sb_exec_run(f.exec, INPUTS(test_f32("2", 1, 2)), NULL, f.out),
                  SB_BAD_DATA);
    assert_status(
        sb_exec_run(f.exec, INPUTS(test_i64("1x2", 1, 2)), NULL, f.out),
        SB_BAD_DATA);
    assert_status(sb_exec_run(f.exec, &none, NULL, f.out), SB_BAD_ARG);
    assert_ok(sb_exec_run(f.exec, INPUTS(test_f32("1x2", 1, 2)), NULL, f.out));
    close_graph(&f);
}

static void test_unknown_operator_is_named(void **state)
{
    (void)state;
    assert_status(test_try_run("graph g(x: f32[2]) -> (y: f32[2]) {\n"
                               "  y = com.example::Magic(x) \"spell\"\n"
                               "}\n",
                               INPUTS(test_f32("2", 1, 2))),
                  SB_UNSUPPORTED);
    assert_error_has("spell");
    assert_error_has("Magic");
}

static void test_interruption_stops_a_run(void **state)
{
    (void)state;
    sb_ctx *ctx = NULL;
    fixture f;

    assert_ok(sb_ctx_create(NULL, &ctx));
    open_graph(&f, ctx, "graph g(x: f32[2]) -> (y: f32[2]) {\n y = Neg(x)\n}\n",
               NULL);
    sb_ctx_interrupt(ctx);
    assert_int_equal(
        sb_exec_run(f.exec, INPUTS(test_f32("2", 1, 2)), NULL, f.out),
        SB_INTERRUPTED);
    close_graph(&f);
    sb_ctx_free(ctx);
}

/* As many axes as dimensions promise a single element; what comes at the run
 * may be something else. */
static void test_axes_of_the_run_are_checked(void **state)
{
    (void)state;
    assert_status(
        test_try_run(
            "graph g(x: f32[40,40], a: i64[2]) -> (y: f32[]) {\n"
            "  y = Squeeze(x, a)\n"
            "}\n",
            INPUTS(test_random(SB_DTYPE_F32, "40x40", 1), test_i64("2", 0, 1))),
        SB_BAD_DATA);
    assert_error_has("1600 elements do not fit a result of 1");
    assert_status(
        test_try_run(
            "graph g(x: f32[4,5], a: i64[2]) -> (y: f32[]) {\n"
            "  y = ReduceSum(x, a) {keepdims=0}\n"
            "}\n",
            INPUTS(test_random(SB_DTYPE_F32, "4x5", 1), test_i64("2", 0, 0))),
        SB_BAD_DATA);
    assert_error_has("an axis is given twice");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_axes_of_the_run_are_checked),
        cmocka_unit_test(test_in_place_keeps_values_that_are_still_read),
        cmocka_unit_test(test_input_is_never_overwritten),
        cmocka_unit_test(test_view_shares_and_outlives),
        cmocka_unit_test(test_outputs_that_no_node_makes),
        cmocka_unit_test(test_same_value_twice_in_one_node),
        cmocka_unit_test(test_one_executor_many_shapes),
        cmocka_unit_test(test_shape_arithmetic_is_settled_while_planning),
        cmocka_unit_test(test_shapes_that_depend_on_data),
        cmocka_unit_test(test_if_runs_the_chosen_branch),
        cmocka_unit_test(test_if_whose_other_branch_does_not_fit),
        cmocka_unit_test(test_half_precision_goes_through_f32),
        cmocka_unit_test(test_a_run_allocates_nothing),
        cmocka_unit_test(test_workspace_is_what_is_alive_not_the_sum),
        cmocka_unit_test(test_dump_sees_every_value_in_order),
        cmocka_unit_test(test_inputs_that_do_not_fit),
        cmocka_unit_test(test_unknown_operator_is_named),
        cmocka_unit_test(test_interruption_stops_a_run),
    };
    return cmocka_run_group_tests_name("exec", tests, NULL, NULL);
}
