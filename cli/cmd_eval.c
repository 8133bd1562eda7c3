/* sparsebit eval - a model over a data set: accuracy, and the
 * distance of its outputs from those of another one. */
#include <stdlib.h>

#include "eval_job.h"

#define ARG(field) offsetof(eval_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_FILE, 0, NULL,              ARG(model),           "MODEL",     "ONNX file to read", true},
    {CLI_FILE, 'd', "data",            ARG(data),            CLI_DATA_ARG, CLI_DATA_HELP, true},
    {CLI_LIST, 0, "set",             ARG(set),             CLI_SET_ARG, CLI_SET_HELP, false},
    {CLI_UINT, 'n', "samples",         ARG(samples),         "N",         "use at most N samples (default, and 0: all)", false},
    {CLI_UINT, 0, "skip",            ARG(skip),            "N",         "skip the first N samples", false},
    {CLI_UINT, 'b', "batch",           ARG(batch),           "N",         "batch size (default: BATCH of the data file)", false},
    {CLI_LIST, 0, "value",           ARG(values),          CLI_VALUE_ARG, CLI_VALUE_HELP, false},
    {CLI_FILE, 0, "against",         ARG(against),         "MODEL2",    "also run this model and compare with it; it is the reference", false},
    {CLI_FILE, 0, "against-outputs", ARG(against_outputs), "FILE.npz",  "compare with outputs that were saved", false},
    {CLI_STRING, 0, "task",          ARG(task),            "TASK",      "what the outputs are, for comparing: `classify`, `detect` (`detect:yolov5`, `:yolov8`, `:yolox`, `:pair`, `:nms`, `:lists`), `embed`, `segment`, `text`, `language` or `none` (default: guessed, and printed)", false},
    {CLI_ABOVE, 0, "threshold",      ARG(threshold),       "X",         "least score of a box (default: 0.25) or of a map's pixel (default: 0.5)", false},
    {CLI_OUT,  0, "save-outputs",    ARG(save_outputs),    "FILE.npz",  "write the outputs for all samples", false},
    {CLI_OUT,  0, "report",          ARG(report),          CLI_REPORT_ARG, CLI_REPORT_HELP, false},
    {CLI_FLAG, 0, "strict",          ARG(strict),          NULL,        "stop at a sample that cannot be read, instead of skipping it", false},
    {CLI_FLAG, 0, "exact",           ARG(exact),           NULL,        "disable approximations such as Winograd", false},
    {CLI_FLAG, 0, "integer",         ARG(integer),         NULL,        "compute Q/DQ groups with the integer kernels that ONNX Runtime on x86 makes of them (default for files for ONNX Runtime)", false},
    {CLI_FLAG, 0, "simulate",        ARG(simulate),        NULL,        "compute Q/DQ nodes in float, one by one (default for files for other targets)", false},
    {0},
};

static const cli_example examples[] = {
    {"sparsebit eval model.onnx --data photos.yaml", "Top-1 and top-5 on labeled images"},
    {"sparsebit eval int8.onnx --data photos.yaml --against float.onnx --samples 200", "Accuracy before and after quantization, side by side"},
    {"sparsebit eval yolo.int8.onnx --data photos/ --set LETTERBOX=640 --against yolo.onnx", "How many boxes agree, on a folder of images"},
    {"sparsebit eval model.onnx --data tokens.yaml --save-outputs out.npz", "Outputs to compare with later"},
    {0},
};
/* clang-format on */

extern const cli_cmd cmd_eval;

/* ---- running ------------------------------------------------------------- */

static int side_load(cli_env *env, const char *path, eval_side *s)
{
    s->path = path;
    return sb_model_load(env->ctx, path, &s->model) == SB_OK
               ? CLI_OK
               : cli_fail(env, path);
}

/* Fixes the inputs that --value names.  One of the models may be without them:
 * a quantized file has lost those that were fixed when it was made. */
static int fix_sides(cli_env *env, const cli_list *values, sb_model *main,
                     sb_model *other)
{
    for (size_t k = 0; k < values->n; k++) {
        const cli_list one = {&values->v[k], 1};
        bool there = other && cli_names_input(other, values->v[k]);
        int rc = CLI_OK;

        if (!there || cli_names_input(main, values->v[k]))
            rc = cli_model_fix(env, &cmd_eval, main, NULL, &one);
        if (rc == CLI_OK && there)
            rc = cli_model_fix(env, &cmd_eval, other, NULL, &one);
        if (rc != CLI_OK)
            return rc;
    }
    return CLI_OK;
}

static int side_open(cli_env *env, const eval_args *args, eval_side *s)
{
    sb_session_options opt = SB_SESSION_OPTIONS_INIT;
    sb_eval_options eval = SB_EVAL_OPTIONS_INIT;
    int dynamic = 0;

    eval.task = args->task;
    if (args->threshold > 0)
        eval.threshold = args->threshold;
    opt.exact = args->exact;
    opt.integer = args->integer    ? SB_INTEGER_MODE_ON
                  : args->simulate ? SB_INTEGER_MODE_OFF
                                   : SB_INTEGER_MODE_BY_TARGET;
    if (sb_model_make_batch_dynamic(s->model, &dynamic) != SB_OK ||
        sb_session_create(s->model, &opt, &s->session) != SB_OK ||
        sb_eval_create(env->ctx, sb_model_output_count(s->model), &eval,
                       &s->eval) != SB_OK)
        return cli_fail(env, s->path);
    s->outputs = cli_alloc(sb_model_output_count(s->model), sizeof *s->outputs);
    return CLI_OK;
}

static void side_close(eval_side *s)
{
    sb_eval_free(s->eval);
    sb_session_free(s->session);
    sb_model_free(s->model);
    free(s->outputs);
}

static int side_run(cli_env *env, const eval_job *j, eval_side *s,
                    const sb_batch *batch)
{
    double start = cli_seconds();

    if (sb_session_run_batch(s->session, batch, s->outputs,
                             sb_model_output_count(s->model)) != SB_OK ||
        sb_eval_add(s->eval, batch, s->outputs) != SB_OK)
        return cli_blame(env, s->model, s->path, j->data, j->args->data);
    s->seconds += cli_seconds() - start;
    return CLI_OK;
}

/* One batch through everything; `first` counts samples that were run. */
static int run_batch(cli_env *env, eval_job *j, const sb_batch *batch,
                     size_t first)
{
    const sb_tensor *const *reference = j->other.outputs;
    int rc = side_run(env, j, &j->main, batch);

    if (rc == CLI_OK && j->other.path)
        rc = side_run(env, j, &j->other, batch);
    if (rc == CLI_OK && j->saved) {
        rc = cli_saved_rows(j->saved, first, batch, j->reference);
        reference = j->reference;
    }
    if (rc == CLI_OK && eval_compares(j) &&
        sb_eval_compare(j->main.eval, batch, j->main.outputs, reference) !=
            SB_OK)
        rc = cli_fail(env, j->main.path);
    if (rc == CLI_OK && j->gather)
        rc = cli_gather_add(j->gather, batch, j->main.outputs);
    return rc;
}

static int run_all(cli_env *env, eval_job *j)
{
    cli_progress p;
    size_t done = 0;
    int rc = CLI_OK;

    cli_progress_begin(&p, env, "evaluating", sb_data_count(j->data));
    while (rc == CLI_OK) {
        const sb_batch *batch = NULL;

        if (sb_data_next(j->data, &batch) != SB_OK) {
            cli_progress_clear(&p);
            rc = cli_fail(env, j->args->data);
            break;
        }
        if (batch->count == 0)
            break;
        rc = run_batch(env, j, batch, done);
        done += batch->count;
        cli_progress_step(&p, done + sb_data_broken_count(j->data));
    }
    j->seconds = cli_progress_end(&p);
    return rc;
}

/* ---- the command --------------------------------------------------------- */

static int job_open(cli_env *env, eval_job *j)
{
    const eval_args *args = j->args;
    int rc = side_load(env, args->model, &j->main);

    if (rc == CLI_OK && args->against)
        rc = side_load(env, args->against, &j->other);
    if (rc == CLI_OK)
        rc = fix_sides(env, &args->values, j->main.model, j->other.model);
    if (rc == CLI_OK)
        rc = side_open(env, args, &j->main);
    if (rc == CLI_OK && args->against)
        rc = side_open(env, args, &j->other);
    if (rc != CLI_OK)
        return rc;
    size_t n = sb_model_output_count(j->main.model);
    if (args->against && sb_model_output_count(j->other.model) != n)
        return cli_error("%s has %zu outputs, %s has %zu: cannot compare",
                         args->model, n, args->against,
                         sb_model_output_count(j->other.model));
    const cli_data_spec spec = {args->data, args->set,   args->samples,
                                args->skip, args->batch, args->strict};
    rc = cli_data_open(env, &cmd_eval, j->main.model, &spec, 0, &j->data);
    if (rc != CLI_OK)
        return rc;
    /* Each may have inputs that the other has not; the first model decides. */
    if (args->against && (sb_data_set_model(j->data, j->other.model) != SB_OK ||
                          sb_data_set_model(j->data, j->main.model) != SB_OK))
        return cli_fail(env, args->data);
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
    eval_job j = {.args = parsed};

    if (j.args->against && j.args->against_outputs)
        return cli_usage(&cmd_eval,
                         "want either --against or --against-outputs");
    if (j.args->integer && j.args->simulate)
        return cli_usage(&cmd_eval, "want either --integer or --simulate");
    j.main.name = cli_name_beside(j.args->model, j.args->against);
    j.other.name = cli_name_beside(j.args->against, j.args->model);
    int rc = job_open(env, &j);
    if (rc == CLI_OK)
        rc = run_all(env, &j);
    if (rc == CLI_OK && j.gather)
        rc = cli_gather_save(env, j.gather, j.args->save_outputs);
    if (rc == CLI_OK && j.args->report)
        rc = eval_write_report(env, &j);
    if (rc == CLI_OK && env->common.json)
        rc = eval_print_json(env, &j);
    else if (rc == CLI_OK)
        rc = eval_print_text(env, &j);
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
        "Runs a model over the samples of a data set and prints the accuracy, "
        "if they have labels. With --against a second model runs on the same "
        "samples, and the outputs are compared: cosine and signal-to-noise "
        "ratio with the second model as signal, also for rows that differ in "
        "magnitude, and what fits the task: classes, boxes, embeddings, maps "
        "or texts that agree. The batch may be any size, also if the file "
        "fixes it. A "
        "quantized "
        "file for ONNX Runtime (by its metadata, or without any) is computed "
        "with the integer kernels that the runtime makes of it; files for "
        "other targets in float with rounding.",
    .args_size = sizeof(eval_args),
    .opts = opts,
    .examples = examples,
    .run = eval_run,
};
