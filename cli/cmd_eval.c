/* sparsebit eval - a model over a data set: accuracy, and the
 * distance of its outputs from those of another one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report_page.h"

typedef struct {
    const char *model, *data, *against, *against_outputs, *save_outputs, *task;
    const char *report;
    double threshold;
    unsigned samples, skip, batch;
    bool strict, exact, integer, simulate;
    cli_list values, set;
} eval_args;

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
    {CLI_STRING, 0, "task",          ARG(task),            "TASK",      "what the outputs are, for comparing: `classify`, `detect` (`detect:yolov5`, `:yolov8`, `:yolox`, `:pair`, `:nms`), `embed`, `segment`, `text` or `none` (default: guessed, and printed)", false},
    {CLI_REAL, 0, "threshold",       ARG(threshold),       "X",         "least score of a box (default: 0.25) or of a map's pixel (default: 0.5)", false},
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

/* One of the two models. */
typedef struct {
    const char *path, *name; /* as it is called in tables */
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

static bool eval_compares(const job *j)
{
    return j->other.path || j->saved;
}

/* ---- running ------------------------------------------------------------- */

static int side_load(cli_env *env, const char *path, side *s)
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

static int side_open(cli_env *env, const eval_args *args, side *s)
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

    if (sb_session_run_batch(s->session, batch, s->outputs,
                             sb_model_output_count(s->model)) != SB_OK ||
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

static int run_all(cli_env *env, job *j)
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

/* ---- printing ------------------------------------------------------------ */

static void print_side(cli_table *t, const side *s)
{
    const sb_eval_result *r = sb_eval_get(s->eval);

    cli_table_add(t, "%s", s->name);
    if (r->labeled) {
        cli_table_add(t, "%.2f %%", r->top1);
        cli_table_add(t, "%.2f %%", r->top5);
    } else {
        cli_table_add(t, "-");
        cli_table_add(t, "-");
    }
    cli_table_add(t, "%zu", r->samples);
    cli_table_add(t, "%.1f", (double)r->samples / s->seconds);
}

/* Of language models: how well they predict the text. */
static void print_language(const side *s)
{
    const sb_eval_result *r = sb_eval_get(s->eval);

    if (r->tokens)
        cli_put("perplexity of %s  %.4f (%zu tokens predicted in %zu "
                "windows)\n",
                s->name, r->perplexity, r->tokens, r->samples);
}

/* What was compared besides elements. */
static void print_task(const sb_eval_result *r)
{
    printf("\ntask %s%s\n", r->task,
           r->task_guessed ? " (guessed; --task says otherwise)" : "");
    if (!isnan(r->agreement))
        printf("%s  %.2f %%\n",
               isnan(r->divergence) ? "agreement of classes"
                                    : "same most likely token",
               r->agreement);
    if (!isnan(r->divergence))
        printf("KL divergence  %.6f\n", r->divergence);
    if (!isnan(r->map_iou))
        printf("overlap of maps (IoU)  %.4f\n", r->map_iou);
    if (strncmp(r->task, "detect", 6) == 0 &&
        r->boxes + r->reference_boxes == 0)
        printf("boxes  none in either model above the score of --threshold\n");
    else if (strncmp(r->task, "detect", 6) == 0)
        printf("boxes  %zu, reference %zu, in both %zu: recall %.4f, precision "
               "%.4f, F1 %.4f\n",
               r->boxes, r->reference_boxes, r->matched_boxes, r->recall,
               r->precision, r->f1);
    if (r->vectors)
        printf("cosine of %zu vectors  mean %.6f, lowest hundredth %.6f\n",
               r->vectors, r->vector_cosine, r->vector_cosine_p1);
    if (r->texts)
        printf("equal texts  %.2f %% of %zu\n", r->texts_equal, r->texts);
    printf("\n");
}

static void add_distance(cli_table *t, const char *name, double cosine,
                         double sqnr)
{
    cli_table_add(t, "%s", name);
    cli_table_add(t, "%.6f", cosine);
    cli_table_add(t, "%.2f dB", sqnr);
}

static int print_distances(cli_env *env, const job *j)
{
    const sb_model *model = j->main.model;
    const sb_eval_result *r = sb_eval_get(j->main.eval);
    const sb_eval_part *const *parts = NULL;
    size_t n = sb_model_output_count(model), n_parts = 0;

    print_task(r);
    if (sb_eval_parts(j->main.eval, &parts, &n_parts) != SB_OK)
        return cli_fail(env, j->main.path);
    cli_table *t = cli_table_new("lrr");
    cli_table_add(t, "output");
    cli_table_add(t, "cosine");
    cli_table_add(t, "SQNR");
    for (size_t i = 0; i < n; i++) {
        double cosine, sqnr;

        (void)sb_eval_output(j->main.eval, i, &cosine, &sqnr);
        add_distance(t, sb_model_output(model, i)->name, cosine, sqnr);
        for (size_t k = 0; k < n_parts; k++) {
            if (parts[k]->output != i)
                continue;
            char *name = cli_printf("  %s %s, up to %.3g",
                                    parts[k]->n_rows == 1 ? "row" : "rows",
                                    parts[k]->rows, parts[k]->largest);
            add_distance(t, name, parts[k]->cosine, parts[k]->sqnr_db);
            free(name);
        }
    }
    if (n > 1)
        add_distance(t, "all", r->cosine, r->sqnr_db);
    cli_table_print(t, "");
    return CLI_OK;
}

static int print_text(cli_env *env, const job *j)
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
    print_language(&j->main);
    if (j->other.eval)
        print_language(&j->other);
    int rc = eval_compares(j) ? print_distances(env, j) : CLI_OK;
    if (broken)
        printf("\n%zu of %zu samples could not be read and were skipped\n",
               broken, sb_data_count(j->data));
    return rc;
}

static void json_side(cli_json *json, const side *s)
{
    const sb_eval_result *r = sb_eval_get(s->eval);

    cli_json_str(json, "model", s->path);
    if (r->labeled) {
        cli_json_num(json, "top1", r->top1);
        cli_json_num(json, "top5", r->top5);
    }
    if (r->tokens) {
        cli_json_int(json, "tokens", (long long)r->tokens);
        cli_json_num(json, "perplexity", r->perplexity);
    }
    cli_json_int(json, "samples", (long long)r->samples);
    cli_json_num(json, "items_per_s", (double)r->samples / s->seconds);
    cli_json_bool(json, "integer", sb_session_is_integer(s->session));
}

static void json_task(cli_json *json, const sb_eval_result *r)
{
    cli_json_str(json, "task", r->task);
    cli_json_bool(json, "task_guessed", r->task_guessed);
    if (!isnan(r->agreement))
        cli_json_num(json, "agreement", r->agreement);
    if (!isnan(r->divergence))
        cli_json_num(json, "divergence", r->divergence);
    if (!isnan(r->map_iou))
        cli_json_num(json, "map_iou", r->map_iou);
    if (strncmp(r->task, "detect", 6) == 0) {
        cli_json_int(json, "boxes", (long long)r->boxes);
        cli_json_int(json, "reference_boxes", (long long)r->reference_boxes);
        cli_json_int(json, "matched_boxes", (long long)r->matched_boxes);
        cli_json_num(json, "recall", r->recall);
        cli_json_num(json, "precision", r->precision);
        cli_json_num(json, "f1", r->f1);
    }
    if (r->vectors) {
        cli_json_int(json, "vectors", (long long)r->vectors);
        cli_json_num(json, "vector_cosine", r->vector_cosine);
        cli_json_num(json, "vector_cosine_p1", r->vector_cosine_p1);
    }
    if (r->texts) {
        cli_json_int(json, "texts", (long long)r->texts);
        cli_json_num(json, "texts_equal", r->texts_equal);
    }
}

static void json_parts(cli_json *json, const sb_eval_part *const *parts,
                       size_t n, size_t output)
{
    cli_json_open(json, "parts", '[');
    for (size_t k = 0; k < n; k++) {
        if (parts[k]->output != output)
            continue;
        cli_json_open(json, NULL, '{');
        cli_json_int(json, "axis", parts[k]->axis);
        cli_json_str(json, "rows", parts[k]->rows);
        cli_json_int(json, "count", (long long)parts[k]->n_rows);
        cli_json_num(json, "largest", parts[k]->largest);
        cli_json_num(json, "cosine", parts[k]->cosine);
        cli_json_num(json, "sqnr_db", parts[k]->sqnr_db);
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
}

static int json_distances(cli_env *env, cli_json *json, const job *j)
{
    const sb_eval_result *r = sb_eval_get(j->main.eval);
    const sb_eval_part *const *parts = NULL;
    size_t n_parts = 0;

    if (sb_eval_parts(j->main.eval, &parts, &n_parts) != SB_OK)
        return cli_fail(env, j->main.path);
    json_task(json, r);
    cli_json_num(json, "cosine", r->cosine);
    cli_json_num(json, "sqnr_db", r->sqnr_db);
    cli_json_open(json, "outputs", '[');
    for (size_t i = 0; i < sb_model_output_count(j->main.model); i++) {
        double cosine, sqnr;

        (void)sb_eval_output(j->main.eval, i, &cosine, &sqnr);
        cli_json_open(json, NULL, '{');
        cli_json_str(json, "name", sb_model_output(j->main.model, i)->name);
        cli_json_num(json, "cosine", cosine);
        cli_json_num(json, "sqnr_db", sqnr);
        json_parts(json, parts, n_parts, i);
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
    return CLI_OK;
}

static int print_json(cli_env *env, const job *j)
{
    cli_json json = {0};
    int rc = CLI_OK;

    cli_json_begin(&json, "eval");
    json_side(&json, &j->main);
    cli_json_num(&json, "seconds", j->seconds);
    cli_json_open(&json, "broken", '[');
    for (size_t i = 0; i < sb_data_broken_count(j->data); i++)
        cli_json_str(&json, NULL, sb_data_broken(j->data, i));
    cli_json_close(&json, ']');
    if (eval_compares(j))
        rc = json_distances(env, &json, j);
    if (j->other.path) {
        cli_json_open(&json, "against", '{');
        json_side(&json, &j->other);
        cli_json_close(&json, '}');
    }
    cli_json_end(&json);
    return rc;
}

/* ---- the page ------------------------------------------------------------ */

static void report_side(sb_report *r, const side *s)
{
    const sb_eval_result *e = sb_eval_get(s->eval);

    if (e->labeled) {
        char *label = cli_printf("top-1 of %s", s->name);
        cli_report_fact(r, label, "%.2f %%", e->top1);
        free(label);
        label = cli_printf("top-5 of %s", s->name);
        cli_report_fact(r, label, "%.2f %%", e->top5);
        free(label);
    }
    cli_report_fact(r, "samples", "%zu", e->samples);
}

static void report_comparison(sb_report *r, const job *j)
{
    static const char *const heads[] = {"output", "cosine", "SQNR, dB"};
    const sb_eval_result *e = sb_eval_get(j->main.eval);
    size_t n = sb_model_output_count(j->main.model);
    char **cells = cli_alloc(3 * n + 1, sizeof *cells);

    if (!isnan(e->agreement))
        cli_report_fact(r, "same class", "%.2f %%", e->agreement);
    if (e->boxes + e->reference_boxes > 0)
        cli_report_fact(r, "F1 of boxes", "%.4f", e->f1);
    if (!isnan(e->map_iou))
        cli_report_fact(r, "overlap of maps", "%.4f", e->map_iou);
    for (size_t i = 0; i < n; i++) {
        double cosine = (double)NAN, sqnr = (double)NAN;

        (void)sb_eval_output(j->main.eval, i, &cosine, &sqnr);
        cells[3 * i] =
            cli_printf("%s", sb_model_output(j->main.model, i)->name);
        cells[3 * i + 1] = cli_printf("%.6f", cosine);
        cells[3 * i + 2] = cli_printf("%.2f", sqnr);
    }
    sb_report_section(r, "Outputs", "How far they are from the reference.");
    sb_report_table(r, "lrr", heads, (const char *const *)cells, n);
    for (size_t i = 0; i < 3 * n; i++)
        free(cells[i]);
    free(cells);
}

static int eval_write_report(cli_env *env, const job *j)
{
    char *below = cli_printf("sparsebit %s eval%s%s", sb_version(),
                             j->other.path ? ", against " : "",
                             j->other.path ? j->other.name : "");
    sb_report *r = NULL;
    sb_status status = sb_report_create(env->ctx, j->main.name, below, &r);

    if (status == SB_OK) {
        report_side(r, &j->main);
        if (j->other.path)
            report_side(r, &j->other);
        if (eval_compares(j))
            report_comparison(r, j);
        sb_report_section(r, "The network", NULL);
        status = sb_report_graph(r, j->main.model);
    }
    if (status == SB_OK)
        status = sb_report_save(r, j->args->report);
    sb_report_free(r);
    free(below);
    return status == SB_OK ? CLI_OK : cli_fail(env, j->args->report);
}

/* ---- the command --------------------------------------------------------- */

static int job_open(cli_env *env, job *j)
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
    job j = {.args = parsed};

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
        rc = print_json(env, &j);
    else if (rc == CLI_OK)
        rc = print_text(env, &j);
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
