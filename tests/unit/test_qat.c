/* Training with quantizers: norms that come back and go again, scales that are
 * shared, and what is exported. */
#include <math.h>
#include <string.h>

#include "qattest.h"

#include <sparsebit/train.h>

#define LSQ(bits)                                                            \
    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: lsq, BIT: " #bits \
    "}}\nA: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: lsq, BIT: " #bits \
    "}}\n"

/* Two convolutions, one of them depthwise, and a classifier. */
static const char net[] =
    "graph net(x: f32[N,3,6,6]) -> (y) {\n"
    "    a.weight: f32[4,3,3,3] = random(1)\n"
    "    a.bias: f32[4] = random(2)\n"
    "    d.weight: f32[4,1,3,3] = random(3)\n"
    "    fc.weight: f32[5,4] = random(4)\n"
    "    fc.bias: f32[5] = random(5)\n"
    "    a = Conv(x, a.weight, a.bias) {pads=[1,1,1,1]} \"a\"\n"
    "    r = Relu(a)\n"
    "    d = Conv(r, d.weight) {group=4} \"d\"\n"
    "    s = Relu(d)\n"
    "    p = GlobalAveragePool(s)\n"
    "    f = Flatten(p)\n"
    "    y = Gemm(f, fc.weight, fc.bias) {transB=1} \"fc\"\n"
    "}\n";

enum { BATCH = 8 };

static sb_quant_model *model_of(const char *graph, const char *yaml,
                                const char *target)
{
    sb_quant_model *qm = NULL;

    assert_ok(test_quant_try_train(test_ctx(), graph, yaml, target, &qm));
    return qm;
}

static const sb_tensor *samples(void)
{
    sb_tensor *t = test_tensor(SB_DTYPE_F32, "8x3x6x6", NULL);
    uint32_t v = 9;

    for (int64_t i = 0; i < sb_tensor_count(t); i++) {
        v = v * 1664525u + 1013904223u;
        ((float *)t->data)[i] = (float)(v >> 8) / 8388608.0F - 0.7F;
    }
    return t;
}

static const sb_tensor *labels(void)
{
    sb_tensor *t = test_tensor(SB_DTYPE_I64, "8", NULL);

    for (int64_t i = 0; i < BATCH; i++)
        ((int64_t *)t->data)[i] = i * 3 % 5;
    return t;
}

static const char *frozen; /* parameters that are not learned; or NULL */

static sb_learner *learner_of(sb_quant_model *qm, sb_train_bn bn, double rate)
{
    sb_learn_options opt = SB_LEARN_OPTIONS_INIT;
    const sb_tensor *data[] = {samples(), NULL};
    sb_learner *learner = NULL;

    opt.learning_rate = rate;
    opt.freeze = &frozen;
    opt.n_freeze = frozen ? 1 : 0;
    test_calibrate(qm, NULL, data);
    assert_ok(sb_quant_model_learner(qm, &opt, bn, &learner));
    return learner;
}

/* In inference form norms that came back change nothing. */
static void check_restored(const char *yaml)
{
    const sb_tensor *x = samples(), *y[2];
    sb_quant_model *qm[2];
    sb_learner *l[2];

    for (int i = 0; i < 2; i++) {
        qm[i] = model_of(net, yaml, NULL);
        l[i] = learner_of(qm[i], i ? SB_TRAIN_BN_FOLDED : SB_TRAIN_BN_RESTORE,
                          0.1);
        assert_ok(sb_learner_eval(l[i], SB_LEARN_VALUES_LAST, &x, 1, &y[i], 1));
    }
    assert_non_null(sb_learner_find_parameter(l[0], "a.bn.gamma"));
    assert_null(sb_learner_find_parameter(l[0], "a.bias"));
    assert_null(sb_learner_find_parameter(l[1], "a.bn.gamma"));
    assert_non_null(sb_learner_find_parameter(l[1], "a.bias"));
    assert_tensor("output", y[0], y[1], 1e-5);
    for (int i = 0; i < 2; i++) {
        sb_learner_free(l[i]);
        sb_quant_model_free(qm[i]);
    }
}

static void test_restored_norms_are_identities(void **state)
{
    (void)state;
    check_restored("W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: lsq, "
                   "BIT: 8}}\nA: none\n");
    /* Weights and biases are others than those of the file. */
    check_restored("SCHEDULE: {LAYERWISE: true}\nW: {QSCHEME: "
                   "per-channel-symmetric, QUANTIZER: {TYPE: gptq, BIT: 3}}\n"
                   "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n");
}

#define ENLARGED(times, back)                                         \
    "graph net(x: f32[N,3,6,6]) -> (y) {\n"                           \
    "    a.weight: f32[4,3,3,3] = random(1)\n"                        \
    "    a.bias: f32[4] = random(2)\n"                                \
    "    times: f32[4,1,1] = " times "\n    back: f32[4,1,1] = " back \
    "\n    d.weight: f32[4,1,3,3] = random(3)\n"                      \
    "    fc.weight: f32[5,4] = random(4)\n"                           \
    "    a = Conv(x, a.weight, a.bias) {pads=[1,1,1,1]} \"a\"\n"      \
    "    m = Mul(a, times)\n"                                         \
    "    r = Relu(m)\n"                                               \
    "    b = Mul(r, back)\n"                                          \
    "    d = Conv(b, d.weight) {group=4} \"d\"\n"                     \
    "    s = Relu(d)\n"                                               \
    "    p = GlobalAveragePool(s)\n"                                  \
    "    f = Flatten(p)\n"                                            \
    "    y = Gemm(f, fc.weight) {transB=1}\n"                         \
    "}\n"

/* What folding made of the size of weights in front of a norm, which does not
 * see it, has no say in how far a step turns them. */
static void test_steps_do_not_depend_on_folded_factors(void **state)
{
    static const char *const graphs[] = {
        ENLARGED("[1, 1, 1, 1]", "[1, 1, 1, 1]"),
        ENLARGED("[16, 0.125, 2, 64]", "[0.0625, 8, 0.5, 0.015625]")};
    static const char yaml[] =
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: lsq, BIT: 4}}\n"
        "A: none\n";
    const sb_tensor *x = samples();
    const float *w[2];
    sb_quant_model *qm[2];
    sb_learner *l[2];
    double loss;

    (void)state;
    for (int i = 0; i < 2; i++) {
        qm[i] = model_of(graphs[i], yaml, NULL);
        l[i] = learner_of(qm[i], SB_TRAIN_BN_RESTORE, 0.1);
        w[i] =
            sb_tensor_data(sb_learner_find_parameter(l[i], "a.weight")->value);
    }
    for (int c = 0; c < 4; c++) {
        double squares = 0;

        for (int k = 0; k < 27; k++)
            squares += (double)w[1][c * 27 + k] * (double)w[1][c * 27 + k];
        assert_true(squares > 0.49 && squares < 2.01);
    }
    float before = w[0][0];
    for (int i = 0; i < 2; i++) {
        assert_ok(sb_learner_step(l[i], &x, 1, labels(), &loss));
        w[i] =
            sb_tensor_data(sb_learner_find_parameter(l[i], "a.weight")->value);
    }
    assert_true(fabs((double)(w[0][0] - before)) > 1e-5);
    for (int i = 0; i < 4 * 27; i++)
        assert_float_equal(w[0][i], w[1][i], 1e-6);
    for (int i = 0; i < 2; i++) {
        sb_learner_free(l[i]);
        sb_quant_model_free(qm[i]);
    }
}

static void negate(sb_learner *l, const char *name, int64_t i)
{
    const sb_parameter_info *p = sb_learner_find_parameter(l, name);
    sb_tensor *t = NULL;

    assert_non_null(p);
    assert_ok(sb_tensor_copy(test_ctx(), p->value, &t));
    ((float *)t->data)[i] *= -0.5F;
    assert_ok(sb_learner_set_parameter(l, name, t));
    sb_tensor_free(t);
}

/* The model that took over what was learned computes it, and so does the file
 * that it exports; for runtimes up to a step of the output, since biases are
 * integers there, and a value between two steps may fall to the other side. */
static void check_taken_of(const char *graph, const char *yaml,
                           const char *target, sb_train_bn bn)
{
    const sb_tensor *x = samples(), *want, *got;
    sb_quant_model *qm = model_of(graph, yaml, target);
    sb_learner *l = learner_of(qm, bn, 0.05);
    sb_model *exported = NULL;
    sb_session *session = NULL;
    double loss = 0, first = 0;

    for (int i = 0; i < 12; i++) {
        assert_ok(sb_learner_step(l, &x, 1, labels(), &loss));
        first = i ? first : loss;
    }
    assert_true(loss < first);
    if (bn == SB_TRAIN_BN_RESTORE)
        negate(l, "d.bn.gamma", 1); /* the sign goes into the weights */
    assert_ok(sb_learner_eval(l, SB_LEARN_VALUES_LAST, &x, 1, &want, 1));
    for (int twice = 0; twice < 2; twice++)
        assert_ok(sb_quant_model_take(qm, l, SB_LEARN_VALUES_LAST));
    sb_quant_model_set_quant(qm, 1, 1);
    assert_ok(sb_quant_model_forward(qm, &x, 1, &got, 1));
    assert_tensor(yaml, got, want, 1e-4);
    assert_ok(sb_quant_model_export_model(qm, NULL, &exported));
    assert_ok(sb_session_create(exported, NULL, &session));
    assert_ok(sb_session_run(session, &x, 1, &got, 1));
    assert_tensor(target ? target : yaml, got, want, target ? 0.015 : 1e-4);
    sb_session_free(session);
    sb_model_free(exported);
    sb_learner_free(l);
    sb_quant_model_free(qm);
}

/* Output channels of a grouped transposed convolution share rows of its
 * weights, so it has no norm, and others have. */
static void test_rows_that_channels_share(void **state)
{
    static const char graph[] =
        "graph net(x: f32[N,3,6,6]) -> (y) {\n"
        "    t.weight: f32[3,2,3,3] = random(1)\n"
        "    t.bias: f32[6] = random(2)\n"
        "    d.weight: f32[6,1,3,3] = random(3)\n"
        "    fc.weight: f32[5,6] = random(4)\n"
        "    t = ConvTranspose(x, t.weight, t.bias) {group=3} \"t\"\n"
        "    r = Relu(t)\n"
        "    d = Conv(r, d.weight) {group=6} \"d\"\n"
        "    s = Relu(d)\n"
        "    p = GlobalAveragePool(s)\n"
        "    f = Flatten(p)\n"
        "    y = Gemm(f, fc.weight) {transB=1} \"fc\"\n"
        "}\n";

    (void)state;
    check_taken_of(
        graph,
        "W:\n  QSCHEME: per-channel-symmetric\n"
        "  QUANTIZER: {TYPE: lsq, BIT: 8}\n"
        "  SPECIFIC: {t: [QUANTIZER.DISABLE, true]}\n"
        "A: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: lsq, BIT: "
        "8}}\n",
        NULL, SB_TRAIN_BN_RESTORE);
}

static void check_taken(const char *yaml, const char *target, sb_train_bn bn)
{
    check_taken_of(net, yaml, target, bn);
}

#define DOREFA                                                                 \
    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: dorefa, BIT: 4}}\n" \
    "A: none\n"

/* Norms and mappings find frozen weights as they were, a second time, too. */
static void test_frozen_weights_are_taken_twice(void **state)
{
    (void)state;
    frozen = "*.weight";
    check_taken(LSQ(4), NULL, SB_TRAIN_BN_RESTORE);
    check_taken(DOREFA, NULL, SB_TRAIN_BN_FOLDED);
    frozen = NULL;
}

static void test_a_weight_of_two_layers_is_mapped_once(void **state)
{
    static const char graph[] = "graph net(x: f32[N,3,6,6]) -> (y) {\n"
                                "    w: f32[3,3,1,1] = random(1)\n"
                                "    fc: f32[5,3] = random(2)\n"
                                "    a = Conv(x, w) \"a\"\n"
                                "    r = Relu(a)\n"
                                "    b = Conv(r, w) \"b\"\n"
                                "    g = GlobalAveragePool(b)\n"
                                "    f = Flatten(g)\n"
                                "    y = Gemm(f, fc) {transB=1} \"fc\"\n"
                                "}\n";

    (void)state;
    check_taken_of(graph, DOREFA, NULL, SB_TRAIN_BN_FOLDED);
}

static void test_what_was_learned_is_exported(void **state)
{
    static const char *const configs[] = {
        LSQ(8),
        LSQ(4),
        LSQ(2),
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: lsq+, BIT: 4}}\n"
        "A: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: lsq+, BIT: 4}}\n",
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: dorefa, BIT: "
        "4}}\nA: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: dorefa, BIT: "
        "6}}\n",
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 4}}\n"
        "A: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: pact, BIT: 4}}\n",
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\nA: none\n",
        "W: {QSCHEME: per-channel-affine, QUANTIZER: {BIT: 6}}\nA: none\n",
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(configs); i++) {
        check_taken(configs[i], NULL, SB_TRAIN_BN_RESTORE);
        check_taken(configs[i], NULL, SB_TRAIN_BN_FOLDED);
    }
    check_taken(LSQ(8), "onnxruntime-x86", SB_TRAIN_BN_RESTORE);
    check_taken("W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: dorefa, "
                "BIT: 8}}\n" TEST_A8,
                "onnxruntime-x86", SB_TRAIN_BN_RESTORE);
    check_taken(LSQ(8), "openvino", SB_TRAIN_BN_FOLDED);
}

static const char concat_net[] = "graph net(x: f32[N,3,6,6]) -> (y) {\n"
                                 "    a: f32[2,3,1,1] = random(1)\n"
                                 "    b: f32[2,3,1,1] = random(2)\n"
                                 "    c: f32[5,4,1,1] = random(3)\n"
                                 "    m: f32[5,5] = random(4)\n"
                                 "    p = Conv(x, a) \"a\"\n"
                                 "    q = Conv(x, b) \"b\"\n"
                                 "    k = Concat(p, q) {axis=1} \"k\"\n"
                                 "    e = Conv(k, c) \"c\"\n"
                                 "    g = GlobalAveragePool(e)\n"
                                 "    f = Flatten(g)\n"
                                 "    s = Softmax(f)\n"
                                 "    y = MatMul(s, m) \"m\"\n"
                                 "}\n";

/* Inputs of a Concat take the scale of its result: one parameter.  The range
 * of a Softmax is known: none. */
static void test_shared_and_fixed_scales(void **state)
{
    sb_quant_model *qm = model_of(concat_net, LSQ(8), "onnxruntime-x86");
    sb_learner *l = learner_of(qm, SB_TRAIN_BN_AUTO, 0.01);
    size_t scales = 0;

    (void)state;
    for (size_t i = 0; i < sb_learner_parameter_count(l); i++) {
        const sb_parameter_info *p = sb_learner_parameter(l, i);

        if (p->role != SB_PARAMETER_ROLE_SCALE)
            continue;
        assert_close("decay", p->decay, 0, 0);
        scales++;
    }
    /* x, the result of Concat (with p and q), e, g or f, and four weights;
     * Softmax has none. */
    size_t own = 0;
    for (uint32_t i = 0; i < qm->place.n_points; i++)
        own += qm->place.points[i].same_as == i &&
               !qm->place.points[i].natural && sb_qat_training(qm, i) != NULL;
    assert_int_equal(scales, own);
    assert_true(own < qm->place.n_points);
    for (size_t i = 0; i < sb_quant_model_quantizer_count(qm); i++) {
        const sb_quantizer *q = &qm->place.quantizers[i];
        char name[160];

        (void)snprintf(name, sizeof name, "%s.scale", q->name);
        if (qm->place.points[q->point].natural)
            assert_null(sb_learner_find_parameter(l, name));
    }
    sb_learner_free(l);
    sb_quant_model_free(qm);
}

#define SPECIFIC(rules)                                                        \
    TEST_W8 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: lsq, BIT: 8}, " \
            "SPECIFIC: [{" rules "}]}\n"

/* Inputs of a Concat take its scale, and so its TYPE, which is that of the
 * layer behind it; not with another mapping, and not from one that is off. */
static void test_a_shared_scale_of_another_type(void **state)
{
    static const struct {
        const char *yaml, *refusal;
        bool learned;
    } cases[] = {
        {SPECIFIC("k: [QUANTIZER.TYPE, uniform]"), NULL, true},
        {SPECIFIC("c: [QUANTIZER.TYPE, uniform]"), NULL, false},
        {SPECIFIC("c: [QUANTIZER.TYPE, dorefa]"),
         "quantizer 'a.output_quantizer' of TYPE lsq has the scale of "
         "'k.output_quantizer' of TYPE dorefa",
         false},
    };
    const sb_tensor *data[] = {samples(), NULL};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_quant_model *qm =
            model_of(concat_net, cases[i].yaml, "onnxruntime-x86");
        sb_learner *l = NULL;

        test_calibrate(qm, NULL, data);
        sb_status status =
            sb_quant_model_learner(qm, NULL, SB_TRAIN_BN_AUTO, &l);
        if (cases[i].refusal) {
            assert_status(status, SB_UNSUPPORTED);
            assert_error_has(cases[i].refusal);
        } else {
            assert_ok(status);
            assert_true(cases[i].learned ==
                        (sb_learner_find_parameter(
                             l, "k.output_quantizer.scale") != NULL));
        }
        sb_learner_free(l);
        sb_quant_model_free(qm);
    }
}

/* ---- integer biases ----------------------------------------------------- */

static void set_all(sb_learner *l, const char *name, double v)
{
    const sb_parameter_info *p = sb_learner_find_parameter(l, name);
    sb_tensor *t = NULL;

    assert_non_null(p);
    assert_ok(sb_tensor_copy(test_ctx(), p->value, &t));
    for (int64_t i = 0; i < sb_tensor_count(t); i++)
        ((float *)t->data)[i] = (float)v;
    assert_ok(sb_learner_set_parameter(l, name, t));
    sb_tensor_free(t);
}

/* By hand: a bias of 0.3, and input and weight steps of 0.5 and 0.25.  In steps
 * of 0.125 it is 0.25; behind a norm of factor 2 in steps of 0.25 as well.  The
 * network adds that while it is trained, for a runtime that does; its gradient
 * is that of the bias. */
static void test_biases_are_integers_while_training(void **state)
{
    static const char graph[] = "graph net(x: f32[N,3,6,6]) -> (y) {\n"
                                "    w: f32[5,3,1,1] = random(1)\n"
                                "    b: f32[5] = 0.3\n"
                                "    a = Conv(x, w, b) \"a\"\n"
                                "    r = Relu(a)\n"
                                "    g = GlobalMaxPool(r)\n"
                                "    y = Flatten(g)\n"
                                "}\n";
    static const struct {
        const char *target;
        sb_train_bn bn;
        double want;
    } cases[] = {
        {"onnxruntime-x86", SB_TRAIN_BN_FOLDED, 0.25},
        {"onnxruntime-x86", SB_TRAIN_BN_RESTORE, 0.25},
        {"openvino", SB_TRAIN_BN_FOLDED, 0.3},
        {"openvino", SB_TRAIN_BN_RESTORE, 0.3},
    };
    sb_tensor *x = test_tensor(SB_DTYPE_F32, "8x3x6x6", NULL);
    const sb_tensor *in = x, *y;

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_quant_model *qm = model_of(graph, LSQ(8), cases[i].target);
        sb_learner *l = learner_of(qm, cases[i].bn, 0.1);
        bool norm = cases[i].bn == SB_TRAIN_BN_RESTORE;

        set_all(l, "x.input_quantizer.scale", 0.5);
        if (sb_learner_find_parameter(l, "r.output_quantizer.scale"))
            set_all(l, "r.output_quantizer.scale", 1.0 / 256);
        set_all(l, "a.weight_quantizer.scale", 0.25);
        set_all(l, norm ? "a.bn.beta" : "b", norm ? 0.5 : 0.3);
        if (norm) {
            set_all(l, "a.bn.gamma", 2);
            set_all(l, "a.bn.mean", 0.1);
            set_all(l, "a.bn.var", 1);
        }
        assert_ok(sb_learner_eval(l, SB_LEARN_VALUES_LAST, &in, 1, &y, 1));
        for (int64_t k = 0; k < sb_tensor_count(y); k++)
            assert_close(cases[i].target, sb_tensor_get_f64(y, k),
                         cases[i].want, 0.005);
        sb_learner_free(l);
        sb_quant_model_free(qm);
    }
}

/* ---- Relu and Clip that are left to rounding ---------------------------- */

/* ONNX Runtime drops a Clip to [0, 6] if integers reach from 0 to 6 at most: a
 * scale of at most 6 / 255 and a zero point of 0, whatever is learned.  Where
 * the Clip stays, all may be learned. */
static void test_ranges_stay_within_a_clip(void **state)
{
    static const char graph[] = "graph net(x: f32[N,3,6,6]) -> (y) {\n"
                                "    w: f32[5,3,1,1] = random(1)\n"
                                "    b: f32[5] = random(2)\n"
                                "    lo: f32[] = 0\n"
                                "    hi: f32[] = 6\n"
                                "    a = Conv(x, w, b) \"a\"\n"
                                "    r = Clip(a, lo, hi) \"r\"\n"
                                "    g = GlobalAveragePool(r)\n"
                                "    y = Flatten(g)\n"
                                "}\n";
    static const struct {
        const char *yaml, *learned;
        double scale; /* if 1 was learned */
    } cases[] = {
        {LSQ(8), "scale", 1},
        {TEST_W8 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: lsq+, BIT: "
                 "8}}\n",
         "scale", 1},
        {TEST_W8 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: pact, BIT: "
                 "8}}\n",
         "alpha", 1.0 / 255},
    };

    (void)state;
    for (size_t i = 0; i < 2 * SB_COUNT(cases); i++) {
        bool dropped = i % 2;
        sb_quant_model *qm = model_of(graph, cases[i / 2].yaml,
                                      dropped ? "onnxruntime-x86" : NULL);
        sb_learner *l = learner_of(qm, SB_TRAIN_BN_FOLDED, 0.1);
        const char *point =
            dropped ? "r.output_quantizer" : "g.input_quantizer";
        char name[64];

        (void)snprintf(name, sizeof name, "%s.%s", point, cases[i / 2].learned);
        set_all(l, name, dropped ? 1000 : 1);
        assert_ok(sb_quant_model_take(qm, l, SB_LEARN_VALUES_LAST));
        for (size_t k = 0; k < sb_quant_model_quantizer_count(qm); k++) {
            const sb_quantizer *q = &qm->place.quantizers[k];
            const sb_qparams *p = sb_quantizer_qparams(qm, q);

            if (strcmp(q->name, point) != 0)
                continue;
            assert_close(q->name, (double)p->scale[0],
                         dropped ? 6.0 / 255 : cases[i / 2].scale, 1e-6);
            assert_close("zero point", (double)p->zero_point[0], 0, 0);
        }
        sb_learner_free(l);
        sb_quant_model_free(qm);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restored_norms_are_identities),
        cmocka_unit_test(test_steps_do_not_depend_on_folded_factors),
        cmocka_unit_test(test_what_was_learned_is_exported),
        cmocka_unit_test(test_rows_that_channels_share),
        cmocka_unit_test(test_biases_are_integers_while_training),
        cmocka_unit_test(test_ranges_stay_within_a_clip),
        cmocka_unit_test(test_frozen_weights_are_taken_twice),
        cmocka_unit_test(test_a_weight_of_two_layers_is_mapped_once),
        cmocka_unit_test(test_shared_and_fixed_scales),
        cmocka_unit_test(test_a_shared_scale_of_another_type),
    };

    return cmocka_run_group_tests_name("qat", tests, NULL, NULL);
}
