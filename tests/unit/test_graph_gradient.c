/* sb_graph_gradient: which nodes are added, what is left alone, what is
 * refused. */
#include "sbtest.h"

#include "graph/text.h"
#include "ops/grad/grad.h"
#include "ops/learn/loss.h"

#define F "sparsebit::"

/* Differentiates `loss` with respect to the inputs whose names start with w;
 * gradients become outputs. */
static sb_status learn(sb_graph *g)
{
    sb_value_id wrt[8], out[8];
    size_t n = 0;

    for (size_t i = 0; i < g->n_inputs; i++)
        if (sb_graph_value(g, g->inputs[i])->name[0] == 'w')
            wrt[n++] = g->inputs[i];
    SB_TRY(sb_graph_gradient(g, g->outputs[0], wrt, n, out));
    for (size_t i = 0; i < n; i++)
        if (out[i] != SB_NONE)
            SB_TRY(sb_graph_add_output(g, out[i]));
    return SB_OK;
}

static void text_of(const sb_graph *g, sb_str *s)
{
    sb_str_init(s, test_ctx());
    assert_ok(sb_graph_print(g, s));
    assert_ok(sb_str_status(s));
}

static void check_text(const char *what, const char *before, const char *after)
{
    sb_graph *g = NULL;
    sb_str s;

    assert_ok(sb_graph_parse(test_ctx(), before, &g));
    assert_ok(learn(g));
    assert_ok(sb_graph_verify(g));
    text_of(g, &s);
    if (!strstr(sb_str_text(&s), after))
        fail_msg("%s:\n%s\nwant\n%s", what, sb_str_text(&s), after);
    sb_str_free(&s);
    sb_graph_free(g);
}

static void test_nodes_that_are_added(void **state)
{
    (void)state;
    check_text("a chain, from the result where that is enough",
               "graph g(w: f32[3]) -> (loss: f32[]) {\n"
               "  y = Tanh(w)\n  loss = ReduceSum(y) {keepdims=0}\n}\n",
               "    back.loss = Expand(back.const_0, back.const_1)\n"
               "    grad.w = " F "EwGrad(back.loss, y) {of=\"Tanh\"}\n}\n");
    check_text("what was broadcast is summed up",
               "graph g(x: f32[2,3], w: f32[3]) -> (loss: f32[]) {\n"
               "  y = Mul(x, w)\n  loss = ReduceSum(y) {keepdims=0}\n}\n",
               "    back.y = Mul(back.loss, x)\n"
               "    grad.w = " F "SumTo(back.y, back.const_2)\n}\n");
    check_text("a fork is added up",
               "graph g(w: f32[]) -> (loss: f32[]) {\n"
               "  a = Exp(w)\n  b = Neg(w)\n  loss = Mul(a, b)\n}\n",
               "    back.loss = Mul(back.const_0, b)\n"
               "    back.loss_2 = Mul(back.const_0, a)\n"
               "    back.b = Neg(back.loss_2)\n"
               "    back.a = " F "EwGrad(back.loss, a) {of=\"Exp\"}\n"
               "    grad.w = Add(back.b, back.a)\n}\n");
    check_text("two gradients that are one value",
               "graph g(w1: f32[2], w2: f32[2]) -> (loss: f32[]) {\n"
               "  y = Add(w1, w2)\n  loss = ReduceSum(y) {keepdims=0}\n}\n",
               "    grad.w1 = Expand(back.const_0, back.const_1)\n"
               "    grad.w2 = Identity(grad.w1)\n}\n");
    check_text("an unknown size is asked for at the run",
               "graph g(w: f32[N,2]) -> (loss: f32[]) {\n"
               "  loss = ReduceSum(w) {keepdims=0}\n}\n",
               "    back.loss = Shape(w)\n"
               "    grad.w = Expand(back.const_0, back.loss)\n}\n");
}

/* Nodes in front of what is learned get no gradients, whatever they are. */
static void test_frozen_prefix_costs_nothing(void **state)
{
    (void)state;
    sb_graph *g = NULL;
    const char *text =
        "graph g(x: f32[1,3,4,4], w: f32[8]) -> (loss: f32[]) {\n"
        "  k: f32[8,3,3,3] = random(1)\n"
        "  c = Conv(x, k)\n  p = MaxPool(c) {kernel_shape=[2,2]}\n"
        "  f = Flatten(p)\n  m = Mul(f, w)\n"
        "  loss = ReduceSum(m) {keepdims=0}\n}\n";

    assert_ok(sb_graph_parse(test_ctx(), text, &g));
    size_t before = sb_graph_live_nodes(g);
    assert_ok(learn(g));
    /* Expand, Mul, SumTo. */
    assert_int_equal(sb_graph_live_nodes(g), before + 3);
    sb_graph_free(g);
}

static void test_flat_results_have_no_gradient(void **state)
{
    (void)state;
    sb_graph *g = NULL;
    sb_value_id out[2];

    assert_ok(sb_graph_parse(
        test_ctx(),
        "graph g(w: f32[3], v: f32[3]) -> (loss: f32[]) {\n"
        "  a = Floor(v)\n  i = ArgMax(v) {axis=0, keepdims=0}\n"
        "  f = Cast(i) {to=1}\n  b = Mul(w, a)\n  c = Mul(b, f)\n"
        "  loss = ReduceSum(c) {keepdims=0}\n}\n",
        &g));
    assert_ok(sb_graph_gradient(
        g, g->outputs[0], (const sb_value_id[]){g->inputs[0], g->inputs[1]}, 2,
        out));
    assert_string_equal(sb_graph_value(g, out[0])->name, "grad.w");
    assert_int_equal(out[1], SB_NONE);
    sb_graph_free(g);
}

/* ---- losses ------------------------------------------------------------- */

static sb_status add_loss(const char *text, const sb_loss_options *opt,
                          sb_str *out)
{
    sb_graph *g = NULL;
    sb_value_id loss, grad;

    sb_str_init(out, test_ctx());
    assert_ok(sb_graph_parse(test_ctx(), text, &g));
    sb_status status =
        sb_graph_add_loss(g, opt, g->inputs[0], g->inputs[1], &loss);
    if (status == SB_OK) {
        assert_ok(sb_graph_add_output(g, loss));
        assert_ok(sb_graph_gradient(g, loss, g->inputs, 1, &grad));
        assert_ok(sb_graph_add_output(g, grad));
        assert_ok(sb_graph_verify(g));
        assert_ok(sb_graph_print(g, out));
    }
    sb_graph_free(g);
    return status;
}

#define LABELED(x, t, y)                            \
    "graph g(w: " x ", t: " t ") -> (y: " y ") {\n" \
    "  y = Identity(w)\n}\n"

static void test_losses_are_nodes(void **state)
{
    (void)state;
    const struct {
        const char *text;
        sb_loss_options opt;
        const char *want; /* NULL: refused */
    } cases[] = {
        {LABELED("f32[N,10]", "i64[N]", "f32[N,10]"),
         {.kind = SB_LOSS_CROSS_ENTROPY,
          .axis = 1,
          .smoothing = 0.1f,
          .ignore_index = -1},
         "    loss = " F "CrossEntropy(w, t) {smoothing=0.1, "
         "ignore_index=-1}\n"},
        {LABELED("f32[2,10,4,4]", "i64[2,4,4]", "f32[2,10,4,4]"),
         {.kind = SB_LOSS_CROSS_ENTROPY, .axis = 1, .ignore_index = -100},
         "    back.loss = Transpose(w) {perm=[0,2,3,1]}\n    loss = " F
         "CrossEntropy(back.loss, t)"},
        {LABELED("f32[2,5,10]", "i64[2,5]", "f32[2,5,10]"),
         {.kind = SB_LOSS_CROSS_ENTROPY, .axis = -1, .ignore_index = -100},
         "    loss = " F "CrossEntropy(w, t)"},
        {LABELED("f32[2,10]", "f32[2,10]", "f32[2,10]"),
         {.kind = SB_LOSS_KL, .axis = 1, .temperature = 2},
         "    loss = " F "KlDivergence(w, t) {temperature=2.0}\n"},
        {LABELED("f32[2,10]", "f32[2,10]", "f32[2,10]"),
         {.kind = SB_LOSS_MSE},
         "    back.loss_2 = Mul(back.loss, back.loss)\n"
         "    loss = ReduceMean(back.loss_2) {keepdims=0}\n"},
        {LABELED("f32[2,10]", "i64[2,10]", "f32[2,10]"),
         {.kind = SB_LOSS_CROSS_ENTROPY, .axis = 1, .ignore_index = -100},
         NULL},
        {LABELED("f32[2,10]", "i64[2]", "f32[2,10]"),
         {.kind = SB_LOSS_CROSS_ENTROPY, .axis = 2, .ignore_index = -100},
         NULL},
    };

    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_str s;
        sb_status status = add_loss(cases[i].text, &cases[i].opt, &s);
        if (!cases[i].want)
            assert_int_equal(status, SB_BAD_ARG);
        else if (status != SB_OK || !strstr(sb_str_text(&s), cases[i].want))
            fail_msg("case %zu: %s\n%s\nwant\n%s", i, sb_ctx_error(test_ctx()),
                     sb_str_text(&s), cases[i].want);
        sb_str_free(&s);
    }
}

/* ---- errors ------------------------------------------------------------- */

static const struct {
    const char *what, *text;
    sb_status status;
    const char *message;
} refused[] = {
    {"all nodes are named, the second behind the first",
     "graph g(w: f32[2,3,3]) -> (loss: f32[]) {\n"
     "  one: i64[] = 1\n  a = CumProd(w, one) \"first\"\n"
     "  b = Det(a) \"second\"\n  c = Unknown(b)\n"
     "  loss = ReduceSum(c) {keepdims=0}\n}\n",
     SB_UNSUPPORTED,
     "cannot learn through 3 nodes: 'c' (Unknown), 'second' (Det), 'first' "
     "(CumProd)"},
    {"reductions over nothing",
     "graph g(w: f32[2,3]) -> (loss: f32[]) {\n"
     "  a = ReduceMax(w) {noop_with_empty_axes=1}\n"
     "  loss = ReduceSum(a) {keepdims=0}\n}\n",
     SB_UNSUPPORTED, "'a' (ReduceMax: noop_with_empty_axes)"},
    {"attributes that nobody asked for",
     "graph g(w: f32[3,3]) -> (loss: f32[]) {\n"
     "  a = Trilu(w) {a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1,j=1,k=1,l=1}\n"
     "  b = Det(a)\n  loss = ReduceSum(b) {keepdims=0}\n}\n",
     SB_UNSUPPORTED, "cannot learn through 1 node: 'b' (Det)"},
    {"control flow",
     "graph g(c: bool[], w: f32[]) -> (loss: f32[]) {\n"
     "  loss = If(c) {then_branch=graph t() -> (a: f32[]) { a = Neg(w) }, "
     "else_branch=graph e() -> (b: f32[]) { b = Exp(w) }}\n}\n",
     SB_UNSUPPORTED, "cannot learn through 1 node: 'loss' (If)"},
    {"a way through integers",
     "graph g(w: f32[4]) -> (loss: f32[]) {\n"
     "  s: f32[] = 0.1\n  z: i8[] = 0\n  q = QuantizeLinear(w, s, z) \"q\"\n"
     "  d = DequantizeLinear(q, s, z) \"d\"\n"
     "  loss = ReduceSum(d) {keepdims=0}\n}\n",
     SB_UNSUPPORTED,
     "cannot learn through 2 nodes: 'd' (DequantizeLinear), 'q' "
     "(QuantizeLinear)"},
    {"a loss of several elements",
     "graph g(w: f32[4]) -> (loss: f32[4]) {\n  loss = Exp(w)\n}\n", SB_BAD_ARG,
     "loss 'loss' is not one float; want a mean or sum of it"},
    {"a loss of unknown size",
     "graph g(w: f32[N]) -> (loss: f32[N]) {\n  loss = Exp(w)\n}\n", SB_BAD_ARG,
     "loss 'loss' is not one float"},
    {"a loss that is not computed", "graph g(w: f32[]) -> (w: f32[]) {\n}\n",
     SB_BAD_ARG, "loss 'w' is not computed by a node"},
    {"integers to be learned",
     "graph g(w: i64[]) -> (loss: f32[]) {\n  loss = Cast(w) {to=1}\n}\n",
     SB_BAD_ARG, "value 'w' is to be learned but is not a float"},
    {"nothing to be learned",
     "graph g(w: f32[3], x: f32[3]) -> (loss: f32[]) {\n"
     "  f = Round(w)\n  m = Mul(f, x)\n"
     "  loss = ReduceSum(m) {keepdims=0}\n}\n",
     SB_BAD_ARG, "loss 'loss' does not change with any of the 1 values"},
};

static void test_refusals_change_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(refused); i++) {
        sb_graph *g = NULL;
        sb_str before, after;

        assert_ok(sb_graph_parse(test_ctx(), refused[i].text, &g));
        assert_ok(sb_graph_infer(g));
        text_of(g, &before);
        assert_status(learn(g), refused[i].status);
        assert_error_has(refused[i].message);
        text_of(g, &after);
        assert_string_equal(sb_str_text(&before), sb_str_text(&after));
        assert_ok(sb_graph_verify(g));
        sb_str_free(&before);
        sb_str_free(&after);
        sb_graph_free(g);
    }
}

static void test_many_refusals_fit_one_line(void **state)
{
    (void)state;
    sb_graph *g = NULL;
    sb_str s;

    sb_str_init(&s, test_ctx());
    sb_str_add(&s, "graph g(w: f32[2,2]) -> (loss: f32[]) {\n  v0 = Neg(w)\n");
    for (int i = 0; i < 500; i++)
        sb_str_addf(&s, "  v%d = Unknown(v%d)\n", i + 1, i);
    sb_str_add(&s, "  loss = ReduceSum(v500) {keepdims=0}\n}\n");
    assert_ok(sb_graph_parse(test_ctx(), sb_str_text(&s), &g));
    assert_status(learn(g), SB_UNSUPPORTED);
    assert_error_has("cannot learn through 500 nodes: 'v500' (Unknown), ");
    assert_error_has(" more");
    sb_str_free(&s);
    sb_graph_free(g);
}

/* ---- memory ------------------------------------------------------------- */

static sb_status gradient_scenario(sb_ctx *ctx)
{
    sb_graph *g = NULL;

    SB_TRY(sb_graph_parse(ctx,
                          "graph g(x: f32[N,4], w: f32[4,3], w2: f32[3]) -> "
                          "(loss: f32[]) {\n"
                          "  m = MatMul(x, w)\n  a = Add(m, w2)\n"
                          "  y = Softmax(a)\n  s = Mul(y, a)\n"
                          "  loss = ReduceMean(s) {keepdims=0}\n}\n",
                          &g));
    sb_status status = learn(g);
    sb_graph_free(g);
    return status;
}

static void test_no_memory(void **state)
{
    (void)state;
    test_every_allocation("gradient", gradient_scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_that_are_added),
        cmocka_unit_test(test_frozen_prefix_costs_nothing),
        cmocka_unit_test(test_flat_results_have_no_gradient),
        cmocka_unit_test(test_losses_are_nodes),
        cmocka_unit_test(test_refusals_change_nothing),
        cmocka_unit_test(test_many_refusals_fit_one_line),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("graph_gradient", tests, NULL, NULL);
}
