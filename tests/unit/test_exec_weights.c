/* Weights that change between runs, and what plans share of them.
 *
 * A network with weights in a state must compute, after each change, what a
 * fresh executor computes with the same weights as constants, bit by bit; the
 * kernels themselves are tested elsewhere. */
#include "exectest.h"

#include <stdlib.h>

#include "ops/conv/conv.h"
#include "passes/pass.h"

/* ---- weights that change ------------------------------------------------ */

/* Networks with a weight `w`; fuse_conv and fuse_linear run over them. */
typedef struct weight_case {
    const char *impl; /* of the first step; NULL: not a convolution */
    const char *x, *w;
    const char *body; /* lines that make y from x, w */
    bool exact;
} weight_case;

static const weight_case weight_cases[] = {
    {"winograd", "1x32x28x28", "32x32x3x3", "y = Conv(x, w) {pads=[1,1,1,1]}",
     false},
    {"onednn", "1x32x28x28", "32x32x3x3", "y = Conv(x, w) {pads=[1,1,1,1]}",
     true},
    {"onednn", "1x256x6x6", "144x256x3x3", /* cut by channels, unevenly */
     "c = Conv(x, w) {pads=[1,1,1,1]}\n y = Relu(c)", true},
    {"onednn", "2x24x9x9", "24x1x3x3", "y = Conv(x, w) {group=24}", false},
    {"onednn", "1x16x9x9", "40x16x1x1", "y = Conv(x, w)", false},
    {"1x1_padded", "1x16x9x9", "40x16x1x1",
     "c = Conv(x, w) {pads=[1,1,1,1]}\n y = Relu(c)", false},
    {"onednn", "1x8x20", "8x8x3", "y = Conv(x, w)", false},
    {"onednn", "1x16x9x9", "16x24x2x2",
     "y = ConvTranspose(x, w) {strides=[2,2]}", false},
    {"onednn_late", "1x24x9x9", "24x1x3x3",
     "c = Conv(x, w) {pads=[1,1,1,1], group=24}\n r = Relu(c)\n"
     " y = Add(r, x)",
     true},
    {"onednn", "1x16x9x9", "16x12x2x2",
     "y = ConvTranspose(x, w) {strides=[2,2], group=2}", false},
    {"naive", "1x2x3x4x3x4", "3x2x2x2x2x2", "y = Conv(x, w)", false},
    {NULL, "40x64", "64x96", "y = MatMul(x, w)", false},
    {NULL, "300x64", "64x300", "m = MatMul(x, w)\n y = Relu(m)", false},
    {NULL, "2x20x64", "64x96", "y = MatMul(x, w)", false},
    {NULL, "2x4", "4x3", "y = MatMul(x, w)", false}, /* in loops */
    {NULL, "40x64", "96x64", "y = Gemm(x, w) {transB=1}", false},
};

/* The names above are those of a processor with AVX2 at least and all of its
 * instructions in use. */
static void expect_impl(const weight_case *c, const sb_kernel *k)
{
    const char *isa = getenv("ONEDNN_MAX_CPU_ISA");

    if (!c->impl)
        return;
#ifdef __x86_64__
    if (!isa || strcmp(isa, "DEFAULT") == 0)
        assert_string_equal(sb_conv_impl_name(k), c->impl);
#else
    (void)isa;
    (void)k;
#endif
}

static void shape_text(const char *from, char *to)
{
    for (; *from; from++)
        *to++ = *from == 'x' ? ',' : *from;
    *to = '\0';
}

/* `how` says what w is: "in" a graph input, else a line that makes it. */
static void case_open(net *n, const weight_case *c, const char *how)
{
    char text[1024], x[64], w[64];

    shape_text(c->x, x);
    shape_text(c->w, w);
    bool in = strcmp(how, "in") == 0;
    (void)snprintf(text, sizeof text,
                   "graph g(x: f32[%s]%s%s%s) -> (y: f32[*]) {\n %s%s%s\n"
                   " %s\n}\n",
                   x, in ? ", w: f32[" : "", in ? w : "", in ? "]" : "",
                   in ? "" : "w: f32[", in ? "" : w, in ? "" : "] = random(1)",
                   c->body);
    net_parse(n, text);
    assert_ok(
        sb_passes_run(n->graph, "fuse_conv,fuse_linear", NULL, NULL, NULL));
}

/* A fresh executor with w as a constant. */
static sb_tensor *fresh_result(const weight_case *c, const sb_tensor *x,
                               const sb_tensor *w)
{
    sb_exec_options opt = {.exact = c->exact};
    const sb_tensor *out = NULL;
    net n;

    case_open(&n, c, "const");
    sb_tensor *k = &sb_graph_value(n.graph, value_of(&n, "w"))->constant;
    memcpy(k->data, w->data, sb_tensor_bytes(w));
    net_open(&n, &opt);
    assert_ok(sb_exec_run(n.exec, INPUTS(x), NULL, &out));
    expect_impl(c, &n.exec->last->steps[0]->k);
    sb_tensor *y = copy_of(out);
    net_close(&n);
    return y;
}

static void test_changed_weights_count(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(weight_cases); i++) {
        const weight_case *c = &weight_cases[i];
        sb_tensor *x = test_random(SB_DTYPE_F32, c->x, 11);
        sb_tensor *w = test_random(SB_DTYPE_F32, c->w, 100);
        sb_state st = {.t = *w};
        const sb_tensor *out = NULL;
        net bound, given;

        case_open(&bound, c, "in");
        sb_exec_state bind = {value_of(&bound, "w"), SB_NONE, &st};
        sb_exec_options opt = {
            .exact = c->exact, .states = &bind, .n_states = 1};
        net_open(&bound, &opt);
        case_open(&given, c, "in");
        net_open(&given, &(sb_exec_options){.exact = c->exact});
        for (uint64_t run = 0; run < 3; run++) {
            memcpy(w->data, test_random(SB_DTYPE_F32, c->w, 100 + run)->data,
                   sb_tensor_bytes(w));
            st.version++;
            sb_tensor *want = fresh_result(c, x, w);
            assert_ok(sb_exec_run(bound.exec, INPUTS(x, NULL), NULL, &out));
            expect_impl(c, &bound.exec->last->steps[0]->k);
            assert_tensor(c->body, out, want, 0);
            /* The same weights, given: other tiles, so other rounding. */
            assert_ok(sb_exec_run(given.exec, INPUTS(x, w), NULL, &out));
            assert_tensor(c->body, out, want, 2e-4);
        }
        net_close(&bound);
        net_close(&given);
    }
}

static void test_weights_are_packed_when_they_have_changed(void **state)
{
    (void)state;
    const weight_case *c = &weight_cases[0];
    sb_tensor *x = test_random(SB_DTYPE_F32, c->x, 1);
    sb_tensor *w = test_random(SB_DTYPE_F32, c->w, 2);
    sb_state st = {.t = *w, .version = 7};
    const sb_tensor *out = NULL;
    net n;

    case_open(&n, c, "in");
    sb_exec_state bind = {value_of(&n, "w"), SB_NONE, &st};
    net_open(&n, &(sb_exec_options){.states = &bind, .n_states = 1});
    assert_ok(sb_exec_run(n.exec, INPUTS(x, NULL), NULL, &out));
    sb_tensor *first = copy_of(out);
    /* Behind its back: nobody says so, so it is not seen. */
    memset(w->data, 0, sb_tensor_bytes(w));
    assert_ok(sb_exec_run(n.exec, INPUTS(x, NULL), NULL, &out));
    assert_tensor("not packed again", out, first, 0);
    st.version++;
    assert_ok(sb_exec_run(n.exec, INPUTS(x, NULL), NULL, &out));
    assert_tensor("packed again", out,
                  test_tensor(SB_DTYPE_F32, "1x32x28x28", NULL), 0);
    net_close(&n);
}

/* A weight that the graph computes: 2 w, as quantization-aware training has
 * round(w). */
static void test_computed_weights(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(weight_cases); i++) {
        weight_case c = weight_cases[i], twice = c;
        char body[512];
        sb_tensor *x = test_random(SB_DTYPE_F32, c.x, 3);
        sb_tensor *w = test_random(SB_DTYPE_F32, c.w, 4);
        sb_state st = {.t = *w};
        const sb_tensor *out = NULL;
        net n;

        const char *at = strstr(c.body, "(x, w)");
        assert_non_null(at);
        (void)snprintf(body, sizeof body, "v = Add(w, w)\n %.*s(x, v)%s",
                       (int)(at - c.body), c.body, at + strlen("(x, w)"));
        twice.body = body;
        case_open(&n, &twice, "in");
        sb_exec_state bind = {value_of(&n, "w"), SB_NONE, &st};
        net_open(&n, &(sb_exec_options){
                         .exact = c.exact, .states = &bind, .n_states = 1});
        assert_ok(sb_exec_run(n.exec, INPUTS(x, NULL), NULL, &out));
        sb_tensor *got = copy_of(out);
        expect_impl(&c, &n.exec->last->steps[1]->k);
        net_close(&n);
        float *v = w->data;
        for (int64_t e = 0; e < sb_tensor_count(w); e++)
            v[e] *= 2;
        assert_tensor(body, got, fresh_result(&c, x, w), 2e-4);
    }
}

/* ---- what plans share --------------------------------------------------- */

static void test_plans_share_packed_weights_and_workspace(void **state)
{
    (void)state;
    const sb_tensor *out = NULL;
    sb_tensor *first = NULL;
    net n;

    net_parse(&n, "graph g(x: f32[N,64]) -> (y: f32[*]) {\n"
                  "  w: f32[64,512] = random(1)\n"
                  "  v: f32[512,512] = random(2)\n"
                  "  a = MatMul(x, w)\n  b = Relu(a)\n"
                  "  y = MatMul(b, v)\n}\n");
    net_open(&n, NULL);
    assert_ok(sb_exec_run(n.exec, INPUTS(test_random(SB_DTYPE_F32, "64x64", 3)),
                          NULL, &out));
    first = copy_of(out);
    size_t packed = sb_exec_packed_bytes(n.exec);
    assert_true(packed >= (64 + 512) * 512 * sizeof(float));
    assert_true(packed < 2 * (64 + 512) * 512 * sizeof(float));
    /* More rows: a larger workspace, which the first plan uses from now on. */
    assert_ok(sb_exec_run(
        n.exec, INPUTS(test_random(SB_DTYPE_F32, "128x64", 4)), NULL, &out));
    assert_int_equal(n.exec->n_plans, 2);
    assert_int_equal(sb_exec_packed_bytes(n.exec), packed);
    size_t largest = n.exec->workspace->size;
    assert_ok(sb_exec_run(n.exec, INPUTS(test_random(SB_DTYPE_F32, "64x64", 3)),
                          NULL, &out));
    assert_tensor("after a larger plan", out, first, 0);
    assert_int_equal(n.exec->workspace->size, largest);
    net_close(&n);
}

static void
test_packed_weights_go_with_the_last_plan_that_has_them(void **state)
{
    (void)state;
    const sb_tensor *out = NULL;
    size_t packed = 0;
    char shape[32];
    net n;

    net_parse(&n, "graph g(x: f32[N,64]) -> (y: f32[*]) {\n"
                  "  w: f32[64,300] = random(1)\n"
                  "  y = MatMul(x, w)\n}\n");
    net_open(&n, NULL);
    for (int i = 0; i < 4 * PLANS_MOST; i++) {
        (void)snprintf(shape, sizeof shape, "%dx64", 10 + 7 * i);
        assert_ok(sb_exec_run(
            n.exec, INPUTS(test_random(SB_DTYPE_F32, shape, 3)), NULL, &out));
        if (sb_exec_packed_bytes(n.exec) > packed)
            packed = sb_exec_packed_bytes(n.exec);
    }
    /* Few forms, not one for each of 64 sizes. */
    assert_true(packed <= 4 * 64 * 320 * sizeof(float));
    net_close(&n);
}

int main(int argc, char **argv)
{
    int rc = test_every_isa(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changed_weights_count),
        cmocka_unit_test(test_weights_are_packed_when_they_have_changed),
        cmocka_unit_test(test_computed_weights),
        cmocka_unit_test(test_plans_share_packed_weights_and_workspace),
        cmocka_unit_test(
            test_packed_weights_go_with_the_last_plan_that_has_them),
    };

    if (rc >= 0)
        return rc;
    return cmocka_run_group_tests_name("exec_weights", tests, NULL, NULL);
}
