/* The formulas of training: targets that are mixed, smoothed and taught, and
 * schedules of the learning rate. */
#include "sbtest.h"

#include <math.h>

#include "train/trainer.h"

/* ---- soft targets ------------------------------------------------------- */

/* Of Beta(a, a) the mean is 1/2 and the variance 1 / (4 (2 a + 1)); the larger
 * share of both has the same distance from 1/2. */
static void test_shares_follow_the_beta_distribution(void **state)
{
    static const double alphas[] = {0.2, 1, 3};
    enum { DRAWS = 20000 };

    (void)state;
    for (size_t k = 0; k < SB_COUNT(alphas); k++) {
        double square = 0, want = 1 / (4 * (2 * alphas[k] + 1));

        for (size_t i = 0; i < DRAWS; i++) {
            double v = sb_mixup_share(alphas[k], 5, i / 100, i % 100);
            assert_true(v >= 0.5 && v <= 1);
            square += (v - 0.5) * (v - 0.5) / DRAWS;
        }
        assert_close("variance", square, want, 0.03 * want);
    }
    assert_close("the same again", sb_mixup_share(0.2, 5, 3, 4),
                 sb_mixup_share(0.2, 5, 3, 4), 0);
}

/* Samples 0 and 1 are a pair, and 2 is alone: as in any slice of even size. */
static void test_pairs(void **state)
{
    static const int64_t labels[] = {0, 1, 2};
    static const double want[] = {0.7, 0.3, 0, 0.3, 0.7, 0, 0, 0, 1};
    const sb_soft_rows rows = {.labels = labels,
                               .rows = 3,
                               .classes = 3,
                               .mix = 0.7,
                               .labels_share = 1};
    float logits[9] = {0};

    (void)state;
    (void)sb_soft_fill(&rows, logits);
    for (int i = 0; i < 9; i++)
        assert_close("share", exp((double)logits[i]), want[i], 1e-7);
}

/* By hand, four classes: sample 0 has label 1 and is mixed with label 3. */
static void test_soft_targets(void **state)
{
    static const int64_t labels[] = {1, 3};
    static const double plain[] = {0, 0.7, 0, 0.3};
    const sb_soft_rows rows = {.labels = labels,
                               .rows = 2,
                               .classes = 4,
                               .mix = 0.7,
                               .smoothing = 0.2,
                               .labels_share = 1};
    float logits[8] = {9, 9, 9, 9, 9, 9, 9, 9};
    double entropy = 0;

    (void)state;
    double got = sb_soft_fill(&rows, logits);
    for (int c = 0; c < 4; c++) {
        double want = 0.8 * plain[c] + 0.05;
        assert_close("share", exp((double)logits[c]), want, 1e-7);
        /* of the other sample the labels are the other way round */
        assert_close("other share", exp((double)logits[4 + c]),
                     0.8 * plain[c == 1   ? 3
                                 : c == 3 ? 1
                                          : c] +
                         0.05,
                     1e-7);
        entropy -= want * log(want);
    }
    assert_close("entropy", got, entropy, 1e-7);
    /* A quarter labels, the rest a teacher that says 1/2, 1/2, 0, 0. */
    const sb_soft_rows half = {.labels = labels,
                               .rows = 1,
                               .classes = 4,
                               .mix = 1,
                               .labels_share = 0.25};
    float teacher[4] = {2, 2, -90, -90};
    static const double want[] = {0.375, 0.625, 0, 0};
    assert_close("no entropy", sb_soft_fill(&half, teacher), 0, 0);
    for (int c = 0; c < 4; c++)
        assert_close("share", exp((double)teacher[c]), want[c], 1e-7);
}

/* ---- schedules ---------------------------------------------------------- */

/* By hand, for 4 epochs of 10 steps: (1 + cos(pi * t / 40)) / 2 of the rate for
 * a cosine; for one cycle from 1/25 up during the first 12 steps, half way down
 * at step 26. */
static void test_schedules_follow_their_formulas(void **state)
{
    static const double milestones[] = {1, 3};
    static const struct {
        int schedule;
        size_t epoch, step;
        double want;
    } cases[] = {
        {0, 3, 5, 0.1},        {1, 0, 9, 0.1},
        {1, 1, 0, 0.01},       {1, 3, 0, 0.001},
        {2, 0, 0, 0.1},        {2, 1, 0, 0.0853553390593274},
        {2, 2, 0, 0.05},       {2, 3, 5, 0.00380602337443566},
        {3, 0, 0, 0.004},      {3, 1, 2, 0.1},
        {3, 2, 6, 0.05000020},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_train_keys keys = {.epochs = 4,
                              .schedule = cases[i].schedule,
                              .rate = 0.1,
                              .gamma = 0.1,
                              .milestones = {milestones, 2}};

        assert_close("rate",
                     sb_train_rate(&keys, cases[i].epoch, cases[i].step, 10),
                     cases[i].want, 1e-7);
    }
    sb_train_keys warm = {.epochs = 4, .schedule = 0, .rate = 1, .warmup = 1};
    assert_close("first", sb_train_rate(&warm, 0, 0, 10), 1.0 / 11, 1e-12);
    assert_close("last", sb_train_rate(&warm, 0, 9, 10), 10.0 / 11, 1e-12);
    assert_close("after", sb_train_rate(&warm, 1, 0, 10), 1, 0);
}

/* What is not given, as docs/training.md says. */
static void test_optimizer_and_rate_when_not_given(void **state)
{
    static const struct {
        const char *text;
        bool quantized;
        sb_optimizer optimizer;
        double rate;
    } cases[] = {
        {"", false, SB_OPTIMIZER_SGD, 0.01},
        {"", true, SB_OPTIMIZER_ADAM, 0.001},
        {"OPTIMIZER: sgd", true, SB_OPTIMIZER_SGD, 0.01},
        {"OPTIMIZER: adamw", false, SB_OPTIMIZER_ADAMW, 0.001},
        {"LR: 0.3", true, SB_OPTIMIZER_ADAM, 0.3},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_yaml_doc *doc = NULL, *other = NULL;
        sb_train_keys keys;

        assert_ok(sb_train_keys_read(test_ctx(), NULL, cases[i].text,
                                     cases[i].quantized, &doc, &other, &keys));
        assert_int_equal(keys.optimizer, (int)cases[i].optimizer);
        assert_close("rate", keys.rate, cases[i].rate, 0);
        sb_yaml_free(other);
        sb_yaml_free(doc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares_follow_the_beta_distribution),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_soft_targets),
        cmocka_unit_test(test_schedules_follow_their_formulas),
        cmocka_unit_test(test_optimizer_and_rate_when_not_given),
    };
    return cmocka_run_group_tests_name("train rules", tests, NULL, NULL);
}
