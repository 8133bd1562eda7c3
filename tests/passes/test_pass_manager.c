/* The pass manager: the table, pipelines, rounds, sub-graphs, the log. */
#include "passtest.h"

#include <string.h>

#include "base/str.h"
#include "exec/exec.h"
#include "graph/text.h"
#include "passes/pass.h"

static void test_rows_are_sorted_and_complete(void **state)
{
    size_t n = 0;
    const sb_pass_def *const *all = sb_pass_all(&n);

    (void)state;
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++) {
        assert_non_null(all[i]->run);
        assert_true(all[i]->name[0] && all[i]->summary[0]);
        assert_ptr_equal(sb_pass_find(NULL, all[i]->name), all[i]);
        if (i > 0)
            assert_true(strcmp(all[i - 1]->name, all[i]->name) < 0);
    }
    assert_null(sb_pass_find(NULL, "no_such_pass"));
}

static void test_pipelines_name_passes(void **state)
{
    const sb_pipeline *p = sb_pipeline_find("simplify");

    (void)state;
    assert_non_null(p);
    for (size_t i = 0; p->passes[i]; i++)
        assert_non_null(sb_pass_find(NULL, p->passes[i]));
    /* A new pass that recognizes an operator is meant to run. */
    size_t n = 0;
    const sb_pass_def *const *all = sb_pass_all(&n);
    for (size_t i = 0; i < n; i++) {
        bool listed = strncmp(all[i]->name, "recognize_", 10) != 0;
        for (size_t k = 0; p->passes[k]; k++)
            listed = listed || strcmp(p->passes[k], all[i]->name) == 0;
        assert_true(listed);
    }
    assert_non_null(sb_pipeline_find("none"));
    assert_null(sb_pipeline_find("no_such_pipeline"));
}

static const pass_case simplify_cases[] = {
    {"passes make work for each other",
     TEST_GRAPH("x: f32[2,3,4]", "y: f32[2,12]",
                "s = Shape(x)\n"
                "i: i64[] = 0\n"
                "b = Gather(s, i)\n"
                "k: i64[] = 1\n"
                "c = Mul(b, k)\n"
                "ax: i64[1] = [0]\n"
                "u = Unsqueeze(c, ax)\n"
                "m: i64[1] = [-1]\n"
                "t = Concat(u, m) {axis=0}\n"
                "a = Identity(x)\n"
                "p: i64[3] = [4, 3, 2]\n"
                "r = Reshape(a, p)\n"
                "d = Dropout(r)\n"
                "e = Reshape(d, t)\n"
                "f = Sigmoid(e)\n"
                "y = Mul(e, f)\n"),
     "t: i64[2] = [2, -1]\n"
     "e = Reshape(x, t)\n"
     "y = Swish(e)\n",
     false},
    {"both branches of an If are simplified",
     TEST_GRAPH("x: f32[2,4], c: bool[]", "y: f32[2,4]",
                "y = If(c) {then_branch=graph t() -> (a) {\n"
                "    p = Identity(x)\n"
                "    a = Neg(p)\n"
                "}, else_branch=graph e() -> (b) {\n"
                "    q = Sigmoid(x)\n"
                "    b = Mul(q, x)\n"
                "}}\n"),
     "y = If(c) {then_branch=graph t() -> (a: f32[2,4]) {\n"
     "    a = Neg(x)\n"
     "}, else_branch=graph e() -> (b: f32[2,4]) {\n"
     "    b = Swish(x)\n"
     "}}\n",
     false},
    {"around what we do not know",
     TEST_GRAPH("x: f32[2,4]", "y: f32[*]",
                "a = Identity(x)\n"
                "b = com.example::Foo(a) {k=1}\n"
                "c = Identity(b)\n"
                "y = com.example::Bar(c, x)\n"),
     "b = com.example::Foo(x) {k=1}\n"
     "y = com.example::Bar(b, x)\n",
     true},
};

static void test_simplify_runs_to_the_end(void **state)
{
    (void)state;
    test_passes("simplify", simplify_cases, SB_COUNT(simplify_cases));
}

static void test_names_that_do_not_exist(void **state)
{
    sb_pass_result *results = NULL;
    sb_graph *g = NULL;
    size_t n = 0;

    (void)state;
    assert_ok(sb_graph_parse(
        test_ctx(), TEST_GRAPH("x: f32[2]", "y: f32[2]", "y = Neg(x)\n"), &g));
    assert_status(sb_passes_run(g, "cse,nonsense", NULL, &results, &n),
                  SB_BAD_ARG);
    assert_error_has("nonsense");
    assert_status(sb_passes_run(g, "cse", "nonsense", &results, &n),
                  SB_BAD_ARG);
    assert_error_has("nonsense");
    assert_ok(sb_passes_run(g, "none", NULL, &results, &n));
    assert_int_equal(n, 0);
    sb_free(test_ctx(), results);
    sb_graph_free(g);
}

static void test_results_in_order_of_use(void **state)
{
    sb_pass_result *results = NULL;
    sb_graph *g = NULL;
    size_t n = 0;

    (void)state;
    assert_ok(sb_graph_parse(
        test_ctx(),
        TEST_GRAPH("x: f32[2]", "y: f32[2]", "a = Identity(x)\ny = Neg(a)\n"),
        &g));
    assert_ok(sb_passes_run(g, " remove_identity , cse,remove_identity", NULL,
                            &results, &n));
    assert_int_equal(n, 2);
    assert_string_equal(results[0].name, "remove_identity");
    assert_int_equal(results[0].changes, 1);
    assert_string_equal(results[1].name, "cse");
    assert_int_equal(results[1].changes, 0);
    sb_free(test_ctx(), results);
    sb_graph_free(g);
}

static void test_minus_takes_a_pass_out(void **state)
{
    sb_pass_result *results = NULL;
    sb_graph *g = NULL;
    size_t n = 0;

    (void)state;
    assert_ok(sb_graph_parse(
        test_ctx(),
        TEST_GRAPH("x: f32[2]", "y: f32[2]", "a = Identity(x)\ny = Neg(a)\n"),
        &g));
    assert_ok(sb_passes_run(g, "simplify,-remove_identity", NULL, NULL, NULL));
    assert_int_equal(sb_graph_live_nodes(g), 2);
    assert_ok(sb_passes_run(g, "cse,remove_dead,-cse", NULL, &results, &n));
    assert_int_equal(n, 1);
    assert_string_equal(results[0].name, "remove_dead");
    assert_status(sb_passes_run(g, "cse,-nonsense", NULL, NULL, NULL),
                  SB_BAD_ARG);
    sb_free(test_ctx(), results);
    sb_graph_free(g);
}

static void log_line(void *user, sb_log_level level, const char *line)
{
    assert_int_equal(level, SB_LOG_LEVEL_INFO);
    sb_str_addf(user, "%s|", line);
}

static void test_dump_after(void **state)
{
    sb_pass_result *results = NULL;
    sb_graph *g = NULL;
    size_t n = 0;
    sb_str log;

    (void)state;
    sb_str_init(&log, test_ctx());
    assert_ok(sb_graph_parse(
        test_ctx(),
        TEST_GRAPH("x: f32[2]", "y: f32[2]", "a = Identity(x)\ny = Neg(a)\n"),
        &g));
    sb_ctx_set_log(test_ctx(), log_line, &log);
    assert_ok(sb_passes_run(g, "simplify", "remove_identity", &results, &n));
    sb_ctx_set_log(test_ctx(), NULL, NULL);
    assert_string_equal(sb_str_text(&log),
                        "graph main(x: f32[2]) -> (y: f32[2]) {|"
                        "    y = Neg(x)|}|");
    sb_free(test_ctx(), results);
    sb_str_free(&log);
    sb_graph_free(g);
}

/* Every pass finds something to do here. */
static const char busy[] = TEST_GRAPH(
    "x: f32[2,8]", "y: f32[16]",
    "h: f32[] = 0.5\no: f32[] = 1\nr: f32[] = 1.4142135\n"
    "e: f32[] = 0.00001\np: f32[] = 2\nax: i64[1] = [-1]\n"
    "g: f32[1,8] = [1, 2, 3, 4, 5, 6, 7, 8]\nt3: f32[] = 3\nz: f32[] = 0\ns6: "
    "f32[] = 6\n"
    "i0 = Identity(x)\n"
    "m = ReduceMean(i0, ax)\nd = Sub(i0, m)\nq = Pow(d, p)\n"
    "v = ReduceMean(q, ax)\nw = Add(v, e)\ns = Sqrt(w)\nn = Div(d, s)\n"
    "k = Mul(n, g)\n"
    "a1 = Div(k, r)\na2 = Erf(a1)\na3 = Add(a2, o)\na4 = Mul(k, a3)\n"
    "a5 = Mul(a4, h)\n"
    "b1 = Sigmoid(a5)\nb2 = Mul(a5, b1)\n"
    "c1 = Softplus(b2)\nc2 = Tanh(c1)\nc3 = Mul(b2, c2)\n"
    "d1 = Add(c3, t3)\nd2 = Clip(d1, z, s6)\nd3 = Mul(c3, d2)\n"
    "d4 = Div(d3, s6)\n"
    "e1 = Transpose(d4)\ne2 = Transpose(e1)\n"
    "f1 = Pow(e2, p)\nf2 = ReduceMean(f1, ax)\nf3 = Add(f2, e)\n"
    "f4 = Sqrt(f3)\nf5 = Div(e2, f4)\n"
    "g1 = Exp(f5)\ng2 = Exp(f5)\ng3 = Add(g1, g2)\n"
    "yes: bool[] = 1\n"
    "l = If(yes) {then_branch=graph t() -> (ta) {\n    ta = Neg(g3)\n}, "
    "else_branch=graph u() -> (ua) {\n    ua = Exp(g3)\n}}\n"
    "sh = Shape(l)\npr: i64[] = -1\nsz = Size(l)\nun = Unsqueeze(sz, ax0)\n"
    "ax0: i64[1] = [0]\nrs: i64[2] = [8, 2]\n"
    "u1 = Reshape(l, rs)\ny = Reshape(u1, un)\n");

static sb_status simplify_busy(sb_ctx *ctx)
{
    sb_pass_result *results = NULL;
    sb_graph *g = NULL;
    size_t n = 0;

    SB_TRY(sb_graph_parse(ctx, busy, &g));
    sb_status status = sb_passes_run(g, "simplify", NULL, &results, &n);
    sb_free(ctx, results);
    if (status == SB_OK) {
        results = NULL;
        status = sb_passes_run(g, "decompose", NULL, &results, &n);
        sb_free(ctx, results);
    }
    sb_graph_free(g);
    return status;
}

static const pass_case busy_case[] = {
    {"everything at once", busy,
     "un: i64[1] = [16]\n"
     "g_1: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
     "ones_2: f32[8] = [1, 1, 1, 1, 1, 1, 1, 1]\n"
     "k = LayerNormalization(x, g_1) {axis=-1, epsilon=1e-05}\n"
     "a5 = Gelu(k)\n"
     "b2 = Swish(a5)\n"
     "c3 = Mish(b2)\n"
     "d4 = HardSwish(c3)\n"
     "f5 = RMSNormalization(d4, ones_2) {axis=-1, epsilon=1e-05}\n"
     "g1 = Exp(f5)\n"
     "g3 = Add(g1, g1)\n"
     "ta = Neg(g3)\n"
     "y = Reshape(ta, un)\n",
     false},
};

static void test_rounds_go_on_while_something_changes(void **state)
{
    (void)state;
    test_passes("simplify", busy_case, SB_COUNT(busy_case));
}

static void test_every_failing_allocation(void **state)
{
    (void)state;
    test_every_allocation("simplify", simplify_busy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_sorted_and_complete),
        cmocka_unit_test(test_pipelines_name_passes),
        cmocka_unit_test(test_simplify_runs_to_the_end),
        cmocka_unit_test(test_names_that_do_not_exist),
        cmocka_unit_test(test_results_in_order_of_use),
        cmocka_unit_test(test_minus_takes_a_pass_out),
        cmocka_unit_test(test_dump_after),
        cmocka_unit_test(test_rounds_go_on_while_something_changes),
        cmocka_unit_test(test_every_failing_allocation),
    };
    return cmocka_run_group_tests_name("pass_manager", tests, NULL, NULL);
}
