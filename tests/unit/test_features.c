/* Features that are learned from a teacher: what they add to loss and
 * gradients, against the formula in double precision. */
#include "sbtest.h"

#include <sparsebit/learn.h>

enum { N = 3, K = 2, H = 4 };

static const char net[] = "graph net(x: f32[N,2]) -> (y: f32[N,3]) {\n"
                          "    a.weight: f32[2,4] = random(1)\n"
                          "    b.weight: f32[4,3] = random(2)\n"
                          "    h = MatMul(x, a.weight)\n"
                          "    r = Relu(h)\n"
                          "    y = MatMul(r, b.weight)\n"
                          "}\n";

static sb_learner *learner_of(const char *const *features, size_t n,
                              double weight)
{
    sb_learn_options opt = SB_LEARN_OPTIONS_INIT;
    sb_learner *learner = NULL;
    sb_model *model = NULL;

    opt.features = features;
    opt.n_features = n;
    opt.feature_weight = weight;
    assert_ok(sb_model_parse(test_ctx(), net, &model));
    assert_ok(sb_learner_create(model, &opt, &learner));
    sb_model_free(model);
    return learner;
}

static const sb_tensor *labels(void)
{
    static const int64_t classes[N] = {0, 2, 1};
    sb_tensor *t = test_tensor(SB_DTYPE_I64, "3", NULL);

    memcpy(t->data, classes, sizeof classes);
    return t;
}

static void test_loss_and_gradients(void **state)
{
    static const char *const names[] = {"h"};
    const double weight = 0.75;
    const sb_tensor *x = test_f32("3x2", 1, -2, 0.5, 3, -1, 0.25);
    const sb_tensor *t =
        test_f32("3x4", 1, 0, -1, 2, 0, 0, 1, 1, -2, 3, 0.5, 0.25);
    sb_learner *plain = learner_of(NULL, 0, 1),
               *more = learner_of(names, 1, weight);
    const sb_tensor *w = sb_learner_find_parameter(plain, "a.weight")->value;
    double loss[2], extra = 0, d[N * H];

    (void)state;
    assert_status(sb_learner_gradient(more, &x, 1, labels(), &loss[1]),
                  SB_BAD_ARG);
    assert_error_has("feature 'h' has no target");
    assert_ok(sb_learner_gradient(plain, &x, 1, labels(), &loss[0]));
    assert_ok(sb_learner_set_features(more, &t, 1));
    assert_ok(sb_learner_gradient(more, &x, 1, labels(), &loss[1]));
    for (int n = 0; n < N; n++)
        for (int h = 0; h < H; h++) {
            double sum = 0;
            for (int k = 0; k < K; k++)
                sum += sb_tensor_get_f64(x, n * K + k) *
                       sb_tensor_get_f64(w, k * H + h);
            d[n * H + h] = sum - sb_tensor_get_f64(t, n * H + h);
            extra += weight * d[n * H + h] * d[n * H + h] / (N * H);
        }
    assert_close("loss", loss[1] - loss[0], extra, 1e-6);
    const sb_tensor *g[2] = {
        sb_learner_find_parameter(plain, "a.weight")->gradient,
        sb_learner_find_parameter(more, "a.weight")->gradient};
    for (int k = 0; k < K; k++)
        for (int h = 0; h < H; h++) {
            double want = sb_tensor_get_f64(g[0], k * H + h);
            for (int n = 0; n < N; n++)
                want += weight * 2 / (N * H) * d[n * H + h] *
                        sb_tensor_get_f64(x, n * K + k);
            assert_close("gradient", sb_tensor_get_f64(g[1], k * H + h), want,
                         1e-6);
        }
    sb_learner_free(plain);
    sb_learner_free(more);
}

static void test_unknown_features_are_refused(void **state)
{
    static const char *const names[] = {"h", "nothing"};
    sb_learn_options opt = SB_LEARN_OPTIONS_INIT;
    sb_learner *learner = NULL;
    sb_model *model = NULL;

    (void)state;
    opt.features = names;
    opt.n_features = 2;
    assert_ok(sb_model_parse(test_ctx(), net, &model));
    assert_status(sb_learner_create(model, &opt, &learner), SB_BAD_ARG);
    assert_error_has("no result 'nothing' of floats");
    opt.n_features = 1;
    opt.loss = SB_LEARN_LOSS_CUSTOM;
    assert_status(sb_learner_create(model, &opt, &learner), SB_BAD_ARG);
    assert_error_has("the caller computes it");
    sb_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss_and_gradients),
        cmocka_unit_test(test_unknown_features_are_refused),
    };

    return cmocka_run_group_tests_name("features", tests, NULL, NULL);
}
