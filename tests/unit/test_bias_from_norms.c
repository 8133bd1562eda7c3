/* Biases corrected without samples: by what batch norms say of the values that
 * layers read.  Expected means are integrals of the normal distribution. */
#include <math.h>
#include <string.h>

#include "graph/text.h"
#include "ops/op_registry.h"
#include "quant/export/export.h"
#include "quanttest.h"

#define CONFIG(correct)                                         \
    "SCHEDULE: {FUSE_BN: true, BIAS_CORRECTION: " correct "}\n" \
    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 2}}\n"

/* A step of 2 bits is two thirds of the largest weight of a row:
 *     0.9 -0.4 0.2    is rounded to   0.6 -0.6 0
 *    0.45 0.3 -0.75                   0.5  0.5 -1 */
static const double error[2][3] = {{0.3, 0.2, 0.2}, {-0.05, -0.2, 0.25}};
static const double gamma[3] = {0.5, -2, 1}, beta[3] = {0.25, 1, -0.5};

#define LAYERS                                                       \
    "w: f32[3,2,1,1] = [1, 0.3, -0.2, 0.7, 0.35, 0.6]\n"             \
    "gamma: f32[3] = [0.5, -2, 1]\nbeta: f32[3] = [0.25, 1, -0.5]\n" \
    "mean: f32[3] = [0.1, 0.2, 0.3]\nvar: f32[3] = [1, 2, 0.5]\n"
#define SECOND                                               \
    "v: f32[2,3,1,1] = [0.9, -0.4, 0.2, 0.45, 0.3, -0.75]\n" \
    "b: f32[2] = [0.1, -0.2]\n"

static const char behind_relu[] =
    "graph main(x: f32[N,2,2,2]) -> (y) {\n" LAYERS SECOND
    "c = Conv(x, w) \"first\"\n"
    "n = BatchNormalization(c, gamma, beta, mean, var)\n"
    "r = Relu(n)\n"
    "y = Conv(r, v, b) \"second\"\n}";

static const char behind_sum[] =
    "graph main(x: f32[N,2,2,2]) -> (y) {\n" LAYERS SECOND
    "u: f32[3,2,1,1] = [0.5, 0.3, 0.2, 0.1, 0.9, 0.4]\n"
    "lo: f32 = -0.5\nhi: f32 = 1.5\n"
    "c = Conv(x, w) \"first\"\n"
    "n = BatchNormalization(c, gamma, beta, mean, var)\n"
    "d = Conv(x, u) \"other\"\n"
    "m = BatchNormalization(d, gamma, beta, mean, var)\n"
    "s = Add(n, m)\n"
    "r = Clip(s, lo, hi)\n"
    "y = Conv(r, v, b) \"second\"\n}";

static const char linear[] =
    "graph main(x: f32[N,2]) -> (y) {\n"
    "w: f32[2,3] = [1, 0.3, -0.2, 0.7, 0.35, 0.6]\n"
    "gamma: f32[3] = [0.5, -2, 1]\nbeta: f32[3] = [0.25, 1, -0.5]\n"
    "mean: f32[3] = [0.1, 0.2, 0.3]\nvar: f32[3] = [1, 2, 0.5]\n"
    "v: f32[3,2] = [0.9, 0.45, -0.4, 0.3, 0.2, -0.75]\n"
    "b: f32[2] = [0.1, -0.2]\n"
    "c = Gemm(x, w) \"first\"\n"
    "n = BatchNormalization(c, gamma, beta, mean, var)\n"
    "r = Relu(n)\n"
    "y = Gemm(r, v, b) \"second\"\n}";

static const char no_norm[] =
    "graph main(x: f32[N,2,2,2]) -> (y) {\n" LAYERS SECOND
    "c = Conv(x, w) \"first\"\n"
    "r = Relu(c)\n"
    "y = Conv(r, v, b) \"second\"\n}";

/* Nobody knows where it cuts. */
static const char computed_bound[] =
    "graph main(x: f32[N,2,2,2], lo: f32[]) -> (y) {\n" LAYERS SECOND
    "c = Conv(x, w) \"first\"\n"
    "n = BatchNormalization(c, gamma, beta, mean, var)\n"
    "r = Clip(n, lo)\n"
    "y = Conv(r, v, b) \"second\"\n}";

/* Of a normal distribution with its ends moved to the bounds. */
static double mean_within(double mean, double deviation, double lo, double hi)
{
    double sum = 0, weight = 0;

    for (int i = -80000; i <= 80000; i++) {
        double z = 1e-4 * i, p = exp(-0.5 * z * z);
        double x = mean + deviation * z;

        sum += p * (x < lo ? lo : x > hi ? hi : x);
        weight += p;
    }
    return sum / weight;
}

static sb_quant_model *quantized(const char *graph, const char *config)
{
    sb_quant_model *qm = test_quant(graph, config, NULL);

    assert_ok(sb_quant_model_calc_qparams(qm));
    sb_quant_model_set_quant(qm, 1, 1);
    return qm;
}

/* What is added to both channels of the output. */
static void shifts(const char *graph, const char *activations, const char *dims,
                   double *out)
{
    const sb_tensor *x = test_random(SB_DTYPE_F32, dims, 1);
    char without[256], with[256];

    (void)snprintf(without, sizeof without, "%s%s", CONFIG("false"),
                   activations);
    (void)snprintf(with, sizeof with, "%s%s", CONFIG("true"), activations);
    sb_quant_model *qm = quantized(graph, without);
    const sb_tensor *plain = test_quant_forward(qm, x);
    assert_null(sb_quant_model_step(qm, 0));
    sb_quant_model_free(qm);
    qm = quantized(graph, with);
    const sb_tensor *y = test_quant_forward(qm, x);
    const sb_quant_step *step = sb_quant_model_step(qm, 0);
    assert_non_null(step);
    assert_string_equal(step->name, "bias correction by batch norms");
    assert_int_equal(step->layers, 1);
    sb_quant_model_free(qm);
    int64_t each = sb_tensor_count(y) / y->dims[0] / 2;
    for (int64_t i = 0; i < sb_tensor_count(y); i++) {
        double d = sb_tensor_get_f64(y, i) - sb_tensor_get_f64(plain, i);

        if (i < 2 * each && i % each == 0)
            out[i / each] = d;
        assert_close("shift", d, out[i / each % 2], 1e-6);
    }
}

static void assert_shifts(const double *got, const double *mean)
{
    for (int row = 0; row < 2; row++) {
        double want = 0;

        for (int c = 0; c < 3; c++)
            want += error[row][c] * mean[c];
        assert_close("shift", got[row], want, 1e-5);
    }
}

static void test_relu(void **state)
{
    double got[2] = {0}, mean[3];

    (void)state;
    for (int c = 0; c < 3; c++)
        mean[c] = mean_within(beta[c], fabs(gamma[c]), 0, HUGE_VAL);
    shifts(behind_relu, "A: none\n", "3x2x2x2", got);
    assert_shifts(got, mean);
    shifts(linear, "A: none\n", "3x2", got);
    assert_shifts(got, mean);
}

/* Means and variances of branches are added. */
static void test_sum(void **state)
{
    double got[2] = {0}, mean[3];

    (void)state;
    for (int c = 0; c < 3; c++)
        mean[c] = mean_within(2 * beta[c], sqrt(2) * fabs(gamma[c]), -0.5, 1.5);
    shifts(behind_sum, "A: none\n", "3x2x2x2", got);
    assert_shifts(got, mean);
}

/* Activations of dynamic ranges move as biases do. */
static void test_dynamic(void **state)
{
    sb_quant_model *qm = quantized(behind_relu, CONFIG("true") "A: dynamic\n");

    (void)state;
    assert_int_equal(sb_quant_model_step(qm, 0)->layers, 1);
    sb_quant_model_free(qm);
}

/* Scales that are computed again leave biases as they are. */
static void test_again(void **state)
{
    sb_quant_model *qm = quantized(behind_relu, CONFIG("true") "A: none\n");
    const sb_tensor *x = test_random(SB_DTYPE_F32, "1x2x2x2", 1);

    (void)state;
    const sb_tensor *once = test_quant_forward(qm, x);
    assert_ok(sb_quant_model_calc_qparams(qm));
    assert_tensor("again", test_quant_forward(qm, x), once, 0);
    assert_null(sb_quant_model_step(qm, 1));
    sb_quant_model_free(qm);
}

/* Without norms, or bounds, nothing is known. */
static void test_nothing_known(void **state)
{
    static const char *const nets[] = {no_norm, computed_bound};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(nets); i++) {
        sb_quant_model *qm =
            test_quant(nets[i], CONFIG("true") "A: none\n", NULL);

        assert_ok(sb_quant_model_calc_qparams(qm));
        assert_null(sb_quant_model_step(qm, 0));
        sb_quant_model_free(qm);
    }
}

/* Nor does the file get biases of zeros. */
static void test_no_zeros_written(void **state)
{
    static const char *const modes[] = {"A: none\n", "A: dynamic\n"};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(modes); i++) {
        char yaml[256];
        sb_graph *g = NULL;
        const sb_export_choice choice = {.format = SB_EXPORT_FORMAT_QDQ};
        int64_t opset = 0;

        (void)snprintf(yaml, sizeof yaml, "%s%s", CONFIG("true"), modes[i]);
        sb_quant_model *qm = test_quant("graph main(x: f32[N,2]) -> (y) {\n"
                                        "w: f32[2,2] = random(1)\n"
                                        "y = Gemm(x, w) \"fc\"\n}",
                                        yaml, NULL);
        assert_ok(sb_quant_model_calc_qparams(qm));
        assert_ok(sb_export_graph(qm, &choice, &g, &opset));
        for (sb_node_id id = 0; id < g->n_nodes; id++) {
            const sb_node *node = sb_graph_node(g, id);

            if (strcmp(node->op, "Gemm") == 0)
                assert_int_equal(sb_node_in(node, 2), SB_NONE);
            assert_string_not_equal(node->op, "Add");
        }
        sb_graph_free(g);
        sb_quant_model_free(qm);
    }
}

/* A file of a language model has no place for more than its own biases. */
static void test_language_model(void **state)
{
    static const char config[] = CONFIG("true") "A: none\n";
    sb_graph *g = NULL;

    (void)state;
    assert_ok(sb_graph_parse(test_ctx(),
                             "graph main(x: f32[N,2]) -> (y) {\n"
                             "w: f32[2,2] = random(1)\n"
                             "y = Gemm(x, w) \"fc\"\n}",
                             &g));
    assert_ok(sb_graph_infer(g));
    for (int language = 0; language < 2; language++) {
        const sb_build_options build = {.half_scales = language};
        sb_quant_config *cfg = NULL;
        sb_quant_model *qm = NULL;

        assert_ok(sb_quant_config_load_memory(test_ctx(), "q.yaml", config,
                                              strlen(config),
                                              SB_QUANT_CONFIG_QUANT, &cfg));
        assert_ok(sb_quant_model_build(test_ctx(), g, cfg, NULL, &build, &qm));
        assert_int_equal(sb_graph_node(qm->graph, 0)->n_in, language ? 2 : 3);
        sb_quant_model_free(qm);
    }
    sb_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_relu),
        cmocka_unit_test(test_sum),
        cmocka_unit_test(test_dynamic),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_nothing_known),
        cmocka_unit_test(test_no_zeros_written),
        cmocka_unit_test(test_language_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
