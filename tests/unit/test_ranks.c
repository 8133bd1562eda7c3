/* Ranks that train, and that calibrate, together: what one rank alone gets. */
#define _POSIX_C_SOURCE 200809L
#include "idxtest.h"
#include "ranktest.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include <sparsebit/train.h>

#include "base/ranks/comm.h"

static char dir[] = "/tmp/sbtest-ranks-XXXXXX";

enum { SAMPLES = 96, PIXELS = 36, CLASSES = 4 };

static const char *in_dir(const char *name, char path[160])
{
    (void)snprintf(path, 160, "%s/%s", dir, name);
    return path;
}

static int write_samples(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(dir));
    test_write_idx(dir, SAMPLES, 6, CLASSES);
    return 0;
}

static int remove_samples(void **state)
{
    char command[256];

    (void)state;
    (void)snprintf(command, sizeof command, "rm -r '%s'", dir);
    return system(command); /* a folder that mkdtemp() made */
}

static sb_status open_samples(sb_ctx *ctx, size_t batch, size_t samples,
                              sb_data **out)
{
    char text[640], x[160], y[160];
    sb_data_options opt = SB_DATA_OPTIONS_INIT;

    (void)snprintf(text, sizeof text,
                   "SOURCE: idx\nPATH: %s\nLABELS: %s\nSCALE: 255\n"
                   "MEAN: 0.4\nSTD: 0.25\nSHUFFLE: true\nBATCH: 8\n"
                   "AUGMENT: {COLOR_JITTER: 0.1}\n",
                   in_dir("x.idx", x), in_dir("y.idx", y));
    opt.batch = batch;
    opt.samples = samples;
    opt.seed = 3;
    return sb_data_parse(ctx, text, "t.yaml", &opt, out);
}

/* With batch norms, of which one is not of an image, and dropout. */
static const char net[] =
    "graph net(x: f32[N,1,6,6]) -> (y: f32[N,4]) {\n"
    "    c.weight: f32[6,1,3,3] = random(7)\n"
    "    bn.weight: f32[6] = 1\n"
    "    bn.bias: f32[6] = 0\n"
    "    bn.running_mean: f32[6] = 0\n"
    "    bn.running_var: f32[6] = 1\n"
    "    h.weight: f32[10,96] = random(8)\n"
    "    hn.weight: f32[10] = 1\n"
    "    hn.bias: f32[10] = 0\n"
    "    hn.running_mean: f32[10] = 0\n"
    "    hn.running_var: f32[10] = 1\n"
    "    fc.weight: f32[4,10] = random(9)\n"
    "    fc.bias: f32[4] = 0\n"
    "    ratio: f32[] = 0.1\n"
    "    c = Conv(x, c.weight)\n"
    "    n = BatchNormalization(c, bn.weight, bn.bias, bn.running_mean, "
    "bn.running_var)\n"
    "    r = Relu(n)\n"
    "    d = Dropout(r, ratio)\n"
    "    f = Flatten(d)\n"
    "    h = Gemm(f, h.weight) {transB=1}\n"
    "    m = BatchNormalization(h, hn.weight, hn.bias, hn.running_mean, "
    "hn.running_var)\n"
    "    s = Relu(m)\n"
    "    y = Gemm(s, fc.weight, fc.bias) {transB=1, alpha=1.5}\n"
    "}\n";

/* ---- one step ----------------------------------------------------------- */

enum { BATCH = 12, MOST_VALUES = 2048 };

typedef struct {
    int ranks, optimizer;
    int64_t ignored; /* labels that do not count */
    double loss[TEST_RANKS];
    size_t n[TEST_RANKS]; /* values of all parameters after the steps */
    float values[TEST_RANKS][MOST_VALUES];
} step_case;

/* The part of a batch that a rank has; labels are of 0 to 3. */
static sb_status step_rank(sb_ctx *ctx, int rank, void *user)
{
    step_case *c = user;
    const int64_t n = BATCH / c->ranks, dims[] = {n, 1, 6, 6};
    sb_learn_options opt = SB_LEARN_OPTIONS_INIT;
    sb_model *model = NULL;
    sb_learner *learner = NULL;
    sb_tensor x = sb_tensor_make(SB_DTYPE_F32, 4, dims);
    sb_tensor y = sb_tensor_make(SB_DTYPE_I64, 1, &n);
    const sb_tensor *in = &x;

    opt.optimizer = (sb_optimizer)c->optimizer;
    opt.learning_rate = 0.01;
    opt.ignore_index = c->ignored;
    opt.weight_decay = 0.01;
    opt.clip_norm = 0.5;
    SB_TRY(sb_tensor_alloc(ctx, &x));
    SB_TRY(sb_tensor_alloc(ctx, &y));
    sb_status status = sb_model_parse(ctx, net, &model);
    if (status == SB_OK)
        status = sb_learner_create(model, &opt, &learner);
    for (int step = 0; step < 4 && status == SB_OK; step++) {
        for (int64_t i = 0; i < n; i++) {
            int64_t sample = rank * n + i + BATCH * step;

            /* Those that do not count are not the same number on all. */
            ((int64_t *)y.data)[i] = sample % BATCH < 3 ? 0 : 1 + sample % 3;
            for (int64_t p = 0; p < PIXELS; p++)
                ((float *)x.data)[i * PIXELS + p] =
                    (float)sin((double)(sample * 37 + p * p) * 0.37) + 0.5f;
        }
        status = sb_learner_step(learner, &in, 1, &y, &c->loss[rank]);
    }
    for (size_t i = 0;
         status == SB_OK && i < sb_learner_parameter_count(learner); i++) {
        const sb_tensor *t = sb_learner_parameter(learner, i)->value;
        size_t count = (size_t)sb_tensor_count(t);

        if (c->n[rank] + count <= MOST_VALUES)
            memcpy(c->values[rank] + c->n[rank], t->data, sb_tensor_bytes(t));
        c->n[rank] += count;
    }
    sb_learner_free(learner);
    sb_model_free(model);
    sb_tensor_drop(&x);
    sb_tensor_drop(&y);
    return status;
}

static void test_steps_are_those_of_one_rank(void **state)
{
    static step_case alone, many;

    (void)state;
    for (int optimizer = 0; optimizer < 2; optimizer++)
        for (int ignored = -100; ignored <= 0; ignored += 100) {
            test_rank out[TEST_RANKS];

            alone = (step_case){
                .ranks = 1, .optimizer = optimizer, .ignored = ignored};
            test_ranks_run(1, step_rank, &alone, out);
            assert_int_equal(out[0].status, SB_OK);
            assert_true(alone.n[0] > 1000 && alone.n[0] < MOST_VALUES);
            for (int ranks = 2; ranks <= 4; ranks++) {
                many = (step_case){
                    .ranks = ranks, .optimizer = optimizer, .ignored = ignored};
                test_ranks_run(ranks, step_rank, &many, out);
                for (int r = 0; r < ranks; r++) {
                    assert_string_equal(out[r].error, "");
                    assert_close("loss", many.loss[r], alone.loss[0], 1e-5);
                    assert_int_equal(many.n[r], alone.n[0]);
                    assert_all_close("parameters", many.values[r],
                                     alone.values[0], alone.n[0], 1e-4);
                    /* All ranks have the same, to the last bit. */
                    assert_memory_equal(many.values[r], many.values[0],
                                        alone.n[0] * sizeof(float));
                }
            }
        }
}

/* ---- a training run ----------------------------------------------------- */

typedef struct {
    const char *folder;
    size_t batch, stop_after, steps;
    int resume, rank_that_differs;
    bool attribute; /* is what differs; else options */
    double loss[TEST_RANKS][4], best[TEST_RANKS];
} train_case;

typedef struct {
    train_case *c;
    int rank;
    size_t steps;
} watched;

static int watch(void *user, const sb_train_state *s)
{
    watched *w = user;

    w->steps += s->samples_per_second > 0;
    if (s->samples_per_second == 0 && s->epoch < 4) {
        w->c->loss[w->rank][s->epoch] = s->loss;
        w->c->best[w->rank] = s->best;
    }
    return w->c->stop_after && w->steps == w->c->stop_after;
}

static sb_status train_rank(sb_ctx *ctx, int rank, void *user)
{
    train_case *c = user;
    watched w = {c, rank, 0};
    sb_train_options opt = SB_TRAIN_OPTIONS_INIT;
    sb_model *model = NULL, *out = NULL;
    sb_data *train = NULL, *valid = NULL;

    opt.options_text = rank == c->rank_that_differs && !c->attribute
                           ? "EPOCHS: 3\nLR: 0.01\n"
                           : "EPOCHS: 3\nLR: 0.05\nEMA: 0.9\nCHECKPOINT: 5\n"
                             "ACCUMULATE: 2\n";
    opt.folder = c->folder;
    opt.resume = c->resume;
    opt.watch = watch;
    opt.watch_user = &w;
    char text[sizeof net];
    memcpy(text, net, sizeof net);
    if (rank == c->rank_that_differs && c->attribute)
        memcpy(strstr(text, "alpha=1.5"), "alpha=2.5", 9);
    sb_status status = sb_model_parse(ctx, text, &model);
    if (status == SB_OK)
        status = open_samples(ctx, c->batch, 0, &train);
    if (status == SB_OK)
        status = open_samples(ctx, 8, 40, &valid);
    if (status == SB_OK)
        status = sb_train(model, train, valid, &opt, &out);
    if (rank == 0)
        c->steps = w.steps;
    sb_model_free(out);
    sb_data_free(train);
    sb_data_free(valid);
    sb_model_free(model);
    return status;
}

/* The losses of all epochs, on all ranks, are those of `want`. */
static void expect_losses(const train_case *got, const train_case *want,
                          int ranks, size_t from)
{
    for (int r = 0; r < ranks; r++) {
        for (size_t e = from; e < 3; e++)
            assert_close("loss", got->loss[r][e], want->loss[0][e], 1e-3);
        assert_close("best", got->best[r], want->best[0], 0.06);
    }
}

static void test_a_run_has_the_losses_of_one_rank(void **state)
{
    train_case alone = {.batch = 24, .rank_that_differs = -1};
    test_rank out[TEST_RANKS];

    (void)state;
    test_ranks_run(1, train_rank, &alone, out);
    assert_string_equal(out[0].error, "");
    assert_int_equal(alone.steps, 12);
    for (int ranks = 2; ranks <= 4; ranks++) {
        train_case many = {.batch = 24, .rank_that_differs = -1};

        test_ranks_run(ranks, train_rank, &many, out);
        for (int r = 0; r < ranks; r++)
            assert_string_equal(out[r].error, "");
        assert_int_equal(many.steps, 12);
        expect_losses(&many, &alone, ranks, 0);
    }
}

/* Stopped with two ranks, it goes on with three. */
static void test_a_run_goes_on_with_other_ranks(void **state)
{
    char path[160];
    train_case alone = {.batch = 24, .rank_that_differs = -1};
    train_case half = {.folder = in_dir("run", path),
                       .batch = 24,
                       .stop_after = 7,
                       .rank_that_differs = -1};
    test_rank out[TEST_RANKS];

    (void)state;
    test_ranks_run(1, train_rank, &alone, out);
    test_ranks_run(2, train_rank, &half, out);
    for (int r = 0; r < 2; r++)
        assert_int_equal(out[r].status, SB_INTERRUPTED);
    half.stop_after = 0;
    half.resume = 1;
    test_ranks_run(3, train_rank, &half, out);
    for (int r = 0; r < 3; r++)
        assert_string_equal(out[r].error, "");
    assert_int_equal(half.steps, 5);
    expect_losses(&half, &alone, 3, 1);
}

static void test_what_cannot_be_shared_is_refused(void **state)
{
    train_case odd = {.batch = 16, .rank_that_differs = -1};
    train_case other = {.batch = 24, .rank_that_differs = 2};
    train_case attribute = {
        .batch = 24, .rank_that_differs = 1, .attribute = true};
    train_case nothing = {
        .folder = "/nowhere/at/all", .batch = 24, .rank_that_differs = -1};
    test_rank out[TEST_RANKS];

    (void)state;
    test_ranks_run(3, train_rank, &odd, out);
    for (int r = 0; r < 3; r++)
        assert_non_null(strstr(out[r].error,
                               "batches of 16 samples cannot be shared by 3 "
                               "ranks"));
    test_ranks_run(3, train_rank, &other, out);
    for (int r = 0; r < 3; r++)
        assert_string_equal(
            out[r].error,
            "rank 2 has not the 'LR' of rank 0: start all ranks with the same "
            "files and options");
    test_ranks_run(3, train_rank, &attribute, out);
    for (int r = 0; r < 3; r++)
        assert_non_null(
            strstr(out[r].error, "rank 1 has not the 'network' of rank 0"));
    /* Only the first one sees that the folder cannot be made. */
    test_ranks_run(2, train_rank, &nothing, out);
    assert_int_equal(out[0].status, SB_IO);
    assert_int_equal(out[1].status, SB_IO);
    assert_non_null(strstr(out[1].error, "rank 0: /nowhere/at/all"));
}

/* ---- parts of data ------------------------------------------------------ */

/* Every sample is read once, and slices lie side by side. */
static void test_parts_of_data(void **state)
{
    sb_data *whole = NULL, *part = NULL;
    const sb_batch *a = NULL, *b = NULL;

    (void)state;
    assert_ok(open_samples(test_ctx(), 20, 0, &whole));
    assert_ok(open_samples(test_ctx(), 20, 0, &part));
    for (int ranks = 1; ranks <= 7; ranks++) {
        /* 96 samples are 4 batches of 20 and one of 16. */
        sb_data_rewind(whole);
        for (int r = 0; r < ranks; r++) {
            assert_ok(sb_data_share(part, SB_DATA_PART_BATCHES, r, ranks));
            for (;;) {
                assert_ok(sb_data_next(part, &b));
                if (b->count == 0)
                    break;
                assert_ok(sb_data_next(whole, &a));
                assert_int_equal(a->count, b->count);
                assert_memory_equal(a->labels, b->labels,
                                    a->count * sizeof *a->labels);
                assert_tensor("batch", b->inputs[0], a->inputs[0], 0);
            }
        }
        assert_ok(sb_data_next(whole, &a));
        assert_int_equal(a->count, 0);
        assert_int_equal(sb_data_count(part), SAMPLES);
    }
    for (int r = 0; r < 5; r++) {
        size_t steps = 0;

        assert_ok(sb_data_share(part, SB_DATA_PART_SLICES, r, 5));
        sb_data_start_epoch(whole, 6);
        sb_data_start_epoch(part, 6);
        for (;; steps++) {
            assert_ok(sb_data_next(part, &b));
            if (b->count == 0)
                break;
            assert_ok(sb_data_next(whole, &a));
            assert_int_equal(b->count, 4);
            assert_memory_equal(a->labels + 4 * r, b->labels,
                                4 * sizeof *a->labels);
            assert_memory_equal((const float *)a->inputs[0]->data +
                                    4 * r * PIXELS,
                                b->inputs[0]->data, 4 * PIXELS * sizeof(float));
        }
        assert_int_equal(steps, 4);
    }
    assert_status(sb_data_share(part, SB_DATA_PART_SLICES, 0, 3), SB_BAD_DATA);
    assert_error_has("batches of 20 samples cannot be shared by 3 ranks");
    assert_status(sb_data_share(part, SB_DATA_PART_BATCHES, 3, 3), SB_BAD_ARG);
    sb_data_free(whole);
    sb_data_free(part);
}

/* ---- calibration -------------------------------------------------------- */

typedef struct {
    const char *observer, *more, *weights;
    int asym, ranks;
    char path[TEST_RANKS][160];
} quant_case;

static sb_status quant_feed(sb_quant_model *qm, sb_data *data)
{
    const sb_batch *batch = NULL;
    const sb_tensor *y = NULL;

    for (;;) {
        SB_TRY(sb_data_next(data, &batch));
        if (batch->count == 0)
            return SB_OK;
        SB_TRY(sb_quant_model_forward(qm, batch->inputs, 1, &y, 1));
    }
}

static sb_status quant_run(sb_quant_model *qm, sb_data *data,
                           const quant_case *c, int rank)
{
    sb_calibration_options opt = SB_CALIBRATION_OPTIONS_INIT;

    opt.asym_weights = opt.asym_activations = c->asym;
    SB_TRY(sb_quant_model_prepare_calibration(qm, &opt));
    SB_TRY(sb_data_share(data, SB_DATA_PART_BATCHES, rank, c->ranks));
    SB_TRY(quant_feed(qm, data));
    SB_TRY(sb_quant_model_share_calibration(qm));
    SB_TRY(sb_quant_model_calc_qparams(qm));
    return sb_quant_model_export(qm, c->path[rank], NULL);
}

static sb_status quant_rank(sb_ctx *ctx, int rank, void *user)
{
    quant_case *c = user;
    char text[512], name[32];
    sb_quant_options opt = SB_QUANT_OPTIONS_INIT;
    sb_model *model = NULL;
    sb_quant_model *qm = NULL;
    sb_data *data = NULL;

    (void)snprintf(text, sizeof text,
                   "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: %s, "
                   "BIT: 4}}\n"
                   "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}, "
                   "OBSERVER: {TYPE: %s}}\n%s",
                   c->weights ? c->weights : "uniform", c->observer, c->more);
    (void)snprintf(name, sizeof name, "q%d.onnx", rank);
    (void)in_dir(name, c->path[rank]);
    opt.config_text = text;
    opt.target = "onnxruntime-x86";
    opt.calibrate = 1;
    sb_status status = sb_model_parse(ctx, net, &model);
    if (status == SB_OK)
        status = sb_quant_model_create(model, &opt, &qm);
    if (status == SB_OK)
        status = open_samples(ctx, 8, 0, &data);
    if (status == SB_OK)
        status = quant_run(qm, data, c, rank);
    sb_data_free(data);
    sb_quant_model_free(qm);
    sb_model_free(model);
    return status;
}

/* What the ranks wrote, as one text; the caller frees it. */
static char *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);

    assert_true(f && text);
    *size = fread(text, 1, 1 << 20, f);
    assert_int_equal(fclose(f), 0);
    return text;
}

static void test_calibration_gives_the_same_file(void **state)
{
    static const struct {
        const char *observer, *more;
        int asym;
        const char *weights; /* how they are rounded */
    } cases[] = {
        {"MINMAX", "", 0, NULL},
        {"PERCENTILE", "", 0, NULL},
        {"MSE", "", 0, NULL},
        {"KL_HISTOGRAM", "", 0, NULL},
        {"ACIQ", "", 0, NULL},
        {"MOVING_AVERAGE", "", 0, NULL},
        {"MOVING_AVERAGE", "", 1, NULL},
        {"PERCENTILE", "", 1, NULL},
        {"MINMAX", "SCHEDULE: {BIAS_CORRECTION: true}\n", 0, NULL},
        {"MINMAX", "SCHEDULE: {BIAS_CORRECTION: true}\n", 0, "gptq"},
        {"MINMAX", "", 0, "adaround"},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        char *want = NULL;
        size_t size = 0;

        for (int ranks = 1; ranks <= 5; ranks += ranks == 3 ? 2 : 1) {
            quant_case c = {.observer = cases[i].observer,
                            .more = cases[i].more,
                            .weights = cases[i].weights,
                            .asym = cases[i].asym,
                            .ranks = ranks};
            test_rank out[TEST_RANKS];

            test_ranks_run(ranks, quant_rank, &c, out);
            for (int r = 0; r < ranks; r++) {
                size_t n = 0;

                assert_string_equal(out[r].error, "");
                char *got = read_file(c.path[r], &n);
                if (want) {
                    assert_int_equal(n, size);
                    assert_memory_equal(got, want, size);
                    free(got);
                } else {
                    want = got;
                    size = n;
                }
            }
        }
        free(want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_are_those_of_one_rank),
        cmocka_unit_test(test_a_run_has_the_losses_of_one_rank),
        cmocka_unit_test(test_a_run_goes_on_with_other_ranks),
        cmocka_unit_test(test_what_cannot_be_shared_is_refused),
        cmocka_unit_test(test_parts_of_data),
        cmocka_unit_test(test_calibration_gives_the_same_file),
    };
    return cmocka_run_group_tests_name("ranks", tests, write_samples,
                                       remove_samples);
}
