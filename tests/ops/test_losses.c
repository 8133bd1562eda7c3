/* NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss, TfIdfVectorizer: hand
 * values. */
#include "sbtest.h"

#include <math.h>

#define INPUTS(...) ((const sb_tensor *[]){__VA_ARGS__})
#define VALUES(...) ((const double[]){__VA_ARGS__})

static void test_negative_log_likelihood_by_hand(void **state)
{
    (void)state;
    /* [N 2, C 2, d 2]; picked: -1, -4 | -7, -6 */
    sb_tensor *x = test_f32("2x2x2", 1, 2, 3, 4, 5, 6, 7, 8);
    sb_tensor *t = test_i64("2x2", 0, 1, 1, 0);

    assert_tensor("none, weights",
                  test_run1("graph g(x: f32[2,2,2], t: i64[2,2]) ->"
                            " (y: f32[2,2]) {\n  w: f32[2] = [1, 10]\n"
                            "  y = NegativeLogLikelihoodLoss(x, t, w)"
                            " {reduction=\"none\"}\n}\n",
                            INPUTS(x, t)),
                  test_f32("2x2", -1, -40, -70, -6), 0);
    assert_tensor("mean over weights",
                  test_run1("graph g(x: f32[2,2,2], t: i64[2,2]) -> (y: f32[])"
                            " {\n  w: f32[2] = [1, 10]\n"
                            "  y = NegativeLogLikelihoodLoss(x, t, w)\n}\n",
                            INPUTS(x, t)),
                  test_f32("", -117.0 / 22), 1e-6);
    assert_tensor("sum, class 1 ignored",
                  test_run1("graph g(x: f32[2,2,2], t: i64[2,2]) -> (y: f32[])"
                            " {\n  y = NegativeLogLikelihoodLoss(x, t)"
                            " {reduction=\"sum\", ignore_index=1}\n}\n",
                            INPUTS(x, t)),
                  test_f32("", -7), 0);
    assert_status(test_try_run("graph g(x: f32[2,2,2], t: i64[2,2]) ->"
                               " (y: f32[]) {\n"
                               "  y = NegativeLogLikelihoodLoss(x, t)\n}\n",
                               INPUTS(x, test_i64("2x2", 0, 1, 2, 0))),
                  SB_BAD_DATA);
    assert_error_has("target 2 is outside 2 classes");
    assert_status(test_try_run("graph g(x: f32[2,2,2], t: i64[2,2]) ->"
                               " (y: f32[]) {\n"
                               "  y = NegativeLogLikelihoodLoss(x, t)"
                               " {reduction=\"max\"}\n}\n",
                               INPUTS(x, t)),
                  SB_BAD_MODEL);
}

static void test_cross_entropy(void **state)
{
    (void)state;
    sb_tensor *x = test_f32("2x2", 0, log(3), 5, 5);
    sb_tensor *t = test_i64("2", 1, -7);
    sb_tensor *got[2];

    test_run("graph g(x: f32[2,2], t: i64[2]) -> (y: f32[], p: f32[2,2]) {\n"
             "  y, p = SoftmaxCrossEntropyLoss(x, t) {ignore_index=-7}\n}\n",
             INPUTS(x, t), got, 2);
    assert_tensor("loss", got[0], test_f32("", -log(0.75)), 1e-6);
    assert_tensor("log_prob", got[1],
                  test_f32("2x2", log(0.25), log(0.75), log(0.5), log(0.5)),
                  1e-6);
    assert_tensor("loss alone",
                  test_run1("graph g(x: f32[2,2], t: i64[2]) -> (y: f32[2]) {\n"
                            "  y = SoftmaxCrossEntropyLoss(x, t)"
                            " {ignore_index=-7, reduction=\"none\"}\n}\n",
                            INPUTS(x, t)),
                  test_f32("2", -log(0.75), 0), 1e-6);
}

static void test_tfidf_counts_by_hand(void **state)
{
    (void)state;
    /* Pool: 2, 3 | (5 4), (6 5), (8 6); columns as listed. */
    const char *text =
        "graph g(x: i32[2,6]) -> (y: f32[2,5]) {\n"
        "  y = TfIdfVectorizer(x) {mode=\"%s\", min_gram_length=1,"
        " max_gram_length=2, max_skip_count=%d, ngram_counts=[0,2],"
        " ngram_indexes=[0,1,2,3,4], pool_int64s=[2,3,5,4,6,5,8,6],"
        " weights=[0.5, 1.0, 2.0, 4.0, 8.0]}\n}\n";
    sb_tensor *x = test_tensor(SB_DTYPE_I32, "2x6",
                               VALUES(1, 1, 3, 3, 3, 7, 8, 6, 7, 5, 6, 8));
    char buf[512];

    (void)snprintf(buf, sizeof buf, text, "TF", 0);
    assert_tensor("counts", test_run1(buf, INPUTS(x)),
                  test_f32("2x5", 0, 3, 0, 0, 0, 0, 0, 0, 0, 1), 0);
    (void)snprintf(buf, sizeof buf, text, "TF", 1);
    /* one skipped: 6 _ 5 */
    assert_tensor("with a gap", test_run1(buf, INPUTS(x)),
                  test_f32("2x5", 0, 3, 0, 0, 0, 0, 0, 0, 1, 1), 0);
    (void)snprintf(buf, sizeof buf, text, "IDF", 0);
    assert_tensor("presence", test_run1(buf, INPUTS(x)),
                  test_f32("2x5", 0, 1, 0, 0, 0, 0, 0, 0, 0, 8), 0);
    (void)snprintf(buf, sizeof buf, text, "TFIDF", 0);
    assert_tensor("both", test_run1(buf, INPUTS(x)),
                  test_f32("2x5", 0, 3, 0, 0, 0, 0, 0, 0, 0, 8), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_negative_log_likelihood_by_hand),
        cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_tfidf_counts_by_hand),
    };
    return cmocka_run_group_tests_name("losses", tests, NULL, NULL);
}
