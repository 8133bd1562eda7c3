/* What cannot be learned, and steps that cannot be made: each says why, and
 * leaves the parameters as they were. */
#include "learntest.h"

#include <math.h>

static sb_learner *make(sb_ctx *ctx, const char *text, sb_model **model)
{
    sb_learn_options o = SB_LEARN_OPTIONS_INIT;
    sb_learner *l = NULL;

    o.loss = SB_LEARN_LOSS_MSE;
    assert_int_equal(sb_model_parse(ctx, text, model), SB_OK);
    sb_status status = sb_learner_create(*model, &o, &l);
    if (status != SB_OK)
        fail_msg("%s", sb_ctx_error(ctx));
    return l;
}

/* All is in its own context, whose memory is limited. */
static void test_memory_for_a_larger_batch_is_missing(void **state)
{
    (void)state;
    static const char text[] =
        "graph g(x: f32[N,8]) -> (y: f32[N,8]) {\n"
        "w: f32[64,8] = random(1)\nv: f32[64,8] = random(2)\n"
        "h = Gemm(x, w) {transB=1}\na = Tanh(h)\ny = Gemm(a, v)\n}\n";
    enum { SMALL = 2, LARGE = 4096 };
    sb_ctx *ctx = NULL;
    sb_model *model = NULL;

    assert_int_equal(sb_ctx_create(NULL, &ctx), SB_OK);
    sb_learner *l = make(ctx, text, &model);
    const sb_tensor *few = test_tensor(SB_DTYPE_F32, "2x8", NULL);
    const sb_tensor *many = test_tensor(SB_DTYPE_F32, "4096x8", NULL);
    const sb_tensor *w = sb_learner_find_parameter(l, "w")->value;
    float kept[64 * 8];

    for (int i = 0; i < SMALL * 8; i++)
        ((float *)few->data)[i] = (float)i / 16;
    for (int i = 0; i < LARGE * 8; i++)
        ((float *)many->data)[i] = (float)(i % 7) / 8;
    assert_int_equal(sb_learner_step(l, &few, 1, few, NULL), SB_OK);
    memcpy(kept, w->data, sizeof kept);
    sb_ctx_set_max_memory(ctx, sb_ctx_memory(ctx) + 100000);
    assert_int_equal(sb_learner_step(l, &many, 1, many, NULL), SB_NO_MEMORY);
    assert_memory_equal(w->data, kept, sizeof kept);
    assert_int_equal(sb_learner_updates(l), 1);
    /* It goes on with what fits, and with more memory. */
    assert_int_equal(sb_learner_step(l, &few, 1, few, NULL), SB_OK);
    sb_ctx_set_max_memory(ctx, 0);
    assert_int_equal(sb_learner_step(l, &many, 1, many, NULL), SB_OK);
    assert_int_equal(sb_learner_updates(l), 3);
    sb_learner_free(l);
    sb_model_free(model);
    sb_ctx_free(ctx);
}

/* sqrt(0) is finite, its gradient is not, and 0 times that is no number. */
static void test_a_gradient_is_not_finite(void **state)
{
    (void)state;
    static const char text[] =
        "graph g(x: f32[N,2]) -> (y: f32[N,2]) {\nw: f32[2,2] = [1, 0, 0, 1]\n"
        "m = MatMul(x, w)\ny = Sqrt(m) \"root\"\n}\n";
    sb_model *model = NULL;
    sb_learner *l = make(test_ctx(), text, &model);
    const sb_tensor *x = test_f32("1x2", 0, 4), *t = test_f32("1x2", 1, 1);
    const float *w = sb_learner_find_parameter(l, "w")->value->data;

    assert_int_equal(sb_learner_step(l, &x, 1, t, NULL), SB_BAD_DATA);
    assert_error_has("step 1: the norm of the gradients is not a number; the "
                     "first node to make such a value is 'grad.w' (Gemm)");
    for (int i = 0; i < 4; i++)
        assert_true(w[i] == (float)(i == 0 || i == 3));
    assert_int_equal(sb_learner_updates(l), 0);
    sb_learner_free(l);
    sb_model_free(model);
}

/* All that cannot be learned through is named at once. */
static void test_a_loop_and_integers_are_named(void **state)
{
    (void)state;
    static const char text[] =
        "graph g(x: f32[2,3]) -> (y: f32[2,3]) {\n"
        "w: f32[3,3] = random(1)\nn: i64[] = 2\nc: bool[] = 1\n"
        "s: f32[] = 0.1\nz: u8[] = 3\nm = MatMul(x, w)\n"
        "o = Loop(n, c, m) {body=graph b(i: i64[], k: bool[], a: f32[2,3]) -> "
        "(k2: bool[], e: f32[2,3]) { k2 = Identity(k)\n e = Exp(a) }} "
        "\"again\"\n"
        "q = QuantizeLinear(o, s, z) \"bytes\"\n"
        "y = DequantizeLinear(q, s, z) \"floats\"\n}\n";
    sb_learn_options o = SB_LEARN_OPTIONS_INIT;
    sb_model *model = NULL;
    sb_learner *l = NULL;

    o.loss = SB_LEARN_LOSS_MSE;
    assert_ok(sb_model_parse(test_ctx(), text, &model));
    assert_status(sb_learner_create(model, &o, &l), SB_UNSUPPORTED);
    assert_error_has("cannot learn through 3 nodes: 'floats' "
                     "(DequantizeLinear), 'bytes' (QuantizeLinear), 'again' "
                     "(Loop)");
    assert_null(l);
    sb_model_free(model);
}

/* ---- refusals ----------------------------------------------------------- */

static void refuse(const char *text, const sb_learn_options *opt,
                   sb_status status, const char *message)
{
    sb_model *model = test_learn_parse(test_ctx(), text);
    sb_learner *l = NULL;

    assert_status(sb_learner_create(model, opt, &l), status);
    assert_error_has(message);
    sb_model_free(model);
}

static void test_networks_that_cannot_be_trained(void **state)
{
    (void)state;
    const char *const wrong[] = {"nothing.*"}, *const all[] = {"*"};
    sb_learn_options o = SB_LEARN_OPTIONS_INIT;

    refuse("graph g(x: f32[N,3], c: bool[]) -> (y: f32[N,3]) {\n"
           "w: f32[3,3] = random(1)\nm = MatMul(x, w)\n"
           "y = If(c) {then_branch=graph t() -> (p: f32[N,3]) { p = Neg(m) }, "
           "else_branch=graph e() -> (q: f32[N,3]) { q = Exp(m) }} \"choice\""
           "\n}\n",
           &o, SB_UNSUPPORTED, "cannot learn through 1 node: 'choice' (If)");
    refuse("graph g(x: f32[N,3]) -> (y: f32[N,3]) {\n"
           "w: f32[3,3] = random(1)\ns: f32[] = 0.1\nz: i8[] = 0\n"
           "m = MatMul(x, w)\nq = QuantizeLinear(m, s, z) \"q\"\n"
           "y = DequantizeLinear(q, s, z) \"dq\"\n}\n",
           &o, SB_UNSUPPORTED, "'dq' (DequantizeLinear), 'q' (QuantizeLinear)");
    refuse("graph g(x: f32[N,3]) -> (y) {\ny = Exp(x)\n}\n", &o, SB_BAD_ARG,
           "none of the 0 parameters is to be trained");
    refuse("graph g(x: f32[N,3]) -> (y, z) {\nw: f32[3,3] = random(1)\n"
           "y = MatMul(x, w)\nz = Exp(y)\n}\n",
           &o, SB_BAD_ARG, "the model has 2 outputs");
    o.train = wrong;
    o.n_train = 1;
    refuse(test_learn_cnn, &o, SB_BAD_ARG, "train 'nothing.*' matches none");
    o.n_train = 0;
    o.freeze = all;
    o.n_freeze = 1;
    refuse(test_learn_cnn, &o, SB_BAD_ARG,
           "none of the 13 parameters is to be trained");
    o.n_freeze = 0;
    o.momentum = 2;
    refuse(test_learn_cnn, &o, SB_BAD_ARG, "momentum is 2, want 0 to 1");
}

static void test_data_that_does_not_fit(void **state)
{
    (void)state;
    sb_model *model = test_learn_started(test_ctx(), test_learn_cnn);
    sb_learner *l = test_learn_make(model, NULL);
    const sb_tensor x = test_learn_step_of("x", 0);
    const sb_tensor *const in[] = {&x};

    assert_status(sb_learner_step(l, in, 1, NULL, NULL), SB_BAD_ARG);
    assert_status(
        sb_learner_step(l, in, 1, test_f32("6", 0, 1, 2, 3, 4, 0), NULL),
        SB_BAD_DATA);
    assert_error_has("the target has type float, want int64");
    assert_status(
        sb_learner_step(l, in, 1, test_i64("6", 0, 1, 2, 3, 4, 5), NULL),
        SB_BAD_DATA);
    assert_error_has("label 5 of row 5 is outside 5 classes");
    assert_status(sb_learner_step(l, in, 1, test_i64("5", 0, 1, 2, 3, 4), NULL),
                  SB_BAD_MODEL);
    assert_status(sb_learner_step(l, in, 0, test_i64("1", 0), NULL),
                  SB_BAD_ARG);
    /* Nothing was changed by any of them. */
    for (size_t i = 0; i < TEST_LEARN_NAMES; i++)
        assert_tensor(test_learn_names[i],
                      sb_learner_find_parameter(l, test_learn_names[i])->value,
                      test_learn_array("start.%s", test_learn_names[i]), 0);
    sb_learner_free(l);
    sb_model_free(model);
}

static void test_values_that_are_not_finite(void **state)
{
    (void)state;
    sb_model *model = test_learn_started(test_ctx(), test_learn_cnn);
    sb_learner *l = test_learn_make(model, NULL);
    sb_tensor x = test_learn_step_of("x", 0),
              t = test_learn_step_of("labels", 0), bad, w;
    const sb_tensor *const in[] = {&x}, *const broken[] = {&bad};

    assert_ok(sb_tensor_clone(test_ctx(), &x, &bad));
    ((float *)bad.data)[7] = NAN;
    assert_status(sb_learner_step(l, broken, 1, &t, NULL), SB_BAD_DATA);
    assert_error_has("step 1: the loss is not a number, since input 'x' is");
    sb_tensor_drop(&bad);
    assert_ok(sb_learner_step(l, in, 1, &t, NULL));

    assert_ok(sb_tensor_clone(
        test_ctx(), sb_learner_find_parameter(l, "conv2.weight")->value, &w));
    ((float *)w.data)[0] = NAN;
    assert_ok(sb_learner_set_parameter(l, "conv2.weight", &w));
    assert_status(sb_learner_step(l, in, 1, &t, NULL), SB_BAD_DATA);
    assert_error_has("step 2: the loss is not a number; the first node to "
                     "make such a value is 'conv2'");
    sb_tensor_drop(&w);
    sb_learner_free(l);
    sb_model_free(model);
}

/* ---- interruptions ------------------------------------------------------ */

static sb_status interrupted_step(sb_learner *l, size_t i)
{
    const sb_tensor x = test_learn_step_of("x", i),
                    t = test_learn_step_of("labels", i);
    const sb_tensor *const in[] = {&x};

    return sb_learner_step(l, in, 1, &t, NULL);
}

static void test_interrupted_step_leaves_parameters(void **state)
{
    (void)state;
    sb_model *model = test_learn_started(test_ctx(), test_learn_cnn);
    sb_learner *l = test_learn_make(model, NULL);

    sb_ctx_interrupt(test_ctx());
    assert_status(interrupted_step(l, 0), SB_INTERRUPTED);
    sb_ctx_clear_interrupt(test_ctx());
    for (size_t i = 0; i < TEST_LEARN_NAMES; i++)
        assert_tensor(test_learn_names[i],
                      sb_learner_find_parameter(l, test_learn_names[i])->value,
                      test_learn_array("start.%s", test_learn_names[i]), 0);
    assert_int_equal(sb_learner_updates(l), 0);
    assert_ok(interrupted_step(l, 0));
    sb_learner_free(l);
    sb_model_free(model);
}

/* ---- memory runs out ---------------------------------------------------- */

static sb_status whole_life(sb_ctx *ctx)
{
    static const char text[] =
        "graph g(x: f32[N,2,4,4]) -> (y) {\nw: f32[3,2,3,3] = random(1)\n"
        "s: f32[3] = [1, 2, 3]\nb: f32[3] = [0, 1, 0]\n"
        "m: f32[3] = [0, 0, 1]\nv: f32[3] = [1, 2, 1]\n"
        "fc: f32[4,3] = random(2)\nc = Conv(x, w)\n"
        "n = BatchNormalization(c, s, b, m, v)\nd = Dropout(n)\n"
        "r = Relu(d)\ng = GlobalAveragePool(r)\nf = Flatten(g)\n"
        "y = Gemm(f, fc) {transB=1}\n}\n";
    static float x[64];
    static int64_t labels[] = {0, 3};
    sb_tensor in = sb_tensor_make(SB_DTYPE_F32, 4, (int64_t[]){2, 2, 4, 4});
    sb_tensor t = sb_tensor_make(SB_DTYPE_I64, 1, (int64_t[]){2});
    const sb_tensor *const inputs[] = {&in}, *out = NULL;
    sb_learn_options o = SB_LEARN_OPTIONS_INIT;
    sb_model *model = NULL, *trained = NULL;
    sb_learner *l = NULL;

    in.data = x;
    t.data = labels;
    o.ema_decay = 0.9;
    o.recompute = 2;
    sb_status s = sb_model_parse(ctx, text, &model);
    if (s == SB_OK)
        s = sb_learner_create(model, &o, &l);
    if (s == SB_OK)
        s = sb_learner_step(l, inputs, 1, &t, NULL);
    if (s == SB_OK)
        s = sb_learner_eval(l, SB_LEARN_VALUES_AVERAGE, inputs, 1, &out, 1);
    if (s == SB_OK)
        s = sb_learner_model(l, SB_LEARN_VALUES_LAST, &trained);
    sb_model_free(trained);
    sb_learner_free(l);
    sb_model_free(model);
    return s;
}

static void test_memory_runs_out(void **state)
{
    (void)state;
    test_every_allocation("learner", whole_life);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_for_a_larger_batch_is_missing),
        cmocka_unit_test(test_a_gradient_is_not_finite),
        cmocka_unit_test(test_a_loop_and_integers_are_named),
        cmocka_unit_test(test_networks_that_cannot_be_trained),
        cmocka_unit_test(test_data_that_does_not_fit),
        cmocka_unit_test(test_values_that_are_not_finite),
        cmocka_unit_test(test_interrupted_step_leaves_parameters),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests_name("learner_limits", tests,
                                       test_learn_setup, test_learn_teardown);
}
