/* States: memory that lives across runs, and what keeps memory alive within
 * one. */
#include "exectest.h"

#include <stdlib.h>

#include "base/alloc.h"

/* ---- written by one run, read by the next ------------------------------- */

static void test_state_written_by_a_run_is_read_by_the_next(void **state)
{
    (void)state;
    sb_tensor *sum = test_f32("3", 0, 0, 0);
    sb_state st = {.t = *sum};
    net n;

    net_parse(&n, "graph g(x: f32[3], sum: f32[3]) -> (next: f32[3]) {\n"
                  "  next = Add(sum, x)\n}\n");
    sb_exec_state bind = {value_of(&n, "sum"), value_of(&n, "next"), &st};
    net_open(&n, &(sb_exec_options){.states = &bind, .n_states = 1});
    const sb_tensor *out = NULL;
    for (int i = 1; i <= 4; i++) {
        assert_ok(sb_exec_run(n.exec, INPUTS(test_f32("3", 1, 10, 100), NULL),
                              NULL, &out));
        assert_tensor("sum", sum, test_f32("3", i, 10 * i, 100 * i), 0);
        assert_ptr_equal(out->data, sum->data);
        assert_int_equal(st.version, i);
    }
    /* The sum is written where it is read: nothing is left for a workspace. */
    assert_int_equal(sb_exec_workspace(n.exec), 0);
    /* Other memory from now on. */
    sb_tensor *other = test_f32("3", 5, 5, 5);
    st.t = *other;
    assert_ok(
        sb_exec_run(n.exec, INPUTS(test_f32("3", 1, 2, 3), NULL), NULL, &out));
    assert_tensor("other", other, test_f32("3", 6, 7, 8), 0);
    assert_tensor("sum", sum, test_f32("3", 4, 40, 400), 0);
    net_close(&n);
}

/* `w` is read after its new value is made: kernels must see the old one. */
static void test_old_state_is_seen_until_the_end_of_the_run(void **state)
{
    (void)state;
    sb_tensor *w = test_f32("2", 1, 2);
    sb_state st = {.t = *w};
    net n;

    net_parse(&n, "graph g(x: f32[2], w: f32[2]) -> (new: f32[2], y: f32[2]) "
                  "{\n"
                  "  new = Sub(x, w)\n"
                  "  p = Mul(new, new)\n"
                  "  y = Add(p, w)\n}\n");
    sb_exec_state bind = {value_of(&n, "w"), value_of(&n, "new"), &st};
    net_open(&n, &(sb_exec_options){.states = &bind, .n_states = 1});
    const sb_tensor *out[2];
    assert_ok(
        sb_exec_run(n.exec, INPUTS(test_f32("2", 4, 4), NULL), NULL, out));
    assert_tensor("y", out[1], test_f32("2", 10, 6), 0);
    assert_tensor("w", w, test_f32("2", 3, 2), 0);
    assert_ok(
        sb_exec_run(n.exec, INPUTS(test_f32("2", 4, 4), NULL), NULL, out));
    assert_tensor("y", out[1], test_f32("2", 4, 6), 0);
    assert_tensor("w", w, test_f32("2", 1, 2), 0);
    net_close(&n);
}

/* A run that stops before a node, whose results the caller fills in. */
static void test_run_in_two_parts(void **state)
{
    (void)state;
    const sb_kernel *at = NULL;
    const sb_tensor *out = NULL;
    net n;

    net_parse(&n, "graph g(x: f32[3]) -> (z: f32[3]) {\n"
                  "  y = Neg(x)\n  d = sparsebit::OutputGrad(y)\n"
                  "  z = Mul(d, y)\n}\n");
    net_open(&n, NULL);
    sb_node_id node = sb_graph_value(n.graph, value_of(&n, "d"))->producer;
    assert_status(sb_exec_run_on(n.exec, &out), SB_BAD_ARG);
    for (int i = 1; i <= 2; i++) {
        assert_ok(
            sb_exec_run_to(n.exec, INPUTS(test_f32("3", 1, 2, 3)), node, &at));
        assert_tensor("y", at->in[0], test_f32("3", -1, -2, -3), 0);
        for (int k = 0; k < 3; k++)
            ((float *)at->out[0]->data)[k] = (float)(i * (k + 1));
        assert_ok(sb_exec_run_on(n.exec, &out));
        assert_tensor("z", out, test_f32("3", -i, -4 * i, -9 * i), 0);
        assert_status(sb_exec_run_on(n.exec, &out), SB_BAD_ARG);
    }
    assert_status(
        sb_exec_run(n.exec, INPUTS(test_f32("3", 1, 2, 3)), NULL, &out),
        SB_BAD_ARG);
    assert_error_has("gradients come from the caller");
    net_close(&n);
}

static void test_two_states_change_places(void **state)
{
    (void)state;
    sb_tensor *a = test_f32("2", 1, 2), *b = test_f32("2", 3, 4);
    sb_state sa = {.t = *a}, sb = {.t = *b};
    net n;

    net_parse(&n, "graph g(a: f32[2], b: f32[2]) -> (p: f32[2], q: f32[2]) {\n"
                  "  p = Identity(b)\n  q = Identity(a)\n}\n");
    sb_exec_state bind[] = {{value_of(&n, "a"), value_of(&n, "p"), &sa},
                            {value_of(&n, "b"), value_of(&n, "q"), &sb}};
    net_open(&n, &(sb_exec_options){.states = bind, .n_states = 2});
    const sb_tensor *out[2];
    assert_ok(sb_exec_run(n.exec, INPUTS(NULL, NULL), NULL, out));
    assert_tensor("a", a, test_f32("2", 3, 4), 0);
    assert_tensor("b", b, test_f32("2", 1, 2), 0);
    net_close(&n);
}

/* Results in memory of the caller; a convolution's lie channels last until
 * then. */
static void test_outputs_are_written_to_states(void **state)
{
    (void)state;
    sb_tensor *x = test_random(SB_DTYPE_F32, "1x16x9x7", 1);
    sb_tensor *y = test_tensor(SB_DTYPE_F32, "1x24x9x7", NULL);
    const char *text = "graph g(x: f32[1,16,9,7]) -> (y: f32[1,24,9,7]) {\n"
                       "  w: f32[24,16,3,3] = random(5)\n"
                       "  y = Conv(x, w) {pads=[1,1,1,1]}\n}\n";
    sb_state st = {.t = *y};
    const sb_tensor *out = NULL;
    net n;

    net_parse(&n, text);
    sb_exec_state bind = {SB_NONE, value_of(&n, "y"), &st};
    net_open(&n, &(sb_exec_options){.states = &bind, .n_states = 1});
    assert_ok(sb_exec_run(n.exec, INPUTS(x), NULL, &out));
    assert_ptr_equal(out->data, y->data);
    assert_tensor("y", y, test_run1(text, INPUTS(x)), 0);
    net_close(&n);
}

/* ---- shapes alone keep nothing alive ------------------------------------ */

static void test_reading_a_shape_does_not_keep_memory(void **state)
{
    (void)state;
    char text[4096] = "graph g(x: f32[1000]) -> (y: f32[*]) {\n"
                      "  v0 = CumSum(x, ax)\n";
    const sb_tensor *out = NULL;
    net n;

    for (int i = 1; i < 10; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text),
                       "  v%d = CumSum(v%d, ax)\n", i, i - 1);
    /* The shapes of all of them, at the end. */
    for (int i = 0; i < 10; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text),
                       "  s%d = Shape(v%d)\n  r%d = Reshape(%s%d, s%d)\n", i, i,
                       i, i ? "r" : "v", i ? i - 1 : 9, i);
    strcat(text, "  y = CumSum(r9, ax)\n  ax: i64 = 0\n}\n");
    net_parse(&n, text);
    net_open(&n, NULL);
    assert_ok(sb_exec_run(n.exec, INPUTS(test_random(SB_DTYPE_F32, "1000", 1)),
                          NULL, &out));
    assert_true(sb_exec_workspace(n.exec) <= 2 * 4032);
    net_close(&n);
}

/* ---- many slots --------------------------------------------------------- */

/* More than are placed one by one: a chain, whose values die at once, and a sum
 * of all of them, which keeps every second alive. */
static void test_graphs_with_thousands_of_values(void **state)
{
    (void)state;
    enum { COUNT = 6000, LINE = 40 };
    char *text = malloc(2 * COUNT * LINE);
    const sb_tensor *out[2];
    size_t at = 0;
    net n;

    assert_non_null(text);
    /* CumSum is not in place; along an axis of one element it copies. */
    at = (size_t)sprintf(text,
                         "graph g(x: f32[1,4]) -> (y: f32[1,4], z: f32[1,4]) "
                         "{\n  one: f32[1] = [1]\n  ax: i64 = 0\n"
                         "  v0 = CumSum(x, ax)\n");
    for (int i = 1; i < COUNT; i++)
        at += (size_t)sprintf(text + at, "  v%d = %s(v%d, %s)\n", i,
                              i % 2 ? "Add" : "CumSum", i - 1,
                              i % 2 ? "one" : "ax");
    at += (size_t)sprintf(text + at, "  y = Neg(v%d)\n  z = Sum(", COUNT - 1);
    for (int i = 0; i < COUNT; i += 2)
        at += (size_t)sprintf(text + at, "%sv%d", i ? ", " : "", i);
    (void)sprintf(text + at, ")\n}\n");
    net_parse(&n, text);
    free(text);
    net_open(&n, NULL);
    assert_ok(
        sb_exec_run(n.exec, INPUTS(test_f32("1x4", 0, 1, 2, 3)), NULL, out));
    /* v[i] = x + ceil(i / 2) */
    enum { HALF = COUNT / 2 };
    assert_tensor("y", out[0],
                  test_f32("1x4", -HALF, -HALF - 1, -HALF - 2, -HALF - 3), 0);
    double sum = HALF * (HALF - 1.0) / 2;
    assert_tensor(
        "z", out[1],
        test_f32("1x4", sum, sum + HALF, sum + 2 * HALF, sum + 3 * HALF), 1e-6);
    /* Half of them are alive at the end, 64 bytes each. */
    assert_true(sb_exec_workspace(n.exec) <= (HALF + 64) * 64);
    net_close(&n);
}

/* ---- memory -------------------------------------------------------------- */

static sb_status learn_once(sb_ctx *ctx)
{
    static float w[32 * 32 * 9], x[32 * 28 * 28], sum[4];
    int64_t w_dims[] = {32, 32, 3, 3}, x_dims[] = {1, 32, 28, 28}, four = 4;
    sb_state states[] = {{.t = sb_tensor_make(SB_DTYPE_F32, 4, w_dims)},
                         {.t = sb_tensor_make(SB_DTYPE_F32, 1, &four)}};
    sb_tensor in = sb_tensor_make(SB_DTYPE_F32, 4, x_dims);
    const sb_tensor *out[2];
    sb_graph *g = NULL;
    sb_exec *exec = NULL;

    states[0].t.data = w;
    states[1].t.data = sum;
    in.data = x;
    sb_status status = sb_graph_parse(
        ctx,
        "graph g(x: f32[1,32,28,28], w: f32[32,32,3,3], s: f32[4]) -> "
        "(y: f32[*], t: f32[*]) {\n"
        "  v = Neg(w)\n  a = Conv(x, w) {pads=[1,1,1,1]}\n"
        "  y = Conv(a, v) {pads=[1,1,1,1]}\n  t = Add(s, s)\n}\n",
        &g);
    if (status == SB_OK)
        status = sb_graph_infer(g);
    if (status == SB_OK) {
        sb_exec_state bind[] = {
            {sb_graph_find_value(g, "w"), SB_NONE, &states[0]},
            {sb_graph_find_value(g, "s"), sb_graph_find_value(g, "t"),
             &states[1]}};
        sb_exec_options opt = {.states = bind, .n_states = 2};
        status = sb_exec_create(ctx, g, &opt, &exec);
    }
    if (status == SB_OK)
        status = sb_exec_run(exec, INPUTS(&in, NULL, NULL), NULL, out);
    sb_exec_free(exec);
    sb_graph_free(g);
    return status;
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    test_every_allocation("states", learn_once);
}

/* ---- refusals ----------------------------------------------------------- */

static void refuse(const char *text, sb_exec_state bind, const char *part)
{
    sb_exec_options opt = {.states = &bind, .n_states = 1};
    net n;

    net_parse(&n, text);
    assert_true(sb_exec_create(test_ctx(), n.graph, &opt, &n.exec) != SB_OK);
    assert_error_has(part);
    sb_graph_free(n.graph);
}

static void test_bindings_that_cannot_be(void **state)
{
    (void)state;
    const char *text = "graph g(x: f32[2]) -> (y: f32[2]) {\n"
                       "  c: f32[2] = [1, 2]\n"
                       "  a = Add(x, c)\n  y = Neg(a)\n}\n";
    sb_state two = {.t = *test_f32("2", 1, 2)};
    sb_state three = {.t = *test_f32("3", 1, 2, 3)};
    net n;

    net_parse(&n, text);
    sb_value_id x = value_of(&n, "x"), c = value_of(&n, "c");
    sb_value_id a = value_of(&n, "a"), y = value_of(&n, "y");
    refuse(text, (sb_exec_state){a, SB_NONE, &two},
           "neither a graph input nor a constant");
    refuse(text, (sb_exec_state){SB_NONE, a, &two},
           "not written by a graph output");
    refuse(text, (sb_exec_state){c, SB_NONE, &three}, "another type or shape");
    refuse(text, (sb_exec_state){x, SB_NONE, &three}, "dimension 0");

    /* Of another shape than what is made; given although it is a state. */
    sb_exec_state bind = {SB_NONE, y, &three};
    const sb_tensor *out = NULL;
    net_open(&n, &(sb_exec_options){.states = &bind, .n_states = 1});
    assert_status(sb_exec_run(n.exec, INPUTS(test_f32("2", 1, 2)), NULL, &out),
                  SB_BAD_DATA);
    assert_error_has("output 'y' is f32[2], its state is f32[3]");
    sb_exec_free(n.exec);
    bind = (sb_exec_state){x, SB_NONE, &two};
    net_open(&n, &(sb_exec_options){.states = &bind, .n_states = 1});
    assert_status(sb_exec_run(n.exec, INPUTS(test_f32("2", 1, 2)), NULL, &out),
                  SB_BAD_ARG);
    assert_error_has("input 'x' is a state");
    two.t.data = NULL;
    assert_status(sb_exec_run(n.exec, INPUTS(NULL), NULL, &out), SB_BAD_ARG);
    assert_error_has("no memory");
    net_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state_written_by_a_run_is_read_by_the_next),
        cmocka_unit_test(test_old_state_is_seen_until_the_end_of_the_run),
        cmocka_unit_test(test_run_in_two_parts),
        cmocka_unit_test(test_two_states_change_places),
        cmocka_unit_test(test_outputs_are_written_to_states),
        cmocka_unit_test(test_reading_a_shape_does_not_keep_memory),
        cmocka_unit_test(test_graphs_with_thousands_of_values),
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_bindings_that_cannot_be),
    };
    return cmocka_run_group_tests_name("exec_states", tests, NULL, NULL);
}
