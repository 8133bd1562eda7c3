/* Loop, Scan and sequences: values by hand, and what must be refused. */
#include "exec/exec.h"
#include "graph/text.h"
#include "sbtest.h"
#include "tensor/sequence.h"

#define INPUTS(...) ((const sb_tensor *[]){__VA_ARGS__})

/* a, b = b, a + b; slices are a. */
#define FIBONACCI(more)                                                      \
    "graph g(n: i64[], go: bool[], a0: f32[1], b0: f32[1]) -> (a, b, s) {\n" \
    "  a, b, s = Loop(n, go, a0, b0) {body=graph body(i: i64[], c: bool[], " \
    "x, y) -> (d, y2, z, x2) {\n"                                            \
    "    z = Add(x, y)\n"                                                    \
    "    d = Identity(c)\n"                                                  \
    "    y2 = Identity(y)\n"                                                 \
    "    x2 = Identity(x)\n" more "  }}\n"                                   \
    "}\n"

static sb_tensor *test_bool(int v)
{
    return test_tensor(SB_DTYPE_BOOL, "", &(double){v});
}

static void test_loop_swaps_and_stacks(void **state)
{
    (void)state;
    sb_tensor *out[3];

    test_run(FIBONACCI(""),
             INPUTS(test_i64("", 6), test_bool(1), test_f32("1", 0),
                    test_f32("1", 1)),
             out, 3);
    assert_tensor("a", out[0], test_f32("1", 8), 0);
    assert_tensor("b", out[1], test_f32("1", 13), 0);
    assert_tensor("slices", out[2], test_f32("6x1", 0, 1, 1, 2, 3, 5), 0);
}

static void test_loop_that_never_runs(void **state)
{
    (void)state;
    static const struct {
        double trips;
        int go;
    } rows[] = {{0, 1}, {-3, 1}, {5, 0}};
    sb_tensor *out[3];

    for (size_t i = 0; i < SB_COUNT(rows); i++) {
        test_run(FIBONACCI(""),
                 INPUTS(test_tensor(SB_DTYPE_I64, "", &rows[i].trips),
                        test_bool(rows[i].go), test_f32("1", 2),
                        test_f32("1", 3)),
                 out, 3);
        assert_tensor("a", out[0], test_f32("1", 2), 0);
        assert_tensor("b", out[1], test_f32("1", 3), 0);
        assert_int_equal(out[2]->dims[0], 0);
    }
}

/* Shapes that grow, a condition from the body, a value of the graph outside. */
static void test_loop_until(void **state)
{
    (void)state;
    sb_tensor *y = test_run1(
        "graph g(x: f32[1,2], most: f32[]) -> (y) {\n"
        "  y = Loop(_, _, x) {body=graph body(i: i64[1], c: bool[], v) -> "
        "(go, w) {\n"
        "    w = Concat(v, x) {axis=0}\n"
        "    s = ReduceSum(w) {keepdims=0}\n"
        "    go = Less(s, most)\n"
        "  }}\n"
        "}\n",
        INPUTS(test_f32("1x2", 1, 2), test_f32("", 8)));

    assert_tensor("until 9", y, test_f32("3x2", 1, 2, 1, 2, 1, 2), 0);
}

/* Declared as what it becomes; it starts as a scalar that nothing reads. */
static void test_loop_declared(void **state)
{
    (void)state;
    sb_tensor *y = test_run1(
        "graph g(n: i64[], x: f32[2]) -> (y) {\n"
        "  s = Constant() {value_float=7.0}\n"
        "  y = Loop(n, _, s) {body=graph b(i: i64[], c: bool[], v: f32[2]) -> "
        "(d, w) {\n"
        "    d = Identity(c)\n"
        "    w = Neg(x)\n"
        "  }}\n"
        "}\n",
        INPUTS(test_i64("", 2), test_f32("2", 1, 2)));

    assert_tensor("becomes", y, test_f32("2", -1, -2), 0);
    y = test_run1(
        "graph g(n: i64[], x: f32[]) -> (y) {\n"
        "  one: i64[1] = [1]\n"
        "  y = Loop(n, _, x) {body=graph b(i: i64[], c: bool[], v: f32[]) -> "
        "(d, w) {\n"
        "    d = Identity(c)\n"
        "    k = Reshape(v, one)\n"
        "    w = Add(k, k)\n"
        "  }}\n"
        "}\n",
        INPUTS(test_i64("", 2), test_f32("", 3)));
    assert_tensor("gets a dimension", y, test_f32("1", 12), 0);
}

static void test_loop_refuses(void **state)
{
    (void)state;
    const sb_tensor *const *in = INPUTS(test_i64("", 3), test_f32("2", 1, 2));

    assert_status(test_try_run("graph g(n: i64[], x: f32[2]) -> (y) {\n"
                               "  y = Loop(n, _, x) {body=graph b(i, c, v) -> "
                               "(c, w, s) {\n"
                               "    w = Concat(v, v) {axis=0}\n"
                               "    s = Neg(v)\n"
                               "  }}\n}\n",
                               in),
                  SB_BAD_MODEL);
    assert_error_has("the body has 3, want 2");
    assert_status(test_try_run("graph g(n: i64[], x: f32[2]) -> (y, s) {\n"
                               "  y, s = Loop(n, _, x) {body=graph b(i, c, v) "
                               "-> (d, w, t) {\n"
                               "    d = Identity(c)\n"
                               "    w = Concat(v, v) {axis=0}\n"
                               "    t = Neg(v)\n"
                               "  }}\n}\n",
                               in),
                  SB_BAD_DATA);
    assert_error_has("iteration 1 gives f32[4], those before it f32[2]");
    assert_status(test_try_run("graph g(n: i64[], x: f32[2]) -> (y) {\n"
                               "  y = Loop(n, _, x) {body=graph b(i, c, v) -> "
                               "(w, w) {\n"
                               "    w = Neg(v)\n"
                               "  }}\n}\n",
                               in),
                  SB_BAD_MODEL);
    assert_error_has("condition is not one bool");
}

/* Numbers that must be single are known to be when a file is loaded: a node
 * that is folded away later would never see them. */
static void test_single_elements_are_checked_ahead(void **state)
{
    (void)state;
    static const char *const nodes[] = {
        "Trilu(x, k)",
        "Clip(x, x)",
        "Loop(k, _, x) {body=graph b(i, c, v) -> (c, v) {\n  }}",
        "Loop(_, k, x) {body=graph b(i, c, v) -> (c, v) {\n  }}",
        "If(x) {then_branch=graph t() -> (x) {\n  }, else_branch=graph e() -> "
        "(x) {\n  }}",
    };

    for (size_t i = 0; i < SB_COUNT(nodes); i++) {
        sb_graph *g = NULL;
        char text[300];
        (void)snprintf(
            text, sizeof text,
            "graph g(x: f32[2,2], k: i64[2]) -> (y) {\n  y = %s\n}\n",
            nodes[i]);
        assert_ok(sb_graph_parse(test_ctx(), text, &g));
        assert_status(sb_graph_infer(g), SB_BAD_MODEL);
        assert_error_has("is not one element");
        sb_graph_free(g);
    }
    sb_graph *g = NULL;
    assert_ok(sb_graph_parse(
        test_ctx(), "graph g(x: bool[2]) -> (y) {\n  y = Clip(x)\n}\n", &g));
    assert_status(sb_graph_infer(g), SB_BAD_MODEL);
    assert_error_has("not for elements of type bool");
    sb_graph_free(g);
}

static void test_loop_without_end_is_interrupted(void **state)
{
    (void)state;
    sb_ctx *ctx = NULL;
    sb_graph *g = NULL;
    sb_exec *exec = NULL;
    const sb_tensor *out[1];

    assert_ok(sb_ctx_create(NULL, &ctx));
    assert_int_equal(
        sb_graph_parse(ctx,
                       "graph g(x: f32[1]) -> (y) {\n"
                       "  y = Loop(_, _, x) {body=graph b(i, c, v) -> (c, v) "
                       "{\n  }}\n}\n",
                       &g),
        SB_OK);
    assert_int_equal(sb_graph_infer(g), SB_OK);
    assert_int_equal(sb_exec_create(ctx, g, NULL, &exec), SB_OK);
    sb_ctx_interrupt(ctx);
    assert_int_equal(sb_exec_run(exec, INPUTS(test_f32("1", 1)), NULL, out),
                     SB_INTERRUPTED);
    sb_exec_free(exec);
    sb_graph_free(g);
    sb_ctx_free(ctx);
}

#define SUMS(attrs)                                                         \
    "graph g(s: f32[2], x: f32[2,3]) -> (t, y) {\n"                         \
    "  t, y = Scan(s, x) {num_scan_inputs=1, " attrs                        \
    "body=graph b(p, q) -> (r, z) {\n    r = Add(p, q)\n    z = Neg(r)\n  " \
    "}}\n}\n"

static void test_scan_axes_and_directions(void **state)
{
    (void)state;
    const sb_tensor *const *in =
        INPUTS(test_f32("2", 10, 20), test_f32("2x3", 1, 2, 3, 4, 5, 6));
    sb_tensor *out[2];

    test_run(SUMS("scan_input_axes=[1], "), in, out, 2);
    assert_tensor("state", out[0], test_f32("2", 16, 35), 0);
    assert_tensor("sums", out[1], test_f32("3x2", -11, -24, -13, -29, -16, -35),
                  0);
    test_run(SUMS("scan_input_axes=[-1], scan_input_directions=[1], "
                  "scan_output_axes=[1], scan_output_directions=[1], "),
             in, out, 2);
    assert_tensor("state", out[0], test_f32("2", 16, 35), 0);
    assert_tensor("reversed", out[1],
                  test_f32("2x3", -16, -15, -13, -35, -31, -26), 0);
    assert_status(test_try_run(SUMS("scan_input_axes=[2], "), in),
                  SB_BAD_MODEL);
    assert_status(test_try_run(SUMS("scan_output_directions=[3], "), in),
                  SB_BAD_MODEL);
    assert_error_has("want 0 or 1");
}

static sb_status count_sight(void *user, int64_t id, const sb_tensor *x)
{
    (void)id;
    (void)x;
    ++*(int *)user;
    return SB_OK;
}

/* Everything is constant, but somebody looks at it: not computed ahead. */
static void test_observed_bodies_run_each_time(void **state)
{
    (void)state;
    int seen = 0;
    sb_graph *g = NULL;
    sb_exec *exec = NULL;
    const sb_tensor *out[1];
    const sb_exec_options opt = {.observe = count_sight, .observe_user = &seen};

    assert_ok(sb_graph_parse(
        test_ctx(),
        "graph g() -> (y) {\n"
        "  n = Constant() {value_int=3}\n"
        "  x = Constant() {value_float=1.0}\n"
        "  y = Loop(n, _, x) {body=graph b(i, c, v) -> (d, w) {\n"
        "    d = Identity(c)\n"
        "    o = sparsebit::Observe(v) {id=0}\n"
        "    w = Add(o, o)\n"
        "  }}\n"
        "}\n",
        &g));
    assert_ok(sb_graph_infer(g));
    assert_ok(sb_exec_create(test_ctx(), g, &opt, &exec));
    for (int run = 1; run <= 2; run++) {
        assert_ok(sb_exec_run(exec, INPUTS(NULL), NULL, out));
        assert_int_equal(seen, 3 * run);
        assert_tensor("2^3", out[0], test_f32("", 8), 0);
    }
    sb_exec_free(exec);
    sb_graph_free(g);
}

/* ---- sequences ------------------------------------------------------------ */

#define EDIT(body)                                                       \
    "graph g(x: f32[*], z: f32[*], p: i64[]) -> (y, n) {\n"              \
    "  s = SequenceConstruct(x, z, x)\n" body "  y = SequenceAt(r, p)\n" \
    "  n = SequenceLength(r)\n}\n"

static void test_sequence_edits(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double at, want, n;
    } rows[] = {
        {EDIT("  r = Identity(s)\n"), 1, 5, 3},
        {EDIT("  r = Identity(s)\n"), -3, 1, 3},
        {EDIT("  r = SequenceErase(s)\n"), -1, 5, 2},
        {EDIT("  r = SequenceErase(s, p)\n"), 1, 1, 2},
        {EDIT("  w = Neg(z)\n  r = SequenceInsert(s, w)\n"), -1, -5, 4},
        {EDIT("  w = Neg(z)\n  r = SequenceInsert(s, w, p)\n"), 0, -5, 4},
        {EDIT("  w = Neg(z)\n  r = SequenceInsert(s, w, p)\n"), 3, -5, 4},
        /* Before the last one, which is then read. */
        {EDIT("  w = Neg(z)\n  r = SequenceInsert(s, w, p)\n"), -1, 1, 4},
        {EDIT("  e = SequenceEmpty()\n  r = SequenceInsert(e, z)\n"), 0, 5, 1},
    };
    sb_tensor *out[2];

    for (size_t i = 0; i < SB_COUNT(rows); i++) {
        test_run(rows[i].text,
                 INPUTS(test_f32("1", 1), test_f32("2", 5, 6),
                        test_tensor(SB_DTYPE_I64, "", &rows[i].at)),
                 out, 2);
        assert_close("first element", sb_tensor_get_f64(out[0], 0),
                     rows[i].want, 0);
        assert_close("length", sb_tensor_get_f64(out[1], 0), rows[i].n, 0);
    }
}

static void test_sequences_refuse(void **state)
{
    (void)state;
    static const double outside[] = {3, -4};

    for (size_t i = 0; i < SB_COUNT(outside); i++)
        assert_status(
            test_try_run(EDIT("  r = Identity(s)\n"),
                         INPUTS(test_f32("1", 1), test_f32("2", 5, 6),
                                test_tensor(SB_DTYPE_I64, "", &outside[i]))),
            SB_BAD_DATA);
    const sb_tensor *const *in =
        INPUTS(test_f32("1", 1), test_f32("2", 5, 6), test_i64("", 0));
    assert_status(test_try_run(EDIT("  r = Neg(s)\n"), in), SB_UNSUPPORTED);
    assert_error_has("is a sequence, want a tensor");
    assert_status(test_try_run(EDIT("  r = Concat(s, s) {axis=0}\n"), in),
                  SB_UNSUPPORTED);
    assert_status(test_try_run(EDIT("  r = SequenceInsert(s, p)\n"), in),
                  SB_BAD_DATA);
    assert_error_has("a sequence of float cannot hold int64");
    assert_status(test_try_run("graph g(x: f32[*], z, p: i64[]) -> (y) {\n"
                               "  y = SequenceAt(x, p)\n}\n",
                               in),
                  SB_BAD_DATA);
    assert_error_has("not a sequence");
}

static void test_split_and_join(void **state)
{
    (void)state;
    sb_tensor *x = test_f32("2x3", 1, 2, 3, 4, 5, 6);
    static const struct {
        const char *text, *shape;
        double want[6];
    } rows[] = {
        {"SplitToSequence(x) {axis=1, keepdims=0}\n"
         "  y = ConcatFromSequence(s) {axis=1, new_axis=1}\n",
         "2x3",
         {1, 2, 3, 4, 5, 6}},
        {"SplitToSequence(x) {axis=1, keepdims=0}\n"
         "  y = ConcatFromSequence(s) {axis=0, new_axis=1}\n",
         "3x2",
         {1, 4, 2, 5, 3, 6}},
        {"SplitToSequence(x) {axis=-1}\n"
         "  y = ConcatFromSequence(s) {axis=0}\n",
         "6x1",
         {1, 4, 2, 5, 3, 6}},
        {"SplitToSequence(x, two) {axis=1}\n"
         "  y = SequenceAt(s, one)\n",
         "2x1",
         {3, 6}},
        {"SplitToSequence(x, sizes) {axis=1}\n"
         "  y = SequenceAt(s, one)\n",
         "2x2",
         {2, 3, 5, 6}},
    };

    for (size_t i = 0; i < SB_COUNT(rows); i++) {
        char text[512];
        (void)snprintf(text, sizeof text,
                       "graph g(x: f32[2,3]) -> (y) {\n"
                       "  one = Constant() {value_int=1}\n"
                       "  two = Constant() {value_int=2}\n"
                       "  sizes = Constant() {value_ints=[1, 2]}\n  s = %s}\n",
                       rows[i].text);
        assert_tensor(rows[i].text, test_run1(text, INPUTS(x)),
                      test_tensor(SB_DTYPE_F32, rows[i].shape, rows[i].want),
                      0);
    }
}

static void test_sequence_map_runs_for_each(void **state)
{
    (void)state;
    assert_tensor(
        "x[i] * 2 + i",
        test_run1("graph g(x: f32[2,2], k: f32[]) -> (y) {\n"
                  "  s = SplitToSequence(x) {keepdims=0}\n"
                  "  t = SequenceMap(s, k, s) {body=graph b(p, q, r) -> (u) "
                  "{\n    m = Mul(p, q)\n    u = Add(m, r)\n  }}\n"
                  "  y = ConcatFromSequence(t) {axis=0}\n}\n",
                  INPUTS(test_f32("2x2", 1, 2, 3, 4), test_f32("", 10))),
        test_f32("4", 11, 22, 33, 44), 0);
}

/* Whatever the bytes are, nothing outside of them is read. */
static void test_broken_sequences_are_refused(void **state)
{
    (void)state;
    sb_tensor *item = test_f32("3", 1, 2, 3), *t = NULL;
    sb_sequence s;

    assert_ok(sb_sequence_create(test_ctx(), SB_DTYPE_F32, INPUTS(item, item),
                                 2, &t));
    assert_true(sb_sequence_open(t, &s));
    int64_t *words = t->data, n = t->dims[0] / 8;
    for (int64_t i = 0; i < n; i++) {
        static const int64_t edges[] = {-1,      1,         100,
                                        1 << 20, INT64_MAX, INT64_MIN};
        int64_t was = words[i];
        for (size_t e = 0; e < SB_COUNT(edges); e++) {
            words[i] = edges[e];
            for (int64_t j = 0; sb_sequence_open(t, &s) && j < s.n; j++) {
                sb_tensor x = sb_sequence_get(&s, j);
                const char *begin = x.data;
                assert_true(begin >= (char *)t->data);
                assert_true(begin + sb_tensor_bytes(&x) <=
                            (char *)t->data + t->dims[0]);
            }
        }
        words[i] = was;
    }
    for (int64_t size = 0; size < t->dims[0]; size++) {
        sb_tensor shorter = *t;
        shorter.dims[0] = size;
        assert_false(sb_sequence_open(&shorter, &s));
    }
    sb_tensor_free(t);
}

static void test_public_sequences(void **state)
{
    (void)state;
    sb_tensor *a = test_f32("2", 1, 2), *b = test_f32("1x1", 3);
    sb_tensor *t = NULL, *item = NULL;

    assert_ok(
        sb_sequence_create(test_ctx(), SB_DTYPE_F32, INPUTS(a, b), 2, &t));
    assert_int_equal(sb_tensor_dtype(t), SB_DTYPE_SEQUENCE);
    assert_int_equal(sb_sequence_length(t), 2);
    assert_int_equal(sb_sequence_length(a), -1);
    assert_null(sb_tensor_data(t));
    assert_ok(sb_sequence_at(test_ctx(), t, 1, &item));
    assert_tensor("element", item, b, 0);
    sb_tensor_free(item);
    assert_status(sb_sequence_at(test_ctx(), t, 2, &item), SB_BAD_ARG);
    assert_status(sb_sequence_at(test_ctx(), a, 0, &item), SB_BAD_ARG);
    assert_status(sb_tensor_save(test_ctx(), "never.npy", t), SB_UNSUPPORTED);
    assert_status(
        sb_sequence_create(test_ctx(), SB_DTYPE_I64, INPUTS(a), 1, &item),
        SB_BAD_ARG);
    sb_tensor_free(t);
}

/* ---- memory --------------------------------------------------------------- */

static sb_status loops_and_sequences(sb_ctx *ctx)
{
    sb_graph *g = NULL;
    sb_exec *exec = NULL;
    const sb_tensor *out[1];
    sb_status status = sb_graph_parse(
        ctx,
        "graph g(n: i64[], x: f32[2,3]) -> (y) {\n"
        "  e = SequenceEmpty()\n"
        "  s, t = Loop(n, _, e) {body=graph b(i, c, q) -> (d, r, x2) {\n"
        "    d = Identity(c)\n    x2 = Neg(x)\n"
        "    r = SequenceInsert(q, x2)\n  }}\n"
        "  f, u = Scan(x, t) {num_scan_inputs=1, body=graph z(p, v) -> (w, w) "
        "{\n    w = Add(p, v)\n  }}\n"
        "  m = SequenceMap(s) {body=graph a(h) -> (k) {\n    k = Abs(h)\n  }}\n"
        "  j = ConcatFromSequence(m) {axis=0, new_axis=1}\n"
        "  y = Add(j, u)\n}\n",
        &g);

    if (status == SB_OK)
        status = sb_graph_infer(g);
    if (status == SB_OK)
        status = sb_exec_create(ctx, g, NULL, &exec);
    if (status == SB_OK)
        status = sb_exec_run(
            exec, INPUTS(test_i64("", 3), test_f32("2x3", 1, 2, 3, 4, 5, 6)),
            NULL, out);
    if (status == SB_OK) /* x + |x| - (i + 1) x + ... of the last element */
        assert_close("sum", sb_tensor_get_f64(out[0], 17), 6 + 6 - 3 * 6, 0);
    sb_exec_free(exec);
    sb_graph_free(g);
    return status;
}

static void test_allocations_fail(void **state)
{
    (void)state;
    test_every_allocation("loops and sequences", loops_and_sequences);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loop_swaps_and_stacks),
        cmocka_unit_test(test_loop_that_never_runs),
        cmocka_unit_test(test_loop_until),
        cmocka_unit_test(test_loop_declared),
        cmocka_unit_test(test_loop_refuses),
        cmocka_unit_test(test_single_elements_are_checked_ahead),
        cmocka_unit_test(test_loop_without_end_is_interrupted),
        cmocka_unit_test(test_scan_axes_and_directions),
        cmocka_unit_test(test_observed_bodies_run_each_time),
        cmocka_unit_test(test_sequence_edits),
        cmocka_unit_test(test_sequences_refuse),
        cmocka_unit_test(test_split_and_join),
        cmocka_unit_test(test_sequence_map_runs_for_each),
        cmocka_unit_test(test_broken_sequences_are_refused),
        cmocka_unit_test(test_public_sequences),
        cmocka_unit_test(test_allocations_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
