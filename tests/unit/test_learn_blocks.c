/* Blocks that are learned: which nodes they are, by hand; their losses against
 * those of the same block in double precision; what comes of it. */
#include "quanttest.h"

#include <math.h>
#include <string.h>

#include "graph/text.h"
#include "quant/model/overlay.h"
#include "quant/reconstruct/blocks.h"

/* ---- which nodes belong together ---------------------------------------- */

/* The blocks of nodes in their order: "0 0 1"; layers are those that have a
 * weight. */
static void check_blocks(const char *text, const char *want)
{
    sb_graph *g = NULL;
    sb_staged s = {0};
    bool layer[64] = {0};
    char got[256] = "";
    int32_t n = 0;

    assert_ok(sb_graph_parse(test_ctx(), text, &g));
    assert_ok(sb_graph_infer(g));
    assert_ok(sb_staged_init(test_ctx(), g, 0, &s));
    for (sb_node_id id = 0; id < g->n_nodes; id++)
        layer[id] = strcmp(sb_graph_node(g, id)->op, "MatMul") == 0;
    assert_ok(sb_find_blocks(&s, layer, &n));
    for (size_t i = 0; i < s.n_order; i++) {
        size_t at = strlen(got);
        (void)snprintf(got + at, sizeof got - at, "%s%d", i ? " " : "",
                       s.node_level[s.order[i]]);
    }
    assert_string_equal(got, want);
    assert_int_equal(n, s.node_level[s.order[s.n_order - 1]] + 1);
    sb_staged_clear(&s);
    sb_graph_free(g);
}

#define HEAD "graph g(x: f32[N,4]) -> (y) {\nw: f32[4,4] = random(1)\n"

static void test_blocks_found(void **state)
{
    (void)state;
    /* A chain: two layers each, with what is behind them. */
    check_blocks(HEAD "a = MatMul(x, w)\nb = Relu(a)\nc = MatMul(b, w)\n"
                      "d = Relu(c)\ne = MatMul(d, w)\ny = Relu(e)\n}",
                 "0 0 0 0 1 1");
    /* A layer, two residual blocks with activations behind, a layer. */
    check_blocks(HEAD "a = MatMul(x, w)\nb = Relu(a)\n"
                      "c = MatMul(b, w)\nd = Relu(c)\ne = MatMul(d, w)\n"
                      "f = Add(e, b)\ng = Relu(f)\n"
                      "h = MatMul(g, w)\ni = MatMul(g, w)\nj = Add(h, i)\n"
                      "k = Relu(j)\ny = MatMul(k, w)\n}",
                 "0 0 1 1 1 1 1 2 2 2 2 3");
    /* A gate around one layer is no reason to part. */
    check_blocks(HEAD "a = MatMul(x, w)\nb = Sigmoid(a)\nc = Mul(a, b)\n"
                      "y = MatMul(c, w)\n}",
                 "0 0 0 0");
    /* Nothing to cut at for more layers than fit: each by itself. */
    check_blocks(HEAD "a = MatMul(x, w)\nb = MatMul(a, w)\nc = MatMul(b, w)\n"
                      "d = MatMul(c, w)\ne = MatMul(d, w)\nf = MatMul(e, w)\n"
                      "g = MatMul(f, w)\nh = MatMul(g, w)\ni = MatMul(h, w)\n"
                      "j = MatMul(i, w)\nk = MatMul(j, w)\nl = MatMul(k, w)\n"
                      "m = MatMul(l, w)\nn = Relu(m)\ny = Add(n, x)\n}",
                 "0 1 2 3 4 5 6 7 8 9 10 11 12 12 12");
}

/* ---- losses ------------------------------------------------------------- */

enum { SAMPLES = 16, IN = 12, MID = 10 };

#define NET                                                  \
    "graph net(x: f32[N,12]) -> (y) {\n"                     \
    "w: f32[12,10] = random(2)\nv: f32[10,12] = random(3)\n" \
    "b: f32[12] = random(4)\n"                               \
    "h = MatMul(x, w) \"up\"\nr = Relu(h) \"act\"\n"         \
    "d = MatMul(r, v) \"down\"\ns = Add(d, b)\ny = Add(s, x)\n}"
#define CONFIG(bits, a)                             \
    "SCHEDULE: {BLOCKWISE: {STEPS: 0, BATCH: 8}}\n" \
    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: " bits "}}\n" a
#define A4 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 4}}\n"

/* A quantizer by its definition; none: q NULL. */
static double round_by(const sb_quant_model *qm, const sb_quantizer *q,
                       int64_t channel, double v)
{
    const sb_qparams *p = q ? sb_quantizer_qparams(qm, q) : NULL;

    if (!p)
        return v;
    const test_scale s = {(double)p->scale[p->n > 1 ? channel : 0],
                          (double)p->zero_point[p->n > 1 ? channel : 0],
                          (double)p->qmin, (double)p->qmax};
    return test_fake(s, v);
}

static const sb_quantizer *find_quantizer(const sb_quant_model *qm,
                                          const char *name)
{
    for (size_t i = 0; i < qm->place.n_quantizers; i++)
        if (strcmp(qm->place.quantizers[i].name, name) == 0)
            return &qm->place.quantizers[i];
    return NULL;
}

static const float *constant(const sb_quant_model *qm, const char *name,
                             bool overlay)
{
    sb_value_id v = sb_graph_find_value(qm->graph, name);

    assert_int_not_equal(v, SB_NONE);
    return (overlay ? sb_overlay_constant(qm, v)
                    : &sb_graph_value(qm->graph, v)->constant)
        ->data;
}

/* The network in double precision, quantized or not. */
static void run_double(const sb_quant_model *qm, const float *x, bool quantized,
                       double *y)
{
    const float *w = constant(qm, "w", quantized);
    const float *v = constant(qm, "v", quantized);
    const float *b = constant(qm, "b", quantized);
    const char *const names[] = {"up.input_quantizer", "up.weight_quantizer",
                                 "down.input_quantizer",
                                 "down.weight_quantizer"};
    const sb_quantizer *q[4];
    double h[MID];

    for (int i = 0; i < 4; i++)
        q[i] = quantized ? find_quantizer(qm, names[i]) : NULL;
    for (int m = 0; m < MID; m++) {
        h[m] = 0;
        for (int k = 0; k < IN; k++)
            h[m] += round_by(qm, q[0], 0, (double)x[k]) *
                    round_by(qm, q[1], m, (double)w[k * MID + m]);
        h[m] = round_by(qm, q[2], 0, fmax(h[m], 0));
    }
    for (int n = 0; n < IN; n++) {
        y[n] = (double)b[n] + (double)x[n];
        for (int m = 0; m < MID; m++)
            y[n] += h[m] * round_by(qm, q[3], n, (double)v[m * IN + n]);
    }
}

/* Adds those of one sample. */
static void add_double(const sb_quant_model *qm, const float *x, double *noise,
                       double *signal)
{
    double y[IN], t[IN];

    run_double(qm, x, true, y);
    run_double(qm, x, false, t);
    for (int n = 0; n < IN; n++) {
        *noise += (y[n] - t[n]) * (y[n] - t[n]);
        *signal += t[n] * t[n];
    }
}

/* Noise over signal, times the channels. */
static double loss_double(const sb_quant_model *qm, const float *x)
{
    double noise = 0, signal = 0;

    for (int i = 0; i < SAMPLES; i++)
        add_double(qm, x + i * IN, &noise, &signal);
    return IN * noise / signal;
}

/* Noise over signal of each sample, the mean. */
static double error_double(const sb_quant_model *qm, const float *x)
{
    double sum = 0;

    for (int i = 0; i < SAMPLES; i++) {
        double noise = 0, signal = 0;

        add_double(qm, x + i * IN, &noise, &signal);
        sum += noise / signal;
    }
    return sum / SAMPLES;
}

typedef struct seen {
    double before, after;
    size_t blocks, weights, scales;
} seen;

static void note(void *user, const sb_layer_block *b)
{
    seen *s = user;

    s->before = b->before;
    s->after = b->after;
    s->blocks++;
    s->weights += b->n_learned;
    s->scales += b->n_scales;
}

static sb_tensor *samples(void)
{
    sb_tensor *x = test_tensor(SB_DTYPE_F32, "16x12", NULL);

    sb_tensor_randomize(x, 9);
    return x;
}

static seen learn(sb_quant_model *qm, int64_t steps, double drop)
{
    seen s = {0};
    size_t layers = 0;
    sb_blocks_walk w = {.qm = qm,
                        .how = sb_quant_config_schedule(qm->config).blockwise,
                        .report = note,
                        .report_user = &s};

    w.how.steps = steps;
    w.how.drop = drop;
    assert_ok(sb_blocks_walk_run(&w, &layers));
    assert_int_equal(layers, s.weights);
    return s;
}

/* A model with nearest rounding that has its samples still. */
static sb_quant_model *calibrated(const char *net, const char *yaml,
                                  const sb_tensor *x)
{
    sb_quant_model *qm = test_quant(net, yaml, NULL);

    test_calibrate(qm, NULL, (const sb_tensor *const[]){x, NULL});
    assert_ok(sb_batch_store_create(test_ctx(), 1, 0, &qm->state.batches));
    assert_ok(sb_batch_store_take(qm->state.batches, &x));
    return qm;
}

static void check_loss(const char *yaml, size_t scales, double drop)
{
    const sb_tensor *x = samples();
    sb_quant_model *qm = calibrated(NET, yaml, x);
    double nearest = loss_double(qm, x->data);
    seen s = learn(qm, 300, drop);
    double after = loss_double(qm, x->data);

    assert_int_equal(s.blocks, 1);
    assert_int_equal(s.weights, 2);
    assert_int_equal(s.scales, scales);
    assert_close("before", s.before, nearest, 1e-4 * nearest);
    assert_close("after", s.after, after, 1e-4 * after);
    assert_true(after < 0.8 * nearest);
    sb_quant_model_free(qm);
}

static void test_losses(void **state)
{
    (void)state;
    check_loss(CONFIG("3", "A: none\n"), 0, 0.5);
    check_loss(CONFIG("4", A4), 2, 0);
    check_loss(CONFIG("4", A4), 2, 0.5);
}

/* Samples that lie in a file make the same weights. */
static void test_spilled(void **state)
{
    float kept[IN * MID];

    (void)state;
    for (int again = 0; again < 2; again++) {
        sb_quant_model *qm = calibrated(NET, CONFIG("4", A4), samples());

        qm->state.calibration.memory_limit = again ? 256 : 0;
        (void)learn(qm, 100, 0.5);
        assert_ptr_not_equal(constant(qm, "w", true), constant(qm, "w", false));
        if (again)
            assert_memory_equal(kept, constant(qm, "w", true), sizeof kept);
        else
            memcpy(kept, constant(qm, "w", true), sizeof kept);
        sb_quant_model_free(qm);
    }
}

/* Results that are not floats are not learned, and no reason to fail; nor is a
 * block that has no others.  Of an output of float16 it is what it is made of.
 */
static void test_results_of_other_types(void **state)
{
    static const struct {
        const char *net;
        size_t weights;
    } cases[] = {
        {"graph net(x: f32[N,12]) -> (y, k) {\n"
         "w: f32[12,10] = random(2)\ny = MatMul(x, w) \"up\"\n"
         "k = ArgMax(y) {axis=1}\n}",
         1},
        {"graph net(x: f32[N,12]) -> (y) {\n"
         "w: f32[12,10] = random(2)\nh = MatMul(x, w) \"up\"\n"
         "y = Cast(h) {to=10}\n}",
         1},
        {"graph net(x: f32[N,12]) -> (y) {\n"
         "w: f32[12,10] = random(2)\nh = MatMul(x, w) \"up\"\n"
         "y = ArgMax(h) {axis=1}\n}",
         0},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_quant_model *qm =
            calibrated(cases[i].net, CONFIG("3", "A: none\n"), samples());

        assert_int_equal(learn(qm, 20, 0).weights, cases[i].weights);
        sb_quant_model_free(qm);
    }
}

/* ---- shapes ------------------------------------------------------------- */

/* The first block's shape of the input is read by the second, as in a language
 * model. */
#define SHAPED                                               \
    "graph net(x: f32[N,S,12]) -> (y) {\n"                   \
    "w: f32[12,10] = random(2)\nv: f32[10,12] = random(3)\n" \
    "u: f32[12,10] = random(4)\nt: f32[10,12] = random(5)\n" \
    "flat: i64[2] = [-1, 12]\n"                              \
    "ten: i64[1] = [10]\nb = Shape(x) {end=2}\n"             \
    "c = Concat(b, ten) {axis=0}\nf = Reshape(x, flat)\n"    \
    "h = MatMul(f, w) \"up\"\nr = Relu(h) \"act\"\n"         \
    "d = MatMul(r, v) \"down\"\ne = MatMul(d, u) \"next\"\n" \
    "z = Reshape(e, c)\ny = MatMul(z, t) \"out\"\n}"

static void multiply(const double *x, int n_in, const float *w, int n_out,
                     bool relu, double *y)
{
    for (int n = 0; n < n_out; n++) {
        y[n] = 0;
        for (int k = 0; k < n_in; k++)
            y[n] += x[k] * (double)w[k * n_out + n];
        if (relu && y[n] < 0)
            y[n] = 0;
    }
}

static void run_shaped(const sb_quant_model *qm, const float *x, bool learned,
                       double *y)
{
    double in[IN], h[MID], d[IN], e[MID];

    for (int i = 0; i < IN; i++)
        in[i] = (double)x[i];
    multiply(in, IN, constant(qm, "w", learned), MID, true, h);
    multiply(h, MID, constant(qm, "v", learned), IN, false, d);
    multiply(d, IN, constant(qm, "u", learned), MID, false, e);
    multiply(e, MID, constant(qm, "t", learned), IN, false, y);
}

static void test_shapes_of_other_blocks(void **state)
{
    sb_tensor *x = test_tensor(SB_DTYPE_F32, "16x3x12", NULL);
    double noise = 0, signal = 0;

    (void)state;
    sb_tensor_randomize(x, 9);
    sb_quant_model *qm = calibrated(SHAPED, CONFIG("3", "A: none\n"), x);
    seen s = learn(qm, 100, 0);
    for (int i = 0; i < SAMPLES * 3; i++) {
        double y[IN], t[IN];

        run_shaped(qm, (const float *)x->data + i * IN, true, y);
        run_shaped(qm, (const float *)x->data + i * IN, false, t);
        for (int n = 0; n < IN; n++) {
            noise += (y[n] - t[n]) * (y[n] - t[n]);
            signal += t[n] * t[n];
        }
    }
    assert_int_equal(s.blocks, 2);
    assert_int_equal(s.weights, 4);
    assert_true(s.after < s.before);
    assert_close("after", s.after, IN * noise / signal, 1e-4 * s.after);
    sb_quant_model_free(qm);
}

/* Samples of several shapes: what depends on them is rounded to nearest. */
static void test_several_shapes(void **state)
{
    const sb_tensor *longer = test_tensor(SB_DTYPE_F32, "16x3x12", NULL);
    const sb_tensor *shorter = test_tensor(SB_DTYPE_F32, "16x2x12", NULL);
    sb_quant_model *qm = calibrated(SHAPED, CONFIG("3", "A: none\n"), longer);

    (void)state;
    for (int i = 0; i < 3; i++) /* some are set apart */
        assert_ok(sb_batch_store_take(qm->state.batches, &shorter));
    assert_int_equal(learn(qm, 5, 0).weights, 2);
    sb_quant_model_free(qm);
}

/* Weights alone need samples, too. */
static void test_samples_are_asked_for(void **state)
{
    sb_quant_model *qm =
        test_quant(NET,
                   "SCHEDULE: {BLOCKWISE: {STEPS: 5}}\nA: none\n"
                   "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 3}}\n",
                   NULL);

    (void)state;
    assert_int_equal(sb_quant_model_can_calibrate(qm), 1);
    assert_int_equal(sb_quant_model_needs_calibration(qm), 1);
    sb_quant_model_free(qm);
}

#define LEARN(how, a)                                                       \
    "SCHEDULE: {BIAS_CORRECTION: true, BLOCKWISE: {STEPS: 20, BATCH: 8" how \
    "}}\nW: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 3}}\n" a

static const sb_quant_step *find_step(const sb_quant_model *qm,
                                      const char *name)
{
    const sb_quant_step *step = NULL;

    for (size_t i = 0; (step = sb_quant_model_step(qm, i)) != NULL; i++)
        if (strcmp(step->name, name) == 0)
            return step;
    return NULL;
}

/* Biases are corrected where they are not learned. */
static void test_biases_beside(void **state)
{
    const sb_tensor *const data[] = {samples(), NULL};
    static const char *const configs[] = {LEARN("", A4),
                                          LEARN(", SCALE_RATE: 0", A4)};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(configs); i++) {
        sb_quant_model *qm = test_quant(NET, configs[i], NULL);

        test_calibrate(qm, NULL, data);
        assert_non_null(find_step(qm, "learning of blocks"));
        assert_int_equal(find_step(qm, "bias correction") != NULL, i == 1);
        sb_quant_model_free(qm);
    }
}

/* Four batches of which all but one are the same: what learns these by heart is
 * judged by the fourth, and taken back. */
static void test_judged_apart(void **state)
{
    const sb_tensor *x = samples();
    sb_tensor *other = test_tensor(SB_DTYPE_F32, "16x12", NULL);
    const sb_tensor *const data[] = {x, x, x, other, NULL};

    (void)state;
    sb_tensor_randomize(other, 31);
    for (int64_t i = 0; i < 16 * IN; i++)
        ((float *)other->data)[i] *= i % IN == 0 ? 3 : -1;
    sb_quant_model *qm = test_quant(NET, LEARN("", A4), NULL);
    test_calibrate(qm, NULL, data);
    const sb_quant_step *step = find_step(qm, "learning of blocks");
    assert_non_null(step);
    assert_false(step->kept);
    assert_true(step->after > step->before);
    assert_close("as before", step->before, error_double(qm, other->data),
                 1e-3);
    sb_quant_model_free(qm);
}

/* A batch for which there is no memory: 12 floats in and out, of each sample.
 */
static void test_batch_beyond_the_memory(void **state)
{
    sb_quant_model *qm = calibrated(NET, CONFIG("4", A4), samples());
    sb_blocks_walk w = {.qm = qm,
                        .how = sb_quant_config_schedule(qm->config).blockwise};
    size_t layers = 0;

    (void)state;
    w.how.steps = 2;
    w.how.batch = 65536;
    sb_ctx_set_max_memory(test_ctx(), sb_ctx_memory(test_ctx()) + (4 << 20));
    assert_status(sb_blocks_walk_run(&w, &layers), SB_NO_MEMORY);
    assert_error_has("SCHEDULE.BLOCKWISE.BATCH: 65536 samples");
    assert_error_has("take 6.3 MB");
    sb_ctx_set_max_memory(test_ctx(), 0);
    sb_quant_model_free(qm);
}

/* Only where blocks are learned batches are kept for the judge: of classes,
 * too, which are judged by what they are chosen from. */
static void test_who_is_judged(void **state)
{
    static const struct {
        const char *net, *config;
        bool apart;
        size_t batches;
    } cases[] = {
        {NET, LEARN("", A4), true, 2},
        {NET, LEARN("", A4), false, 1},
        {NET, LEARN("", "A: dynamic\n"), false, 2},
        {"graph net(x: f32[N,12]) -> (k) {\n"
         "w: f32[12,12] = random(2)\nv: f32[12,12] = random(3)\n"
         "u: f32[12,12] = random(4)\na = MatMul(x, w)\nb = MatMul(a, v)\n"
         "y = MatMul(b, u)\nk = ArgMax(y) {axis=1}\n}",
         LEARN("", A4), true, 2},
    };
    const sb_tensor *x = samples();

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        const sb_tensor *const data[] = {x, cases[i].batches > 1 ? x : NULL,
                                         NULL};
        sb_quant_model *qm = test_quant(cases[i].net, cases[i].config, NULL);

        qm->asked = true;
        test_calibrate(qm, NULL, data);
        assert_int_equal(qm->state.apart, cases[i].apart);
        sb_quant_model_free(qm);
    }
}

static int stop_learning(void *user, const char *stage, size_t done,
                         size_t total)
{
    (void)user;
    (void)total;
    return strcmp(stage, "learn blocks") == 0 && done >= 8;
}

/* Ended in the middle: nothing is changed, and it can be done again. */
static void test_interrupted(void **state)
{
    const sb_tensor *x = samples();
    const sb_tensor *out[1] = {0};
    sb_quant_model *qm = test_quant(NET, LEARN("", A4), NULL);

    (void)state;
    assert_ok(sb_quant_model_prepare_calibration(qm, NULL));
    assert_ok(test_quant_run(qm, &x, out));
    sb_ctx_set_progress(test_ctx(), stop_learning, NULL);
    assert_int_equal(sb_quant_model_calc_qparams(qm), SB_INTERRUPTED);
    sb_ctx_set_progress(test_ctx(), NULL, NULL);
    assert_ptr_equal(constant(qm, "w", true), constant(qm, "w", false));
    sb_quant_model_free(qm);
}

/* Weights may lie anywhere in a mapped file (the sanitizers tell). */
static void test_weights_anywhere(void **state)
{
    static char room[12 * 10 * sizeof(float) + 1];
    const sb_tensor *data[] = {samples(), NULL};
    sb_quant_model *qm = test_quant(NET, LEARN("", A4), NULL);
    sb_tensor *w =
        &sb_graph_value(qm->graph, sb_graph_find_value(qm->graph, "w"))
             ->constant;

    (void)state;
    memcpy(room + 1, w->data, sizeof room - 1);
    w->data = room + 1;
    test_calibrate(qm, NULL, data);
    assert_non_null(find_step(qm, "learning of blocks"));
    sb_quant_model_free(qm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_found),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_spilled),
        cmocka_unit_test(test_results_of_other_types),
        cmocka_unit_test(test_shapes_of_other_blocks),
        cmocka_unit_test(test_several_shapes),
        cmocka_unit_test(test_samples_are_asked_for),
        cmocka_unit_test(test_biases_beside),
        cmocka_unit_test(test_judged_apart),
        cmocka_unit_test(test_batch_beyond_the_memory),
        cmocka_unit_test(test_who_is_judged),
        cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_weights_anywhere),
    };
    return cmocka_run_group_tests_name("learn_blocks", tests, NULL, NULL);
}
