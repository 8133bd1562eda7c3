/* The training loop: what it refuses, and what it takes with a warning. */
#define _POSIX_C_SOURCE 200809L
#include "traintest.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tensor/tensor.h"

static void test_wrong_settings_are_refused(void **state)
{
    (void)state;
    test_train_refused("EPOCH: 3", NULL, 0, 8, 0, SB_BAD_CONFIG, "EPOCH");
    test_train_refused("LR: -1", NULL, 0, 8, 0, SB_BAD_CONFIG, "LR: found -1");
    test_train_refused("MILESTONES: [3, 1]", NULL, 0, 8, 0, SB_BAD_CONFIG,
                       "want rising epochs");
    test_train_refused("LABELS: 0.5\nTEMPERATURE: 4", NULL, 0, 8, 0,
                       SB_BAD_CONFIG,
                       "LABELS: found beside a TEMPERATURE of 4, want 1");
    test_train_refused("FREEZE: nothing.*", NULL, 0, 8, 0, SB_BAD_ARG,
                       "nothing.*");
    test_train_refused("{}", NULL, 0, 97, 0, SB_BAD_DATA,
                       "batches of 97 samples cannot be made of the 96");
}

static void test_labels_beside_a_teacher_of_images_are_refused(void **state)
{
    sb_train_options opt = SB_TRAIN_OPTIONS_INIT;
    sb_model *model = test_train_net(), *teacher = NULL, *out = NULL;
    sb_data *data = test_train_samples(8, 0);

    (void)state;
    assert_ok(sb_model_parse(test_ctx(),
                             "graph net(x: f32[N,1,4,4]) -> (y) {\n"
                             "    y = Relu(x)\n}\n",
                             &teacher));
    opt.options_text = "LABELS: 0.5";
    opt.teacher = teacher;
    assert_status(sb_train(model, data, NULL, &opt, &out), SB_UNSUPPORTED);
    assert_error_has("LABELS: the teacher's first output is ");
    sb_data_free(data);
    sb_model_free(teacher);
    sb_model_free(model);
}

static void test_a_run_is_resumed_only_as_it_was(void **state)
{
    test_train_watch w = {.stop_after = 7};
    char folder[160];
    size_t size;

    (void)state;
    (void)snprintf(folder, sizeof folder, "%s", test_train_path("other"));
    assert_null(test_train_bytes(folder, 0, &w, &size));
    test_train_refused(test_train_settings, folder, 0, 8, 0, SB_BAD_ARG,
                       "holds a training run");
    test_train_refused(
        "EPOCHS: 4\nLR: 0.05\nEMA: 0.9\nWEIGHT_DECAY: 0.001\n", folder, 1, 8, 0,
        SB_BAD_DATA,
        "EPOCHS: another value, 3; want that of the configuration, 4");
    test_train_refused(test_train_settings, folder, 1, 12, 0, SB_BAD_DATA,
                       "the run there has steps 12, this one 8");
    test_train_refused(test_train_settings, folder, 1, 8, 9, SB_BAD_DATA,
                       "the run there has seed 0, this one 9");
    test_train_config = test_train_lsq4;
    test_train_refused(test_train_settings, folder, 1, 8, 0, SB_BAD_DATA,
                       "quant");
    test_train_config = NULL;
    test_train_teaches = true;
    test_train_refused(test_train_settings, folder, 1, 8, 0, SB_BAD_DATA,
                       "the run there has teacher no, this one yes");
    test_train_teaches = false;
    test_train_refused(test_train_settings, test_train_path("nothing"), 1, 8, 0,
                       SB_IO, "there is no training run to resume");
    FILE *f = fopen(test_train_path("other/last.npz"), "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, 1500, SEEK_SET), 0);
    int was = fgetc(f);
    assert_int_equal(fseek(f, 1500, SEEK_SET), 0);
    fputc(was ^ 4, f);
    assert_int_equal(fclose(f), 0);
    test_train_refused(test_train_settings, folder, 1, 8, 0, SB_BAD_DATA,
                       "last.npz");
    assert_int_equal(truncate(test_train_path("other/last.npz"), 1000), 0);
    test_train_refused(test_train_settings, folder, 1, 8, 0, SB_BAD_DATA,
                       "last.npz");
}

/* The same network with other numbers, as a teacher, too. */
static void test_a_run_is_resumed_only_with_its_weights(void **state)
{
    size_t size;

    (void)state;
    for (int teaches = 0; teaches < 2; teaches++) {
        const char *name = teaches ? "taught" : "alone";
        test_train_watch w = {.stop_after = 7};
        sb_train_options opt = SB_TRAIN_OPTIONS_INIT;
        sb_model *nets[] = {test_train_net(), test_train_net()}, *out = NULL;
        sb_data *data = test_train_samples(8, 0);
        sb_data *valid = test_train_samples(8, 32);
        sb_tensor *bias = NULL;

        test_train_teaches = teaches;
        assert_null(test_train_bytes(test_train_path(name), 0, &w, &size));
        assert_ok(sb_tensor_copy(test_ctx(),
                                 sb_model_weight(nets[1], "fc.bias"), &bias));
        ((float *)bias->data)[3] = 1e-6F;
        assert_ok(sb_model_set_weight(nets[1], "fc.bias", bias));
        opt.options_text = test_train_settings;
        opt.folder = test_train_path(name);
        opt.resume = 1;
        opt.teacher = teaches ? nets[1] : NULL;
        assert_status(sb_train(nets[1 - teaches], data, valid, &opt, &out),
                      SB_BAD_DATA);
        assert_error_has(teaches ? "began with another teacher (its weights"
                                 : "began with another model (its weights");
        assert_error_has("or train anew in another folder");
        sb_tensor_free(bias);
        sb_data_free(data);
        sb_data_free(valid);
        sb_model_free(nets[0]);
        sb_model_free(nets[1]);
    }
    test_train_teaches = false;
}

/* Renames what begins with `key` in the note of a checkpoint. */
static void rename_in_note(const char *path, const char *key)
{
    sb_train_options opt = SB_TRAIN_OPTIONS_INIT;
    sb_learner *learner = NULL;
    sb_model *model = test_train_net();

    opt.options_text = test_train_settings;
    assert_ok(sb_train_learner(model, &opt, &learner));
    assert_ok(sb_learner_load(learner, path));
    char *note = strdup(sb_learner_note(learner)), *at = strstr(note, key);
    assert_non_null(at);
    at[1] = '?';
    assert_ok(sb_learner_set_note(learner, note));
    assert_ok(sb_learner_save(learner, path));
    free(note);
    sb_learner_free(learner);
    sb_model_free(model);
}

/* It has no mark of the network, or lacks an option. */
static void test_a_run_of_another_version_says_what_to_do(void **state)
{
    static const struct {
        const char *key, *said;
    } cases[] = {{"\"network\"", "says nothing of 'network': another version "
                                 "of sparsebit wrote it; resume it with that "
                                 "one, or train anew in another folder"},
                 {"\"EMA\"", "EMA: missing; another version of sparsebit "
                             "wrote this file: use that one, or make the file "
                             "anew"}};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        test_train_watch w = {.stop_after = 7};
        char folder[160], file[160];
        size_t size;

        (void)snprintf(folder, sizeof folder, "%s",
                       test_train_path(i ? "older" : "old"));
        (void)snprintf(file, sizeof file, "%s",
                       test_train_path(i ? "older/last.npz" : "old/last.npz"));
        assert_null(test_train_bytes(folder, 0, &w, &size));
        rename_in_note(file, cases[i].key);
        test_train_refused(test_train_settings, folder, 1, 8, 0, SB_BAD_DATA,
                           cases[i].said);
    }
}

/* What was reached before a loss that is not finite stays, and leads there
 * again. */
static void test_a_loss_that_is_not_finite_keeps_the_checkpoint(void **state)
{
    static const char wild[] = "LR: 1000\nEPOCHS: 50\nCHECKPOINT: 1";
    char said[2][300];

    (void)state;
    for (int resume = 0; resume < 2; resume++) {
        test_train_refused(wild, test_train_path("wild"), resume, 8, 0,
                           SB_BAD_DATA, "the first node to make ");
        (void)snprintf(said[resume], sizeof said[resume], "%s",
                       sb_ctx_error(test_ctx()));
    }
    assert_string_equal(said[0], said[1]);
}

/* Other settings of pruning than those of the run, or none. */
static void test_a_pruned_run_is_resumed_only_as_it_was(void **state)
{
    static const char *const parts[] = {
        "RATIO: 0.5, STRATEGY: l2norm, SPECIFIC: {conv: 0.5}",
        "SCHEDULE: linear, ITERATIONS: 3, RATIO: 0.5"};
    static const struct {
        int part;
        const char *config, *message;
    } cases[] = {
        {0, "SPARSER: {RATIO: 0.5, SPECIFIC: {conv: 0.5}}",
         "in pruning 'STRATEGY: l2norm', this one 'STRATEGY: l1norm'"},
        {0, "SPARSER: {RATIO: 0.5, STRATEGY: l2norm}",
         "in pruning 'SPECIFIC: conv: 0.5', this one 'none'"},
        {1, "SPARSER: {SCHEDULE: linear, ITERATIONS: 3, RATIO: 0.4}",
         "in pruning 'RATIO: 0.5', this one 'RATIO: 0.4'"},
        {1, "SPARSER: {SCHEDULE: cubic, ITERATIONS: 3, RATIO: 0.5}",
         "in pruning 'SCHEDULE: linear', this one 'SCHEDULE: cubic'"},
        {1, NULL, "it was written with other options"},
    };
    size_t size;

    (void)state;
    for (size_t i = 0; i < SB_COUNT(parts); i++) {
        test_train_watch w = {.stop_after = 7};
        char text[128], folder[32];

        (void)snprintf(text, sizeof text, "SPARSER: {TYPE: structed, %s}",
                       parts[i]);
        (void)snprintf(folder, sizeof folder, "only%zu", i);
        assert_null(
            test_train_pruned(test_train_path(folder), 0, text, &w, &size));
    }
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        test_train_sparser = cases[i].config;
        test_train_refused(test_train_settings,
                           test_train_path(cases[i].part ? "only1" : "only0"),
                           1, 8, 0, SB_BAD_DATA, cases[i].message);
    }
    test_train_sparser = NULL;
}

/* A schedule that training would not reach the end of. */
static void test_pruning_is_done_before_training_is(void **state)
{
    static const char *const cases[][2] = {
        {"ITERATIONS: 2, SCHEDULE: linear, END: 4",
         "SPARSER.END: found 4, want at most 2.91667"},
        {"ITERATIONS: 2, SCHEDULE: linear, BEGIN: 9",
         "SPARSER.BEGIN: found 9, want at most 2.91667"},
        {"TYPE: unstructured, BEGIN: 4, END: 7",
         "SPARSER.END: found 7, want at most 2.91667"},
    };
    char text[128];

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        (void)snprintf(text, sizeof text, "SPARSER: {RATIO: 0.5, %s}",
                       cases[i][0]);
        test_train_sparser = text;
        test_train_refused(test_train_settings, NULL, 0, 8, 0, SB_BAD_CONFIG,
                           cases[i][1]);
    }
    test_train_sparser = NULL;
}

/* Half of a training of one step lies behind its beginning: without END all
 * goes at once. */
static void test_one_step_prunes_at_once(void **state)
{
    sb_train_options opt = SB_TRAIN_OPTIONS_INIT;
    sb_model *model = test_train_net(), *out = NULL;
    sb_data *data = test_train_samples(8, 8);

    (void)state;
    opt.options_text = "EPOCHS: 1";
    opt.prune_text = "SPARSER: {RATIO: 0.5, ITERATIONS: 2, SCHEDULE: linear}";
    assert_ok(sb_train(model, data, NULL, &opt, &out));
    assert_int_equal(sb_tensor_count(sb_model_weight(out, "c.weight")), 3 * 9);
    sb_data_free(data);
    sb_model_free(model);
    sb_model_free(out);
}

/* A folder that the run made, and wrote nothing to, is gone. */
static void test_a_run_that_fails_leaves_no_empty_folder(void **state)
{
    (void)state;
    test_train_refused("LR: 1000\nWEIGHT_DECAY: 10\nEPOCHS: 1",
                       test_train_path("empty"), 0, 8, 0, SB_BAD_DATA,
                       "of epoch 1");
    assert_int_equal(access(test_train_path("empty"), F_OK), -1);
    assert_int_equal(mkdir(test_train_path("own"), 0777), 0);
    test_train_refused("LR: 1000\nWEIGHT_DECAY: 10\nEPOCHS: 1",
                       test_train_path("own"), 0, 8, 0, SB_BAD_DATA,
                       "of epoch 1");
    assert_int_equal(access(test_train_path("own"), F_OK), 0);
}

/* Other quantizers than those of the run. */
static void test_a_quantized_run_is_resumed_only_as_it_was(void **state)
{
    test_train_watch w = {.stop_after = 7};
    char folder[160];
    size_t size;

    (void)state;
    test_train_config = test_train_lsq4;
    (void)snprintf(folder, sizeof folder, "%s", test_train_path("quantized"));
    assert_null(test_train_bytes(folder, 0, &w, &size));
    test_train_config =
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: lsq, BIT: 4}}\n"
        "A: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: lsq, BIT: 3}}\n";
    test_train_refused(
        test_train_settings, folder, 1, 8, 0, SB_BAD_DATA,
        "input_quantizer: lsq, per-tensor-symmetric, 4 bit (-8..7), "
        "minmax', this one '");
    test_train_config = NULL;
    test_train_refused(test_train_settings, folder, 1, 8, 0, SB_BAD_DATA,
                       "quantize");
}

static void test_bad_settings_of_quantizers_are_refused(void **state)
{
    (void)state;
    test_train_config =
        "W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {TYPE: lsq, BIT: 4}}\n"
        "A: none\n";
    test_train_refused("BN: restore", NULL, 0, 8, 0, SB_BAD_CONFIG,
                       "set W.QSCHEME per-channel-symmetric, or BN: folded");
    test_train_config =
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
        "A: dynamic\n";
    test_train_refused("{}", NULL, 0, 8, 0, SB_UNSUPPORTED,
                       "`A: dynamic` cannot be");
    test_train_config = NULL;
}

static void test_a_loss_that_is_not_finite_ends_training(void **state)
{
    (void)state;
    test_train_refused("LR: 1000\nEPOCHS: 50", NULL, 0, 8, 0, SB_BAD_DATA,
                       "in step ");
}

static void test_checkpoints_that_cannot_be_written_are_warnings(void **state)
{
    test_train_watch w = {0};
    size_t size = 0, again = 0;
    void *want = test_train_bytes(test_train_path("fine"), 0, &w, &size);

    (void)state;
    assert_int_equal(mkdir(test_train_path("full"), 0777), 0);
    /* A folder of that name cannot be replaced by a file. */
    assert_int_equal(mkdir(test_train_path("full/best.npz"), 0777), 0);
    w = (test_train_watch){0};
    void *got = test_train_bytes(test_train_path("full"), 0, &w, &again);
    assert_int_equal(again, size);
    assert_memory_equal(got, want, size);
    sb_memory_free(got);
    /* What was written does not name a best epoch that is not there. */
    assert_int_equal(rmdir(test_train_path("full/best.npz")), 0);
    got = test_train_bytes(test_train_path("full"), 1, &w, &again);
    assert_int_equal(again, size);
    assert_memory_equal(got, want, size);
    sb_memory_free(got);
    sb_memory_free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_settings_are_refused),
        cmocka_unit_test(test_labels_beside_a_teacher_of_images_are_refused),
        cmocka_unit_test(test_a_run_is_resumed_only_as_it_was),
        cmocka_unit_test(test_a_run_is_resumed_only_with_its_weights),
        cmocka_unit_test(test_a_run_of_another_version_says_what_to_do),
        cmocka_unit_test(test_a_loss_that_is_not_finite_keeps_the_checkpoint),
        cmocka_unit_test(test_a_pruned_run_is_resumed_only_as_it_was),
        cmocka_unit_test(test_pruning_is_done_before_training_is),
        cmocka_unit_test(test_one_step_prunes_at_once),
        cmocka_unit_test(test_a_run_that_fails_leaves_no_empty_folder),
        cmocka_unit_test(test_a_quantized_run_is_resumed_only_as_it_was),
        cmocka_unit_test(test_bad_settings_of_quantizers_are_refused),
        cmocka_unit_test(test_a_loss_that_is_not_finite_ends_training),
        cmocka_unit_test(test_checkpoints_that_cannot_be_written_are_warnings),
    };

    return cmocka_run_group_tests_name("train_refusals", tests,
                                       test_train_setup, test_train_teardown);
}
