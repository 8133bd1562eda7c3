/* Pruning single weights: which become zero, by hand. */
#include "prunetest.h"

static const char matrix[] = "graph net(x: f32[4,4]) -> (y: f32[4,2]) {\n"
                             "w: f32[4,2] = [1,8, -2,7, 3,6, -4,5]\n"
                             "y = MatMul(x, w) \"fc\"\n}";

static void test_weights_become_zero(void **state)
{
    static const struct {
        const char *config;
        double want[8];
    } cases[] = {
        {CONFIG("TYPE: unstructed, RATIO: 0.5"), {0, 8, 0, 7, 0, 6, 0, 5}},
        {CONFIG("TYPE: unstructured, RATIO: 0.5, SCOPE: global"),
         {0, 8, 0, 7, 0, 6, 0, 5}},
        {CONFIG("TYPE: unstructured, STRATEGY: l2norm, RATIO: 0.26"),
         {0, 8, 0, 7, 3, 6, -4, 5}},
        {CONFIG("TYPE: unstructured, NM: '2:4'"), {0, 8, 0, 7, 3, 0, -4, 0}},
        {CONFIG("TYPE: unstructured, NM: '1:2'"), {0, 8, -2, 0, 0, 6, -4, 0}},
        {CONFIG("TYPE: unstructured, NM: '2:3'"), {0, 8, -2, 7, 3, 0, -4, 5}},
        {CONFIG("TYPE: unstructured, RATIO: 0.5, BLOCK: [2, 2]"),
         {0, 0, 0, 0, 3, 6, -4, 5}},
        {CONFIG("TYPE: unstructured, RATIO: 0.5, BLOCK: [1, 2]"),
         {0, 8, 0, 7, 0, 6, 0, 5}},
        {CONFIG("TYPE: unstructured, RATIO: 0"), {1, 8, -2, 7, 3, 6, -4, 5}},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_prune *p = prune_net(matrix, cases[i].config, NULL);
        assert_weight(p, "w", cases[i].want, 8);
        sb_prune_free(p);
    }
}

/* Four inputs are one M of three, and one that stays. */
static void test_inputs_that_fill_no_group_are_told(void **state)
{
    sb_prune *p =
        prune_net(matrix, CONFIG("TYPE: unstructured, NM: '2:3'"), NULL);
    const sb_prune_report *r = prune_report(p);

    (void)state;
    assert_int_equal(r->size, 8);
    assert_int_equal(r->removable, 6);
    assert_int_equal(r->removed, 2);
    assert_string_equal(r->layers[0]->reason, "the last inputs fill no M");
    sb_prune_free(p);
}

static void test_equal_weights_go_by_position(void **state)
{
    static const char equal[] = "graph net(x: f32[1,4]) -> (y: f32[1,2]) {\n"
                                "w: f32[4,2] = [1,1,1,1,1,1,1,1]\n"
                                "y = MatMul(x, w) \"fc\"\n}";
    sb_prune *p =
        prune_net(equal, CONFIG("TYPE: unstructured, RATIO: 0.4"), NULL);

    (void)state;
    assert_weight(p, "w", (const double[]){0, 0, 0, 1, 1, 1, 1, 1}, 8);
    sb_prune_free(p);
}

/* Inputs 1, 0.1, 10, 0.1 turn the order of magnitudes; each output keeps
 * half. */
static void test_wanda_weighs_inputs(void **state)
{
    const sb_tensor *x = test_f32("4x4", 1, .1, 10, .1, 1, .1, 10, .1, 1, .1,
                                  10, .1, 1, .1, 10, .1);
    sb_prune *p = prune_net(
        matrix, CONFIG("TYPE: unstructured, STRATEGY: wanda, RATIO: 0.5"), x);

    (void)state;
    assert_weight(p, "w", (const double[]){1, 8, 0, 0, 3, 6, 0, 0}, 8);
    sb_prune_free(p);
    p = NULL;
    assert_ok(prune_try(
        matrix, CONFIG("TYPE: unstructured, STRATEGY: wanda, RATIO: 0.5"), &p));
    assert_int_equal(sb_prune_wants_data(p), SB_PRUNE_DATA_NEEDED);
    assert_status(sb_prune_apply(p, NULL), SB_BAD_ARG);
    assert_error_has("needs samples");
    sb_prune_free(p);
}

/* Weights with NaN have no score, and stay whatever is asked for. */
static void test_weights_without_a_score_stay(void **state)
{
    static const char net[] = "graph net(x: f32[1,4]) -> (y: f32[1,2]) {\n"
                              "w: f32[4,2] = [1,nan, nan,2, 3,nan, 4,inf]\n"
                              "y = MatMul(x, w) \"fc\"\n}";
    /* Places that are zero afterwards. */
    static const struct {
        const char *config;
        uint8_t zero[8];
    } cases[] = {
        {CONFIG("TYPE: unstructured, RATIO: 0.25"), {1, 0, 0, 1, 0, 0, 0, 0}},
        {CONFIG("TYPE: unstructured, RATIO: 0.9"), {1, 0, 0, 1, 1, 0, 1, 0}},
        {CONFIG("TYPE: unstructured, RATIO: 0.9, SCOPE: global"),
         {1, 0, 0, 1, 1, 0, 1, 0}},
        {CONFIG("TYPE: unstructured, NM: '1:4'"), {1, 0, 0, 1, 1, 0, 1, 0}},
        {CONFIG("TYPE: unstructured, NM: '2:4'"), {1, 0, 0, 1, 1, 0, 0, 0}},
        {CONFIG("TYPE: unstructured, RATIO: 0.75, BLOCK: [1, 2]"),
         {0, 0, 0, 0, 1, 0, 1, 0}},
    };
    char line[256];

    (void)state;
    sb_ctx_set_log(test_ctx(), keep_line, line);
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_model *model = NULL;
        line[0] = '\0';
        sb_prune *p = prune_net(net, cases[i].config, NULL);
        assert_non_null(strstr(line, "4 of 8 elements of 'w' stay: their "
                                     "scores are not finite"));
        assert_ok(sb_prune_model(p, &model));
        const float *w = sb_model_weight(model, "w")->data;
        for (int k = 0; k < 8; k++)
            assert_int_equal(w[k] == 0, cases[i].zero[k]);
        sb_model_free(model);
        sb_prune_free(p);
    }
    sb_ctx_set_log(test_ctx(), NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_become_zero),
        cmocka_unit_test(test_inputs_that_fill_no_group_are_told),
        cmocka_unit_test(test_equal_weights_go_by_position),
        cmocka_unit_test(test_wanda_weighs_inputs),
        cmocka_unit_test(test_weights_without_a_score_stay),
    };
    return cmocka_run_group_tests_name("prune_weights", tests, NULL, NULL);
}
