/* Quantized models: scales and simulated results against a reference in double
 * precision written here from the definitions, and the life of a model. */
#include "quanttest.h"

#include <math.h>
#include <stdlib.h>

#include "graph/text.h"
#include "quant/export/export.h"

#define BASE TEST_W8 TEST_A8

/* ---- the reference ------------------------------------------------------ */

/* Three layers: relu(x W0), relu(. W1), . W2; 6 x 5, 5 x 7, 7 x 3. */
enum { LAYERS = 3, ROWS = 24, WIDEST = 7 };
static const int width[LAYERS + 1] = {6, 5, 7, 3};

static const char mlp[] = "graph mlp(x: f32[N,6]) -> (y) {\n"
                          "w0: f32[6,5] = random(11)\n"
                          "w1: f32[5,7] = random(12)\n"
                          "w2: f32[7,3] = random(13)\n"
                          "a = MatMul(x, w0) \"fc0\"\nb = Relu(a) \"r0\"\n"
                          "c = MatMul(b, w1) \"fc1\"\nd = Relu(c) \"r1\"\n"
                          "y = MatMul(d, w2) \"fc2\"\n}";

typedef struct reference {
    double w[LAYERS][WIDEST * WIDEST];
    double x[ROWS * WIDEST];
    int rows;
    test_scale act[LAYERS];
    test_scale weight[LAYERS][WIDEST]; /* a column each */
} reference;

static void take_weights(reference *r, const char *text)
{
    sb_graph *g = NULL;

    assert_ok(sb_graph_parse(test_ctx(), text, &g));
    for (int l = 0; l < LAYERS; l++) {
        char name[8];
        (void)snprintf(name, sizeof name, "w%d", l);
        sb_value_id v = sb_graph_find_value(g, name);
        const float *w = sb_graph_value(g, v)->constant.data;
        for (int i = 0; i < width[l] * width[l + 1]; i++)
            r->w[l][i] = (double)w[i];
        for (int c = 0; c < width[l + 1]; c++) {
            double most = 0;
            for (int i = 0; i < width[l]; i++)
                most = fmax(most, fabs(r->w[l][i * width[l + 1] + c]));
            r->weight[l][c] = test_symmetric8(most);
        }
    }
    sb_graph_free(g);
}

static void add_rows(reference *r, const sb_tensor *x)
{
    int64_t n = sb_tensor_count(x);

    assert_true(r->rows * 6 + n <= ROWS * WIDEST);
    for (int64_t i = 0; i < n; i++)
        r->x[r->rows * 6 + i] = (double)((const float *)x->data)[i];
    r->rows += (int)(n / 6);
}

/* One layer on all rows, in place. */
static void run_layer(const reference *r, int l, double *x, bool w_on)
{
    double y[ROWS * WIDEST];
    int n = width[l], m = width[l + 1];

    for (int i = 0; i < r->rows; i++)
        for (int c = 0; c < m; c++) {
            double sum = 0;
            for (int k = 0; k < n; k++) {
                double w = r->w[l][k * m + c];
                sum +=
                    x[i * n + k] * (w_on ? test_fake(r->weight[l][c], w) : w);
            }
            y[i * m + c] = l + 1 < LAYERS ? fmax(sum, 0) : sum;
        }
    memcpy(x, y, sizeof y);
}

/* Scales of the inputs of all layers, each observed behind the quantizers that
 * are on: the definition, run from the input for every layer. */
static void observe_layers(reference *r, bool w_on, bool a_on)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        double x[ROWS * WIDEST], lo = INFINITY, hi = -INFINITY;

        memcpy(x, r->x, sizeof x);
        for (int l = 0; l < layer; l++) {
            for (int i = 0; a_on && i < r->rows * width[l]; i++)
                x[i] = test_fake(r->act[l], x[i]);
            run_layer(r, l, x, w_on);
        }
        for (int i = 0; i < r->rows * width[layer]; i++) {
            lo = fmin(lo, x[i]);
            hi = fmax(hi, x[i]);
        }
        r->act[layer] = test_affine8(lo, hi);
    }
}

static void check_scales(const char *what, const sb_quant_model *qm,
                         const reference *r)
{
    for (int l = 0; l < LAYERS; l++) {
        char name[64];
        (void)snprintf(name, sizeof name, "fc%d.input_quantizer", l);
        sb_quantizer_info q = test_quantizer(qm, name);
        assert_int_equal(q.n, 1);
        assert_close(what, q.scale[0], r->act[l].scale, 1e-6 * r->act[l].scale);
        assert_close(what, q.zero_point[0], r->act[l].zero, 0);
        (void)snprintf(name, sizeof name, "fc%d.weight_quantizer", l);
        q = test_quantizer(qm, name);
        assert_int_equal(q.n, width[l + 1]);
        for (int c = 0; c < width[l + 1]; c++)
            assert_close(what, q.scale[c], r->weight[l][c].scale,
                         1e-6 * r->weight[l][c].scale);
    }
}

/* ---- calibration and simulation ----------------------------------------- */

static const sb_tensor **batches(void)
{
    static const sb_tensor *b[4];

    b[0] = test_random(SB_DTYPE_F32, "5x6", 1);
    b[1] = test_random(SB_DTYPE_F32, "1x6", 2);
    b[2] = test_random(SB_DTYPE_F32, "7x6", 3);
    b[3] = NULL;
    return b;
}

static void test_scales_and_simulation(void **state)
{
    (void)state;
    sb_quant_model *qm = test_quant(mlp, BASE, NULL);
    const sb_tensor **data = batches(),
                    *x = test_random(SB_DTYPE_F32, "4x6", 9);
    reference r = {0};

    take_weights(&r, mlp);
    for (int i = 0; i < 3; i++)
        add_rows(&r, data[i]);
    observe_layers(&r, false, false);
    test_calibrate(qm, NULL, data);
    check_scales("float prefix", qm, &r);
    /* each switch alone, both, none */
    for (int on = 0; on < 4; on++) {
        bool w_on = (on & 1) != 0, a_on = (on & 2) != 0;
        double want[ROWS * WIDEST];
        reference run = r;

        run.rows = 0;
        add_rows(&run, x);
        memcpy(want, run.x, sizeof want);
        for (int l = 0; l < LAYERS; l++) {
            for (int i = 0; a_on && i < run.rows * width[l]; i++)
                want[i] = test_fake(r.act[l], want[i]);
            run_layer(&run, l, want, w_on);
        }
        sb_quant_model_set_quant(qm, w_on, a_on);
        const sb_tensor *y = test_quant_forward(qm, x);
        for (int i = 0; i < 12; i++)
            assert_close("simulated", ((const float *)y->data)[i], want[i],
                         1e-5 * (1 + fabs(want[i])));
    }
    sb_quant_model_free(qm);
}

static int count(void *user, const char *stage, size_t done, size_t total)
{
    size_t *seen = user;

    if (strcmp(stage, "calibrate") != 0)
        return 0;
    assert_true(done > seen[0] && done <= total);
    seen[0] = done;
    seen[1] = total;
    return 0;
}

/* Behind quantized weights, activations, or both; in memory and from a file. */
static void test_asym_observes_behind_quantized_layers(void **state)
{
    (void)state;
    const sb_tensor **data = batches();

    for (int on = 1; on < 4; on++)
        for (size_t limit = 0; limit < 2; limit++) {
            sb_quant_model *qm = test_quant(mlp, BASE, NULL);
            sb_calibration_options opt = SB_CALIBRATION_OPTIONS_INIT;
            size_t seen[2] = {0, 0};
            reference r = {0};

            take_weights(&r, mlp);
            for (int i = 0; i < 3; i++)
                add_rows(&r, data[i]);
            observe_layers(&r, (on & 1) != 0, (on & 2) != 0);
            opt.asym_weights = (on & 1) != 0;
            opt.asym_activations = (on & 2) != 0;
            opt.memory_limit = limit; /* of one byte: all in a file */
            sb_ctx_set_progress(test_ctx(), count, seen);
            test_calibrate(qm, &opt, data);
            sb_ctx_set_progress(test_ctx(), NULL, NULL);
            check_scales("quantized prefix", qm, &r);
            assert_int_equal(seen[0], seen[1]);
            assert_true((seen[1] > 0) == ((on & 2) != 0));
            sb_quant_model_free(qm);
        }
}

/* Rows of different length in one set. */
static void test_rows_may_differ_in_length(void **state)
{
    (void)state;
    static const char text[] =
        "graph mlp(x: f32[N,L,6]) -> (y) {\n"
        "w0: f32[6,5] = random(11)\nw1: f32[5,7] = random(12)\n"
        "w2: f32[7,3] = random(13)\n"
        "a = MatMul(x, w0) \"fc0\"\nb = Relu(a) \"r0\"\n"
        "c = MatMul(b, w1) \"fc1\"\nd = Relu(c) \"r1\"\n"
        "y = MatMul(d, w2) \"fc2\"\n}";
    const sb_tensor *data[] = {test_random(SB_DTYPE_F32, "1x4x6", 1),
                               test_random(SB_DTYPE_F32, "2x3x6", 2),
                               test_random(SB_DTYPE_F32, "1x1x6", 3), NULL};

    for (int asym = 0; asym < 2; asym++) {
        sb_quant_model *qm = test_quant(text, BASE, NULL);
        sb_calibration_options opt = SB_CALIBRATION_OPTIONS_INIT;
        reference r = {0};

        take_weights(&r, text);
        for (int i = 0; i < 3; i++)
            add_rows(&r, data[i]);
        observe_layers(&r, asym, asym);
        opt.asym_weights = opt.asym_activations = asym;
        test_calibrate(qm, &opt, data);
        check_scales("lengths", qm, &r);
        sb_quant_model_free(qm);
    }
}

/* ---- a network with branches -------------------------------------------- */

/* Values that live over several blocks, two points on one value, a shared
 * weight, a result that only an output reads. */
static const char branches[] =
    "graph net(x: f32[N,4,6,6]) -> (y, z) {\n"
    "w: f32[4,4,3,3] = random(1)\nv: f32[4,4,3,3] = random(2)\n"
    "b: f32[4] = random(3)\n"
    "c = Conv(x, w, b) {pads=[1,1,1,1]} \"c1\"\nr = Relu(c) \"r1\"\n"
    "d = Conv(r, v) {pads=[1,1,1,1]} \"c2\"\ne = Relu(d) \"r2\"\n"
    "f = Conv(e, w) {pads=[1,1,1,1]} \"c3\"\ns = Add(f, r) \"add\"\n"
    "t = Relu(s) \"r3\"\nk = Concat(t, x) {axis=1} \"cat\"\n"
    "u: f32[3,8,1,1] = random(4)\no = Conv(k, u) \"c4\"\n"
    "y = GlobalAveragePool(o) \"pool\"\nz = Sigmoid(c) \"sig\"\n}";

#define SPECIAL                                                     \
    TEST_W8 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}, " \
            "QADD: {ENABLE_QUANT: true}, SPECIFIC: [{\"add\": "     \
            "[QUANTIZER.BIT, 4]}]}\n"

static float *all_scales(const sb_quant_model *qm, size_t *n)
{
    float *v = calloc(4096, sizeof *v);

    *n = 0;
    for (size_t i = 0; i < sb_quant_model_quantizer_count(qm); i++) {
        const sb_quantizer_info *q = sb_quant_model_quantizer(qm, i);
        for (size_t k = 0; k < q->n; k++) {
            assert_true(*n + 2 <= 4096);
            v[(*n)++] = q->scale[k];
            v[(*n)++] = q->zero_point[k];
        }
    }
    return v;
}

static float *calibrated(const char *target, const sb_tensor *const *data,
                         const sb_calibration_options *opt, size_t *n)
{
    sb_quant_model *qm = test_quant(branches, SPECIAL, target);

    test_calibrate(qm, opt, data);
    for (size_t i = 0; i < sb_quant_model_quantizer_count(qm); i++) {
        const sb_quantizer_info *q = sb_quant_model_quantizer(qm, i);
        assert_true(q->fused || q->n > 0);
    }
    float *v = all_scales(qm, n);
    sb_quant_model_free(qm);
    return v;
}

static void test_any_batches_and_threads(void **state)
{
    (void)state;
    const sb_tensor *whole = test_random(SB_DTYPE_F32, "6x4x6x6", 5);
    const sb_tensor *one[] = {whole, NULL}, *parts[7] = {0};
    int had = sb_ctx_threads(test_ctx());

    for (int i = 0; i < 6; i++) {
        sb_tensor *t = test_tensor(SB_DTYPE_F32, "1x4x6x6", NULL);
        memcpy(t->data, (const float *)whole->data + (ptrdiff_t)i * 144,
               144 * sizeof(float));
        parts[i] = t;
    }
    for (int asym = 0; asym < 2; asym++) {
        sb_calibration_options opt = SB_CALIBRATION_OPTIONS_INIT;
        size_t n = 0, m = 0;

        opt.asym_weights = opt.asym_activations = asym;
        float *want = calibrated(NULL, one, &opt, &n);
        float *got = calibrated(NULL, parts, &opt, &m);
        assert_int_equal(n, m);
        assert_all_close("batches", got, want, n, 1e-6);
        free(got);
        for (int threads = 1; threads < 4; threads += 2) {
            sb_ctx_set_threads(test_ctx(), threads);
            got = calibrated(NULL, one, &opt, &m);
            assert_memory_equal(got, want, n * sizeof *got);
            free(got);
        }
        sb_ctx_set_threads(test_ctx(), had);
        opt.memory_limit = 1000;
        got = calibrated(NULL, one, &opt, &m);
        assert_memory_equal(got, want, n * sizeof *got);
        free(got);
        free(want);
    }
}

/* Every target calibrates block by block, and then simulates. */
static void test_asym_for_targets(void **state)
{
    (void)state;
    static const char *const names[] = {"onnxruntime-x86", "onnxruntime-arm",
                                        "openvino", "qnn"};
    const sb_tensor *data[] = {test_random(SB_DTYPE_F32, "2x4x6x6", 5),
                               test_random(SB_DTYPE_F32, "3x4x6x6", 6), NULL};

    for (size_t i = 0; i < SB_COUNT(names); i++) {
        sb_quant_model *qm = test_quant(branches, BASE, names[i]);
        sb_calibration_options opt = SB_CALIBRATION_OPTIONS_INIT;
        const sb_tensor *out[2], *again[2];

        opt.asym_weights = opt.asym_activations = 1;
        test_calibrate(qm, &opt, data);
        assert_ok(test_quant_run(qm, data, out));
        sb_tensor *plain = test_tensor(SB_DTYPE_F32, "2x3x1x1", NULL);
        memcpy(plain->data, out[0]->data, sb_tensor_bytes(plain));
        sb_quant_model_set_quant(qm, 1, 1);
        assert_ok(test_quant_run(qm, data, again));
        double worst = 0, most = 0;
        for (int k = 0; k < 6; k++) {
            const float *a = again[0]->data, *p = plain->data;
            worst = fmax(worst, fabs((double)(a[k] - p[k])));
            most = fmax(most, fabs((double)p[k]));
        }
        /* x is small beside what it is joined with, and shares its scale */
        assert_true(worst > 0 && worst < 0.15 * most);
        sb_quant_model_free(qm);
    }
}

/* What is joined has the scale of the result, if it has no other consumer and
 * if a Relu before it stays redundant. */
static void test_joined_scales(void **state)
{
    (void)state;
    static const char text[] =
        "graph net(x: f32[N,4,6,6]) -> (y, z) {\n"
        "w: f32[4,4,1,1] = random(1)\nv: f32[4,4,1,1] = random(2)\n"
        "u: f32[4,8,1,1] = random(3)\n"
        "a = Conv(x, w) \"c1\"\nb = Relu(a) \"r1\"\n"
        "c = Conv(x, v) \"c2\"\nd = Relu(c) \"r2\"\n"
        "k = Concat(b, d) {axis=1} \"cat1\"\no = Conv(k, u) \"c3\"\n"
        "e = Conv(o, w) \"c4\"\nf = Relu(e) \"r4\"\n"
        "h = Conv(o, v) \"c5\"\n"
        "m = Concat(f, h) {axis=1} \"cat2\"\np = Conv(m, u) \"c6\"\n"
        "n = Concat(p, o) {axis=1} \"cat3\"\ny = Conv(n, u) \"c7\"\n"
        "z = Conv(p, w) \"c8\"\n}";
    static const struct {
        const char *input, *result;
        bool same;
    } cases[] = {{"r1", "cat1", true},
                 {"r2", "cat1", true},
                 {"r4", "cat2", false},
                 {"c5", "cat2", true},
                 {"c3", "cat3", false}};
    const sb_tensor *data[] = {test_random(SB_DTYPE_F32, "2x4x6x6", 5), NULL};
    sb_quant_model *qm = test_quant(text, BASE, "onnxruntime-x86");
    char name[64];

    test_calibrate(qm, NULL, data);
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        snprintf(name, sizeof name, "%s.output_quantizer", cases[i].input);
        sb_quantizer_info a = test_quantizer(qm, name);
        snprintf(name, sizeof name, "%s.output_quantizer", cases[i].result);
        sb_quantizer_info b = test_quantizer(qm, name);
        bool same =
            a.scale[0] == b.scale[0] && a.zero_point[0] == b.zero_point[0];
        if (same != cases[i].same)
            fail_msg("%s in %s", cases[i].input, cases[i].result);
    }
    assert_true(test_quantizer(qm, "r4.output_quantizer").zero_point[0] == 0);
    sb_quant_model_free(qm);
}

/* Several outputs that are quantized keep their names and places. */
static void test_quantized_outputs(void **state)
{
    (void)state;
    static const char text[] =
        "graph net(x: f32[N,4,6,6]) -> (y, z) {\n"
        "w: f32[4,4,3,3] = random(1)\nv: f32[4,4,1,1] = random(2)\n"
        "a = Conv(x, w) \"c1\"\ny = Conv(a, v) \"c2\"\n"
        "z = Conv(a, w) \"c3\"\n}";
    static const char *const names[] = {"onnxruntime-x86", "onnxruntime-arm",
                                        "qnn"};
    const sb_tensor *data[] = {test_random(SB_DTYPE_F32, "2x4x6x6", 5), NULL};

    for (size_t i = 0; i < SB_COUNT(names); i++) {
        sb_quant_model *qm = test_quant(text, BASE, names[i]);
        sb_export_choice choice = {0};
        const sb_tensor *out[2];
        sb_graph *g = NULL;
        int64_t opset = 0;

        test_calibrate(qm, NULL, data);
        sb_quant_model_set_quant(qm, 1, 1);
        assert_ok(test_quant_run(qm, data, out));
        assert_int_equal(out[0]->dims[2], 4);
        assert_int_equal(out[1]->dims[2], 2);
        assert_ok(sb_export_graph(qm, &choice, &g, &opset));
        assert_int_equal(g->n_outputs, 2);
        assert_string_equal(sb_graph_value(g, g->outputs[0])->name, "y");
        assert_string_equal(sb_graph_value(g, g->outputs[1])->name, "z");
        sb_graph_free(g);
        sb_quant_model_free(qm);
    }
}

/* ---- life --------------------------------------------------------------- */

static void test_wrong_order(void **state)
{
    (void)state;
    sb_quant_model *qm = test_quant(mlp, BASE, NULL);
    const sb_tensor *x = test_random(SB_DTYPE_F32, "2x6", 1), *out[1];
    const sb_tensor *wrong = test_random(SB_DTYPE_F32, "2x5", 1);
    sb_calibration_options asym = SB_CALIBRATION_OPTIONS_INIT;

    assert_ok(test_quant_run(qm, &x, out)); /* float */
    assert_status(sb_quant_model_export(qm, "none.onnx", NULL), SB_BAD_ARG);
    assert_error_has("no scale yet");
    assert_status(sb_quant_model_save_calibration(qm, "none.json"), SB_BAD_ARG);
    sb_quant_model_set_quant(qm, 1, 1);
    assert_status(test_quant_run(qm, &x, out), SB_BAD_ARG);
    assert_error_has("calibrate before");
    assert_status(sb_quant_model_calc_qparams(qm), SB_BAD_DATA);
    assert_error_has("'fc0.input_quantizer' has seen no data");
    assert_ok(sb_quant_model_prepare_calibration(qm, NULL));
    assert_status(sb_quant_model_calc_qparams(qm), SB_BAD_DATA);
    asym.asym_activations = 1;
    assert_ok(sb_quant_model_prepare_calibration(qm, &asym));
    assert_status(sb_quant_model_calc_qparams(qm), SB_BAD_DATA);
    assert_ok(sb_quant_model_prepare_calibration(qm, &asym));
    assert_status(test_quant_run(qm, &wrong, out), SB_BAD_DATA);
    assert_error_has("want 6 in dimension 1");
    assert_ok(test_quant_run(qm, &x, out));
    assert_null(out[0]);
    assert_ok(sb_quant_model_calc_qparams(qm));
    assert_ok(test_quant_run(qm, &x, out));
    assert_non_null(out[0]);
    /* anew: what was known is forgotten */
    assert_ok(sb_quant_model_prepare_calibration(qm, NULL));
    assert_status(sb_quant_model_export(qm, "none.onnx", NULL), SB_BAD_ARG);
    sb_quant_model_free(qm);
}

static void test_data_that_is_not_finite(void **state)
{
    (void)state;
    sb_quant_model *qm = test_quant(mlp, BASE, NULL);
    sb_tensor *x = test_random(SB_DTYPE_F32, "3x6", 1);
    const sb_tensor *good = test_random(SB_DTYPE_F32, "4x6", 1), *out[1];
    sb_calibration_options asym = SB_CALIBRATION_OPTIONS_INIT;

    ((float *)x->data)[6 + 2] = NAN;
    assert_ok(sb_quant_model_prepare_calibration(qm, NULL));
    assert_ok(test_quant_run(qm, &good, out));
    assert_status(test_quant_run(qm, (const sb_tensor *const *)&x, out),
                  SB_BAD_DATA);
    assert_error_has("'x' holds NaN in sample 5");
    asym.asym_activations = 1;
    assert_ok(sb_quant_model_prepare_calibration(qm, &asym));
    assert_ok(test_quant_run(qm, &good, out));
    assert_ok(test_quant_run(qm, (const sb_tensor *const *)&x, out));
    assert_status(sb_quant_model_calc_qparams(qm), SB_BAD_DATA);
    assert_error_has("'x' holds NaN in sample 5");
    sb_quant_model_free(qm);

    qm = test_quant("graph main(x: f32[N,2]) -> (y) {\n"
                    "w: f32[2,2] = [1, 2, inf, 4]\ny = MatMul(x, w) \"fc\"\n}",
                    BASE, NULL);
    asym.asym_weights = 1;
    assert_status(sb_quant_model_prepare_calibration(qm, &asym), SB_BAD_DATA);
    assert_error_has("weight 'w' holds an infinity");
    sb_quant_model_free(qm);
}

/* Saved after calibration block by block, loaded into a fresh model. */
static void test_asym_saved(void **state)
{
    (void)state;
    char path[] = "/tmp/sparsebit-test-XXXXXX";
    sb_quant_model *qm = test_quant(mlp, BASE, NULL);
    sb_calibration_options opt = SB_CALIBRATION_OPTIONS_INIT;
    size_t n = 0, m = 0;

    opt.asym_weights = opt.asym_activations = 1;
    test_calibrate(qm, &opt, batches());
    (void)snprintf(path, sizeof path, "/tmp/sparsebit-test-%06u",
                   (unsigned)((uintptr_t)qm >> 4) % 1000000u);
    assert_ok(sb_quant_model_save_calibration(qm, path));
    float *want = all_scales(qm, &n);
    sb_quant_model_free(qm);
    for (int asym = 0; asym < 2; asym++) {
        qm = test_quant(mlp, BASE, NULL);
        assert_ok(sb_quant_model_prepare_calibration(qm, asym ? &opt : NULL));
        assert_ok(sb_quant_model_load_calibration(qm, path));
        assert_ok(sb_quant_model_calc_qparams(qm));
        float *got = all_scales(qm, &m);
        assert_int_equal(n, m);
        assert_memory_equal(got, want, n * sizeof *got);
        free(got);
        sb_quant_model_free(qm);
    }
    free(want);
    (void)remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scales_and_simulation),
        cmocka_unit_test(test_asym_observes_behind_quantized_layers),
        cmocka_unit_test(test_rows_may_differ_in_length),
        cmocka_unit_test(test_any_batches_and_threads),
        cmocka_unit_test(test_asym_for_targets),
        cmocka_unit_test(test_joined_scales),
        cmocka_unit_test(test_quantized_outputs),
        cmocka_unit_test(test_wrong_order),
        cmocka_unit_test(test_data_that_is_not_finite),
        cmocka_unit_test(test_asym_saved),
    };

    return cmocka_run_group_tests_name("quant_model", tests, NULL, NULL);
}
