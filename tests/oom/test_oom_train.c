/* Every allocation fails once while a network is trained: from labels, with
 * checkpoints, resumed, and from a teacher. */
#define _POSIX_C_SOURCE 200809L
#include "idxtest.h"
#include "sbtest.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sparsebit/train.h>

static const char net[] =
    "graph net(x: f32[N,1,4,4]) -> (y: f32[N,2]) {\n"
    "    c.weight: f32[2,1,3,3] = random(7)\n"
    "    bn.weight: f32[2] = 1\n"
    "    bn.bias: f32[2] = 0\n"
    "    bn.mean: f32[2] = 0\n"
    "    bn.var: f32[2] = 1\n"
    "    fc.weight: f32[2,8] = random(8)\n"
    "    fc.bias: f32[2] = 0\n"
    "    ratio: f32[] = 0.1\n"
    "    c = Conv(x, c.weight)\n"
    "    n = BatchNormalization(c, bn.weight, bn.bias, bn.mean, bn.var)\n"
    "    r = Relu(n)\n"
    "    d = Dropout(r, ratio)\n"
    "    f = Flatten(d)\n"
    "    y = Gemm(f, fc.weight, fc.bias) {transB=1}\n"
    "}\n";

static char dir[] = "/tmp/sbtest-oom-train-XXXXXX";

static const char *in_dir(const char *name)
{
    static char path[16][64];
    static int at;

    at = (at + 1) % 16;
    (void)snprintf(path[at], sizeof path[at], "%s/%s", dir, name);
    return path[at];
}

static sb_status open_samples(sb_ctx *ctx, sb_data **out)
{
    char text[512];
    sb_data_options opt = SB_DATA_OPTIONS_INIT;

    (void)snprintf(text, sizeof text,
                   "SOURCE: idx\nPATH: %s\nLABELS: %s\nSCALE: 255\n"
                   "SHUFFLE: true\nBATCH: 2\nAUGMENT: {COLOR_JITTER: 0.1}\n",
                   in_dir("x.idx"), in_dir("y.idx"));
    opt.threads = 0;
    return sb_data_parse(ctx, text, "t.yaml", &opt, out);
}

/* After the first step of the second epoch: two steps and the epoch before. */
static int stop_in_second_epoch(void *user, const sb_train_state *s)
{
    (void)s;
    return ++*(int *)user == 4;
}

/* One run; `ended` by its caller is no failure. */
static sb_status train(sb_ctx *ctx, sb_train_options *opt, bool taught)
{
    sb_model *model = NULL, *teacher = NULL, *out = NULL;
    sb_data *data = NULL, *valid = NULL;
    sb_status s = sb_model_parse(ctx, net, &model);

    if (s == SB_OK && taught)
        s = sb_model_parse(ctx, net, &teacher);
    if (s == SB_OK)
        s = open_samples(ctx, &data);
    if (s == SB_OK)
        s = open_samples(ctx, &valid);
    opt->teacher = teacher;
    if (s == SB_OK)
        s = sb_train(model, data, valid, opt, &out);
    if (s == SB_INTERRUPTED && opt->watch) {
        sb_ctx_clear_interrupt(ctx);
        s = SB_OK;
    }
    sb_model_free(out);
    sb_data_free(data);
    sb_data_free(valid);
    sb_model_free(teacher);
    sb_model_free(model);
    return s;
}

static void clear_run(void)
{
    static const char *const files[] = {"run/last.npz", "run/best.npz",
                                        "run/log.csv", "run/log.jsonl"};

    for (size_t i = 0; i < SB_COUNT(files); i++)
        (void)unlink(in_dir(files[i]));
}

static sb_status from_labels(sb_ctx *ctx)
{
    sb_train_options opt = SB_TRAIN_OPTIONS_INIT;

    opt.options_text = "EPOCHS: 1\nLR: 0.05\nEMA: 0.9\nWEIGHT_DECAY: 0.001\n";
    return train(ctx, &opt, false);
}

static sb_status from_teacher(sb_ctx *ctx)
{
    sb_train_options opt = SB_TRAIN_OPTIONS_INIT;

    opt.options_text = "EPOCHS: 1\nLR: 0.05\nOPTIMIZER: adamw\n";
    return train(ctx, &opt, true);
}

/* Ended in the second epoch, then resumed; checkpoints that cannot be written
 * are warnings, so the second part may find none. */
static sb_status resumed(sb_ctx *ctx)
{
    sb_train_options opt = SB_TRAIN_OPTIONS_INIT;
    char folder[64];
    int steps = 0;

    clear_run();
    (void)snprintf(folder, sizeof folder, "%s", in_dir("run"));
    opt.options_text = "EPOCHS: 2\nLR: 0.05\nCHECKPOINT: 1\n";
    opt.folder = folder;
    opt.watch = stop_in_second_epoch;
    opt.watch_user = &steps;
    SB_TRY(train(ctx, &opt, false));
    if (access(in_dir("run/last.npz"), R_OK) != 0)
        return sb_fail(ctx, SB_NO_MEMORY, "no checkpoint was written");
    opt.watch = NULL;
    opt.resume = 1;
    return train(ctx, &opt, false);
}

static void test_every_failed_allocation_is_reported(void **state)
{
    (void)state;
    test_every_allocation("from labels", from_labels);
    test_every_allocation("from a teacher", from_teacher);
    test_every_allocation("resumed", resumed);
}

static int write_samples(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(dir));
    test_write_idx(dir, 4, 4, 2);
    return 0;
}

/* Nothing else was left behind. */
static int remove_samples(void **state)
{
    (void)state;
    clear_run();
    (void)unlink(in_dir("x.idx"));
    (void)unlink(in_dir("y.idx"));
    (void)rmdir(in_dir("run"));
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_failed_allocation_is_reported)};

    return cmocka_run_group_tests_name("oom_train", tests, write_samples,
                                       remove_samples);
}
