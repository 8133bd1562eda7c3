/* Optimizer steps against PyTorch's (tests/fixtures/steps.npz, written by
 * make_steps.py there), with parameters and moments in states. */
#include "sbtest_node.h"

#include "exec/exec.h"
#include "graph/text.h"
#include "tensor/npy.h"

static sb_npz_item *items;
static size_t n_items;

static const sb_tensor *array_of(const char *name)
{
    for (size_t i = 0; i < n_items; i++)
        if (strcmp(items[i].name, name) == 0)
            return &items[i].tensor;
    fail_msg("no array '%s'", name);
    return NULL;
}

enum { N = 37, STEPS = 6, STATES = 3 };

#define F                     "sparsebit::"
#define IN                    "g: f32[37], lr: f32[], step: f32[], w: f32[37]"
#define IN_M                  IN ", m: f32[37]"
#define IN_MV                 IN_M ", v: f32[37]"
#define OUT                   "w_: f32[37]"
#define OUT_M                 OUT ", m_: f32[37]"
#define OUT_MV                OUT_M ", v_: f32[37]"
#define GRAPH(in, out, lines) "graph u(" in ") -> (" out ") {\n" lines "}\n"
#define SGD_M(attrs) \
    GRAPH(IN_M, OUT_M, "w_, m_ = " F "SgdStep(w, m, g, lr) {" attrs "}\n")
#define ADAM(attrs)      \
    GRAPH(IN_MV, OUT_MV, \
          "w_, m_, v_ = " F "AdamStep(w, m, v, g, lr, step) {" attrs "}\n")

static const struct {
    const char *name, *text;
} cases[] = {
    {"sgd", GRAPH(IN, OUT, "w_ = " F "SgdStep(w, _, g, lr)\n")},
    {"sgd_decay",
     GRAPH(IN, OUT, "w_ = " F "SgdStep(w, _, g, lr) {decay=0.1}\n")},
    {"sgd_momentum", SGD_M("momentum=0.9, decay=0.01")},
    {"sgd_nesterov", SGD_M("momentum=0.8, nesterov=1")},
    /* As clip_grad_norm_: min(1, max / (norm + 1e-6)). */
    {"sgd_clip",
     GRAPH(IN_M, OUT_M,
           "one: f32[] = 1\nmost: f32[] = 2\nlittle: f32[] = 0.000001\n"
           "s = " F "SumSquares(g)\nn = Sqrt(s)\nn2 = Add(n, little)\n"
           "q = Div(most, n2)\nscale = Min(q, one)\n"
           "w_, m_ = " F "SgdStep(w, m, g, lr, scale) {momentum=0.9}\n")},
    {"adam", ADAM("decay=0.0")},
    {"adam_decay", ADAM("beta1=0.8, beta2=0.95, epsilon=0.001, decay=0.1, "
                        "decoupled=0")},
    {"adamw", ADAM("decay=0.1")},
    {"ema", GRAPH(IN, OUT, "d: f32[] = 0.9\nw_ = " F "EmaStep(w, g, d)\n")},
};

static const float *row_of(const char *name, size_t i, size_t n)
{
    return (const float *)array_of(name)->data + i * n;
}

/* All steps in states; a copy of the parameters into `got`. */
static void run_steps(const char *text, int threads, float *got)
{
    sb_graph *g = NULL;
    sb_exec *exec = NULL;
    sb_state state[STATES];
    sb_exec_state bind[STATES];
    const sb_tensor *in[6] = {0}, *out[STATES];

    assert_ok(sb_graph_parse(test_ctx(), text, &g));
    assert_ok(sb_graph_infer(g));
    size_t n = g->n_outputs;
    for (size_t i = 0; i < n; i++) {
        state[i] = (sb_state){.t = *test_tensor(SB_DTYPE_F32, "37", NULL)};
        bind[i] = (sb_exec_state){g->inputs[3 + i], g->outputs[i], &state[i]};
    }
    memcpy(state[0].t.data, array_of("start")->data, N * sizeof(float));
    sb_ctx_set_threads(test_ctx(), threads);
    assert_ok(sb_exec_create(test_ctx(), g,
                             &(sb_exec_options){.states = bind, .n_states = n},
                             &exec));
    for (size_t i = 0; i < STEPS; i++) {
        sb_tensor *grad = test_tensor(SB_DTYPE_F32, "37", NULL);
        memcpy(grad->data, row_of("grads", i, N), N * sizeof(float));
        in[0] = grad;
        in[1] = test_f32("", (double)*row_of("rates", i, 1));
        in[2] = test_f32("", (double)i + 1);
        assert_ok(sb_exec_run(exec, in, NULL, out));
        /* Written where it is read. */
        for (size_t k = 0; k < n; k++)
            assert_ptr_equal(out[k]->data, state[k].t.data);
    }
    if (!strstr(text, "SumSquares"))
        assert_int_equal(sb_exec_workspace(exec), 0);
    memcpy(got, state[0].t.data, N * sizeof(float));
    sb_exec_free(exec);
    sb_graph_free(g);
}

static void test_steps_as_in_pytorch(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        float one[N], four[N];

        run_steps(cases[i].text, 1, one);
        run_steps(cases[i].text, 4, four);
        assert_all_close(cases[i].name, one,
                         (const float *)array_of(cases[i].name)->data, N, 1e-5);
        assert_memory_equal(one, four, sizeof one);
    }
}

static void test_sum_of_squares(void **state)
{
    (void)state;
    sb_tensor *out[TEST_NODE_MOST] = {0};
    sb_tensor *ones = test_tensor(SB_DTYPE_F32, "300000", NULL);

    for (size_t i = 0; i < 300000; i++)
        ((float *)ones->data)[i] = 2;
    test_node_threads(&(test_node){"SumSquares",
                                   "sparsebit",
                                   NULL,
                                   {test_f32("2x2", 1, 2, 3, 4), ones,
                                    test_tensor(SB_DTYPE_F32, "0", NULL)},
                                   3,
                                   1,
                                   0},
                      out);
    assert_tensor("sum", out[0], test_f32("", 1200030), 0);
}

static void test_what_does_not_fit_is_refused(void **state)
{
    (void)state;
    const sb_tensor *x = test_f32("2", 1, 2), *y = test_f32("3", 1, 2, 3);
    const sb_tensor *one = test_f32("", 1),
                    *d = test_tensor(SB_DTYPE_F64, "2", NULL);
    const sb_tensor *l = test_i64("1", 1), *logits = test_f32("1x2", 1, 2);
    const char *s = "sparsebit";
    const test_node bad[] = {
        {"SgdStep", s, NULL, {x, x, y, one}, 4, 2, 0},
        {"SgdStep", s, NULL, {x, x, x, x}, 4, 2, 0},
        {"SgdStep", s, NULL, {x, x, x}, 3, 2, 0},
        {"SgdStep", s, "momentum=0.9", {x, NULL, x, one}, 4, 1, 0},
        {"SgdStep", s, NULL, {x, NULL, x, one}, 4, 2, 0},
        {"SgdStep", s, NULL, {d, d, d, one}, 4, 2, 0},
        {"AdamStep", s, NULL, {x, x, x, y, one, one}, 6, 3, 0},
        {"AdamStep", s, NULL, {x, x, x, x, one, test_f32("", 0)}, 6, 3, 0},
        {"EmaStep", s, NULL, {x, y, one}, 3, 1, 0},
        {"CrossEntropy", s, NULL, {logits, test_i64("1", 2)}, 2, 1, 0},
        {"CrossEntropy", s, NULL, {logits, test_i64("2", 1, 1)}, 2, 1, 0},
        {"CrossEntropy", s, NULL, {logits, one}, 2, 1, 0},
        {"CrossEntropy", s, "smoothing=2.0", {logits, l}, 2, 1, 0},
        {"CrossEntropyGrad", s, NULL, {logits, l, x}, 3, 1, 0},
        {"CrossEntropyGrad",
         s,
         NULL,
         {logits, test_i64("1", -1), one},
         3,
         1,
         0},
        {"KlDivergence", s, NULL, {x, y}, 2, 1, 0},
        {"KlDivergence", s, "temperature=0.0", {x, x}, 2, 1, 0},
        {"KlDivergenceGrad", s, NULL, {x, y, one}, 3, 1, 0},
    };

    for (size_t i = 0; i < SB_COUNT(bad); i++) {
        sb_tensor *out[TEST_NODE_MOST] = {0};
        if (test_node_try(&bad[i], out) == SB_OK)
            fail_msg("case %zu (%s) was not refused", i, bad[i].op);
    }
}

static void test_loss_of_nothing_is_zero(void **state)
{
    (void)state;
    sb_tensor *out[TEST_NODE_MOST] = {0};
    const sb_tensor *x = test_f32("1x2", 1, 2), *none = test_i64("1", -100);

    test_node_run(
        &(test_node){"CrossEntropy", "sparsebit", NULL, {x, none}, 2, 1, 0},
        out);
    assert_tensor("loss", out[0], test_f32("", 0), 0);
    test_node_run(&(test_node){"CrossEntropyGrad",
                               "sparsebit",
                               NULL,
                               {x, none, test_f32("", 1)},
                               3,
                               1,
                               0},
                  out);
    assert_tensor("gradient", out[0], test_f32("1x2", 0, 0), 0);
}

static int open_archive(void **state)
{
    (void)state;
    assert_ok(
        sb_npz_load(test_ctx(), "tests/fixtures/steps.npz", &items, &n_items));
    return 0;
}

static int close_archive(void **state)
{
    (void)state;
    sb_npz_free(test_ctx(), items, n_items);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_as_in_pytorch),
        cmocka_unit_test(test_sum_of_squares),
        cmocka_unit_test(test_what_does_not_fit_is_refused),
        cmocka_unit_test(test_loss_of_nothing_is_zero),
    };
    return cmocka_run_group_tests_name("steps", tests, open_archive,
                                       close_archive);
}
