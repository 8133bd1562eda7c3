/* Pruning by masks of a learner, scans, and the targets that choose by them. */
#include "prunetest.h"

#include <math.h>

/* Two layers of four channels, and a norm over none of them. */
static const char net[] =
    "graph net(x: f32[N,3]) -> (y: f32[N,2]) {\n"
    "a: f32[3,4] = [9,0,0,1, 0,7,0,1, 0,0,5,0]\n ab: f32[4] = 1\n"
    "b: f32[4,4] = [1,2,3,4, 4,3,2,1, 1,1,1,1, 2,0,2,0]\n"
    "c: f32[4,2] = random(3)\n"
    "h = Gemm(x, a, ab) \"fc1\"\n r = Relu(h) \"act\"\n"
    "k = MatMul(r, b) \"fc2\"\n s = Relu(k) \"act2\"\n"
    "y = MatMul(s, c) \"out\"\n}";

static sb_learner *learner_of(sb_prune *p)
{
    sb_learn_options opt = SB_LEARN_OPTIONS_INIT;
    sb_learner *learner = NULL;
    sb_model *source = NULL;

    opt.loss = SB_LEARN_LOSS_MSE;
    assert_ok(sb_prune_source(p, &source));
    assert_ok(sb_learner_create(source, &opt, &learner));
    sb_model_free(source);
    return learner;
}

static void step(sb_learner *l)
{
    const sb_tensor *x = test_random(SB_DTYPE_F32, "4x3", 1);
    const sb_tensor *y = test_random(SB_DTYPE_F32, "4x2", 2);

    assert_ok(sb_learner_step(l, &x, 1, y, NULL));
}

static int64_t zeros_of(const sb_learner *l, const char *name)
{
    const sb_tensor *t = sb_learner_find_parameter(l, name)->value;
    int64_t n = 0;

    for (int64_t i = 0; i < sb_tensor_count(t); i++)
        n += ((const float *)t->data)[i] == 0;
    return n;
}

/* ---- masks --------------------------------------------------------------------- */

static void test_masked_elements_stay_zero(void **state)
{
    sb_prune *p = NULL;

    (void)state;
    assert_ok(prune_try(net, CONFIG("RATIO: 0.5"), &p));
    sb_learner *l = learner_of(p);
    const sb_tensor *mask = test_f32("4", 1, 0, 1, 0);
    assert_null(sb_learner_mask(l, "ab"));
    assert_ok(sb_learner_set_mask(l, "ab", mask));
    for (int i = 0; i < 3; i++)
        step(l);
    const float *ab = sb_learner_find_parameter(l, "ab")->value->data;
    assert_true(ab[0] != 1 && ab[1] == 0 && ab[2] != 1 && ab[3] == 0);
    assert_memory_equal(sb_learner_mask(l, "ab")->data, mask->data, 16);
    assert_status(sb_learner_set_mask(l, "ab", test_f32("2", 1, 1)),
                  SB_BAD_DATA);
    assert_error_has("the mask of parameter 'ab'");
    assert_status(sb_learner_set_mask(l, "none", mask), SB_BAD_ARG);
    sb_learner_free(l);
    sb_prune_free(p);
}

/* Channels go little by little, those that are gone stay so, and what is cut in
 * the end computes the same as the masked network. */
static void test_channels_go_while_training(void **state)
{
    const sb_tensor *x = test_random(SB_DTYPE_F32, "4x3", 5);
    sb_model *masked = NULL, *cut = NULL;
    sb_prune *p = NULL;

    (void)state;
    assert_ok(prune_try(
        net, CONFIG("RATIO: 0.5, SCHEDULE: linear, ITERATIONS: 2"), &p));
    assert_int_equal(sb_prune_is_gradual(p), 1);
    sb_learner *l = learner_of(p);
    assert_ok(sb_prune_attach(p, l));
    step(l);
    assert_int_equal(zeros_of(l, "ab"), 0);
    assert_ok(sb_prune_follow(p, l));
    assert_ok(sb_prune_mask(p, l, 0.5, NULL));
    assert_int_equal(zeros_of(l, "ab"), 1);
    step(l);
    assert_ok(sb_prune_follow(p, l));
    assert_ok(sb_prune_mask(p, l, 1, NULL));
    step(l);
    /* The fourth column of `a` was the smallest, then the third. */
    const float *ab = sb_learner_find_parameter(l, "ab")->value->data;
    assert_true(ab[0] != 0 && ab[1] != 0 && ab[2] == 0 && ab[3] == 0);
    assert_ok(sb_learner_model(l, SB_LEARN_VALUES_LAST, &masked));
    assert_ok(sb_prune_finish(p, l, masked, &cut));
    assert_int_equal(sb_tensor_count(sb_model_weight(cut, "a")), 6);
    assert_int_equal(sb_tensor_count(sb_model_weight(cut, "b")), 4);
    sb_tensor *want = prune_run_model(masked, x),
              *got = prune_run_model(cut, x);
    assert_all_close("cut", got->data, want->data, 8, 1e-6);
    sb_model_free(masked);
    sb_model_free(cut);
    sb_learner_free(l);
    sb_prune_free(p);
}

static void test_schedules_follow_their_formulas(void **state)
{
    static const struct {
        const char *config;
        double epoch, want;
    } cases[] = {
        {CONFIG("TYPE: unstructured, RATIO: 0.5"), 0, 1},
        {CONFIG("TYPE: unstructured, RATIO: 0.5, BEGIN: 2"), 1.9, 0},
        {CONFIG("RATIO: 0.5, SCHEDULE: linear, ITERATIONS: 5, END: 4"), 0, 0.2},
        {CONFIG("RATIO: 0.5, SCHEDULE: linear, ITERATIONS: 5, END: 4"), 2.5,
         0.6},
        {CONFIG("RATIO: 0.5, SCHEDULE: linear, ITERATIONS: 5, END: 4"), 4, 1},
        /* Half of 10 epochs: at 2.5, 1 - (1 - 2 / 3)^3 */
        {CONFIG("RATIO: 0.5, SCHEDULE: cubic, ITERATIONS: 3"), 2.5,
         1 - 1.0 / 27},
        {CONFIG("RATIO: 0.5, SCHEDULE: cubic, ITERATIONS: 3, BEGIN: 1"), 0.5,
         0},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_prune *p = NULL;
        assert_ok(prune_try(net, cases[i].config, &p));
        assert_close(cases[i].config, sb_prune_share(p, cases[i].epoch, 10),
                     cases[i].want, 1e-12);
        sb_prune_free(p);
    }
}

/* ---- scans --------------------------------------------------------------------- */

static sb_prune *scanned_net(const char *text, const char *config, double macs,
                             double latency, const sb_prune_scan **scan)
{
    static const double ratios[] = {0.25, 0.5, 0.75};
    sb_prune_options opt = SB_PRUNE_OPTIONS_INIT;
    sb_model *model = prune_parse(text);
    const sb_tensor *x = test_random(SB_DTYPE_F32, "16x3", 5);
    sb_prune *p = NULL;

    opt.config_text = config;
    opt.target_macs = macs;
    opt.target_latency = latency;
    opt.scan = 1;
    assert_ok(sb_prune_create(model, &opt, &p));
    assert_status(sb_prune_scan_groups(p, ratios, 3, scan), SB_BAD_ARG);
    assert_error_has("a scan needs samples");
    assert_ok(sb_prune_forward(p, &x, 1));
    assert_status(sb_prune_scan_groups(p, ratios + 1, 0, scan), SB_BAD_ARG);
    assert_status(sb_prune_scan_groups(p, (double[]){0.5, 0.5}, 2, scan),
                  SB_BAD_ARG);
    assert_error_has("rising");
    assert_ok(sb_prune_scan_groups(p, ratios, 3, scan));
    sb_model_free(model);
    return p;
}

static sb_prune *scanned(const char *config, double macs, double latency,
                         const sb_prune_scan **scan)
{
    return scanned_net(net, config, macs, latency, scan);
}

static void test_a_scan_takes_groups_one_by_one(void **state)
{
    const sb_prune_scan *scan = NULL;
    sb_prune *p = scanned(CONFIG("RATIO: 0, REFIT: false"), 0, 0, &scan);

    (void)state;
    assert_int_equal(scan->n_groups, 2);
    assert_int_equal(scan->samples, 16);
    assert_true(isnan(scan->accuracy));
    /* 3 * 4 + 4 * 4 + 4 * 2 for each sample */
    double all = scan->macs / 36;
    for (size_t g = 0; g < 2; g++) {
        const sb_prune_group *group = scan->groups[g];
        assert_string_equal(group->name, g ? "fc2" : "fc1");
        for (size_t i = 0; i < 3; i++) {
            const sb_prune_point *pt = group->points[i];
            double left = 4 - (double)pt->removed;
            assert_int_equal(pt->removed, i + 1);
            assert_close("macs", pt->macs / all,
                         g ? 12 + 6 * left : 8 + 7 * left, 1e-9);
            assert_true(pt->error > 0 && pt->error < 10);
        }
    }
    sb_prune_free(p);
}

/* The only level of the scan takes 3 of 4 channels, of which one is enough:
 * of 36 MACs 29 (fc1) or 30 (fc2) are left then. */
static void test_targets_take_less_than_a_level(void **state)
{
    sb_prune_options opt = SB_PRUNE_OPTIONS_INIT;
    const sb_tensor *x = test_random(SB_DTYPE_F32, "16x3", 5);
    const sb_prune_scan *scan = NULL;
    const sb_model_info *info = NULL;
    sb_model *model = prune_parse(net), *small = NULL;
    sb_prune *p = NULL;

    (void)state;
    opt.config_text = CONFIG("RATIO: 0, REFIT: false");
    opt.target_macs = 0.85;
    opt.scan = 1;
    assert_ok(sb_prune_create(model, &opt, &p));
    assert_ok(sb_prune_forward(p, &x, 1));
    assert_ok(sb_prune_scan_groups(p, (double[]){0.75}, 1, &scan));
    assert_ok(sb_prune_apply(p, NULL));
    assert_ok(sb_prune_model(p, &small));
    assert_ok(sb_model_info_get(small, &info));
    assert_true(info->macs <= 0.85 * scan->macs);
    assert_true(info->macs > 0.75 * scan->macs);
    sb_model_free(small);
    sb_prune_free(p);
    sb_model_free(model);
}

/* The error is that of the outputs, by their definition. */
static void test_errors_of_a_scan(void **state)
{
    const sb_prune_scan *scan = NULL;
    sb_prune *p = scanned(CONFIG("RATIO: 0, REFIT: false"), 0, 0, &scan);
    sb_prune *one =
        prune_net(net, CONFIG("RATIO: 0, SPECIFIC: {fc2: 0.5}"), NULL);
    const sb_tensor *x = test_random(SB_DTYPE_F32, "16x3", 5);
    sb_model *whole = prune_parse(net);
    const float *want = prune_run_model(whole, x)->data;
    const float *got = prune_run(one, x)->data;
    double signal = 0, noise = 0;

    (void)state;
    for (int i = 0; i < 32; i++) {
        signal += (double)want[i] * want[i];
        noise += (double)(got[i] - want[i]) * (got[i] - want[i]);
    }
    assert_close("error", scan->groups[1]->points[1]->error,
                 sqrt(noise / signal), 1e-5);
    sb_model_free(whole);
    sb_prune_free(one);
    sb_prune_free(p);
}

/* Targets are met with what costs least; excluded groups stay whole. */
static void test_targets_choose_from_a_scan(void **state)
{
    const sb_prune_scan *scan = NULL;
    sb_model *small = NULL;
    const sb_model_info *info = NULL;
    sb_prune *p = scanned(CONFIG("RATIO: 0"), 0.7, 0, &scan);

    (void)state;
    double all = scan->macs;
    assert_ok(sb_prune_apply(p, NULL));
    assert_ok(sb_prune_model(p, &small));
    assert_ok(sb_model_info_get(small, &info));
    assert_true(info->macs <= 0.7 * all && info->macs > 0.3 * all);
    sb_model_free(small);
    sb_prune_free(p);
    p = scanned(CONFIG("RATIO: 0, EXCLUDE: [fc1]"), 0.8, 0, &scan);
    assert_int_equal(scan->n_groups, 1);
    assert_ok(sb_prune_apply(p, NULL));
    assert_int_equal(prune_layer(p, "fc1")->removed, 0);
    assert_true(prune_layer(p, "fc2")->removed > 0);
    sb_prune_free(p);
    p = scanned(CONFIG("RATIO: 0, EXCLUDE: [fc1]"), 0.1, 0, &scan);
    assert_status(sb_prune_apply(p, NULL), SB_UNSUPPORTED);
    assert_error_has("the target cannot be met");
    sb_prune_free(p);
}

/* A quarter of the four channels of fc1 is less than the two that go together;
 * half of them are zero and cost nothing, so the eight of fc2 stay. */
static void test_levels_that_remove_nothing_are_passed(void **state)
{
    static const char two_free[] =
        "graph net(x: f32[N,3]) -> (y: f32[N,2]) {\n"
        "a: f32[3,4] = [0,0,5,1, 0,0,2,7, 0,0,4,3]\n"
        "b: f32[4,8] = random(2)\n c: f32[8,2] = random(3)\n"
        "h = MatMul(x, a) \"fc1\"\n k = MatMul(h, b) \"fc2\"\n"
        "y = MatMul(k, c) \"out\"\n}";
    const sb_prune_scan *scan = NULL;
    sb_prune *p = scanned_net(
        two_free, CONFIG("RATIO: 0, ROUND_TO: 2, REFIT: false"), 0.7, 0, &scan);

    (void)state;
    assert_int_equal(scan->groups[0]->points[0]->removed, 0);
    assert_int_equal(scan->groups[0]->points[1]->removed, 2);
    assert_int_equal(scan->groups[1]->points[0]->removed, 2);
    /* (3 * 2 + 2 * 8 + 8 * 2) / (3 * 4 + 4 * 8 + 8 * 2) = 38 / 60 */
    assert_ok(sb_prune_apply(p, NULL));
    assert_int_equal(prune_layer(p, "fc1")->removed, 2);
    assert_int_equal(prune_layer(p, "fc2")->removed, 0);
    sb_prune_free(p);
}

/* The samples are counted by the first input that has an axis. */
static void test_a_scan_with_a_scalar_before_the_samples(void **state)
{
    static const char scaled[] =
        "graph net(s: f32[], x: f32[N,3]) -> (y: f32[N,2]) {\n"
        "a: f32[3,4] = random(1)\n c: f32[4,2] = random(3)\n"
        "z = Mul(x, s)\n h = MatMul(z, a) \"fc1\"\n"
        "y = MatMul(h, c) \"out\"\n}";
    const sb_tensor *in[] = {test_f32("", 2),
                             test_random(SB_DTYPE_F32, "16x3", 5)};
    sb_prune_options opt = SB_PRUNE_OPTIONS_INIT;
    sb_model *model = prune_parse(scaled);
    const sb_prune_scan *scan = NULL;
    sb_prune *p = NULL;

    (void)state;
    opt.config_text = CONFIG("RATIO: 0");
    opt.scan = 1;
    assert_ok(sb_prune_create(model, &opt, &p));
    for (int i = 0; i < 2; i++)
        assert_ok(sb_prune_forward(p, in, 2));
    assert_ok(sb_prune_scan_groups(p, (double[]){0.5}, 1, &scan));
    assert_int_equal(scan->samples, 32);
    assert_true(isnan(scan->accuracy));
    sb_prune_free(p);
    sb_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masked_elements_stay_zero),
        cmocka_unit_test(test_channels_go_while_training),
        cmocka_unit_test(test_schedules_follow_their_formulas),
        cmocka_unit_test(test_a_scan_takes_groups_one_by_one),
        cmocka_unit_test(test_targets_take_less_than_a_level),
        cmocka_unit_test(test_errors_of_a_scan),
        cmocka_unit_test(test_targets_choose_from_a_scan),
        cmocka_unit_test(test_levels_that_remove_nothing_are_passed),
        cmocka_unit_test(test_a_scan_with_a_scalar_before_the_samples),
    };
    return cmocka_run_group_tests_name("prune_train", tests, NULL, NULL);
}
