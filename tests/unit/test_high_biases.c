/* High biases: what lies below all numbers of a channel goes into the biases of
 * the layers that read it, if that helps samples that were not used for it.
 *
 * Inputs are between -1 and 1, so that channels 0 and 1 of what is between are
 * 9 and 8 and some more in all samples, and three deviations below their means
 * are below all that can come: in float nothing may change. */
#include <math.h>
#include <stdio.h>

#include "quant/calibrate/replay.h"
#include "quanttest.h"

#define CONFIG(samples)                                           \
    "SCHEDULE: {EQUALIZATION: true, SAMPLES: " samples "}\n"      \
    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 16}}\n" \
    "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}, "       \
    "SPECIFIC: [{first: [QUANTIZER.BIT, 16]}]}\n"

/* Batches of 16 samples, of which the last one judges. */
enum { BATCHES = 8, EACH = 16, MOST = 2048 };

#define IMAGE "graph main(x: f32[N,2,4,4]) -> (y) {\n"
#define MADE                                             \
    "w: f32[3,2,1,1] = [0.5, 0.25, -0.4, 0.3, 1, 0.5]\n" \
    "b: f32[3] = [9, 8, 0.1]\nc = Conv(x, w, b) \"first\"\nr = Relu(c)\n"
#define BEHIND \
    "v: f32[2,3,1,1] = [0.5, -0.25, 1, 0.75, 1, -0.5]\nu: f32[2] = [1, -2]\n"
#define WIDE                                                    \
    "v: f32[2,3,2,2] = [0.5, -0.25, 1, 0.75, 1, -0.5, 0.3, "    \
    "0.2, -0.7, 0.4, 0.6, -1, 0.1, 0.9, -0.3, 0.8, -0.6, 0.7, " \
    "0.5, -0.9, 0.2, 1, -0.4, 0.3]\nu: f32[2] = [1, -2]\n"
#define PLAIN IMAGE MADE BEHIND "y = Conv(r, v, u) \"second\"\n}"

#define ROWS "graph main(x: f32[N,2]) -> (y) {\n"
#define MADE_ROWS                                                       \
    "w: f32[2,3] = [0.5, -0.4, 1, 0.25, 0.3, 0.5]\nb: f32[3] = [9, 8, " \
    "0.1]\np = MatMul(x, w) \"first\"\nc = Add(p, b)\nr = Relu(c)\n"    \
    "u: f32[2] = [1, -2]\n"
#define TALL    "v: f32[3,2] = [0.5, 0.75, -0.25, 1, 1, -0.5]\n"
#define PRODUCT ROWS MADE_ROWS TALL "y = Gemm(r, v, u) \"second\"\n}"

static float constant_at(const sb_quant_model *qm, const char *name, int64_t i)
{
    sb_value_id v = sb_graph_find_value(qm->graph, name);

    assert_true(v != SB_NONE);
    return ((const float *)sb_graph_value(qm->graph, v)->constant.data)[i];
}

/* Where there are few numbers, the first rows are all of 1 and -1, so that
 * every batch shows the whole of all ranges. */
static sb_tensor *batch(const char *dims, size_t i)
{
    sb_tensor *x = test_random(SB_DTYPE_F32, dims, 40 + i);
    float *at = x->data;

    for (int64_t k = 0; k < sb_tensor_count(x); k++)
        at[k] = sinf(at[k]);
    for (int64_t row = 0; x->rank == 2 && row < 1 << x->dims[1]; row++)
        for (int64_t k = 0; k < x->dims[1]; k++)
            *at++ = row >> k & 1 ? 1.0F : -1.0F;
    return x;
}

/* As without a configuration of the user, or `asked`; `last` is the batch that
 * judges, NULL: as others. */
static sb_quant_model *calibrated(const char *graph, const char *config,
                                  const char *dims, bool asked,
                                  const sb_tensor *last)
{
    sb_quant_model *qm = test_quant(graph, config, NULL);

    qm->asked = asked;
    assert_ok(sb_quant_model_prepare_calibration(qm, NULL));
    for (size_t i = 0; i < BATCHES; i++)
        (void)test_quant_forward(qm, last && i == BATCHES - 1 ? last
                                                              : batch(dims, i));
    for (size_t i = 0; i < BATCHES && !asked; i++)
        assert_int_equal(sb_replay_is_for(qm, SB_REPLAY_JUDGED, i),
                         i == BATCHES - 1);
    assert_ok(sb_quant_model_calc_qparams(qm));
    return qm;
}

static int64_t outputs(sb_quant_model *qm, const sb_tensor *x, bool quantized,
                       double *out)
{
    sb_quant_model_set_quant(qm, quantized, quantized);
    const sb_tensor *y = test_quant_forward(qm, x);
    int64_t n = sb_tensor_count(y);

    assert_true(n <= MOST);
    for (int64_t i = 0; i < n; i++)
        out[i] = sb_tensor_get_f64(y, i);
    return n;
}

/* ---- how much goes ------------------------------------------------------ */

/* Of channel `c` of PLAIN: the lesser of the least number and of mean - 3
 * deviations, over the batches that are used. */
static double offset_of(const sb_quant_model *qm, int c)
{
    static const double w[3][2] = {{0.5, 0.25}, {-0.4, 0.3}, {1, 0.5}};
    static const double b[3] = {9, 8, 0.1};
    double least = HUGE_VAL, sum = 0, squares = 0, n = 0;

    for (size_t k = 0; k < BATCHES; k++) {
        const sb_tensor *x = batch("16x2x4x4", k);

        for (int64_t i = 0; i < sb_tensor_count(x); i++) {
            if (i / 16 % 2 != 0 || !sb_replay_is_for(qm, SB_REPLAY_USED, k))
                continue;
            double z = w[c][0] * sb_tensor_get_f64(x, i) +
                       w[c][1] * sb_tensor_get_f64(x, i + 16) + b[c];
            z = fmax(z, 0);
            least = fmin(least, z);
            sum += z;
            squares += z * z;
            n++;
        }
    }
    double mean = sum / n, deviation = sqrt(squares / n - mean * mean);
    return fmax(fmin(least, mean - 3 * deviation), 0);
}

static void test_offsets(void **state)
{
    static const double v[2][3] = {{0.5, -0.25, 1}, {0.75, 1, -0.5}};
    static const double u[2] = {1, -2};
    double c[3];

    (void)state;
    /* Batches are there until scales are computed. */
    sb_quant_model *qm = test_quant(PLAIN, CONFIG("128"), NULL);
    qm->asked = false;
    assert_ok(sb_quant_model_prepare_calibration(qm, NULL));
    for (size_t i = 0; i < BATCHES; i++)
        (void)test_quant_forward(qm, batch("16x2x4x4", i));
    for (int i = 0; i < 3; i++)
        c[i] = offset_of(qm, i);
    assert_ok(sb_quant_model_calc_qparams(qm));
    assert_true(sb_quant_model_step(qm, 0)->kept);
    assert_true(c[0] > 7 && c[1] > 6 && c[2] == 0);
    for (int row = 0; row < 2; row++) {
        double want = u[row];

        for (int i = 0; i < 3; i++)
            want += v[row][i] * c[i];
        assert_close("bias", (double)constant_at(qm, "u", row), want, 1e-5);
    }
    sb_quant_model_free(qm);
}

/* ---- where -------------------------------------------------------------- */

static const struct {
    const char *what, *graph, *dims;
    bool absorbs; /* of others biases stay as they are */
} cases[] = {
    {"one layer", PLAIN, "16x2x4x4", true},
    {"neighbors, none of which are padding",
     IMAGE MADE WIDE "y = Conv(r, v, u) \"second\"\n}", "16x2x4x4", true},
    {"groups",
     IMAGE "w: f32[4,2,1,1] = [0.5, 0.25, -0.4, 0.3, 1, 0.5, 0.3, -0.2]\n"
           "b: f32[4] = [9, 8, 0.1, 7]\nc = Conv(x, w, b) \"first\"\n"
           "r = Relu(c)\nv: f32[2,2,1,1] = [0.5, -0.25, 0.75, 1]\n"
           "u: f32[2] = [1, -2]\ny = Conv(r, v, u) {group=2} \"second\"\n}",
     "16x2x4x4", true},
    {"several layers",
     IMAGE MADE BEHIND
     "t: f32[2,3,1,1] = [0.3, 0.6, -0.4, 1, 0.2, 0.5]\ns: f32[2] = [3, 4]\n"
     "a = Conv(r, v, u) \"second\"\nd = Conv(r, t, s) \"third\"\n"
     "y = Concat(a, d) {axis=1}\n}",
     "16x2x4x4", true},
    {"a product with a bias, and Gemm", PRODUCT, "16x2", true},
    {"Gemm with rows of the weight as channels",
     ROWS MADE_ROWS "v: f32[2,3] = [0.5, -0.25, 1, 0.75, 1, -0.5]\n"
                    "y = Gemm(r, v, u) {transB=1} \"second\"\n}",
     "16x2", true},
    {"Gemm that halves the product",
     ROWS MADE_ROWS TALL "y = Gemm(r, v, u) {alpha=0.5} \"second\"\n}", "16x2",
     false},
    {"what is there before the bias would change",
     ROWS MADE_ROWS TALL "q = MatMul(r, v) \"second\"\ny = Add(q, u)\n}",
     "16x2", false},
    {"Clip, which cuts off at a number",
     IMAGE "w: f32[3,2,1,1] = [0.5, 0.25, -0.4, 0.3, 1, 0.5]\n"
           "b: f32[3] = [9, 8, 0.1]\nlo: f32[] = 0\nhi: f32[] = 20\n"
           "c = Conv(x, w, b) \"first\"\nr = Clip(c, lo, hi)\n" BEHIND
           "y = Conv(r, v, u) \"second\"\n}",
     "16x2x4x4", false},
    {"zeros around the image",
     IMAGE MADE BEHIND "y = Conv(r, v, u) {pads=[1,1,1,1]} \"second\"\n}",
     "16x2x4x4", false},
    {"zeros at one side of the image",
     IMAGE MADE WIDE
     "y = Conv(r, v, u) {auto_pad=\"SAME_UPPER\"} \"second\"\n}",
     "16x2x4x4", false},
};

static void test_where(void **state)
{
    static double want[MOST], got[MOST];

    (void)state;
    for (size_t k = 0; k < SB_COUNT(cases); k++) {
        sb_quant_model *qm = calibrated(cases[k].graph, CONFIG("128"),
                                        cases[k].dims, false, NULL);
        sb_quant_model *plain =
            test_quant(cases[k].graph, TEST_W8 TEST_A8, NULL);
        const sb_tensor *x = batch(cases[k].dims, 99);
        int64_t n = outputs(plain, x, false, want);

        if ((constant_at(qm, "u", 0) != 1) != cases[k].absorbs)
            fail_msg("%s: bias %g, was 1", cases[k].what,
                     (double)constant_at(qm, "u", 0));
        /* nor were others tried, and taken back */
        if (qm->state.absorbed != cases[k].absorbs ||
            sb_quant_model_step(qm, 1))
            fail_msg("%s: offsets were tried", cases[k].what);
        assert_int_equal(outputs(qm, x, false, got), n);
        for (int64_t i = 0; i < n; i++)
            assert_close(cases[k].what, got[i], want[i], 2e-5);
        sb_quant_model_free(qm);
        sb_quant_model_free(plain);
    }
}

/* Fewer than 64 numbers of a channel do not tell how low it comes. */
static void test_few_samples(void **state)
{
    static const char *const configs[] = {CONFIG("48"), CONFIG("64")};

    (void)state;
    for (int i = 0; i < 2; i++) {
        sb_quant_model *qm =
            calibrated(PRODUCT, configs[i], "16x2", false, NULL);

        assert_int_equal(constant_at(qm, "u", 0) != 1, i);
        sb_quant_model_free(qm);
    }
}

/* A user's configuration, which nothing judges, is done without. */
static void test_asked(void **state)
{
    sb_quant_model *qm =
        calibrated(PLAIN, CONFIG("128"), "16x2x4x4", true, NULL);

    (void)state;
    assert_true(constant_at(qm, "u", 0) == 1);
    sb_quant_model_free(qm);
}

/* ---- if it does not help ------------------------------------------------ */

/* Channel 0 is 9 to 9.5 in all samples but those that judge, where it is 1.
 * Offsets are wrong for these, but factors are not: the other channels are at
 * most 0.05. */
static void test_without_offsets(void **state)
{
    static const char graph[] =
        "graph main(x: f32[N,3]) -> (y) {\n"
        "w: f32[3,3] = [0.25, 0, 0, 0, 0.05, 0, 0, 0, 0.05]\n"
        "b: f32[3] = [9.25, 0, 0]\n"
        "v: f32[3,2] = [1, 0.5, 10, -8, 9, 7]\nu: f32[2] = [1, -2]\n"
        "p = MatMul(x, w) \"first\"\nc = Add(p, b)\nr = Relu(c)\n"
        "y = Gemm(r, v, u) \"second\"\n}";
    sb_tensor *last = batch("16x3", BATCHES);

    (void)state;
    for (int i = 0; i < EACH; i++)
        ((float *)last->data)[3 * i] = -33;
    sb_quant_model *qm = calibrated(graph, CONFIG("128"), "16x3", false, last);
    const sb_quant_step *first = sb_quant_model_step(qm, 0);
    const sb_quant_step *second = sb_quant_model_step(qm, 1);
    assert_non_null(first);
    assert_string_equal(first->name, "equalization");
    assert_false(first->kept);
    assert_non_null(second);
    assert_string_equal(second->name, "equalization without offsets");
    assert_true(second->kept);
    assert_null(sb_quant_model_step(qm, 2));
    assert_true(constant_at(qm, "u", 0) == 1);
    assert_true(constant_at(qm, "w", 0) < 0.25F);
    sb_quant_model_free(qm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_offsets),         cmocka_unit_test(test_where),
        cmocka_unit_test(test_few_samples),     cmocka_unit_test(test_asked),
        cmocka_unit_test(test_without_offsets),
    };

    return cmocka_run_group_tests_name("high_biases", tests, NULL, NULL);
}
