/* Runs of the training loop. */
#define _POSIX_C_SOURCE 200809L
#include "traintest.h"

#include <stdlib.h>
#include <unistd.h>

#include "idxtest.h"

static char dir[] = "/tmp/sbtest-train-XXXXXX";

const char *test_train_path(const char *name)
{
    static char path[8][160];
    static int at;

    at = (at + 1) % 8;
    (void)snprintf(path[at], sizeof path[at], "%s/%s", dir, name);
    return path[at];
}

int test_train_setup(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(dir));
    test_write_idx(dir, 96, 4, 4);
    return 0;
}

int test_train_teardown(void **state)
{
    char command[256];

    (void)state;
    (void)snprintf(command, sizeof command, "rm -r '%s'", dir);
    return system(command); /* a folder that mkdtemp() made */
}

sb_data *test_train_samples(size_t batch, size_t samples)
{
    char text[512];
    sb_data_options opt = SB_DATA_OPTIONS_INIT;
    sb_data *data = NULL;

    (void)snprintf(text, sizeof text,
                   "SOURCE: idx\nPATH: %s\nLABELS: %s\nSCALE: 255\n"
                   "MEAN: 0.4\nSTD: 0.25\nSHUFFLE: true\nBATCH: 8\n"
                   "AUGMENT: {COLOR_JITTER: 0.1}\n",
                   test_train_path("x.idx"), test_train_path("y.idx"));
    opt.batch = batch;
    opt.samples = samples;
    opt.seed = 3;
    assert_ok(sb_data_parse(test_ctx(), text, "t.yaml", &opt, &data));
    return data;
}

/* A network with batch norm and dropout: all kinds of state. */
sb_model *test_train_net(void)
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

static int watch(void *user, const sb_train_state *s)
{
    test_train_watch *w = user;

    w->last = *s;
    if (s->samples_per_second > 0)
        w->steps++;
    else
        w->epochs++;
    return (w->stop_after && w->steps == w->stop_after) ||
           (w->stop_epochs && w->epochs == w->stop_epochs);
}

const char test_train_standard[] =
    "EPOCHS: 3\nLR: 0.05\nEMA: 0.9\nWEIGHT_DECAY: 0.001\nCHECKPOINT: 5\n";
const char *test_train_settings = test_train_standard;

const char *test_train_config;
const char *test_train_sparser;
bool test_train_teaches; /* the network as it was test_train_teaches */

/* With the quantizers of `test_train_config`. */
static sb_status train_quantized(const sb_model *model, sb_data *data,
                                 sb_data *valid, const sb_train_options *opt,
                                 sb_model **out)
{
    sb_quant_options quant = SB_QUANT_OPTIONS_INIT;
    sb_quant_model *qm = NULL;
    sb_train_check check = SB_TRAIN_CHECK_INIT;

    quant.config_text = test_train_config;
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

void *test_train_pruned(const char *folder, int resume, const char *prune,
                        test_train_watch *w, size_t *size)
{
    sb_train_options opt = SB_TRAIN_OPTIONS_INIT;
    sb_model *model = test_train_net(), *out = NULL;
    sb_data *data = test_train_samples(8, 0),
            *valid = test_train_samples(8, 32);
    void *bytes = NULL;

    opt.options_text = test_train_settings;
    opt.folder = folder;
    opt.resume = resume;
    opt.prune_text = prune;
    opt.watch = watch;
    opt.watch_user = w;
    opt.teacher = test_train_teaches ? model : NULL;
    sb_status status = test_train_config
                           ? train_quantized(model, data, valid, &opt, &out)
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

void *test_train_bytes(const char *folder, int resume, test_train_watch *w,
                       size_t *size)
{
    return test_train_pruned(folder, resume, NULL, w, size);
}

const char test_train_lsq4[] =
    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: lsq, BIT: 4}}\n"
    "A: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: lsq, BIT: 4}}\n";

void test_train_refused(const char *text, const char *folder, int resume,
                        size_t batch, uint64_t seed, sb_status status,
                        const char *message)
{
    sb_train_options opt = SB_TRAIN_OPTIONS_INIT;
    sb_model *model = test_train_net(), *out = NULL;
    sb_data *data = test_train_samples(batch, 0),
            *valid = test_train_samples(8, 32);

    opt.options_text = text;
    opt.folder = folder;
    opt.resume = resume;
    opt.seed = seed;
    opt.teacher = test_train_teaches ? model : NULL;
    opt.prune_text = test_train_sparser;
    assert_status(test_train_config
                      ? train_quantized(model, data, valid, &opt, &out)
                      : sb_train(model, data, valid, &opt, &out),
                  status);
    assert_error_has(message);
    assert_null(out);
    sb_data_free(data);
    sb_data_free(valid);
    sb_model_free(model);
}
