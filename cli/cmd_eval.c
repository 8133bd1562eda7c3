/* sparsebit eval - a model over a data set: right answers, and how far its
 * outputs are from those of another one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

typedef struct {
    const char *model, *data, *against, *against_outputs, *save_outputs;
    unsigned samples, skip, batch;
    bool strict, exact, integer, simulate;
} eval_args;

#define ARG(field) offsetof(eval_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_FILE, 0, NULL,              ARG(model),           "MODEL",     "ONNX file to read", true},
    {CLI_FILE, 'd', "data",            ARG(data),            "DATA.yaml", "the data set, see docs/data.md", true},
    {CLI_UINT, 'n', "samples",         ARG(samples),         "N",         "take at most N samples (default: all)", false},
    {CLI_UINT, 0, "skip",            ARG(skip),            "N",         "leave out the first N samples", false},
    {CLI_UINT, 'b', "batch",           ARG(batch),           "N",         "samples run at once (default: BATCH of the data set)", false},
    {CLI_FILE, 0, "against",         ARG(against),         "MODEL2",    "run this one too and compare; it is the reference", false},
    {CLI_FILE, 0, "against-outputs", ARG(against_outputs), "FILE.npz",  "compare with outputs that were saved", false},
    {CLI_FILE, 0, "save-outputs",    ARG(save_outputs),    "FILE.npz",  "write the outputs for all samples", false},
    {CLI_FLAG, 0, "strict",          ARG(strict),          NULL,        "stop at a sample that cannot be read, instead of leaving it out", false},
    {CLI_FLAG, 0, "exact",           ARG(exact),           NULL,        "no faster algorithms that round differently", false},
    {CLI_FLAG, 0, "integer",         ARG(integer),         NULL,        "compute Q/DQ groups with the integer kernels that ONNX Runtime on x86 makes of them (default for files for ONNX Runtime)", false},
    {CLI_FLAG, 0, "simulate",        ARG(simulate),        NULL,        "compute Q/DQ nodes in float, one by one (default for files for other targets)", false},
    {0},
};

static const cli_example examples[] = {
    {"sparsebit eval model.onnx --data photos.yaml", "Top-1 and top-5 on labelled images"},
    {"sparsebit eval int8.onnx --data photos.yaml --against float.onnx --samples 200", "What quantizing cost, side by side"},
    {"sparsebit eval model.onnx --data tokens.yaml --save-outputs out.npz", "Outputs to compare with later"},
    {0},
};
/* clang-format on */

extern const cli_cmd cmd_eval;

/* One of the two models. */
typedef struct {
    const char *path;
    sb_model *model;
    sb_session *session;
    sb_eval *eval;
    const sb_tensor **outputs;
    double seconds; /* running, without waiting for data */
} side;

typedef struct {
    const eval_args *args;
    side main, other; /* other.path NULL: none */
    sb_data *data;
    cli_saved *saved;
    const sb_tensor **reference; /* outputs of `saved` */
    cli_gather *gather;
    double seconds;
} job;

static bool compares(const job *j)
{
    return j->other.path || j->saved;
}

/* ---- running ------------------------------------------------------------- */

static int side_open(cli_env *env, const eval_args *args, const char *path,
                     side *s)
{
    sb_session_options opt = SB_SESSION_OPTIONS_INIT;
    int relaxed = 0;

    s->path = path;
    opt.exact = args->exact;
    opt.integer = args->integer ? 1 : args->simulate ? 0 : SB_INTEGER_BY_TARGET;
    if (sb_model_load(env->ctx, path, &s->model) != SB_OK ||
        sb_model_relax_batch(env->ctx, s->model, &relaxed) != SB_OK ||
        sb_session_create(env->ctx, s->model, &opt, &s->session) != SB_OK ||
        sb_eval_create(env->ctx, sb_model_output_count(s->model), &s->eval) !=
            SB_OK)
        return cli_fail(env, path);
    s->outputs = cli_alloc(sb_model_output_count(s->model), sizeof *s->outputs);
    return CLI_OK;
}

static void side_close(side *s)
{
    sb_eval_free(s->eval);
    sb_session_free(s->session);
    sb_model_free(s->model);
    free(s->outputs);
}

static int side_run(cli_env *env, side *s, const sb_batch *batch)
{
    double start = cli_seconds();

    if (sb_session_run_batch(s->session, batch, s->outputs) != SB_OK ||
        sb_eval_add(s->eval, batch, s->outputs) != SB_OK)
        return cli_fail(env, s->path);
    s->seconds += cli_seconds() - start;
    return CLI_OK;
}

/* One batch through everything; `first` counts samples that were run. */
static int run_batch(cli_env *env, job *j, const sb_batch *batch, size_t first)
{
    const sb_tensor *const *reference = j->other.outputs;
    int rc = side_run(env, &j->main, batch);

    if (rc == CLI_OK && j->other.path)
        rc = side_run(env, &j->other, batch);
    if (rc == CLI_OK && j->saved) {
        rc = cli_saved_rows(j->saved, first, batch->count, j->reference);
        reference = j->reference;
    }
    if (rc == CLI_OK && compares(j) &&
        sb_eval_compare(j->main.eval, j->main.outputs, reference) != SB_OK)
        rc = cli_fail(env, j->main.path);
    if (rc == CLI_OK && j->gather)
        rc = cli_gather_add(j->gather, j->main.outputs);
    return rc;
}

static int run_all(cli_env *env, job *j)
{
    cli_progress p;
    size_t done = 0;
    int rc = CLI_OK;

    cli_progress_begin(&p, env, "evaluating", sb_data_count(j->data));
    while (rc == CLI_OK) {
        sb_batch batch;

        if (sb_data_next(j->data, &batch) != SB_OK) {
            cli_progress_clear(&p);
            rc = cli_fail(env, j->args->data);
            break;
        }
        if (batch.count == 0)
            break;
        rc = run_batch(env, j, &batch, done);
        done += batch.count;
        cli_progress_step(&p, done + sb_data_broken_count(j->data));
    }
    j->seconds = cli_progress_end(&p);
    return rc;
}

/* ---- printing ------------------------------------------------------------ */

static void print_side(cli_table *t, const side *s)
{
    sb_eval_result r = sb_eval_get(s->eval);
    const char *slash = strrchr(s->path, '/');

    cli_table_add(t, "%s", slash ? slash + 1 : s->path);
    if (r.labelled) {
        cli_table_add(t, "%.2f %%", r.top1);
        cli_table_add(t, "%.2f %%", r.top5);
    } else {
        cli_table_add(t, "-");
        cli_table_add(t, "-");
    }
    cli_table_add(t, "%zu", r.samples);
    cli_table_add(t, "%.1f", (double)r.samples / s->seconds);
}

static void print_distances(const job *j)
{
    const sb_model *model = j->main.model;
    sb_eval_result r = sb_eval_get(j->main.eval);
    size_t n = sb_model_output_count(model);
    cli_table *t = cli_table_new("lrr");

    if (!isnan(r.agreement))
        printf("\nagreement of classes  %.2f %%\n", r.agreement);
    printf("\n");
    cli_table_add(t, "output");
    cli_table_add(t, "cosine");
    cli_table_add(t, "SQNR");
    for (size_t i = 0; i < n; i++) {
        double cosine, sqnr;

        sb_eval_output(j->main.eval, i, &cosine, &sqnr);
        cli_table_add(t, "%s", sb_model_output(model, i).name);
        cli_table_add(t, "%.6f", cosine);
        cli_table_add(t, "%.2f dB", sqnr);
    }
    if (n > 1) {
        cli_table_add(t, "all");
        cli_table_add(t, "%.6f", r.cosine);
        cli_table_add(t, "%.2f dB", r.sqnr_db);
    }
    cli_table_print(t, "");
}

static void print_text(const job *j)
{
    static const char *const head[] = {"model", "top-1", "top-5", "samples",
                                       "items/s"};
    cli_table *t = cli_table_new("lrrrr");
    size_t broken = sb_data_broken_count(j->data);

    for (size_t i = 0; i < CLI_COUNT(head); i++)
        cli_table_add(t, "%s", head[i]);
    print_side(t, &j->main);
    if (j->other.path)
        print_side(t, &j->other);
    cli_table_print(t, "");
    if (compares(j))
        print_distances(j);
    if (broken)
        printf("\n%zu of %zu samples could not be read and were left out\n",
               broken, sb_data_count(j->data));
}

static void json_side(cli_json *json, const side *s)
{
    sb_eval_result r = sb_eval_get(s->eval);

    cli_json_str(json, "model", s->path);
    if (r.labelled) {
        cli_json_num(json, "top1", r.top1);
        cli_json_num(json, "top5", r.top5);
    }
    cli_json_int(json, "samples", (long long)r.samples);
    cli_json_num(json, "items_per_s", (double)r.samples / s->seconds);
    cli_json_bool(json, "integer", sb_session_is_integer(s->session));
}

static void json_distances(cli_json *json, const job *j)
{
    sb_eval_result r = sb_eval_get(j->main.eval);

    cli_json_num(json, "agreement", r.agreement);
    cli_json_num(json, "cosine", r.cosine);
    cli_json_num(json, "sqnr_db", r.sqnr_db);
    cli_json_open(json, "outputs", '[');
    for (size_t i = 0; i < sb_model_output_count(j->main.model); i++) {
        double cosine, sqnr;

        sb_eval_output(j->main.eval, i, &cosine, &sqnr);
        cli_json_open(json, NULL, '{');
        cli_json_str(json, "name", sb_model_output(j->main.model, i).name);
        cli_json_num(json, "cosine", cosine);
        cli_json_num(json, "sqnr_db", sqnr);
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
}

static void print_json(const job *j)
{
    cli_json json = {0};

    cli_json_open(&json, NULL, '{');
    json_side(&json, &j->main);
    cli_json_num(&json, "seconds", j->seconds);
    cli_json_open(&json, "broken", '[');
    for (size_t i = 0; i < sb_data_broken_count(j->data); i++)
        cli_json_str(&json, NULL, sb_data_broken(j->data, i));
    cli_json_close(&json, ']');
    if (compares(j))
        json_distances(&json, j);
    if (j->other.path) {
        cli_json_open(&json, "against", '{');
        json_side(&json, &j->other);
        cli_json_close(&json, '}');
    }
    cli_json_close(&json, '}');
}

/* ---- the command --------------------------------------------------------- */

static int job_open(cli_env *env, job *j)
{
    const eval_args *args = j->args;
    sb_data_options opt = SB_DATA_OPTIONS_INIT;
    int rc = side_open(env, args, args->model, &j->main);

    if (rc == CLI_OK && args->against)
        rc = side_open(env, args, args->against, &j->other);
    if (rc != CLI_OK)
        return rc;
    size_t n = sb_model_output_count(j->main.model);
    if (args->against && sb_model_output_count(j->other.model) != n)
        return cli_error("%s has %zu outputs, %s has %zu: cannot compare",
                         args->model, n, args->against,
                         sb_model_output_count(j->other.model));
    opt.samples = args->samples;
    opt.skip = args->skip;
    opt.batch = args->batch;
    opt.strict = args->strict;
    opt.seed = env->common.seed;
    if (sb_data_open(env->ctx, args->data, &opt, &j->data) != SB_OK)
        return cli_fail(env, args->data);
    sb_data_fit(j->data, j->main.model);
    j->reference = cli_alloc(n, sizeof *j->reference);
    if (args->against_outputs)
        rc = cli_saved_open(env, args->against_outputs, j->main.model,
                            &j->saved);
    if (args->save_outputs)
        j->gather = cli_gather_new(j->main.model);
    return rc;
}

static int eval_run(cli_env *env, const void *parsed)
{
    job j = {.args = parsed};

    if (j.args->against && j.args->against_outputs)
        return cli_usage(&cmd_eval,
                         "want either --against or --against-outputs");
    if (j.args->integer && j.args->simulate)
        return cli_usage(&cmd_eval, "want either --integer or --simulate");
    int rc = job_open(env, &j);
    if (rc == CLI_OK)
        rc = run_all(env, &j);
    if (rc == CLI_OK && j.gather)
        rc = cli_gather_save(env, j.gather, j.args->save_outputs);
    if (rc == CLI_OK && env->common.json)
        print_json(&j);
    else if (rc == CLI_OK && !env->common.quiet)
        print_text(&j);
    cli_gather_free(j.gather);
    cli_saved_free(j.saved);
    free(j.reference);
    sb_data_free(j.data);
    side_close(&j.main);
    side_close(&j.other);
    return rc;
}

const cli_cmd cmd_eval = {
    .name = "eval",
    .summary = "run a model over a data set",
    .description =
        "Runs a model over the samples of a data set and counts right answers, "
        "if they have labels. With --against a second model runs on the same "
        "samples, and the outputs are compared: how often the classes agree, "
        "the cosine and the signal-to-noise ratio with the second model as "
        "signal. The batch may be any size, also if the file fixes it. A "
        "quantized "
        "file for ONNX Runtime (by its metadata, or without any) is computed "
        "with the integer kernels that the runtime makes of it; files for "
        "other targets in float with rounding.",
    .args_size = sizeof(eval_args),
    .opts = opts,
    .examples = examples,
    .run = eval_run,
};
