/* sparsebit train - trains a network, with or without quantizers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "feed_data.h"
#include "report_page.h"

typedef struct {
    const char *model, *data, *valid, *options, *output, *folder, *teacher;
    const char *config, *target, *report, *prune, *lora;
    unsigned freeze_bn, lora_rank, lora_alpha, pipeline;
    cli_list set;
    unsigned samples, valid_samples, batch;
    bool resume, dry_run, force;
} train_args;

#define ARG(field) offsetof(train_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_FILE,   0,   NULL,            ARG(model),         "MODEL", "ONNX file to train, with or without weights that are trained", true},
    {CLI_FILE,   'd', "data",          ARG(data),          "DATA",  "data file of the training samples", true},
    {CLI_FILE,   0,   "valid",         ARG(valid),         "DATA",  "data file of samples to validate on after each epoch; the best epoch is kept", false},
    {CLI_OUT,    'o', "output",        ARG(output),        "FILE",  "ONNX file to write; with --lora a folder", true},
    {CLI_FILE,   'c', "config",        ARG(config),        "CONFIG", "train with the quantizers of this configuration (docs/qat.md), and write the quantized model", false},
    {CLI_TARGET, 't', "target",        ARG(target),        "NAME",  "with --config: the runtime that it is quantized for; see `sparsebit list targets`", false},
    {CLI_FILE,   0,   "options",       ARG(options),       "FILE",  "YAML file with options of training (docs/training.md)", false},
    {CLI_LIST,   0,   "set",           ARG(set),           "KEY=VALUE", "one of these options, instead of what the file says; repeatable", false},
    {CLI_UINT,   'b', "batch",         ARG(batch),         "N",     "samples in a step (default: BATCH of the data file)", false},
    {CLI_UINT,   'n', "samples",       ARG(samples),       "N",     "train on the first N samples (default: all)", false},
    {CLI_UINT,   0,   "valid-samples", ARG(valid_samples), "N",     "validate on the first N samples (default: all)", false},
    {CLI_FILE,   0,   "teacher",       ARG(teacher),       "MODEL", "learn the outputs of this network instead of labels", false},
    {CLI_FILE,   0,   "prune",         ARG(prune),         "SCONFIG", "prune the network, at once or while it is trained (docs/pruning.md)", false},
    {CLI_STRING, 0,   "lora",          ARG(lora),          "LAYERS", "of a language model: train adapters beside layers with these names, such as 'q_proj|v_proj', and nothing else; the output is a folder for PEFT (docs/llm.md)", false},
    {CLI_SOME,   0,   "lora-rank",     ARG(lora_rank),     "N",     "columns of an adapter (default: 8)", false},
    {CLI_SOME,   0,   "lora-alpha",    ARG(lora_alpha),    "N",     "adapters count times this number divided by their rank (default: 16)", false},
    {CLI_UINT,   0,   "pipeline",      ARG(pipeline),      "PIECES", "with --lora and mpirun: each rank holds some blocks of the network instead of all, and every batch goes through them in so many pieces (docs/training.md)", false},
    {CLI_STRING, 0,   "folder",        ARG(folder),        "DIR",   "where checkpoints and the log go (default: the output with .train behind it)", false},
    {CLI_FLAG,   0,   "resume",        ARG(resume),        NULL,    "go on from the checkpoint in the folder", false},
    {CLI_UINT,   0,   "freeze-bn",     ARG(freeze_bn),     "N",     "batch norms keep their statistics after N epochs, as FREEZE_BN of the options", false},
    {CLI_OUT,    0,   "report",        ARG(report),        "FILE.html", "write a page with the curves of loss, accuracy and learning rate, and the graph by how far weights moved, or with quantizers by their errors", false},
    CLI_FORCE_FOLDER(ARG(force)),
    {CLI_FLAG,   0,   "dry-run",       ARG(dry_run),       NULL,    "only list the parameters, and which are trained", false},
    {0},
};

static const cli_example examples[] = {
    {"sparsebit train model.onnx -d train.yaml --valid test.yaml --set EPOCHS=3 --set LR=0.05 -o trained.onnx", "Three epochs, the best of which is written"},
    {"sparsebit train model.onnx -d train.yaml --valid test.yaml --set EPOCHS=3 --set LR=0.05 -o trained.onnx --resume", "Goes on after Ctrl-C or a crash, with the same result as without it"},
    {"sparsebit train model.onnx -d photos.yaml --teacher float.onnx --set EPOCHS=1 -o student.onnx", "Learns what another network says of the samples"},
    {"sparsebit train model.onnx -c qconfig.yaml -d train.yaml --valid test.yaml --set EPOCHS=1 -o int8.onnx", "Quantization-aware training: calibrates, trains, writes the quantized model"},
    {"sparsebit train model.onnx -d train.yaml --valid test.yaml --prune sconfig.yaml --teacher model.onnx --set EPOCHS=5 -o small.onnx", "Prunes a network and trains what is left to do what the whole one did"},
    {"sparsebit train model.gguf --lora 'q_proj|v_proj' -d alpaca.yaml --set OPTIMIZER=adamw --set LR=1e-3 -o adapter", "Learns answers with adapters beside packed weights that stay as they are"},
    {0},
};
/* clang-format on */

extern const cli_cmd cmd_train;

typedef struct {
    cli_env *env;
    const train_args *args;
    sb_model *model, *teacher, *out;
    sb_quant_model *qm; /* with --config */
    sb_train_check check;
    sb_data *train, *valid;
    char *folder, *set;
    sb_train_state last;
    cli_progress progress;
    char what[64];
    size_t first; /* steps before this run */
} train_job;

/* ---- telling ------------------------------------------------------------ */

static void put_percent(char *out, size_t size, double x)
{
    if (isnan(x))
        (void)snprintf(out, size, "-");
    else
        (void)snprintf(out, size, "%.2f %%", 100 * x);
}

/* A validation, with its name if that is not accuracy. */
static void put_metric(char *out, size_t size, const sb_train_state *s,
                       double x)
{
    size_t n = 0;

    if (strcmp(s->metric, "accuracy") != 0 && !isnan(x))
        n = (size_t)snprintf(out, size, "%s ", s->metric);
    if (cli_metric_is_share(s) || isnan(x))
        put_percent(out + n, size - n, x);
    else
        (void)snprintf(out + n, size - n, "%.4g", x);
}

static void tell_epoch(const sb_train_state *s)
{
    char train[32], valid[32];

    put_percent(train, sizeof train, s->accuracy);
    put_metric(valid, sizeof valid, s, s->validation);
    char pruned[32] = "";
    if (s->pruned < 1)
        (void)snprintf(pruned, sizeof pruned, ", %.0f %% of the pruning done",
                       100 * s->pruned);
    cli_put("epoch %zu of %zu: loss %.4f, accuracy %s, validation %s%s%s\n",
            s->epoch + 1, s->epochs, s->loss, train, valid,
            !isnan(s->best) && s->best_epoch == s->epoch ? ", best" : "",
            pruned);
}

/* The bar counts samples of all epochs, from where the run began. */
static void tell_step(train_job *j, const sb_train_state *s)
{
    size_t batch = sb_data_batch_size(j->train);
    size_t done = s->epoch * s->steps + s->step;

    if (!j->env->progress) {
        j->first = done - 1;
        cli_progress_begin(&j->progress, j->env, j->what,
                           (s->epochs * s->steps - j->first) * batch);
    }
    char right[32];
    put_percent(right, sizeof right, s->accuracy);
    (void)snprintf(j->what, sizeof j->what,
                   "epoch %zu/%zu loss %.4f accuracy %s", s->epoch + 1,
                   s->epochs, s->loss, right);
    cli_progress_step(&j->progress, (done - j->first) * batch);
}

static int train_watch(void *user, const sb_train_state *s)
{
    train_job *j = user;
    bool epoch_ended = s->step == s->steps && s->samples_per_second == 0;

    j->last = *s;
    if (!epoch_ended) {
        tell_step(j, s);
    } else if (!j->env->common.quiet && !j->env->common.json) {
        cli_progress_clear(j->env->progress);
        tell_epoch(s);
    }
    return 0;
}

static int train_list(train_job *j)
{
    sb_train_options opt = SB_TRAIN_OPTIONS_INIT;
    sb_learner *learner = NULL;
    cli_table *t = cli_table_new("lll");

    opt.options = j->args->options;
    opt.options_text = j->set;
    if (sb_train_learner(j->model, &opt, &learner) != SB_OK) {
        cli_table_free(t);
        return cli_fail(j->env, j->args->model);
    }
    for (size_t i = 0; i < sb_learner_parameter_count(learner); i++) {
        const sb_parameter_info *p = sb_learner_parameter(learner, i);

        cli_table_add(t, "%s", p->name);
        cli_table_add(t, "%lld", (long long)sb_tensor_elements(p->value));
        cli_table_add(t, "%s",
                      p->role == SB_PARAMETER_ROLE_STATISTIC ? "statistic"
                      : p->trained                           ? "trained"
                                                             : "frozen");
    }
    cli_table_print(t, "");
    sb_learner_free(learner);
    return CLI_OK;
}

/* ---- work --------------------------------------------------------------- */

static int train_open_data(train_job *j)
{
    const train_args *a = j->args;
    sb_data_options opt = SB_DATA_OPTIONS_INIT;

    opt.seed = j->env->common.seed;
    opt.batch = a->batch;
    opt.samples = a->samples;
    if (sb_data_open(j->env->ctx, a->data, &opt, &j->train) != SB_OK)
        return cli_fail(j->env, NULL);
    opt.batch = 0;
    opt.samples = a->valid_samples;
    if (a->valid &&
        sb_data_open(j->env->ctx, a->valid, &opt, &j->valid) != SB_OK)
        return cli_fail(j->env, NULL);
    return CLI_OK;
}

/* What options say, as lines of YAML. */
static int train_settings(const train_args *args, char **out)
{
    const char *only = args->lora ? "TRAIN: ['*.lora_?.weight']\n" : "";
    char *first = args->freeze_bn
                      ? cli_printf("%sFREEZE_BN: %u\n", only, args->freeze_bn)
                      : cli_printf("%s", only);
    int rc = cli_set_lines(&cmd_train, first, &args->set, out);

    free(first);
    return rc;
}

/* Does the file compute what was trained? */
static void tell_check(const train_job *j)
{
    const sb_train_check *c = &j->check;

    if (j->qm)
        cli_put("check: on %zu samples the file has the class of the trained "
                "network in %.2f %%, its output differs by %.2g %%\n",
                c->samples, 100 * c->agreement, 100 * c->error);
}

static void json_check(const train_job *j, cli_json *out)
{
    if (!j->qm)
        return;
    cli_json_str(out, "target", sb_quant_model_target(j->qm));
    cli_json_int(out, "check_samples", (long long)j->check.samples);
    cli_json_num(out, "check_agreement", j->check.agreement);
    cli_json_num(out, "check_error", j->check.error);
}

static void train_summary(const train_job *j)
{
    const sb_train_state *s = &j->last;
    char best[32];

    if (j->env->common.json) {
        cli_json out = {0};

        cli_json_begin(&out, "train");
        cli_json_str(&out, "model", j->args->model);
        cli_json_str(&out, "output", j->args->output);
        cli_json_str(&out, "folder", j->folder);
        cli_json_int(&out, "epochs", (long long)s->epoch + 1);
        cli_json_num(&out, "loss", s->loss);
        if (!isnan(s->best)) {
            cli_json_num(&out, "validation", s->best);
            cli_json_str(&out, "metric", s->metric);
            cli_json_int(&out, "best_epoch", (long long)s->best_epoch + 1);
        }
        json_check(j, &out);
        cli_json_end(&out);
        return;
    }
    if (j->env->common.quiet)
        return;
    tell_check(j);
    put_metric(best, sizeof best, s, s->best);
    if (isnan(s->best))
        cli_put("written: %s (log: %s/log.csv)\n", j->args->output, j->folder);
    else
        cli_put("written: %s, epoch %zu with %s (log: %s/log.csv)\n",
                j->args->output, s->best_epoch + 1, best, j->folder);
}

/* What quantizers do to each layer, on samples enough to tell. */
static int train_errors(const train_job *j, sb_quant_errors **out)
{
    sb_quant_errors_options opt = SB_QUANT_ERRORS_OPTIONS_INIT;
    const char *path = j->valid ? j->args->valid : j->args->data;
    cli_feed f = {.env = j->env,
                  .model = j->model,
                  .data = j->valid ? j->valid : j->train,
                  .run = cli_feed_errors,
                  .most = 256,
                  .what = "comparing"};

    opt.histograms = 1;
    if (sb_quant_errors_create(j->qm, &opt, out) != SB_OK)
        return cli_fail(j->env, j->args->model);
    f.user = *out;
    sb_data_rewind(f.data);
    return cli_feed_all(&f) == SB_OK ? CLI_OK
                                     : cli_feed_fail(&f, j->args->model, path);
}

static int train_write_page(const train_job *j)
{
    sb_quant_errors *errors = NULL;
    int rc = j->qm ? train_errors(j, &errors) : CLI_OK;
    const cli_train_page page = {.path = j->args->report,
                                 .model = j->args->model,
                                 .output = j->args->output,
                                 .folder = j->folder,
                                 .before = j->model,
                                 .after = j->out,
                                 .qm = j->qm,
                                 .errors = errors,
                                 .check = &j->check,
                                 .last = &j->last};

    if (rc == CLI_OK)
        rc = cli_report_training(j->env, &page);
    sb_quant_errors_free(errors);
    return rc;
}

static int train_adapt(train_job *j)
{
    const train_args *a = j->args;
    sb_lora_options lora = SB_LORA_OPTIONS_INIT;

    lora.layers = a->lora;
    lora.rank = a->lora_rank ? a->lora_rank : lora.rank;
    lora.alpha = a->lora_alpha ? a->lora_alpha : lora.alpha;
    lora.seed = j->env->common.seed;
    return sb_model_add_lora(j->model, &lora) == SB_OK
               ? CLI_OK
               : cli_fail(j->env, a->model);
}

/* Quantizers find out by themselves whether any batch will do, and keep what
 * the file says of it. */
static int train_prepare(train_job *j)
{
    const train_args *a = j->args;
    sb_quant_options opt = SB_QUANT_OPTIONS_INIT;
    int dynamic;

    if (!a->config)
        return sb_model_make_batch_dynamic(j->model, &dynamic) == SB_OK
                   ? CLI_OK
                   : cli_fail(j->env, a->model);
    opt.config = a->config;
    opt.target = a->target;
    opt.train = 1;
    if (sb_quant_model_create(j->model, &opt, &j->qm) != SB_OK)
        return cli_fail(j->env, NULL);
    return CLI_OK;
}

static sb_status train_model(train_job *j, const sb_train_options *opt)
{
    return j->qm
               ? sb_quant_model_train(j->qm, j->train, j->valid, opt, &j->check)
               : sb_train(j->model, j->train, j->valid, opt, &j->out);
}

static sb_status train_save(const train_job *j)
{
    return j->qm           ? sb_quant_model_export(j->qm, j->args->output, NULL)
           : j->args->lora ? sb_model_save_lora(j->out, j->args->output)
                           : sb_model_save(j->out, j->args->output);
}

/* In a pipeline each rank has its part of the weights. */
static sb_status train_load(train_job *j)
{
    sb_load_options opt = SB_LOAD_OPTIONS_INIT;

    if (j->args->pipeline && !j->args->dry_run) {
        opt.part = (size_t)sb_ctx_rank(j->env->ctx);
        opt.parts = (size_t)sb_ctx_ranks(j->env->ctx);
    }
    return sb_model_load_with(j->env->ctx, j->args->model, &opt, &j->model);
}

static int train_work(train_job *j)
{
    const train_args *a = j->args;
    sb_train_options opt = SB_TRAIN_OPTIONS_INIT;
    int rc;

    if (train_load(j) != SB_OK)
        return cli_fail(j->env, a->model);
    if (a->lora && (rc = train_adapt(j)) != CLI_OK)
        return rc;
    if (a->dry_run)
        return train_list(j);
    if (!a->lora && (rc = train_prepare(j)) != CLI_OK)
        return rc;
    if (a->teacher &&
        sb_model_load(j->env->ctx, a->teacher, &j->teacher) != SB_OK)
        return cli_fail(j->env, a->teacher);
    if ((rc = train_open_data(j)) != CLI_OK)
        return rc;
    opt.options = a->options;
    opt.options_text = j->set;
    opt.folder = j->folder;
    opt.resume = a->resume;
    opt.teacher = j->teacher;
    opt.seed = j->env->common.seed;
    opt.prune = a->prune;
    opt.pipeline = a->pipeline;
    opt.watch = train_watch;
    opt.watch_user = j;
    sb_status status = train_model(j, &opt);
    if (j->env->progress)
        (void)cli_progress_end(&j->progress);
    /* It says how to go on. */
    if (status == SB_INTERRUPTED && !cli_signals_told())
        return cli_error("%s", sb_ctx_error(j->env->ctx));
    /* What is wrong with a configuration says which file it is in. */
    if (status != SB_OK)
        return cli_fail(j->env, status == SB_BAD_CONFIG ? NULL : a->model);
    if (sb_ctx_rank(j->env->ctx) > 0) /* the first one writes it */
        return CLI_OK;
    if (train_save(j) != SB_OK)
        return cli_fail(j->env, a->output);
    if (a->report && (rc = train_write_page(j)) != CLI_OK)
        return rc;
    train_summary(j);
    return CLI_OK;
}

static bool train_writes_folder(const void *parsed)
{
    return ((const train_args *)parsed)->lora != NULL;
}

static int train_run(cli_env *env, const void *parsed)
{
    const train_args *args = parsed;
    train_job j = {.env = env, .args = args, .check = SB_TRAIN_CHECK_INIT};

    if (args->target && !args->config)
        return cli_usage(&cmd_train, "--target is for training with --config");
    if (args->lora && (args->config || args->prune || args->teacher))
        return cli_usage(&cmd_train,
                         "--lora goes without --config, --prune, --teacher");
    if (!args->lora && (args->lora_rank || args->lora_alpha))
        return cli_usage(&cmd_train,
                         "--lora-rank and --lora-alpha are for --lora");
    if (!args->lora && args->pipeline)
        return cli_usage(&cmd_train, "--pipeline is for --lora");
    int rc = train_settings(args, &j.set);
    if (rc != CLI_OK)
        return rc;
    j.folder = args->folder ? cli_printf("%s", args->folder)
                            : cli_printf("%s.train", args->output);
    rc = train_work(&j);
    sb_quant_model_free(j.qm);
    sb_model_free(j.out);
    sb_model_free(j.teacher);
    sb_model_free(j.model);
    sb_data_free(j.train);
    sb_data_free(j.valid);
    free(j.folder);
    free(j.set);
    return rc;
}

const cli_cmd cmd_train = {
    .name = "train",
    .summary = "train a network",
    .description =
        "Trains the parameters of a network on labeled samples (a class each, "
        "a class for each pixel, or numbers), or on what another network says "
        "of them, and writes it with the weights of the best epoch. With a "
        "configuration of quantization the network is "
        "trained with its quantizers, and written quantized. Of a language "
        "model adapters can be trained, beside weights that stay packed. A "
        "checkpoint is "
        "written after each epoch and when the "
        "command is interrupted; --resume goes on from it with the same result "
        "as if nothing had happened.",
    .args_size = sizeof(train_args),
    .opts = opts,
    .examples = examples,
    .writes_folder = train_writes_folder,
    .run = train_run,
    .ranks = true,
};
