/* The training loop: the best epoch, checkpoints that go on to the last bit,
 * and what it refuses. */
#define _POSIX_C_SOURCE 200809L
#include "idxtest.h"
#include "sbtest.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sparsebit/train.h>

#include "train/trainer.h"

static char dir[] = "/tmp/sbtest-train-XXXXXX";

static const char *in_dir(const char *name)
{
    static char path[8][160];
    static int at;

    at = (at + 1) % 8;
    (void)snprintf(path[at], sizeof path[at], "%s/%s", dir, name);
    return path[at];
}

static int write_samples(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(dir));
    test_write_idx(dir, 96, 4, 4);
    return 0;
}

static int remove_samples(void **state)
{
    char command[256];

    (void)state;
    (void)snprintf(command, sizeof command, "rm -r '%s'", dir);
    return system(command); /* a folder that mkdtemp() made */
}

static sb_data *open_samples(size_t batch, size_t samples)
{
    char text[512];
    sb_data_options opt = SB_DATA_OPTIONS_INIT;
    sb_data *data = NULL;

    (void)snprintf(text, sizeof text,
                   "SOURCE: idx\nPATH: %s\nLABELS: %s\nSCALE: 255\n"
                   "MEAN: 0.4\nSTD: 0.25\nSHUFFLE: true\nBATCH: 8\n"
                   "AUGMENT: {COLOR_JITTER: 0.1}\n",
                   in_dir("x.idx"), in_dir("y.idx"));
    opt.batch = batch;
    opt.samples = samples;
    opt.seed = 3;
    assert_ok(sb_data_parse(test_ctx(), text, "t.yaml", &opt, &data));
    return data;
}

/* A network with batch norm and dropout: all kinds of state. */
static sb_model *small_net(void)
{
    static const char text[] =
        "graph net(x: f32[N,1,4,4]) -> (y: f32[N,4]) {\n"
        "    c.weight: f32[6,1,3,3] = random(7)\n"
        "    bn.weight: f32[6] = 1\n"
        "    bn.bias: f32[6] = 0\n"
        "    bn.running_mean: f32[6] = 0\n"
        "    bn.running_var: f32[6] = 1\n"
        "    fc.weight: f32[4,24] = random(8)\n"
        "    fc.bias: f32[4] = 0\n"
        "    ratio: f32[] = 0.1\n"
        "    c = Conv(x, c.weight) \"conv\"\n"
        "    n = BatchNormalization(c, bn.weight, bn.bias, bn.running_mean, "
        "bn.running_var)\n"
        "    r = Relu(n)\n"
        "    d = Dropout(r, ratio)\n"
        "    f = Flatten(d)\n"
        "    y = Gemm(f, fc.weight, fc.bias) {transB=1}\n"
        "}\n";
    sb_model *model = NULL;

    assert_ok(sb_model_parse(test_ctx(), text, &model));
    return model;
}

/* ---- running ------------------------------------------------------------ */

typedef struct {
    size_t stop_after;  /* steps; 0: never */
    size_t stop_epochs; /* the same for epochs */
    size_t steps, epochs;
    sb_train_state last;
} watched;

static int watch(void *user, const sb_train_state *s)
{
    watched *w = user;

    w->last = *s;
    if (s->samples_per_second > 0)
        w->steps++;
    else
        w->epochs++;
    return (w->stop_after && w->steps == w->stop_after) ||
           (w->stop_epochs && w->epochs == w->stop_epochs);
}

static const char standard[] =
    "EPOCHS: 3\nLR: 0.05\nEMA: 0.9\nWEIGHT_DECAY: 0.001\nCHECKPOINT: 5\n";
static const char *settings = standard;

/* NULL: the network is trained in float. */
static const char *config;
static const char *sparser; /* NULL: it is not pruned where it is refused */
static bool teaches;        /* the network as it was teaches */

/* With the quantizers of `config`. */
static sb_status train_quantized(const sb_model *model, sb_data *data,
                                 sb_data *valid, const sb_train_options *opt,
                                 sb_model **out)
{
    sb_quant_options quant = SB_QUANT_OPTIONS_INIT;
    sb_quant_model *qm = NULL;
    sb_train_check check = SB_TRAIN_CHECK_INIT;

    quant.config_text = config;
    quant.train = 1;
    SB_TRY(sb_quant_model_create(model, &quant, &qm));
    sb_status status = sb_quant_model_train(qm, data, valid, opt, &check);
    if (status == SB_OK) {
        assert_int_equal(check.samples, 32);
        assert_true(check.agreement > 0.96 && check.error < 0.02);
        status = sb_quant_model_export_model(qm, NULL, out);
    }
    sb_quant_model_free(qm);
    return status;
}

/* The bytes of the trained model; NULL if training was ended. */
static void *train_pruned(const char *folder, int resume, const char *prune,
                          watched *w, size_t *size)
{
    sb_train_options opt = SB_TRAIN_OPTIONS_INIT;
    sb_model *model = small_net(), *out = NULL;
    sb_data *data = open_samples(8, 0), *valid = open_samples(8, 32);
    void *bytes = NULL;

    opt.options_text = settings;
    opt.folder = folder;
    opt.resume = resume;
    opt.prune_text = prune;
    opt.watch = watch;
    opt.watch_user = w;
    opt.teacher = teaches ? model : NULL;
    sb_status status = config ? train_quantized(model, data, valid, &opt, &out)
                              : sb_train(model, data, valid, &opt, &out);
    if (status == SB_INTERRUPTED) {
        assert_error_has("--resume");
        sb_ctx_clear_interrupt(test_ctx());
    } else {
        assert_ok(status);
        assert_ok(sb_model_save_memory(out, &bytes, size));
    }
    sb_data_free(data);
    sb_data_free(valid);
    sb_model_free(model);
    sb_model_free(out);
    return bytes;
}

static void *train(const char *folder, int resume, watched *w, size_t *size)
{
    return train_pruned(folder, resume, NULL, w, size);
}

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
        watched w = {0};

        (void)snprintf(whole, sizeof whole, "pruned%zu", i);
        (void)snprintf(part, sizeof part, "pruned_part%zu", i);
        void *want = train_pruned(in_dir(whole), 0, cases[i].config, &w, &size);
        assert_true(w.last.best > 0.5 && w.last.pruned == 1);
        assert_size(want, size, "c.weight", cases[i].conv, cases[i].conv_zeros);
        assert_size(want, size, "fc.weight", cases[i].fc, cases[i].fc_zeros);
        w = (watched){.stop_after = 10};
        assert_null(train_pruned(in_dir(part), 0, cases[i].config, &w, &again));
        w = (watched){0};
        void *got = train_pruned(in_dir(part), 1, cases[i].config, &w, &again);
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
    watched w = {0};
    size_t size = 0, again = 0;
    void *want = train(in_dir(stem), 0, &w, &size);

    assert_int_equal(w.steps, 36);
    assert_int_equal(w.epochs, 3);
    assert_true(w.last.best > 0.9);
    for (size_t i = 0; i < SB_COUNT(stops); i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "%s%zu", stem, i);
        w = (watched){.stop_after = stops[i]};
        assert_null(train(in_dir(name), 0, &w, &again));
        sb_ctx_set_threads(test_ctx(), 1 + (int)i % 3);
        w = (watched){0};
        void *got = train(in_dir(name), 1, &w, &again);
        assert_int_equal(w.steps, 36 - stops[i]);
        assert_int_equal(again, size);
        assert_memory_equal(got, want, size);
        sb_memory_free(got);
    }
    /* At the end of an epoch, the last one as well. */
    for (size_t epochs = 1; epochs <= 3; epochs += 2) {
        char name[32];

        (void)snprintf(name, sizeof name, "%s_epoch%zu", stem, epochs);
        w = (watched){.stop_epochs = epochs};
        assert_null(train(in_dir(name), 0, &w, &again));
        w = (watched){0};
        void *got = train(in_dir(name), 1, &w, &again);
        assert_int_equal(w.steps, 36 - 12 * epochs);
        assert_int_equal(w.epochs, epochs < 3 ? 3 - epochs : 1);
        assert_int_equal(again, size);
        assert_memory_equal(got, want, size);
        sb_memory_free(got);
    }
    /* Once more, when there is nothing left to do. */
    w = (watched){0};
    void *got = train(in_dir(stem), 1, &w, &again);
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
    settings = "EPOCHS: 3\nLR: 0.05\nCHECKPOINT: 5\nMIXUP: 0.3\n"
               "LABEL_SMOOTHING: 0.1\n";
    check_resuming("mixed");
    settings = standard;
}

/* A network that starts as its teacher, and learns labels beside. */
static void test_features_of_a_teacher(void **state)
{
    (void)state;
    teaches = true;
    settings = "EPOCHS: 3\nLR: 0.05\nCHECKPOINT: 5\nLABELS: 0.9\n"
               "FEATURES: [n, r=r]\nFEATURE_WEIGHT: 0.1\n";
    check_resuming("taught");
    settings = "FEATURES: [none]\n";
    sb_train_options opt = SB_TRAIN_OPTIONS_INIT;
    sb_model *model = small_net(), *out = NULL;
    sb_data *data = open_samples(8, 0);
    opt.options_text = settings;
    assert_status(sb_train(model, data, NULL, &opt, &out), SB_BAD_CONFIG);
    assert_error_has("FEATURES are learned from a teacher");
    opt.teacher = model;
    assert_status(sb_train(model, data, NULL, &opt, &out), SB_BAD_ARG);
    assert_error_has("no result 'none'");
    opt.options_text = "FEATURES: [n=none]\n";
    assert_status(sb_train(model, data, NULL, &opt, &out), SB_BAD_CONFIG);
    assert_error_has("the teacher has no result 'none'");
    sb_data_free(data);
    sb_model_free(model);
    settings = standard;
    teaches = false;
}

static const char lsq4[] =
    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: lsq, BIT: 4}}\n"
    "A: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: lsq, BIT: 4}}\n";

static void test_quantizers_learn_and_resume_to_the_last_bit(void **state)
{
    (void)state;
    config = lsq4;
    check_resuming("lsq");
    config = NULL;
}

/* ---- refusals ----------------------------------------------------------- */

static void expect(const char *text, const char *folder, int resume,
                   size_t batch, uint64_t seed, sb_status status,
                   const char *message)
{
    sb_train_options opt = SB_TRAIN_OPTIONS_INIT;
    sb_model *model = small_net(), *out = NULL;
    sb_data *data = open_samples(batch, 0), *valid = open_samples(8, 32);

    opt.options_text = text;
    opt.folder = folder;
    opt.resume = resume;
    opt.seed = seed;
    opt.teacher = teaches ? model : NULL;
    opt.prune_text = sparser;
    assert_status(config ? train_quantized(model, data, valid, &opt, &out)
                         : sb_train(model, data, valid, &opt, &out),
                  status);
    assert_error_has(message);
    assert_null(out);
    sb_data_free(data);
    sb_data_free(valid);
    sb_model_free(model);
}

static void test_wrong_settings_are_refused(void **state)
{
    (void)state;
    expect("EPOCH: 3", NULL, 0, 8, 0, SB_BAD_CONFIG, "EPOCH");
    expect("LR: -1", NULL, 0, 8, 0, SB_BAD_CONFIG, "LR: found -1");
    expect("MILESTONES: [3, 1]", NULL, 0, 8, 0, SB_BAD_CONFIG,
           "want rising epochs");
    expect("LABELS: 0.5\nTEMPERATURE: 4", NULL, 0, 8, 0, SB_BAD_CONFIG,
           "LABELS: found beside a TEMPERATURE of 4, want 1");
    expect("FREEZE: nothing.*", NULL, 0, 8, 0, SB_BAD_ARG, "nothing.*");
    expect("{}", NULL, 0, 97, 0, SB_BAD_DATA,
           "batches of 97 samples cannot be made, there are 96");
}

static void test_labels_beside_a_teacher_of_images_are_refused(void **state)
{
    sb_train_options opt = SB_TRAIN_OPTIONS_INIT;
    sb_model *model = small_net(), *teacher = NULL, *out = NULL;
    sb_data *data = open_samples(8, 0);

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
    watched w = {.stop_after = 7};
    char folder[160];
    size_t size;

    (void)state;
    (void)snprintf(folder, sizeof folder, "%s", in_dir("other"));
    assert_null(train(folder, 0, &w, &size));
    expect(settings, folder, 0, 8, 0, SB_BAD_ARG, "holds a training run");
    expect("EPOCHS: 4\nLR: 0.05\nEMA: 0.9\nWEIGHT_DECAY: 0.001\n", folder, 1, 8,
           0, SB_BAD_DATA, "EPOCHS");
    expect(settings, folder, 1, 12, 0, SB_BAD_DATA,
           "the run there has steps 12, this one 8");
    expect(settings, folder, 1, 8, 9, SB_BAD_DATA,
           "the run there has seed 0, this one 9");
    config = lsq4;
    expect(settings, folder, 1, 8, 0, SB_BAD_DATA, "quant");
    config = NULL;
    teaches = true;
    expect(settings, folder, 1, 8, 0, SB_BAD_DATA,
           "the run there has teacher no, this one yes");
    teaches = false;
    expect(settings, in_dir("nothing"), 1, 8, 0, SB_IO,
           "there is no training run to resume");
    assert_int_equal(truncate(in_dir("other/last.npz"), 1000), 0);
    expect(settings, folder, 1, 8, 0, SB_BAD_DATA, "last.npz");
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
        watched w = {.stop_after = 7};
        char text[128], folder[32];

        (void)snprintf(text, sizeof text, "SPARSER: {TYPE: structed, %s}",
                       parts[i]);
        (void)snprintf(folder, sizeof folder, "only%zu", i);
        assert_null(train_pruned(in_dir(folder), 0, text, &w, &size));
    }
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sparser = cases[i].config;
        expect(settings, in_dir(cases[i].part ? "only1" : "only0"), 1, 8, 0,
               SB_BAD_DATA, cases[i].message);
    }
    sparser = NULL;
}

/* A folder that the run made, and wrote nothing to, is gone. */
static void test_a_run_that_fails_leaves_no_empty_folder(void **state)
{
    (void)state;
    expect("LR: 1000\nWEIGHT_DECAY: 10\nEPOCHS: 1", in_dir("empty"), 0, 8, 0,
           SB_BAD_DATA, "of epoch 1");
    assert_int_equal(access(in_dir("empty"), F_OK), -1);
    assert_int_equal(mkdir(in_dir("own"), 0777), 0);
    expect("LR: 1000\nWEIGHT_DECAY: 10\nEPOCHS: 1", in_dir("own"), 0, 8, 0,
           SB_BAD_DATA, "of epoch 1");
    assert_int_equal(access(in_dir("own"), F_OK), 0);
}

/* Other quantizers than those of the run. */
static void test_a_quantized_run_is_resumed_only_as_it_was(void **state)
{
    watched w = {.stop_after = 7};
    char folder[160];
    size_t size;

    (void)state;
    config = lsq4;
    (void)snprintf(folder, sizeof folder, "%s", in_dir("quantized"));
    assert_null(train(folder, 0, &w, &size));
    config =
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: lsq, BIT: 4}}\n"
        "A: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: lsq, BIT: 3}}\n";
    expect(settings, folder, 1, 8, 0, SB_BAD_DATA,
           "input_quantizer: lsq, per-tensor-symmetric, 4 bit (-8..7), "
           "minmax', this one '");
    config = NULL;
    expect(settings, folder, 1, 8, 0, SB_BAD_DATA, "quantize");
}

static void test_bad_settings_of_quantizers_are_refused(void **state)
{
    (void)state;
    config =
        "W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {TYPE: lsq, BIT: 4}}\n"
        "A: none\n";
    expect("BN: restore", NULL, 0, 8, 0, SB_BAD_CONFIG,
           "set W.QSCHEME per-channel-symmetric, or BN: folded");
    config =
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: gptq, BIT: 4}}\n"
        "A: none\n";
    expect("{}", NULL, 0, 8, 0, SB_UNSUPPORTED,
           "is of TYPE gptq, which cannot be trained");
    config = "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
             "A: dynamic\n";
    expect("{}", NULL, 0, 8, 0, SB_UNSUPPORTED, "`A: dynamic` cannot be");
    config = NULL;
}

static void test_a_loss_that_is_not_finite_ends_training(void **state)
{
    (void)state;
    expect("LR: 1000\nEPOCHS: 50", NULL, 0, 8, 0, SB_BAD_DATA, "in step ");
}

static void test_checkpoints_that_cannot_be_written_are_warnings(void **state)
{
    watched w = {0};
    size_t size = 0, again = 0;
    void *want = train(in_dir("fine"), 0, &w, &size);

    (void)state;
    assert_int_equal(mkdir(in_dir("full"), 0777), 0);
    /* A folder of that name cannot be replaced by a file. */
    assert_int_equal(mkdir(in_dir("full/best.npz"), 0777), 0);
    w = (watched){0};
    void *got = train(in_dir("full"), 0, &w, &again);
    assert_int_equal(again, size);
    assert_memory_equal(got, want, size);
    sb_memory_free(got);
    /* What was written does not name a best epoch that is not there. */
    assert_int_equal(rmdir(in_dir("full/best.npz")), 0);
    got = train(in_dir("full"), 1, &w, &again);
    assert_int_equal(again, size);
    assert_memory_equal(got, want, size);
    sb_memory_free(got);
    sb_memory_free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_learns_and_resumes_to_the_last_bit),
        cmocka_unit_test(test_quantizers_learn_and_resume_to_the_last_bit),
        cmocka_unit_test(test_mixed_samples_resume_to_the_last_bit),
        cmocka_unit_test(test_features_of_a_teacher),
        cmocka_unit_test(test_pruning_while_training_resumes_to_the_last_bit),
        cmocka_unit_test(test_wrong_settings_are_refused),
        cmocka_unit_test(test_bad_settings_of_quantizers_are_refused),
        cmocka_unit_test(test_a_quantized_run_is_resumed_only_as_it_was),
        cmocka_unit_test(test_labels_beside_a_teacher_of_images_are_refused),
        cmocka_unit_test(test_a_run_is_resumed_only_as_it_was),
        cmocka_unit_test(test_a_pruned_run_is_resumed_only_as_it_was),
        cmocka_unit_test(test_a_run_that_fails_leaves_no_empty_folder),
        cmocka_unit_test(test_a_loss_that_is_not_finite_ends_training),
        cmocka_unit_test(test_checkpoints_that_cannot_be_written_are_warnings),
    };
    return cmocka_run_group_tests_name("train", tests, write_samples,
                                       remove_samples);
}
