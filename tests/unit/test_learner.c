/* The learner: whole steps against PyTorch, and what must hold around them:
 * parameters, memory, saving, any number of threads.  What cannot be learned is
 * in test_learner_limits.c. */
#include "learntest.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/str.h"

enum { STEPS = 4, BATCH = 6, CLASSES = 5 };

static double step(sb_learner *l, size_t i, const sb_tensor *target)
{
    const sb_tensor x = test_learn_step_of("x", i);
    const sb_tensor *const in[] = {&x};
    double loss = NAN;

    assert_ok(sb_learner_step(l, in, 1, target, &loss));
    return loss;
}

/* All parameters one after another, as in the fixture. */
static void assert_end(const char *what, const sb_learner *l,
                       const sb_tensor *want, bool average, double tol)
{
    const float *w = want->data;

    for (size_t i = 0; i < TEST_LEARN_NAMES; i++) {
        const sb_parameter_info *p =
            sb_learner_find_parameter(l, test_learn_names[i]);
        const sb_tensor *t = average && p->average ? p->average : p->value;
        char where[80];
        (void)snprintf(where, sizeof where, "%s %s", what, test_learn_names[i]);
        assert_all_close(where, t->data, w, (size_t)sb_tensor_count(t), tol);
        w += sb_tensor_count(t);
    }
}

/* ---- against PyTorch ---------------------------------------------------- */

static sb_learn_options options(void)
{
    sb_learn_options o = SB_LEARN_OPTIONS_INIT;

    o.learning_rate = 0.1;
    return o;
}

static void run_case(const char *name, const char *text,
                     const sb_learn_options *opt, int ignored)
{
    sb_model *model = test_learn_started(test_ctx(), text);
    sb_learner *l = test_learn_make(model, opt);
    bool labels = opt->loss == SB_LEARN_LOSS_CROSS_ENTROPY;
    const float *want = test_learn_array("%s.loss", name)->data;

    sb_model_free(model);
    for (size_t i = 0; i < STEPS; i++) {
        sb_tensor target = test_learn_step_of(labels ? "labels" : "targets", i),
                  copy;
        assert_ok(sb_tensor_clone(test_ctx(), &target, &copy));
        int64_t *v = copy.data;
        for (size_t k = 0; ignored && k < BATCH; k++)
            v[k] = v[k] == ignored ? -1 : v[k];
        assert_close(name, step(l, i, &copy), want[i], 2e-5);
        sb_tensor_drop(&copy);
    }
    assert_end(name, l, test_learn_array("%s.end", name), false, 3e-5);
    if (opt->ema_decay > 0)
        assert_end(name, l, test_learn_array("%s.average", name), true, 3e-5);
    sb_learner_free(l);
}

static void test_steps_as_pytorch(void **state)
{
    (void)state;
    const char *const bias[] = {"conv2.bias"};
    sb_learn_options o = options();

    run_case("sgd", test_learn_cnn, &o, 0);
    run_case("sgd", test_learn_cnn_soft, &o, 0);
    o.recompute = 3;
    run_case("sgd", test_learn_cnn, &o, 0);

    o = options();
    o.nesterov = 1;
    o.weight_decay = 0.05;
    o.label_smoothing = 0.1;
    o.clip_norm = 0.5;
    run_case("nesterov", test_learn_cnn, &o, 0);

    o = options();
    o.optimizer = SB_OPTIMIZER_ADAM;
    o.freeze = bias;
    o.n_freeze = 1;
    o.learning_rate = 0.01;
    o.weight_decay = 0.1;
    run_case("adam", test_learn_cnn, &o, 0);
    o.optimizer = SB_OPTIMIZER_ADAMW;
    o.ignore_index = -1;
    o.ema_decay = 0.8;
    run_case("adamw", test_learn_cnn, &o, 2);
}

static void test_variants_as_pytorch(void **state)
{
    (void)state;
    const char *const front[] = {"conv1.*", "bn1.*"};
    sb_learn_group group = SB_LEARN_GROUP_INIT;
    const sb_learn_group *const groups[] = {&group};
    sb_learn_options o = options();

    o.loss = SB_LEARN_LOSS_MSE;
    o.norm = SB_LEARN_NORM_FROZEN;
    o.momentum = 0;
    run_case("eval_bn", test_learn_cnn, &o, 0);

    o = options();
    o.loss = SB_LEARN_LOSS_KL;
    o.temperature = 2;
    o.freeze = front;
    o.n_freeze = SB_COUNT(front);
    run_case("freeze", test_learn_cnn, &o, 0);
    run_case("freeze", test_learn_cnn_soft, &o, 0);

    o = options();
    o.accumulate = 2;
    run_case("accumulate", test_learn_cnn, &o, 0);

    o = options();
    group.pattern = "fc.*";
    group.rate = 0.1;
    o.groups = groups;
    o.n_groups = 1;
    run_case("groups", test_learn_cnn, &o, 0);
}

/* One step whose loss is the caller's: d(loss)/d(output) of the mean square, by
 * hand.  `interrupted` comes between forward and backward. */
static sb_status custom_step(sb_learner *l, size_t i, bool interrupted)
{
    const sb_tensor x = test_learn_step_of("x", i),
                    target = test_learn_step_of("targets", i);
    const sb_tensor *const in[] = {&x}, *y = NULL;

    assert_ok(sb_learner_forward(l, in, 1, &y, 1));
    sb_tensor *dy = test_tensor(SB_DTYPE_F32, "6x5", NULL);
    const sb_tensor *const given[] = {dy};
    for (int k = 0; k < BATCH * CLASSES; k++)
        ((float *)dy->data)[k] =
            2 *
            (((const float *)y->data)[k] - ((const float *)target.data)[k]) /
            (BATCH * CLASSES);
    if (interrupted)
        sb_ctx_interrupt(test_ctx());
    sb_status status = sb_learner_backward(l, given, 1);
    sb_ctx_clear_interrupt(test_ctx());
    return status;
}

/* It gives what the operator does, also where a step was interrupted in the
 * middle and made again. */
static void test_loss_of_the_caller(void **state)
{
    (void)state;
    sb_learn_options o = options();
    sb_model *model = test_learn_started(test_ctx(), test_learn_cnn);

    o.loss = SB_LEARN_LOSS_CUSTOM;
    o.norm = SB_LEARN_NORM_FROZEN;
    o.momentum = 0;
    sb_learner *l = test_learn_make(model, &o);
    for (size_t i = 0; i < STEPS; i++) {
        assert_status(custom_step(l, i, true), SB_INTERRUPTED);
        assert_int_equal(sb_learner_updates(l), i);
        assert_ok(custom_step(l, i, false));
    }
    assert_end("custom", l, test_learn_array("%s.end", "eval_bn"), false, 3e-5);
    assert_status(sb_learner_backward(l, NULL, 0), SB_BAD_ARG);
    assert_error_has("no sb_learner_forward() before");
    sb_learner_free(l);
    sb_model_free(model);
}

/* ---- what comes out ----------------------------------------------------- */

static void test_trained_model_runs_as_the_learner(void **state)
{
    (void)state;
    sb_learn_options o = options();
    sb_model *model = test_learn_started(test_ctx(), test_learn_cnn_soft),
             *trained = NULL;
    sb_session *session = NULL;

    o.ema_decay = 0.5;
    sb_learner *l = test_learn_make(model, &o);
    const sb_tensor x = test_learn_step_of("x", 3);
    const sb_tensor *const in[] = {&x}, *a = NULL, *b = NULL;
    for (size_t i = 0; i < STEPS; i++) {
        const sb_tensor t = test_learn_step_of("labels", i);
        (void)step(l, i, &t);
        assert_int_equal(sb_tensor_elements(sb_learner_output(l)), 30);
        for (int v = SB_LEARN_VALUES_LAST; v <= SB_LEARN_VALUES_AVERAGE; v++) {
            assert_ok(sb_learner_eval(l, (sb_learn_values)v, in, 1, &a, 1));
            assert_ok(sb_learner_model(l, (sb_learn_values)v, &trained));
            assert_ok(sb_session_create(trained, NULL, &session));
            assert_ok(sb_session_run(session, in, 1, &b, 1));
            assert_tensor("probabilities", a, b, 1e-5);
            sb_session_free(session);
            sb_model_free(trained);
        }
    }
    assert_int_equal(sb_learner_updates(l), STEPS);
    sb_learner_free(l);
    sb_model_free(model);
}

static void test_gradient_changes_nothing(void **state)
{
    (void)state;
    sb_model *model = test_learn_started(test_ctx(), test_learn_cnn);
    sb_learner *l = test_learn_make(model, NULL);
    const sb_tensor x = test_learn_step_of("x", 0),
                    t = test_learn_step_of("labels", 0);
    const sb_tensor *const in[] = {&x};
    double a = 0, b = 0;

    assert_ok(sb_learner_gradient(l, in, 1, &t, &a));
    assert_ok(sb_learner_gradient(l, in, 1, &t, &b));
    assert_close("loss", a, b, 0);
    for (size_t i = 0; i < TEST_LEARN_NAMES; i++) {
        const sb_parameter_info *p =
            sb_learner_find_parameter(l, test_learn_names[i]);
        assert_tensor(test_learn_names[i], p->value,
                      test_learn_array("start.%s", test_learn_names[i]), 0);
        assert_int_equal(p->gradient == NULL,
                         p->role == SB_PARAMETER_ROLE_STATISTIC);
    }
    sb_learner_free(l);
    sb_model_free(model);
}

/* ---- which constants are parameters ------------------------------------- */

static void test_parameters_are_found(void **state)
{
    (void)state;
    const char *text =
        "graph g(x: f32[N,4], i: i64[N]) -> (y) {\n"
        "table: f32[9,4] = random(1)\nw: f32[4,4] = random(2)\n"
        "b: f32[4] = random(3)\nnorm.gamma: f32[4] = random(4)\n"
        "half: f32[] = 0.5\nrope.cos_cached: f32[9,4] = random(5)\n"
        "offset: f32[4] = random(6)\nslope: f32[4] = random(7)\n"
        "e = Gather(table, i)\nc = Gather(rope.cos_cached, i)\n"
        "s = Add(x, e)\nm = MatMul(s, w)\nl = Add(m, b)\n"
        "h = Mul(l, half)\nn = Mul(h, norm.gamma)\no = Add(n, offset)\n"
        "p = PRelu(o, slope)\ny = Add(p, c)\n}\n";
    static const char *const want[] = {"table", "w", "b", "norm.gamma",
                                       "slope"};
    const char *const only[] = {"off*"};
    sb_model *model = test_learn_parse(test_ctx(), text);
    sb_learn_options o = options();
    sb_learner *l = test_learn_make(model, &o);

    assert_int_equal(sb_learner_parameter_count(l), SB_COUNT(want));
    for (size_t i = 0; i < SB_COUNT(want); i++) {
        assert_string_equal(sb_learner_parameter(l, i)->name, want[i]);
        assert_true(sb_learner_parameter(l, i)->trained);
    }
    assert_null(sb_learner_parameter(l, SB_COUNT(want)));
    sb_learner_free(l);
    o.train = only;
    o.n_train = 1;
    l = test_learn_make(model, &o);
    assert_int_equal(sb_learner_parameter_count(l), SB_COUNT(want) + 1);
    for (size_t i = 0; i <= SB_COUNT(want); i++)
        assert_int_equal(sb_learner_parameter(l, i)->trained,
                         strcmp(sb_learner_parameter(l, i)->name, "offset") ==
                             0);
    sb_learner_free(l);
    sb_model_free(model);
}

/* As PyTorch's exporters name what modules of timm learn, and what they keep.
 */
static void test_parameters_by_name(void **state)
{
    (void)state;
    sb_model *model = test_learn_parse(
        test_ctx(),
        "graph g(x: f32[N,2,2]) -> (y) {\n"
        "block.act.scale: f32[1] = [2]\nscale: f32[1] = [2]\n"
        "xca.temperature: f32[2,1] = [1, 2]\nconv.gain: f32[2,1] = [1, 2]\n"
        "patch_pos: f32[2,2] = random(1)\nrel_pos_h: f32[2,2] = random(2)\n"
        "blur.filt: f32[2,2] = random(3)\n"
        "a = Mul(x, block.act.scale)\nb = Mul(a, scale)\n"
        "c = Mul(b, xca.temperature)\nd = Mul(c, conv.gain)\n"
        "e = Add(d, patch_pos)\nf = Add(e, rel_pos_h)\n"
        "y = MatMul(f, blur.filt)\n}\n");
    sb_learner *l = test_learn_make(model, NULL);
    static const char *const want[] = {"block.act.scale", "xca.temperature",
                                       "conv.gain", "patch_pos", "rel_pos_h"};

    assert_int_equal(sb_learner_parameter_count(l), SB_COUNT(want));
    for (size_t i = 0; i < SB_COUNT(want); i++)
        assert_string_equal(sb_learner_parameter(l, i)->name, want[i]);
    sb_learner_free(l);
    sb_model_free(model);
}

/* Standardized weights, as PyTorch writes them: a batch norm of the weight,
 * whose statistics are computed, and whose bias is no parameter.  It goes by
 * the weight whatever norms of the network do.  The weight's channels are (1,
 * 3) and (0, 4), so without epsilon they become -1 and 1 times the gain. */
static void test_weights_are_normalized(void **state)
{
    (void)state;
    sb_model *model = test_learn_parse(
        test_ctx(), "graph g(x: f32[1,2]) -> (y) {\n"
                    "fc.weight: f32[1,2,2] = [1, 3, 0, 4]\n"
                    "fc.gain: f32[2,1,1] = [1, 2]\nz: f32[2] = [0, 0]\n"
                    "fc2.gain = Identity(fc.gain)\na: i64[2] = [0, 2]\n"
                    "m = ReduceMean(fc.weight, a) {keepdims=0}\n"
                    "q = Mul(fc.weight, fc.weight)\n"
                    "v = ReduceMean(q, a) {keepdims=0}\n"
                    "s: i64[1] = [2]\nt: i64[2] = [2, 2]\n"
                    "g = Reshape(fc.gain, s)\ng2 = Reshape(fc2.gain, s)\n"
                    "n, nm, nv = BatchNormalization(fc.weight, g, z, m, v) "
                    "{training_mode=1, epsilon=1e-9}\n"
                    "w = Reshape(n, t)\no = MatMul(x, w)\n"
                    "y = Mul(o, g2)\n}\n");
    const sb_tensor *in = test_f32("1x2", 1, 0), *to = test_f32("1x2", 0, 0);
    sb_learn_options o = options();
    double loss = 0;

    o.loss = SB_LEARN_LOSS_MSE;
    sb_learner *l = test_learn_make(model, &o);
    assert_int_equal(sb_learner_parameter_count(l), 3);
    assert_non_null(sb_learner_find_parameter(l, "fc2.gain"));
    assert_null(sb_learner_find_parameter(l, "z"));
    assert_ok(sb_learner_gradient(l, &in, 1, to, &loss));
    /* w is (-1, 1; -2, 2), y = (-1, 1 * 2), so the loss (1 + 4) / 2. */
    assert_close("loss", loss, 2.5, 1e-5);
    sb_learner_free(l);
    sb_model_free(model);
}

/* PyTorch writes one of two vectors that are equal at the start. */
static void test_equal_vectors_are_two_parameters(void **state)
{
    (void)state;
    sb_model *model = test_learn_parse(
        test_ctx(), "graph g(x: f32[N,2,3,3]) -> (y) {\n"
                    "w: f32[2,2,1,1] = random(1)\none: f32[2] = [1, 1]\n"
                    "zero: f32[2] = [0, 0]\nmean = Identity(zero)\n"
                    "var = Identity(one)\nc = Conv(x, w)\n"
                    "n = BatchNormalization(c, one, zero, mean, var)\n"
                    "g = GlobalAveragePool(n)\ny = Flatten(g)\n}\n");
    sb_learner *l = test_learn_make(model, NULL);
    static const char *const statistics[] = {"mean", "var"};

    assert_int_equal(sb_learner_parameter_count(l), 5);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(sb_learner_find_parameter(l, statistics[i])->role,
                         SB_PARAMETER_ROLE_STATISTIC);
    assert_int_equal(sb_learner_find_parameter(l, "zero")->role,
                     SB_PARAMETER_ROLE_WEIGHT);
    sb_learner_free(l);
    sb_model_free(model);
}

/* ---- memory ------------------------------------------------------------- */

/* Layers one behind another at full size, so that what is kept counts. */
static sb_model *deep(size_t n)
{
    sb_str s;

    sb_str_init(&s, test_ctx());
    sb_str_add(&s, "graph deep(x: f32[N,8,16,16]) -> (y) {\n");
    for (size_t i = 0; i < n; i++)
        sb_str_addf(&s, "l%zu.weight: f32[8,8,3,3] = random(%zu)\n", i, i + 1);
    sb_str_add(&s, "fc.weight: f32[5,8] = random(99)\nv0 = Identity(x)\n");
    for (size_t i = 0; i < n; i++)
        sb_str_addf(&s,
                    "c%zu = Conv(v%zu, l%zu.weight) {pads=[1,1,1,1]}\n"
                    "v%zu = Tanh(c%zu)\n",
                    i, i, i, i + 1, i);
    sb_str_addf(&s,
                "g = GlobalAveragePool(v%zu)\nf = Flatten(g)\n"
                "y = Gemm(f, fc.weight) {transB=1}\n}\n",
                n);
    sb_model *model = test_learn_parse(test_ctx(), sb_str_text(&s));
    sb_str_free(&s);
    return model;
}

/* Workspace of a step; the gradient of fc.weight goes to `out`. */
static size_t deep_step(const sb_learn_options *opt, float *out)
{
    sb_model *model = deep(12);
    sb_learner *l = test_learn_make(model, opt);
    const sb_tensor *const in[] = {test_random(SB_DTYPE_F32, "4x8x16x16", 3)};

    assert_ok(sb_learner_gradient(l, in, 1, test_i64("4", 0, 1, 2, 3), NULL));
    size_t bytes = sb_learner_workspace(l);
    const sb_parameter_info *p = sb_learner_find_parameter(l, "l0.weight");
    if (out && p->gradient)
        memcpy(out, p->gradient->data, sb_tensor_bytes(p->gradient));
    sb_learner_free(l);
    sb_model_free(model);
    return bytes;
}

static void test_memory_of_frozen_and_recomputed(void **state)
{
    (void)state;
    enum { VALUE = 4 * 8 * 16 * 16 * sizeof(float), N = 8 * 8 * 9 };
    const char *const last[] = {"fc.weight", "l11.weight"};
    sb_learn_options o = options();
    float all[N], again[N];
    size_t whole = deep_step(&o, all);

    /* Twelve results of Tanh are kept; frozen layers keep none. */
    assert_true(whole > 12 * VALUE);
    o.train = last;
    o.n_train = SB_COUNT(last);
    assert_true(deep_step(&o, NULL) < 7 * (size_t)VALUE);
    o.n_train = 0;
    o.recompute = 4;
    size_t less = deep_step(&o, again);
    assert_true(less < whole * 3 / 4);
    assert_memory_equal(all, again, sizeof all);
}

/* ---- any number of threads, run after run ------------------------------- */

static sb_status train(sb_ctx *ctx, const sb_learn_options *opt, size_t first,
                       const char *load, const char *save, float *out)
{
    sb_model *model = test_learn_started(ctx, test_learn_cnn);
    sb_learner *l = NULL;
    sb_status s = sb_learner_create(model, opt, &l);

    if (s == SB_OK && load)
        s = sb_learner_load(l, load);
    for (size_t i = first; i < STEPS && s == SB_OK; i++) {
        const sb_tensor x = test_learn_step_of("x", i),
                        t = test_learn_step_of("labels", i);
        const sb_tensor *const in[] = {&x};
        if (save && i == 1) {
            s = sb_learner_save(l, save);
            break;
        }
        s = sb_learner_step(l, in, 1, &t, NULL);
    }
    for (size_t i = 0; out && s == SB_OK && i < TEST_LEARN_NAMES; i++) {
        const sb_tensor *t =
            sb_learner_find_parameter(l, test_learn_names[i])->value;
        memcpy(out, t->data, sb_tensor_bytes(t));
        out += sb_tensor_count(t);
    }
    sb_learner_free(l);
    sb_model_free(model);
    return s;
}

static void test_threads_and_resuming_change_no_bit(void **state)
{
    (void)state;
    enum { N = 1024 };
    static float want[N], got[N];
    const char *path = "/tmp/sb_test_learner.npz";
    sb_learn_options o = options();

    o.optimizer = SB_OPTIMIZER_ADAMW;
    o.weight_decay = 0.1;
    o.ema_decay = 0.9;
    o.accumulate = 2;
    assert_ok(train(test_ctx(), &o, 0, NULL, NULL, want));
    for (int threads = 1; threads <= 4; threads++) {
        sb_ctx_set_threads(test_ctx(), threads);
        memset(got, 0, sizeof got);
        assert_ok(train(test_ctx(), &o, 0, NULL, NULL, got));
        assert_memory_equal(got, want, sizeof want);
        assert_ok(train(test_ctx(), &o, 0, NULL, path, NULL));
        memset(got, 0, sizeof got);
        assert_ok(train(test_ctx(), &o, 1, path, NULL, got));
        assert_memory_equal(got, want, sizeof want);
    }
    sb_ctx_set_threads(test_ctx(), 0);
    o.ema_decay = 0;
    assert_status(train(test_ctx(), &o, 1, path, NULL, NULL), SB_BAD_DATA);
    assert_error_has("it was written with other options");
    assert_int_equal(remove(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_as_pytorch),
        cmocka_unit_test(test_variants_as_pytorch),
        cmocka_unit_test(test_loss_of_the_caller),
        cmocka_unit_test(test_trained_model_runs_as_the_learner),
        cmocka_unit_test(test_gradient_changes_nothing),
        cmocka_unit_test(test_parameters_are_found),
        cmocka_unit_test(test_parameters_by_name),
        cmocka_unit_test(test_weights_are_normalized),
        cmocka_unit_test(test_equal_vectors_are_two_parameters),
        cmocka_unit_test(test_memory_of_frozen_and_recomputed),
        cmocka_unit_test(test_threads_and_resuming_change_no_bit),
    };
    return cmocka_run_group_tests_name("learner", tests, test_learn_setup,
                                       test_learn_teardown);
}
