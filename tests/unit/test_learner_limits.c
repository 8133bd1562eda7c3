/* Steps that cannot be made: each says why, and leaves the parameters as they
 * were. */
#include "sbtest.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_for_a_larger_batch_is_missing),
        cmocka_unit_test(test_a_gradient_is_not_finite),
        cmocka_unit_test(test_a_loop_and_integers_are_named),
    };
    return cmocka_run_group_tests_name("learner_limits", tests, NULL, NULL);
}
