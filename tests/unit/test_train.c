/* The training loop: it learns, keeps the best epoch, and goes on to the last
 * bit. */
#include "traintest.h"

#include "tensor/tensor.h"

/* How many elements of a weight are there, and zero. */
static void assert_size(const void *bytes, size_t size, const char *weight,
                        int64_t want, int64_t want_zeros)
{
    sb_model *model = NULL;
    double v[128];
    int64_t zeros = 0;

    assert_ok(sb_model_load_memory(test_ctx(), bytes, size, NULL, &model));
    const sb_tensor *t = sb_model_weight(model, weight);
    assert_non_null(t);
    assert_int_equal(sb_tensor_count(t), want);
    assert_true(want <= 128 && sb_tensor_read_f64(t, 0, want, v));
    for (int64_t i = 0; i < want; i++)
        zeros += v[i] == 0;
    assert_int_equal(zeros, want_zeros);
    sb_model_free(model);
}

/* Half of six channels of 9 and 16 weights, and half of the 54 and 96 weights,
 * at once, little by little, and by what gradients say. */
static void test_pruning_while_training_resumes_to_the_last_bit(void **state)
{
    static const struct {
        const char *config;
        int64_t conv, conv_zeros, fc, fc_zeros;
    } cases[] = {
        {"SPARSER: {RATIO: 0.5}", 27, 0, 48, 0},
        {"SPARSER: {RATIO: 0.5, SCHEDULE: linear, ITERATIONS: 3}", 27, 0, 48,
         0},
        {"SPARSER: {TYPE: unstructured, RATIO: 0.5, SCHEDULE: cubic, "
         "ITERATIONS: 4, STRATEGY: taylor}",
         54, 27, 96, 48},
        {"SPARSER: {TYPE: unstructured, RATIO: 0.5, STRATEGY: sparsegpt, "
         "BEGIN: 0.5}",
         54, 27, 96, 48},
        {"SPARSER: {TYPE: unstructured, NM: '2:4', STRATEGY: movement, BEGIN: "
         "1}",
         54, 0, 96, 48},
    };
    size_t size = 0, again = 0;

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        char whole[32], part[32];
        test_train_watch w = {0};

        (void)snprintf(whole, sizeof whole, "pruned%zu", i);
        (void)snprintf(part, sizeof part, "pruned_part%zu", i);
        void *want = test_train_pruned(test_train_path(whole), 0,
                                       cases[i].config, &w, &size);
        assert_true(w.last.best > 0.5 && w.last.pruned == 1);
        assert_size(want, size, "c.weight", cases[i].conv, cases[i].conv_zeros);
        assert_size(want, size, "fc.weight", cases[i].fc, cases[i].fc_zeros);
        w = (test_train_watch){.stop_after = 10};
        assert_null(test_train_pruned(test_train_path(part), 0, cases[i].config,
                                      &w, &again));
        w = (test_train_watch){0};
        void *got = test_train_pruned(test_train_path(part), 1, cases[i].config,
                                      &w, &again);
        assert_int_equal(again, size);
        assert_memory_equal(got, want, size);
        sb_memory_free(got);
        sb_memory_free(want);
    }
}

static void check_resuming(const char *stem)
{
    /* In the first epoch, at its end, behind a checkpoint within an epoch, and
     * in the last. */
    static const size_t stops[] = {1, 12, 17, 30, 35};
    test_train_watch w = {0};
    size_t size = 0, again = 0;
    void *want = test_train_bytes(test_train_path(stem), 0, &w, &size);

    assert_int_equal(w.steps, 36);
    assert_int_equal(w.epochs, 3);
    assert_true(w.last.best > 0.9);
    for (size_t i = 0; i < SB_COUNT(stops); i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "%s%zu", stem, i);
        w = (test_train_watch){.stop_after = stops[i]};
        assert_null(test_train_bytes(test_train_path(name), 0, &w, &again));
        sb_ctx_set_threads(test_ctx(), 1 + (int)i % 3);
        w = (test_train_watch){0};
        void *got = test_train_bytes(test_train_path(name), 1, &w, &again);
        assert_int_equal(w.steps, 36 - stops[i]);
        assert_int_equal(again, size);
        assert_memory_equal(got, want, size);
        sb_memory_free(got);
    }
    /* At the end of an epoch, the last one as well. */
    for (size_t epochs = 1; epochs <= 3; epochs += 2) {
        char name[32];

        (void)snprintf(name, sizeof name, "%s_epoch%zu", stem, epochs);
        w = (test_train_watch){.stop_epochs = epochs};
        assert_null(test_train_bytes(test_train_path(name), 0, &w, &again));
        w = (test_train_watch){0};
        void *got = test_train_bytes(test_train_path(name), 1, &w, &again);
        assert_int_equal(w.steps, 36 - 12 * epochs);
        assert_int_equal(w.epochs, epochs < 3 ? 3 - epochs : 1);
        assert_int_equal(again, size);
        assert_memory_equal(got, want, size);
        sb_memory_free(got);
    }
    /* Once more, when there is nothing left to do. */
    w = (test_train_watch){0};
    void *got = test_train_bytes(test_train_path(stem), 1, &w, &again);
    assert_int_equal(w.steps, 0);
    assert_int_equal(w.epochs, 1);
    assert_true(w.last.epoch == 2 && w.last.best > 0.5);
    assert_int_equal(again, size);
    assert_memory_equal(got, want, size);
    sb_memory_free(got);
    sb_memory_free(want);
}

static void test_it_learns_and_resumes_to_the_last_bit(void **state)
{
    (void)state;
    check_resuming("float");
}

/* Shares are a function of seed, epoch and step. */
static void test_mixed_samples_resume_to_the_last_bit(void **state)
{
    (void)state;
    test_train_settings = "EPOCHS: 3\nLR: 0.05\nCHECKPOINT: 5\nMIXUP: 0.3\n"
                          "LABEL_SMOOTHING: 0.1\n";
    check_resuming("mixed");
    test_train_settings = test_train_standard;
}

static int keep_best(void *user, const sb_train_state *p)
{
    *(double *)user = p->best;
    return 0;
}

/* The best validation of a short run on the network, learning `output`. */
static double best_of(const char *text, const char *settings)
{
    sb_data *train = test_train_samples(8, 0),
            *valid = test_train_samples(8, 32);
    sb_train_options opt = SB_TRAIN_OPTIONS_INIT;
    sb_model *model = NULL, *out = NULL;
    double best = -1;

    assert_ok(sb_model_parse(test_ctx(), text, &model));
    opt.options_text = settings;
    opt.watch = keep_best;
    opt.watch_user = &best;
    assert_ok(sb_train(model, train, valid, &opt, &out));
    sb_model_free(out);
    sb_data_free(valid);
    sb_data_free(train);
    sb_model_free(model);
    return best;
}

/* Of two outputs the second is learned and validated: as if it were alone. */
static void test_one_of_several_outputs(void **state)
{
#define LINEAR                               \
    "    fc.weight: f32[4,16] = random(8)\n" \
    "    f = Flatten(x)\n"                   \
    "    y = Gemm(f, fc.weight) {transB=1}\n}\n"
    (void)state;
    double alone = best_of("graph net(x: f32[N,1,4,4]) -> (y) {\n" LINEAR,
                           "EPOCHS: 3\nLR: 0.05\n");
    assert_true(alone > 0.3);
    assert_close("the same",
                 best_of("graph net(x: f32[N,1,4,4]) -> (f, y) {\n" LINEAR,
                         "EPOCHS: 3\nLR: 0.05\nOUTPUT: y\n"),
                 alone, 0);
    test_train_refused("OUTPUT: z", NULL, 0, 8, 0, SB_BAD_ARG, "no output 'z'");
#undef LINEAR
}

/* A network that starts as its teacher, and learns labels beside. */
static void test_features_of_a_teacher(void **state)
{
    (void)state;
    test_train_teaches = true;
    test_train_settings = "EPOCHS: 3\nLR: 0.05\nCHECKPOINT: 5\nLABELS: 0.9\n"
                          "FEATURES: [n, r=r]\nFEATURE_WEIGHT: 0.1\n";
    check_resuming("taught");
    test_train_settings = "FEATURES: [none]\n";
    sb_train_options opt = SB_TRAIN_OPTIONS_INIT;
    sb_model *model = test_train_net(), *out = NULL;
    sb_data *data = test_train_samples(8, 0);
    opt.options_text = test_train_settings;
    assert_status(sb_train(model, data, NULL, &opt, &out), SB_BAD_CONFIG);
    assert_error_has("training options: FEATURES are learned from a teacher");
    opt.teacher = model;
    assert_status(sb_train(model, data, NULL, &opt, &out), SB_BAD_ARG);
    assert_error_has("no result 'none'");
    opt.options_text = "FEATURES: [n=none]\n";
    assert_status(sb_train(model, data, NULL, &opt, &out), SB_BAD_CONFIG);
    assert_error_has(
        "training options: FEATURES: the teacher has no result 'n");
    sb_data_free(data);
    sb_model_free(model);
    test_train_settings = test_train_standard;
    test_train_teaches = false;
}

static void test_quantizers_learn_and_resume_to_the_last_bit(void **state)
{
    (void)state;
    test_train_config = test_train_lsq4;
    check_resuming("lsq");
    test_train_config = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pruning_while_training_resumes_to_the_last_bit),
        cmocka_unit_test(test_it_learns_and_resumes_to_the_last_bit),
        cmocka_unit_test(test_mixed_samples_resume_to_the_last_bit),
        cmocka_unit_test(test_one_of_several_outputs),
        cmocka_unit_test(test_features_of_a_teacher),
        cmocka_unit_test(test_quantizers_learn_and_resume_to_the_last_bit),
    };

    return cmocka_run_group_tests_name("train", tests, test_train_setup,
                                       test_train_teardown);
}
