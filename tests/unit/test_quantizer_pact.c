/* Quantizer "pact": values and gradients against the definition in double
 * precision. */
#include <math.h>

#include "qattest.h"
#include "quant/quantize/quantizer.h"

#define PACT(scheme)                          \
    TEST_W8 "A: {QSCHEME: per-tensor-" scheme \
            ", QUANTIZER: {TYPE: PACT, BIT: 4, PACT: {ALPHA_VALUE: 1.25}}}\n"

/* Clipped to [lo, 1.25], then rounded with `scale`; rounding has no part in the
 * gradients. */
static void check(test_qat *q, double lo, test_scale sx)
{
    const double alpha = 1.25;
    double da = 0;

    assert_close("alpha", test_qat_value(q, "fc.input_quantizer.alpha", 0),
                 alpha, 0);
    for (int i = 0; i < QAT_N * QAT_K; i++)
        q->xq[i] = test_ste_of(sx, fmin(fmax(q->x[i], lo), alpha), 0).y;
    for (int i = 0; i < QAT_K * QAT_M; i++) {
        sb_quantizer_info w = test_quantizer(q->qm, "fc.weight_quantizer");
        test_scale s = {(double)w.scale[i % QAT_M], 0, -128, 127};
        q->wq[i] = test_ste_of(s, q->w[i], 0).y;
    }
    test_qat_run(q);
    for (int i = 0; i < QAT_N * QAT_K; i++)
        da += q->x[i] > alpha          ? q->dxq[i]
              : q->x[i] < lo && lo < 0 ? -q->dxq[i]
                                       : 0;
    assert_close("gradient of alpha",
                 test_qat_gradient(q, "fc.input_quantizer.alpha", 0), da, 1e-6);
    test_qat_fixed(q, "fc.weight_quantizer.scale");
    sb_quantizer_info x = test_qat_settled(q, "fc.input_quantizer");
    assert_close("settled scale", x.scale[0], sx.scale, 1e-8);
    assert_close("settled zero point", x.zero_point[0], 0, 0);
}

/* A step too far does not turn the range around. */
static void test_below_zero(void **state)
{
    sb_tensor *alpha = test_f32("1", -1.25);
    test_qat q;

    (void)state;
    alpha->rank = 0;
    test_qat_open(&q, PACT("affine"), 0);
    assert_ok(
        sb_learner_set_parameter(q.learner, "fc.input_quantizer.alpha", alpha));
    sb_quantizer_info x = test_qat_settled(&q, "fc.input_quantizer");
    assert_close("settled scale", x.scale[0], 1.25 / 15, 1e-8);
    test_qat_close(&q);
}

static void test_unsigned(void **state)
{
    test_qat q;

    (void)state;
    test_qat_open(&q, PACT("affine"), 0);
    check(&q, 0, (test_scale){1.25 / 15, 0, 0, 15});
    test_qat_close(&q);
}

static void test_signed(void **state)
{
    static const char *const configs[] = {PACT("symmetric"), PACT("affine")};

    (void)state;
    for (int i = 0; i < 2; i++) { /* affine, but values below zero were seen */
        test_qat q;

        test_qat_open(&q, configs[i], -2);
        check(&q, -1.25, (test_scale){2.5 / 15, 0, -8, 7});
        test_qat_close(&q);
    }
}

static void test_needs_training(void **state)
{
    (void)state;
    test_quant_config_only(PACT("affine"),
                           "QUANTIZER.TYPE 'pact' needs training");
}

/* ALPHA_VALUE tells settings apart. */
static void test_its_parameter_is_kept(void **state)
{
    static const char text[] =
        TEST_W8 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: pact, BIT: "
                "4, PACT: {ALPHA_VALUE: 6.5}}, SPECIFIC: {a: "
                "[QUANTIZER.PACT.ALPHA_VALUE, 2]}}\n";
    sb_quant_config *cfg = NULL;
    sb_quant_spec all, a;
    sb_str words;

    (void)state;
    assert_ok(sb_quant_config_load_memory(
        test_ctx(), "q.yaml", text, strlen(text), SB_QUANT_CONFIG_QUANT, &cfg));
    sb_quant_config_spec(cfg, SB_QUANT_ACTIVATION, NULL, &all);
    sb_quant_config_pattern_spec(cfg, SB_QUANT_ACTIVATION, 0, &a);
    assert_false(sb_quant_spec_same_rows(&all, &a));
    sb_str_init(&words, test_ctx());
    sb_params_words(all.quantizer->params, all.quantizer_params, &words);
    sb_params_words(a.quantizer->params, a.quantizer_params, &words);
    assert_string_equal(sb_str_text(&words), " 6.5 2");
    sb_str_free(&words);
    sb_quant_config_free(cfg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unsigned),
        cmocka_unit_test(test_signed),
        cmocka_unit_test(test_below_zero),
        cmocka_unit_test(test_needs_training),
        cmocka_unit_test(test_its_parameter_is_kept),
    };

    return cmocka_run_group_tests_name("quantizer_pact", tests, NULL, NULL);
}
