/* Losses of every element: values and gradients are those of PyTorch in
 * float64, for numbers on both sides of where smooth_l1 bends and where the
 * sigmoid is full. */
#include "sbtest.h"

#include <sparsebit/learn.h>

#define NET(last)                                   \
    "graph net(x: f32[N,2]) -> (y: f32[N,3]) {\n"   \
    "    w.weight: f32[2,3] = [0.5, -1.25, 2, 1.5," \
    " 0.75, -30]\n" last "}\n"

static const char linear[] = NET("    y = MatMul(x, w.weight)\n");
static const char squashed[] =
    NET("    h = MatMul(x, w.weight)\n    y = Sigmoid(h)\n");

static const struct {
    const char *name, *net;
    sb_learn_loss loss;
    double want;
    float gradient[6];
} cases[] = {
    {"mse",
     linear,
     SB_LEARN_LOSS_MSE,
     1333.6705729166667,
     {-0.166666667f, -0.75f, 6.16666667f, 3.71527778f, 2.77430556f,
      -87.8055556f}},
    {"l1",
     linear,
     SB_LEARN_LOSS_L1,
     19.381944444444443,
     {0.0555555556f, -0.166666667f, 0.166666667f, 0.527777778f, 0.583333333f,
      -0.583333333f}},
    {"smooth_l1",
     linear,
     SB_LEARN_LOSS_SMOOTH_L1,
     18.942057291666668,
     {-0.0416666667f, -0.104166667f, 0.166666667f, 0.552083333f, 0.567708333f,
      -0.583333333f}},
    {"bce",
     linear,
     SB_LEARN_LOSS_BCE,
     13.57500004062445,
     {-0.0719134655f, -0.0366931994f, 0.194436128f, 0.0488609823f, 0.482032679f,
      -0.416664588f}},
    {"bce behind a Sigmoid",
     squashed,
     SB_LEARN_LOSS_BCE,
     13.57500004062445,
     {-0.0719134655f, -0.0366931994f, 0.194436128f, 0.0488609823f, 0.482032679f,
      -0.416664588f}},
};

static void test_as_pytorch(void **state)
{
    const sb_tensor *x = test_f32("3x2", 1, -2, 0.5, 3, -1, 0.25);
    const sb_tensor *t = test_f32("3x3", 0.25, 1, 0, 1, 0, 0.5, 0, 1, 1);

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_learn_options opt = SB_LEARN_OPTIONS_INIT;
        sb_learner *learner = NULL;
        sb_model *model = NULL;
        double loss = 0;

        opt.loss = cases[i].loss;
        assert_ok(sb_model_parse(test_ctx(), cases[i].net, &model));
        assert_ok(sb_learner_create(model, &opt, &learner));
        assert_ok(sb_learner_gradient(learner, &x, 1, t, &loss));
        assert_close(cases[i].name, loss / cases[i].want, 1, 1e-6);
        const sb_tensor *g =
            sb_learner_find_parameter(learner, "w.weight")->gradient;
        for (int k = 0; k < 6; k++)
            assert_close(cases[i].name,
                         sb_tensor_get_f64(g, k) / (double)cases[i].gradient[k],
                         1, 2e-6);
        sb_learner_free(learner);
        sb_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_pytorch)};

    return cmocka_run_group_tests_name("element_losses", tests, NULL, NULL);
}
