/* Equalization: factors between layers leave the float network as it is, and
 * lower the error of the quantized one, where channels differ in size. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "quant/calibrate/replay.h"
#include "quanttest.h"

#define A_AND_W \
    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n" TEST_A8
#define ON  "SCHEDULE: {EQUALIZATION: true}\n" A_AND_W
#define OFF A_AND_W

/* Channel 0 of what is between is a hundred times as large as the others. */
#define MADE "w: f32[3,2,1,1] = [100, 80, 0.9, -0.4, 0.2, 0.7]\n"
#define BIAS "b: f32[3] = [10, 0.1, -0.2]\n"

#define PLAIN_NORM                                             \
    "g: f32[4] = [50, 1, 0.5, 2]\nb: f32[4] = [1, 0, -1, 0]\n" \
    "n = LayerNormalization(x, g, b)\n"

static const struct {
    const char *what, *graph, *input;
} cases[] = {
    {"Relu, and a layer that looks at neighbors",
     "graph main(x: f32[N,2,4,4]) -> (y) {\n" MADE BIAS
     "v: f32[2,3,3,3] = random(1)\n"
     "c = Conv(x, w, b) \"first\"\nr = Relu(c)\n"
     "y = Conv(r, v) {pads=[1,1,1,1]} \"second\"\n}",
     "8x2x4x4"},
    {"PRelu, a pool, and channel by channel",
     "graph main(x: f32[N,2,4,4]) -> (y) {\n" MADE BIAS
     "s: f32[3,1,1] = [0.25, 0.1, 0.3]\nv: f32[3,1,3,3] = random(2)\n"
     "u: f32[2,3,1,1] = [0.01, 1, -1, 0.02, -0.5, 1]\n"
     "c = Conv(x, w, b) \"first\"\nr = PRelu(c, s)\n"
     "p = MaxPool(r) {kernel_shape=[2,2]}\n"
     "d = Conv(p, v) {group=3, pads=[1,1,1,1]} \"second\"\n"
     "y = Conv(d, u) \"third\"\n}",
     "8x2x4x4"},
    {"Clip, whose bound holds",
     "graph main(x: f32[N,2,4,4]) -> (y) {\n"
     "w: f32[3,2,1,1] = [100, 80, 0.09, -0.04, 0.02, 0.07]\n"
     "b: f32[3] = [10, 0.01, -0.02]\n"
     "v: f32[2,3,1,1] = [0.01, 10, -10, 0.02, -5, 10]\n"
     "lo: f32[] = 0\nhi: f32[] = 6\n"
     "c = Conv(x, w, b) \"first\"\nr = Clip(c, lo, hi)\n"
     "y = Conv(r, v) \"second\"\n}",
     "8x2x4x4"},
    {"a norm, and two products",
     "graph main(x: f32[N,5,4]) -> (y) {\n"
     "g: f32[4] = [50, 1, 0.5, 2]\nb: f32[4] = [1, 0, -1, 0]\n"
     "v: f32[4,3] = random(3)\nu: f32[4,3] = random(4)\n"
     "n = LayerNormalization(x, g, b)\n"
     "p = MatMul(n, v) \"first\"\nq = MatMul(n, u) \"second\"\n"
     "y = Add(p, q)\n}",
     "8x5x4"},
    {"a norm that is an output, too: a product with factors",
     "graph main(x: f32[N,5,4]) -> (y, n) {\n" PLAIN_NORM
     "v: f32[4,4] = random(3)\ny = MatMul(n, v) \"first\"\n}",
     "8x5x4"},
    {"a function that knows no factors: a product with them",
     "graph main(x: f32[N,5,4]) -> (y) {\n" PLAIN_NORM
     "v: f32[4,3] = random(3)\nu: f32[4,3] = random(4)\ne = Gelu(n)\n"
     "p = MatMul(e, v) \"first\"\nq = MatMul(e, u) \"second\"\n"
     "y = Add(p, q)\n}",
     "8x5x4"},
};

/* Outputs in float, then quantized. */
static void outputs(const char *graph, const char *config, const sb_tensor *x,
                    double *plain, double *quantized, int64_t most, int *layers)
{
    const sb_tensor *data[] = {x, NULL};
    sb_quant_model *qm = test_quant(graph, config, NULL);

    test_calibrate(qm, NULL, data);
    const sb_quant_step *step = sb_quant_model_step(qm, 0);
    *layers = step ? (int)step->layers : 0;
    if (step)
        assert_string_equal(step->name, "equalization");
    for (int on = 0; on < 2; on++) {
        sb_quant_model_set_quant(qm, on, on);
        const sb_tensor *y = test_quant_forward(qm, x);
        assert_true(sb_tensor_count(y) <= most);
        for (int64_t i = 0; i < sb_tensor_count(y); i++)
            (on ? quantized : plain)[i] = sb_tensor_get_f64(y, i);
    }
    sb_quant_model_free(qm);
}

static void test_same_in_float_better_quantized(void **state)
{
    enum { MOST = 512 };

    (void)state;
    for (size_t k = 0; k < SB_COUNT(cases); k++) {
        const sb_tensor *x = test_random(SB_DTYPE_F32, cases[k].input, 5);
        static double plain[2][MOST], got[2][MOST];
        double noise[2] = {0}, largest = 0;
        int layers[2];

        outputs(cases[k].graph, OFF, x, plain[0], got[0], MOST, &layers[0]);
        outputs(cases[k].graph, ON, x, plain[1], got[1], MOST, &layers[1]);
        assert_int_equal(layers[0], 0);
        if (layers[1] == 0)
            fail_msg("%s: not equalized", cases[k].what);
        for (int i = 0; i < MOST; i++)
            largest = fmax(largest, fabs(plain[0][i]));
        for (int i = 0; i < MOST; i++) {
            assert_close(cases[k].what, plain[1][i], plain[0][i],
                         1e-5 * largest);
            for (int on = 0; on < 2; on++)
                noise[on] +=
                    (got[on][i] - plain[0][i]) * (got[on][i] - plain[0][i]);
        }
        if (!(noise[1] < 0.85 * noise[0]))
            fail_msg("%s: noise %g, was %g", cases[k].what, noise[1], noise[0]);
    }
}

#define EVEN(first, second)                                          \
    "graph main(x: f32[N,2,4,4]) -> (y) {\n"                         \
    "w: f32[5,2,1,1] = [" first ", 1, -1, -1, 1, 0.5, 1, -1, 0.5]\n" \
    "v: f32[1,5,1,1] = [" second ", 1, -1, 0.7, 0.8]\n"              \
    "c = Conv(x, w) \"first\"\nr = Relu(c)\ny = Conv(r, v) \"second\"\n}"

/* One channel a thousand times as large as all others, which is the same
 * network: as little is lost. */
static void test_one_channel_far_too_large(void **state)
{
    static const char *const graphs[] = {EVEN("0.8, 1", "0.6"),
                                         EVEN("800, 1000", "0.0006")};
    const sb_tensor *x = test_random(SB_DTYPE_F32, "8x2x4x4", 5);
    double plain[128], got[128], noise[2] = {0};
    int layers = 0;

    (void)state;
    for (int k = 0; k < 2; k++) {
        outputs(graphs[k], ON, x, plain, got, 128, &layers);
        for (int i = 0; i < 128; i++)
            noise[k] += (got[i] - plain[i]) * (got[i] - plain[i]);
    }
    if (!(noise[1] < 2 * noise[0]))
        fail_msg("noise %g, with even channels %g", noise[1], noise[0]);
}

#define NORM(bias)                                                        \
    "graph main(x: f32[N,5,4]) -> (y) {\n"                                \
    "g: f32[4] = [50, 1, 0.5, 2]\nb: " bias "\nv: f32[4,3] = random(3)\n" \
    "n = LayerNormalization(x, g, b)\ny = MatMul(n, v)\n}"

/* A node in front need not have its first result. */
static void test_behind_a_node_without_its_first_result(void **state)
{
    static const char graph[] =
        "graph main(x: f32[N,2,4,4]) -> (y) {\n" MADE BIAS
        "v: f32[2,3,3,3] = random(1)\n"
        "i: f32[1,32,8] = random(2)\nh: f32[1,32,32] = random(3)\n"
        "s: i64[3] = [4, -1, 8]\nt: i64[4] = [-1, 2, 4, 4]\n"
        "l = Reshape(x, s)\n_, e = RNN(l, i, h) {hidden_size=32}\n"
        "f = Reshape(e, t)\n"
        "c = Conv(f, w, b) \"first\"\nr = Relu(c)\n"
        "y = Conv(r, v) {pads=[1,1,1,1]} \"second\"\n}";
    double plain[256], quantized[256];
    int layers = 0;

    (void)state;
    outputs(graph, ON, test_random(SB_DTYPE_F32, "8x2x4x4", 7), plain,
            quantized, 256, &layers);
    assert_int_equal(layers, 1);
}

/* Nothing is done where somebody else reads the value as it is, or where the
 * function between knows sizes or mixes channels. */
static void test_what_cannot_be_scaled(void **state)
{
    static const struct {
        const char *graph, *input;
        int layers; /* for which there is a product with factors instead */
    } graphs[] = {
        {"graph main(x: f32[N,2,4,4]) -> (y, r) {\n" MADE BIAS
         "v: f32[2,3,1,1] = random(1)\nc = Conv(x, w, b)\nr = Relu(c)\n"
         "y = Conv(r, v)\n}",
         "8x2x4x4", 0},
        {"graph main(x: f32[N,2,4,4]) -> (y) {\n" MADE BIAS
         "v: f32[3,3,1,1] = random(1)\nc = Conv(x, w, b)\nr = Sigmoid(c)\n"
         "y = Conv(r, v)\n}",
         "8x2x4x4", 0},
        {"graph main(x: f32[N,2,4,4]) -> (y) {\n" MADE BIAS
         "v: f32[3,3,1,1] = random(1)\nc = Conv(x, w, b)\nr = Relu(c)\n"
         "d = Conv(r, v)\ny = Add(d, r)\n}",
         "8x2x4x4", 0},
        /* A mean does not show how near the Clip came to its bound. */
        {"graph main(x: f32[N,2,4,4]) -> (y) {\n" MADE BIAS
         "v: f32[2,3,1,1] = random(1)\nlo: f32[] = 0\nhi: f32[] = 6\n"
         "c = Conv(x, w, b)\nr = Clip(c, lo, hi)\n"
         "p = AveragePool(r) {kernel_shape=[2,2]}\ny = Conv(p, v)\n}",
         "8x2x4x4", 0},
        /* A bound that is computed. */
        {"graph main(x: f32[N,2,4,4]) -> (y) {\n" MADE BIAS
         "v: f32[2,3,1,1] = random(1)\nlo: f32[] = 0\n"
         "hi = ReduceMax(x) {keepdims=0}\n"
         "c = Conv(x, w, b)\nr = Clip(c, lo, hi)\ny = Conv(r, v)\n}",
         "8x2x4x4", 0},
        /* A pool along the channels. */
        {"graph main(x: f32[N,5,2]) -> (y) {\n"
         "w: f32[2,4] = [100, 1, 2, 3, 80, -2, 1, 2]\n"
         "v: f32[4,3] = random(1)\nc = MatMul(x, w)\n"
         "p = MaxPool(c) {kernel_shape=[3], pads=[1,1]}\n"
         "y = MatMul(p, v)\n}",
         "8x5x2", 0},
        /* Biases that are not one for each channel. */
        {NORM("f32[] = 1"), "8x5x4", 1},
        {NORM("f32[1] = [1]"), "8x5x4", 1},
        {NORM("f32[5,4] = random(7)"), "8x5x4", 1},
    };
    double plain[512], got[512];
    int layers;

    (void)state;
    for (size_t k = 0; k < SB_COUNT(graphs); k++) {
        const sb_tensor *x = test_random(SB_DTYPE_F32, graphs[k].input, 5);

        outputs(graphs[k].graph, ON, x, plain, got, 512, &layers);
        if (layers != graphs[k].layers)
            fail_msg("%s: %d layers", graphs[k].graph, layers);
    }
}

/* Numbers in a domain of their own are not those that are scaled. */
static void test_domains_stay(void **state)
{
    static const char *const configs[] = {
        "SCHEDULE: {EQUALIZATION: true}\nW: {QSCHEME: per-channel-symmetric, "
        "QUANTIZER: {TYPE: dorefa, BIT: 8}}\n" TEST_A8,
        "SCHEDULE: {EQUALIZATION: true}\n" TEST_W8
        "A: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: dorefa, BIT: 8}}\n",
    };
    const sb_tensor *x = test_random(SB_DTYPE_F32, cases[0].input, 5);
    double plain[512], got[512];
    int layers;

    (void)state;
    for (size_t k = 0; k < SB_COUNT(configs); k++) {
        outputs(cases[0].graph, configs[k], x, plain, got, 512, &layers);
        assert_int_equal(layers, 0);
    }
}

static float constant_at(const sb_quant_model *qm, const char *name, int64_t i)
{
    sb_value_id v = sb_graph_find_value(qm->graph, name);

    assert_true(v != SB_NONE);
    return ((const float *)sb_graph_value(qm->graph, v)->constant.data)[i];
}

/* ---- what samples do not show ------------------------------------------- */

/* A channel that no sample shows may be multiplied, but not by much. */
static void test_silent_channels(void **state)
{
    static const char graph[] =
        "graph main(x: f32[N,2,4,4]) -> (y) {\n"
        "w: f32[3,2,1,1] = [100, 80, 0.5, -0.25, 0.5, 0.25]\n"
        "b: f32[3] = [10, 1, -8]\nv: f32[2,3,3,3] = random(1)\n"
        "c = Conv(x, w, b) \"first\"\nr = Relu(c)\n"
        "y = Conv(r, v) {pads=[1,1,1,1]} \"second\"\n}";
    static const float before[] = {100, 0.5F, 0.5F};
    const sb_tensor *data[] = {test_random(SB_DTYPE_F32, "8x2x4x4", 5), NULL};
    sb_quant_model *qm = test_quant(graph, ON, NULL);
    float by[3], least = HUGE_VALF, most = 0;

    (void)state;
    test_calibrate(qm, NULL, data);
    assert_non_null(sb_quant_model_step(qm, 0));
    for (int c = 0; c < 3; c++) {
        by[c] = before[c] / constant_at(qm, "w", 2 * c);
        least = fminf(least, by[c]);
        most = fmaxf(most, by[c]);
    }
    assert_true(most > 2 * least);
    if (!(most < 16.01F * least))
        fail_msg("factors %g, %g, %g", (double)by[0], (double)by[1],
                 (double)by[2]);
    sb_quant_model_free(qm);
}

/* Float outputs for `later` of Conv, Clip to 6, Conv, calibrated on `data`:
 * factors must not show in them. */
static void check_clip(const char *bias, const sb_tensor *const *data,
                       const float later[3])
{
    static const char graph[] =
        "graph main(x: f32[N,3,1,1]) -> (y) {\n"
        "w: f32[3,3,1,1] = [5.9, 0, 0, 0, 1, 0, 0, 0, 1]\n"
        "b: f32[3] = %s\n"
        "v: f32[2,3,1,1] = [0.01, 3, -3, 0.02, -5, 3]\n"
        "lo: f32[] = 0\nhi: f32[] = 6\n"
        "c = Conv(x, w, b) \"first\"\nr = Clip(c, lo, hi)\n"
        "y = Conv(r, v) \"second\"\n}";
    sb_tensor *x = test_random(SB_DTYPE_F32, "1x3x1x1", 5);
    const char *const configs[] = {OFF, ON};
    double y[2][2];
    char text[512];

    (void)snprintf(text, sizeof text, graph, bias);
    memcpy(x->data, later, 3 * sizeof *later);
    for (int on = 0; on < 2; on++) {
        sb_quant_model *qm = test_quant(text, configs[on], NULL);

        test_calibrate(qm, NULL, data);
        assert_true(!on || sb_quant_model_step(qm, 0));
        sb_quant_model_set_quant(qm, 0, 0);
        const sb_tensor *got = test_quant_forward(qm, x);
        for (int i = 0; i < 2; i++)
            y[on][i] = sb_tensor_get_f64(got, i);
        sb_quant_model_free(qm);
    }
    for (int i = 0; i < 2; i++)
        assert_close("as without factors", y[1][i], y[0][i], 1e-4);
}

/* Channels of very different size. */
static sb_tensor *clip_data(void)
{
    sb_tensor *low = test_random(SB_DTYPE_F32, "64x3x1x1", 5);

    for (int64_t i = 0; i < sb_tensor_count(low); i++)
        ((float *)low->data)[i] =
            (float)(i % 7) / 6 * (i % 3 == 0 ? 1 : 0.1F * (float)(i % 3));
    return low;
}

/* The first batch alone would let channels grow beyond the bound that the
 * second one comes near to; nearly twice as much as was seen still passes. */
static void test_clip_has_a_margin(void **state)
{
    static const float most[] = {1, 5, 0.6F}, later[] = {0.5F, 5.9F, 1.1F};
    sb_tensor *high = test_random(SB_DTYPE_F32, "1x3x1x1", 5);
    const sb_tensor *data[] = {clip_data(), high, NULL};

    (void)state;
    memcpy(high->data, most, sizeof most);
    check_clip("[0, 0, 0]", data, later);
}

/* What no sample shows may still come up to the bound. */
static void test_clip_of_a_silent_channel(void **state)
{
    static const float later[] = {0.5F, 0.1F, 6};
    const sb_tensor *data[] = {clip_data(), NULL};

    (void)state;
    check_clip("[0, 0, -1]", data, later);
}

/* ---- files ---------------------------------------------------------------- */

/* What is saved is about the network as it was given, and what was loaded is
 * not thrown away. */
static void test_saved_and_loaded(void **state)
{
    const char *path = test_quant_file();
    const char *graph = cases[0].graph;
    const sb_tensor *data[] = {test_random(SB_DTYPE_F32, "8x2x4x4", 5), NULL};
    sb_quant_model *plain = test_quant(graph, OFF, NULL);
    sb_quant_model *qm = test_quant(graph, ON, NULL);
    const sb_tensor *y;

    (void)state;
    test_calibrate(plain, NULL, data);
    test_calibrate(qm, NULL, data);
    assert_non_null(sb_quant_model_step(qm, 0));
    assert_ok(sb_quant_model_save_calibration(qm, path));
    assert_ok(sb_quant_model_prepare_calibration(qm, NULL));
    assert_status(sb_quant_model_save_calibration(qm, path), SB_BAD_ARG);
    assert_error_has("has equalized channels");
    assert_status(sb_quant_model_load_calibration(qm, path), SB_BAD_ARG);
    sb_quant_model_free(qm);

    qm = test_quant(graph, ON, NULL);
    assert_ok(sb_quant_model_prepare_calibration(qm, NULL));
    sb_tensor *small = test_random(SB_DTYPE_F32, "1x2x4x4", 5);
    for (int64_t i = 0; i < sb_tensor_count(small); i++)
        ((float *)small->data)[i] *= 0.01F;
    const sb_tensor *in[] = {small};
    assert_ok(sb_quant_model_forward(qm, in, 1, &y, 1));
    assert_ok(sb_quant_model_load_calibration(qm, path));
    assert_ok(sb_quant_model_calc_qparams(qm));
    assert_null(sb_quant_model_step(qm, 0));
    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        const sb_qparams *got = &qm->state.quantizers[i].qparams;
        const sb_qparams *want = &plain->state.quantizers[i].qparams;

        assert_int_equal(got->n, want->n);
        for (int64_t k = 0; k < got->n; k++)
            assert_close("scale", (double)got->scale[k], (double)want->scale[k],
                         1e-9);
    }
    sb_quant_model_free(qm);
    sb_quant_model_free(plain);
}

/* Weights may lie anywhere in a mapped file (the sanitizers tell). */
static void test_weights_anywhere(void **state)
{
    static const char *const names[] = {"w", "v"};
    static char room[2][512];
    const sb_tensor *data[] = {test_random(SB_DTYPE_F32, "8x2x4x4", 5), NULL};
    sb_quant_model *qm = test_quant(
        cases[0].graph,
        "SCHEDULE: {EQUALIZATION: true}\nW: {QSCHEME: per-tensor-symmetric, "
        "QUANTIZER: {BIT: 8}}\n" TEST_A8,
        NULL);

    (void)state;
    for (int i = 0; i < 2; i++) {
        sb_value_id v = sb_graph_find_value(qm->graph, names[i]);
        sb_tensor *t = &sb_graph_value(qm->graph, v)->constant;

        assert_true(sb_tensor_bytes(t) < sizeof room[i]);
        memcpy(room[i] + 1, t->data, sb_tensor_bytes(t));
        t->data = room[i] + 1;
    }
    test_calibrate(qm, NULL, data);
    assert_non_null(sb_quant_model_step(qm, 0));
    sb_quant_model_free(qm);
}

/* ---- ranges of all samples ---------------------------------------------- */

enum { BATCHES = 12 };

/* Channel 1 of one sample of each batch is as large as `most` says; 0: as all
 * others.  Is equalization kept?  Says what batches are for: used, wide, judged
 * or nothing. */
static bool kept_with(const float *most, char *marks)
{
    sb_quant_model *qm =
        test_quant("graph main(x: f32[N,3]) -> (y) {\n"
                   "w: f32[3,3] = [100, 0, 0, 0, 1, 0, 0, 0, 1]\n"
                   "v: f32[3,2] = [0.2, 0.3, 0.6, -0.4, 0.3, 0.5]\n"
                   "c = MatMul(x, w) \"first\"\nr = Relu(c)\n"
                   "y = MatMul(r, v) \"second\"\n}",
                   "SCHEDULE: {EQUALIZATION: true, SAMPLES: 16}\n"
                   "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
                   "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}, "
                   "SPECIFIC: [{first: [QUANTIZER.BIT, 16]}]}\n",
                   NULL);

    qm->asked = false;
    assert_int_equal(sb_quant_model_prepare_calibration(qm, NULL), SB_OK);
    for (size_t i = 0; i < BATCHES; i++) {
        sb_tensor *x = test_tensor(SB_DTYPE_F32, "16x3", NULL);
        float *at = x->data;

        sb_tensor_randomize(x, 40 + i);
        for (int k = 0; k < 48; k++)
            at[k] = fabsf(at[k]);
        if (most[i] > 0)
            at[1] = most[i];
        (void)test_quant_forward(qm, x);
    }
    for (size_t i = 0; i < BATCHES; i++)
        marks[i] = sb_replay_is_for(qm, SB_REPLAY_USED, i)     ? 'u'
                   : sb_replay_is_for(qm, SB_REPLAY_WIDE, i)   ? 'w'
                   : sb_replay_is_for(qm, SB_REPLAY_JUDGED, i) ? 'j'
                                                               : '.';
    assert_int_equal(sb_quant_model_calc_qparams(qm), SB_OK);
    const sb_quant_step *step = sb_quant_model_step(qm, 0);
    assert_non_null(step);
    assert_string_equal(step->name, "equalization");
    bool kept = step->kept;
    assert_int_equal(kept, step->after < step->before);
    assert_int_equal(
        constant_at(qm, "w", 0) == 100 && constant_at(qm, "w", 4) == 1, !kept);
    sb_quant_model_free(qm);
    return kept;
}

/* What widens ranges after the judgment is judged, too. */
static void test_judged_with_all_ranges(void **state)
{
    float most[BATCHES] = {0};
    char marks[BATCHES];

    (void)state;
    assert_true(kept_with(most, marks));
    const char *other = memchr(marks, '.', BATCHES);
    assert_non_null(other);
    most[other - marks] = 400;
    assert_false(kept_with(most, marks));
}

/* What the few samples that factors come from do not show, and others do, is
 * no reason against it: ranges hold for those that judge. */
static void test_ranges_of_more_samples(void **state)
{
    float most[BATCHES] = {0};
    char marks[BATCHES];

    (void)state;
    assert_true(kept_with(most, marks));
    for (size_t i = 0; i < BATCHES; i++)
        most[i] = marks[i] == 'u' ? 0 : 30;
    assert_non_null(memchr(marks, 'w', BATCHES));
    assert_true(kept_with(most, marks));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_in_float_better_quantized),
        cmocka_unit_test(test_one_channel_far_too_large),
        cmocka_unit_test(test_behind_a_node_without_its_first_result),
        cmocka_unit_test(test_what_cannot_be_scaled),
        cmocka_unit_test(test_domains_stay),
        cmocka_unit_test(test_silent_channels),
        cmocka_unit_test(test_clip_has_a_margin),
        cmocka_unit_test(test_clip_of_a_silent_channel),
        cmocka_unit_test(test_saved_and_loaded),
        cmocka_unit_test(test_weights_anywhere),
        cmocka_unit_test(test_judged_with_all_ranges),
        cmocka_unit_test(test_ranges_of_more_samples),
    };

    return cmocka_run_group_tests_name("equalize", tests, NULL, NULL);
}
