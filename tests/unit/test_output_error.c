/* How far outputs are from those of the float network, against sums by hand;
 * when errors have clearly fallen; which batches judge. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "quant/calibrate/replay.h"
#include "quant/correct/correct.h"
#include "quanttest.h"

/* ---- one output --------------------------------------------------------- */

static double error_of(const sb_tensor *want, const sb_tensor *got,
                       sb_output_form *f)
{
    assert_int_equal(sb_output_form_see(test_ctx(), want, f), SB_OK);
    assert_true(f->counts);
    sb_output_form_count(f, want);
    double level = 0, error = sb_output_form_error(
                          f, want, got, 0, sb_tensor_count(want), 1, &level);
    assert_close("all of the signal", level, 1, 1e-12);
    sb_output_form_free(test_ctx(), f);
    return error;
}

/* Logarithms of three classes, weighted by cube roots: the variance is the sum
 * over pairs of w w' (difference)^2. */
static double pairs_of(const double *w, double a, double b, double c)
{
    return w[0] * w[1] * (a - b) * (a - b) + w[0] * w[2] * (a - c) * (a - c) +
           w[1] * w[2] * (b - c) * (b - c);
}

static void test_probabilities(void **state)
{
    const sb_tensor *want = test_f32("1x3", 0.125, 0.75, 0.125);
    const sb_tensor *got = test_f32("1x3", 0.125, 0.625, 0.25);
    const double w[] = {0.5, pow(0.75, 1.0 / 3), 0.5};
    sb_output_form f = {0};

    (void)state;
    double error = error_of(want, got, &f);
    assert_true(f.probability);
    assert_close("chances", error,
                 pairs_of(w, 0, log(0.625 / 0.75), log(2)) /
                     pairs_of(w, log(0.125), log(0.75), log(0.125)),
                 1e-6);
}

/* What all logarithms have in common is no error; a class that got lost is. */
static void test_lost_probability(void **state)
{
    const sb_tensor *want = test_f32("1x3", 0.25, 0.5, 0.25);
    const sb_tensor *half = test_f32("1x3", 0.125, 0.25, 0.125);
    const sb_tensor *lost = test_f32("1x3", 0.25, NAN, 0.25);
    sb_output_form f = {0}, again = {0};

    (void)state;
    assert_close("in common", error_of(want, half, &f), 0, 1e-12);
    assert_true(isinf(error_of(want, lost, &again)));
}

/* Two channels of four numbers: 100 (noise 8^2 of 4 x 100^2) and 1 (noise
 * 0.5^2 of 4); weights are 200 and 2. */
static void test_parts(void **state)
{
    const sb_tensor *want = test_f32("1x2x4", 100, 100, 100, -100, 1, -1, 1, 1);
    const sb_tensor *got =
        test_f32("1x2x4", 100, 108, 100, -100, 1, -1, 0.5, 1);
    sb_output_form f = {0};

    (void)state;
    double error = error_of(want, got, &f);
    assert_false(f.probability);
    assert_int_equal(f.parts, 2);
    assert_close("parts", error, (200 * (64.0 / 40000) + 2 * (0.25 / 4)) / 202,
                 1e-9);
}

/* Numbers of a vector are one part: (0.5^2 + 1^2) / (1 + 4 + 4). */
static void test_vector(void **state)
{
    const sb_tensor *want = test_f32("1x3", 1, -2, 2);
    const sb_tensor *got = test_f32("1x3", 1.5, -2, 3);
    sb_output_form f = {0};

    (void)state;
    assert_close("vector", error_of(want, got, &f), 1.25 / 9, 1e-9);
}

/* The same of other types of floats, in which these numbers are exact. */
static void test_other_floats(void **state)
{
    static const sb_dtype all[] = {SB_DTYPE_F16, SB_DTYPE_BF16, SB_DTYPE_F64};
    const double want[] = {100, 100, 100, -100, 1, -1, 1, 1};
    const double got[] = {100, 108, 100, -100, 1, -1, 0.5, 1};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(all); i++) {
        const sb_tensor *a = test_tensor(all[i], "1x2x4", want);
        const sb_tensor *b = test_tensor(all[i], "1x2x4", got);
        sb_output_form f = {0};

        assert_close("parts", error_of(a, b, &f),
                     (200 * (64.0 / 40000) + 2 * (0.25 / 4)) / 202, 1e-9);
        assert_int_equal(f.parts, 2);
    }
    assert_false(sb_output_form_takes(SB_DTYPE_I64));
}

/* The second of two samples, behind a batch that was smaller. */
static void test_half_samples(void **state)
{
    const sb_tensor *one =
        test_tensor(SB_DTYPE_F16, "1x3", (const double[]){1, -2, 2});
    const sb_tensor *want =
        test_tensor(SB_DTYPE_F16, "2x3", (const double[]){8, 8, 8, 1, -2, 2});
    const sb_tensor *got =
        test_tensor(SB_DTYPE_F16, "2x3", (const double[]){0, 0, 0, 1.5, -2, 3});
    sb_output_form f = {0};
    double level = 0;

    (void)state;
    assert_ok(sb_output_form_see(test_ctx(), one, &f));
    assert_ok(sb_output_form_see(test_ctx(), want, &f));
    sb_output_form_count(&f, one);
    assert_close("second", sb_output_form_error(&f, want, got, 3, 3, 1, &level),
                 1.25 / 9, 1e-9);
    assert_close("level", level, 1, 1e-9);
    sb_output_form_free(test_ctx(), &f);
}

/* 0.998 is 1 in bfloat16: a row may have a sum of 1.002. */
static void test_half_probabilities(void **state)
{
    static const sb_dtype all[] = {SB_DTYPE_F16, SB_DTYPE_BF16};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(all); i++) {
        const sb_tensor *t =
            test_tensor(all[i], "1x2", (const double[]){0.998, 0.002});
        sb_output_form f = {0};

        assert_ok(sb_output_form_see(test_ctx(), t, &f));
        assert_true(f.probability);
        sb_output_form_free(test_ctx(), &f);
    }
}

/* The least numbers of float16 have no digits: one that became zero is no
 * error, as it is in float32. */
static void test_least_probability(void **state)
{
    const double want[] = {0.5, 0.5, 0x1p-24}, got[] = {0.5, 0.5, 0};
    sb_output_form f = {0}, again = {0};

    (void)state;
    assert_true(error_of(test_tensor(SB_DTYPE_F32, "1x3", want),
                         test_tensor(SB_DTYPE_F32, "1x3", got), &f) > 0.01);
    assert_close("float16",
                 error_of(test_tensor(SB_DTYPE_F16, "1x3", want),
                          test_tensor(SB_DTYPE_F16, "1x3", got), &again),
                 0, 1e-12);
}

/* A tenth of the median; of the mean where most have none. */
static void test_least_signal(void **state)
{
    double some[] = {7, 100, 3}, none[] = {0, 30, 0};

    (void)state;
    assert_close("median", sb_least_signal(some, 3), 0.7, 1e-12);
    assert_close("mean", sb_least_signal(none, 3), 1, 1e-12);
    assert_true(sb_least_signal(none, 0) > 0);
}

/* ---- all samples -------------------------------------------------------- */

static void test_fell(void **state)
{
    const double before[] = {1, 2, 3, 4}, same[] = {1, 2, 3, 4};
    const double half[] = {0.5, 1, 1.5, 2}, little[] = {0.99, 1.98, 2.97, 3.96};
    /* Less on average, but only one sample gains. */
    const double lucky[] = {1.1, 2.2, 3.3, 2};
    /* With 0.25 added on both sides the logarithms are -0.1, -0.3, -0.1 and
     * -0.3: -0.2 on average, sure to 0.058. */
    const double some[] = {0.881047, 1.416841, 2.690721, 2.898477};

    (void)state;
    assert_close("mean", sb_errors_mean(before, 4), 2.5, 1e-12);
    assert_true(sb_errors_fell(before, half, 4, 1));
    assert_false(sb_errors_fell(before, same, 4, 1));
    assert_false(sb_errors_fell(half, before, 4, 1));
    assert_false(sb_errors_fell(before, little, 4, 1));
    assert_true(sb_errors_mean(lucky, 4) < sb_errors_mean(before, 4));
    assert_false(sb_errors_fell(before, lucky, 4, 1));
    assert_true(sb_errors_fell(before, some, 4, 3.4));
    assert_false(sb_errors_fell(before, some, 4, 3.6));
    /* What only must not hurt. */
    assert_true(sb_errors_fell(before, little, 4, 0));
    assert_false(sb_errors_fell(before, same, 4, 0));
    assert_true(sb_errors_fell(before, lucky, 4, 0));
    /* Two samples cannot tell more than that. */
    assert_true(sb_errors_fell(before, half, 2, 0));
    assert_false(sb_errors_fell(before, half, 2, 1));
    assert_true(sb_errors_fell(before, half, 3, 1));
}

/* Only what further samples will not turn round ends the comparison. */
static void test_rose(void **state)
{
    const double before[] = {1, 2, 3, 4, 5, 1, 2, 3, 4, 5};
    const double twice[] = {2, 4, 6, 8, 10, 2, 4, 6, 8, 10};
    const double half[] = {0.5, 1, 1.5, 2, 2.5, 0.5, 1, 1.5, 2, 2.5};
    /* By 0.3, the mean of before[0..4], more on both sides the logarithms are
     * 0.1, -0.1, 0.3, -0.1, 0.1: 0.06 on average, sure to 0.075. */
    const double either[] = {1.136722, 1.781126, 4.154534, 3.590799, 5.557406};
    /* 0.2, 0.1, 0.3, 0.2, 0.2: 0.2, sure to 0.032. */
    const double more[] = {1.287824, 2.241893, 4.154534, 4.952032, 6.173435};
    /* As sure as can be, and next to nothing. */
    const double hardly[] = {1.000001, 2.000002, 3.000003, 4.000004};

    (void)state;
    assert_true(sb_errors_rose(before, twice, 5));
    assert_true(sb_errors_rose(before, twice, 4));
    assert_false(sb_errors_rose(before, twice, 3)); /* too few */
    assert_false(sb_errors_rose(before, half, 10));
    assert_false(sb_errors_rose(before, before, 10));
    assert_false(sb_errors_rose(before, either, 5));
    assert_true(sb_errors_rose(before, more, 5));
    assert_false(sb_errors_rose(before, hardly, 4));
}

/* An overflow that is mended counts, whatever is broken still; a new one counts
 * against it. */
static void test_not_finite(void **state)
{
    const double inf = (double)INFINITY;
    const double before[] = {inf, 2, inf, 4}, mended[] = {1, 2, 3, 4};
    const double one[] = {1, 2, inf, 4}, half[] = {inf, 1, inf, 2};
    const double other[] = {1, inf, inf, 2}, lost[] = {inf, inf, inf, inf};
    const double nan[] = {(double)NAN, 2, (double)NAN, 4};

    (void)state;
    assert_true(sb_errors_fell(before, mended, 4, 0));
    assert_true(sb_errors_fell(before, mended, 4, 1));
    assert_true(sb_errors_fell(nan, mended, 4, 1));
    assert_true(sb_errors_fell(before, one, 4, 0));
    assert_true(sb_errors_fell(before, half, 4, 0));
    assert_false(sb_errors_fell(before, before, 4, 0));
    assert_false(sb_errors_fell(half, before, 4, 0));
    assert_false(sb_errors_fell(mended, one, 4, 0));
    assert_true(sb_errors_fell(before, other, 4, 0)); /* by what is whole */
    assert_false(sb_errors_fell(other, before, 4, 0));
    assert_true(sb_errors_rose(mended, lost, 4));
    assert_false(sb_errors_rose(before, mended, 4));
}

/* Samples with hardly any error do not outvote those that make it. */
static void test_small(void **state)
{
    const double before[] = {1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 0.2, 0.3, 0.1};
    const double after[] = {2e-6, 2e-6, 2e-6, 2e-6, 2e-6, 0.05, 0.1, 0.04};

    (void)state;
    assert_true(sb_errors_fell(before, after, 8, 1));
    assert_false(sb_errors_fell(after, before, 8, 0));
}

/* ---- batches ------------------------------------------------------------ */

/* A mark for each batch: what it is for. */
static sb_quant_model *marks(bool asked, bool apart, size_t n, char *out)
{
    sb_quant_model *qm = test_quant(
        "graph main(x: f32[N,2]) -> (y) {\n"
        "w: f32[2,2] = [1, 0.5, -0.25, 1]\ny = MatMul(x, w) \"m\"\n}",
        "SCHEDULE: {BIAS_CORRECTION: true, SAMPLES: 12}\n"
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n" TEST_A8,
        NULL);
    const sb_tensor *x = test_random(SB_DTYPE_F32, "4x2", 1);

    qm->asked = asked;
    qm->state.apart = apart;
    assert_int_equal(sb_quant_model_prepare_calibration(qm, NULL), SB_OK);
    for (size_t i = 0; i < n; i++)
        (void)test_quant_forward(qm, x);
    for (size_t i = 0; i < n; i++) {
        bool used = sb_replay_is_for(qm, SB_REPLAY_USED, i);
        bool judges = sb_replay_is_for(qm, SB_REPLAY_JUDGED, i);

        bool wide = sb_replay_is_for(qm, SB_REPLAY_WIDE, i);

        assert_true(!(used || wide) || sb_replay_is_for(qm, SB_REPLAY_SEEN, i));
        assert_int_equal(wide, !sb_replay_is_for(qm, SB_REPLAY_REST, i));
        out[i] = (char)(used && judges ? 'b' : used ? 'u' : judges ? 'j' : '.');
    }
    out[n] = '\0';
    return qm;
}

static void check_marks(bool asked, bool apart, const char *want)
{
    char found[16];
    size_t n = strlen(want), used = 0;
    sb_quant_model *qm = marks(asked, apart, n, found);

    assert_string_equal(found, want);
    for (size_t i = 0; i < n; i++)
        used += want[i] == 'u' || want[i] == 'b';
    assert_int_equal(sb_replay_batches(qm), used);
    assert_int_equal(sb_replay_judges_apart(qm), !asked || apart);
    sb_quant_model_free(qm);
}

/* 4 of 10 batches hold the 16 samples that judge, 3 the 12 that are used; of
 * those for blocks that are learned a quarter judges, if there are two. */
static void test_batches(void **state)
{
    (void)state;
    check_marks(false, false, ".uj.ju.juj");
    check_marks(true, false, "..juj.uj.b");
    check_marks(true, true, "uuuj");
    check_marks(true, true, "uuj");
    check_marks(true, true, "uj");
}

/* An eighth judges, of 16 to 32 samples in batches of 4: of 160 samples 20, of
 * 400 no more than 32; 16 where a configuration has decided. */
static void test_many_batches(void **state)
{
    static const struct {
        bool asked;
        size_t n, want;
    } cases[] = {
        {false, 20, 4}, {false, 40, 5}, {false, 100, 8}, {true, 100, 4}};
    char found[101];

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        size_t judge = 0;

        sb_quant_model_free(marks(cases[i].asked, false, cases[i].n, found));
        for (size_t k = 0; k < cases[i].n; k++)
            judge += found[k] == 'j' || found[k] == 'b';
        assert_int_equal(judge, cases[i].want);
    }
}

/* A journal is for language models: nobody compares their outputs, which are
 * large. */
static void test_outputs_are_kept(void **state)
{
    (void)state;
    for (int language = 0; language < 2; language++) {
        sb_calibration_options opt = SB_CALIBRATION_OPTIONS_INIT;
        sb_quant_model *qm = test_quant(
            "graph main(x: f32[N,2]) -> (y) {\n"
            "w: f32[2,2] = [1, 0.5, -0.25, 1]\ny = MatMul(x, w) \"m\"\n}",
            "W: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: gptq, BIT: "
            "4}}\nA: none\n",
            NULL);

        qm->asked = true;
        opt.journal = language ? "rounding" : NULL;
        assert_ok(sb_quant_model_prepare_calibration(qm, &opt));
        assert_non_null(qm->state.batches);
        assert_int_equal(qm->state.outputs == NULL, language);
        sb_quant_model_free(qm);
    }
}

/* ---- what cannot be written ---------------------------------------------- */

static int count_exports(void *user, const char *stage, size_t done,
                         size_t total)
{
    (void)done;
    (void)total;
    *(int *)user += strcmp(stage, "export") == 0;
    return 0;
}

/* A scale that is no number refuses the step that made it, and ends nothing;
 * who waits for calibration is told of no files. */
static void test_scale_of_no_file(void **state)
{
    const sb_tensor *x = test_random(SB_DTYPE_F32, "4x2", 1);
    double before[4], after[4];
    sb_quant_model *qm = NULL;
    sb_reference r = {0};
    size_t seen = 0;
    int exports = 0;

    (void)state;
    /* To be trained: its batches are kept. */
    assert_ok(test_quant_try_train(
        test_ctx(),
        "graph main(x: f32[N,2]) -> (y) {\n"
        "w: f32[2,2] = [1, 0.5, -0.25, 1]\nb: f32[2] = [0.5, 1]\n"
        "y = Gemm(x, w, b) \"m\"\n}",
        TEST_W8 TEST_A8, "onnxruntime-x86", &qm));
    test_calibrate(qm, NULL, (const sb_tensor *[]){x, NULL});
    assert_ok(sb_reference_open(qm, &r));
    assert_int_equal(r.n_samples, 4);
    sb_ctx_set_progress(test_ctx(), count_exports, &exports);
    assert_ok(sb_reference_errors(&r, NULL, 1, before, &seen));
    sb_ctx_set_progress(test_ctx(), NULL, NULL);
    assert_int_equal(seen, 4);
    assert_int_equal(exports, 0);
    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        float *scale =
            sb_quantizer_state_of(qm, &qm->place.quantizers[i])->qparams.scale;
        const float was = scale[0];

        for (int k = 0; k < 3; k++) {
            scale[0] = k == 0 ? INFINITY : k == 1 ? NAN : 0;
            assert_ok(sb_reference_errors(&r, before, 1, after, &seen));
            assert_int_equal(seen, 4);
            assert_false(sb_errors_fell(before, after, seen, 0));
            assert_true(sb_errors_fell(after, before, seen, 0));
        }
        scale[0] = was;
    }
    assert_ok(sb_reference_errors(&r, NULL, 1, after, &seen));
    assert_memory_equal(before, after, sizeof before);
    sb_reference_close(&r);
    sb_quant_model_free(qm);
}

/* Noise is relative to a sample's own signal, but to a tenth of the median one
 * where it has next to none.  y = x but for 4 in 1000, which the weight loses;
 * 8 bits for -128 to 127: 0.4 is lost. */
static void test_own_signal(void **state)
{
    const sb_tensor *x =
        test_f32("5x2", -128, 0, 127, 0, 0.4, 0.4, 126, 1, 40, 0.4);
    double errors[5];
    sb_quant_model *qm = NULL;
    sb_reference r = {0};
    size_t seen = 0;

    (void)state;
    assert_ok(test_quant_try_train(test_ctx(),
                                   "graph main(x: f32[N,2]) -> (y) {\n"
                                   "w: f32[2,2] = [1, 0, 0, 1]\n"
                                   "y = MatMul(x, w) \"m\"\n}",
                                   TEST_W8 TEST_A8, NULL, &qm));
    test_calibrate(qm, NULL, (const sb_tensor *[]){x, NULL});
    assert_ok(sb_reference_open(qm, &r));
    assert_ok(sb_reference_errors(&r, NULL, 1, errors, &seen));
    assert_int_equal(seen, 5);
    assert_close("none", errors[0], 0, 2e-5);
    assert_close("none", errors[1], 0, 2e-5);
    assert_close("least", errors[2], 2 * 0.16 / (0.1 * 15877), 2e-5);
    assert_close("none", errors[3], 0, 2e-5);
    assert_close("own", errors[4], 0.16 / 1600.16, 2e-5);
    sb_reference_close(&r);
    sb_quant_model_free(qm);
}

/* Errors of the two samples [-128, 0] and [127, 0.4], of which the weight loses
 * 0.4. */
static void errors_of_tail(const char *tail, double *errors)
{
    const sb_tensor *x = test_f32("2x2", -128, 0, 127, 0.4);
    char text[512];
    sb_quant_model *qm = NULL;
    sb_reference r = {0};
    size_t seen = 0;

    (void)snprintf(text, sizeof text,
                   "graph main(x: f32[N,2]) -> (z) {\n"
                   "w: f32[2,2] = [1, 0, 0, 1]\n"
                   "least: f32[] = 0.25\nall: i64[1] = [-1]\n"
                   "y = MatMul(x, w) \"m\"\n%s}",
                   tail);
    assert_ok(
        test_quant_try_train(test_ctx(), text, TEST_W8 TEST_A8, NULL, &qm));
    test_calibrate(qm, NULL, (const sb_tensor *[]){x, NULL});
    assert_ok(sb_reference_open(qm, &r));
    assert_ok(sb_reference_errors(&r, NULL, 1, errors, &seen));
    assert_int_equal(seen, 2);
    assert_int_equal(qm->graph->n_outputs, 1);
    assert_string_equal(sb_graph_value(qm->graph, qm->graph->outputs[0])->name,
                        "z"); /* it still makes what it made */
    sb_reference_close(&r);
    sb_quant_model_free(qm);
}

/* What is above 0.25, classes, places that are not 0: what they are computed
 * from is compared instead. */
static void test_judged_before(void **state)
{
    static const char *const tails[] = {
        "g = Greater(y, least)\nc = Reshape(g, all)\nz = Compress(y, c)\n",
        "z = ArgMax(y) {axis=1}\n",
        "s = Reshape(y, all)\nz = NonZero(s)\n",
    };
    const double weight = pow(0.5 / 127.5, 2); /* 1 is 127 steps of 1/127.5 */
    double errors[2];

    (void)state;
    for (size_t i = 0; i < SB_COUNT(tails); i++) {
        errors_of_tail(tails[i], errors);
        assert_close(tails[i], errors[0], weight, 1e-9);
        assert_close(tails[i], errors[1], (16129 * weight + 0.16) / 16129.16,
                     1e-9);
    }
}

/* The names of what judges, with 2 batches, of which calibration keeps the
 * outputs. */
static const char *judged_names(const char *tail, const char *result,
                                const double *b)
{
    static char names[64];
    char text[512];
    sb_judged judged = {0};

    (void)snprintf(text, sizeof text,
                   "graph main(x: f32[N,2]) -> (%s) {\n"
                   "w: f32[2,2] = [1, 0, 0, 1]\n"
                   "least: f32[] = 0.25\nall: i64[1] = [-1]\n"
                   "y = MatMul(x, w) \"m\"\np = Softmax(y)\n%s}",
                   result, tail);
    sb_quant_model *qm = test_quant(
        text, "SCHEDULE: {BIAS_CORRECTION: true}\n" TEST_W8 TEST_A8, NULL);
    assert_ok(sb_quant_model_prepare_calibration(qm, NULL));
    (void)test_quant_forward(qm, test_f32("1x2", 1.0, 2.0));
    (void)test_quant_forward(qm, test_tensor(SB_DTYPE_F32, "1x2", b));
    assert_ok(sb_judged_values(qm, &judged));
    names[0] = '\0';
    for (size_t i = 0; i < judged.n; i++)
        (void)snprintf(names + strlen(names), sizeof names - strlen(names),
                       "%s ", sb_graph_value(qm->graph, judged.v[i])->name);
    sb_free(test_ctx(), judged.v);
    sb_quant_model_free(qm);
    return names;
}

/* An output that comes out equally long judges by itself; slices of a value are
 * judged as one; integers only if nothing else is there; sizes do not depend on
 * what is quantized. */
static void test_judged_names(void **state)
{
    static const char cut[] = "g = Greater(p, least)\nc = Reshape(g, all)\n"
                              "z = Compress(p, c)\n";
    static const char slices[] =
        "r = Transpose(p) {perm=[1, 0]}\na: i64[] = 0\nb: i64[] = 1\n"
        "s = Gather(r, a)\nt = Gather(r, b)\n"
        "sg = Greater(s, least)\ntg = Greater(t, least)\n"
        "sz = Compress(s, sg)\ntz = Compress(t, tg)\n"
        "z = Concat(sz, tz) {axis=0}\n";
    static const char classes[] = "z = ArgMax(p) {axis=1}\ns = Shape(y)\n";
    const double same[] = {1.5, 2}, other[] = {-9, 9};

    (void)state;
    assert_string_equal(judged_names(cut, "z", same), "z ");
    assert_string_equal(judged_names(cut, "z", other), "p ");
    assert_string_equal(judged_names(cut, "y, z", other), "y p ");
    assert_string_equal(judged_names(slices, "z", other), "p ");
    assert_string_equal(judged_names(classes, "z, s", same), "p ");
    assert_string_equal(judged_names(classes, "y, z, s", same), "y ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probabilities),
        cmocka_unit_test(test_lost_probability),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_vector),
        cmocka_unit_test(test_other_floats),
        cmocka_unit_test(test_half_samples),
        cmocka_unit_test(test_half_probabilities),
        cmocka_unit_test(test_least_probability),
        cmocka_unit_test(test_least_signal),
        cmocka_unit_test(test_own_signal),
        cmocka_unit_test(test_judged_before),
        cmocka_unit_test(test_judged_names),
        cmocka_unit_test(test_fell),
        cmocka_unit_test(test_rose),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_many_batches),
        cmocka_unit_test(test_outputs_are_kept),
        cmocka_unit_test(test_scale_of_no_file),
    };

    return cmocka_run_group_tests_name("output_error", tests, NULL, NULL);
}
