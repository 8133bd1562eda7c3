/* Configurations and options of pruning that are refused, and what is said. */
#include "prunetest.h"

static void test_bad_configurations_are_refused(void **state)
{
    static const struct {
        const char *config, *message;
    } cases[] = {
        {CONFIG("RATIO: 1"), "SPARSER.RATIO: found 1, allowed is 0 or more"},
        {CONFIG("RATIO: -0.1"), "SPARSER.RATIO: found -0.1"},
        {CONFIG("RATIO: .nan"), "RATIO"},
        {CONFIG("STRATEGY: l1norn"), "did you mean 'l1norm'?"},
        {CONFIG("STRATEGY: wanda"),
         "'wanda' is not for TYPE structured; allowed l1norm, l2norm, "},
        {CONFIG("STRATEGY: l1"),
         "'l1' is no criterion; allowed l1norm, l2norm, "},
        {CONFIG("TYPE: unstructured, STRATEGY: slimming"),
         "'slimming' is not for TYPE unstructured"},
        {CONFIG("NM: '2:4'"), "SPARSER.NM: is for TYPE unstructured"},
        {CONFIG("TYPE: unstructured, NM: '4:2'"), "SPARSER.NM: found '4:2'"},
        {CONFIG("TYPE: unstructured, NM: '2:4', RATIO: 0.5"),
         "SPARSER.RATIO: NM says"},
        {CONFIG("TYPE: unstructured, NM: '2:4', BLOCK: [2, 2]"),
         "SPARSER.BLOCK: does not go with NM"},
        {CONFIG("TYPE: unstructured, NM: '2:4', SCOPE: global"),
         "SPARSER.SCOPE: 'global' does not go with NM"},
        {CONFIG("BLOCK: [2, 2]"), "SPARSER.BLOCK: is for TYPE unstructured"},
        {CONFIG("BLOCK: [2]"), "SPARSER.BLOCK: found 1 element, allowed 2"},
        {CONFIG("TYPE: unstructured, ROUND_TO: 8"),
         "SPARSER.ROUND_TO: is for TYPE structured"},
        {CONFIG("TYPE: unstructured, STATISTICS: true"),
         "SPARSER.STATISTICS: is for TYPE structured"},
        {CONFIG("BEGIN: 3, END: 1"), "config:1: SPARSER.END: 1 is before"},
        {CONFIG("ITERATIONS: 0"), "SPARSER.ITERATIONS: found 0, allowed a"},
        {CONFIG("EXCLUDE: [head.fc3]"), "did you mean 'head.fc2'?"},
        {CONFIG("SPECIFIC: {fcx1: 0.5}"), "did you mean 'fc1'?"},
        {CONFIG("EXCLUDE: ['hed*']"), "did you mean 'head'?"},
        {CONFIG("SPECIFIC: {nothing: 0.5}"),
         "'nothing' matches no node and no module"},
        {CONFIG("SPECIFIC: {fc1: 2}"), "SPARSER.SPECIFIC of 'fc1': found 2"},
        {CONFIG("SPECIFIC: {fc1: high}"),
         "SPARSER.SPECIFIC of 'fc1': found high, allowed a number, 0 or more"},
        {CONFIG("SPECIFIC: {head.fc1: high}"), "of 'head.fc1': found high, "},
        {CONFIG("TYPE: unstructured, NM: '2:4', SPECIFIC: {fc1: 0.5}"),
         "config:1: SPARSER.SPECIFIC: NM says already how much goes"},
        {CONFIG("SPECIFIC: [fc1]"), "a map from patterns to ratios"},
        {CONFIG("ROUND_TO: 0"), "SPARSER.ROUND_TO"},
        {CONFIG("KIND: x"), "KIND"},
        {"A: none\n", "SPARSER"},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_prune *p = NULL;
        assert_status(prune_try(chain, cases[i].config, &p), SB_BAD_CONFIG);
        assert_error_has(cases[i].message);
    }
}

static void test_bad_options_are_refused(void **state)
{
    sb_prune_options opt = SB_PRUNE_OPTIONS_INIT;
    sb_model *model = prune_parse(chain), *none = NULL;
    sb_prune *p = NULL;

    (void)state;
    assert_status(sb_prune_create(model, &opt, &p), SB_BAD_ARG);
    opt.config_text = CONFIG("RATIO: 0.5");
    opt.target_params = 1.5;
    assert_status(sb_prune_create(model, &opt, &p), SB_BAD_ARG);
    opt.target_params = 0.5;
    opt.masks_only = 1;
    assert_status(sb_prune_create(model, &opt, &p), SB_BAD_ARG);
    assert_error_has("a target does not go with masks only");
    opt.target_params = 0;
    opt.scan = 1;
    assert_status(sb_prune_create(model, &opt, &p), SB_BAD_ARG);
    assert_error_has("a scan does not go with masks only");
    opt.scan = opt.masks_only = 0;
    opt.exclude = (const char *const[]){"fcx1"};
    opt.n_exclude = 1;
    assert_status(sb_prune_create(model, &opt, &p), SB_BAD_ARG);
    assert_error_has("exclude: 'fcx1' matches no node and no module (did you");
    opt.n_exclude = 0;
    assert_ok(sb_prune_create(model, &opt, &p));
    assert_status(sb_prune_model(p, &none), SB_BAD_ARG);
    assert_status(sb_prune_forward(p, NULL, 0), SB_BAD_ARG);
    assert_int_equal(prune_report(p)->removed, 0);
    assert_int_equal(prune_report(p)->removable, 4);
    sb_prune_free(p);
    sb_prune_free(NULL);
    sb_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_configurations_are_refused),
        cmocka_unit_test(test_bad_options_are_refused),
    };
    return cmocka_run_group_tests_name("prune_config", tests, NULL, NULL);
}
