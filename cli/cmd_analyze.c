/* sparsebit analyze - what quantization costs, layer by layer. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "feed_data.h"
#include "json_model.h"
#include "report_page.h"

typedef struct {
    const char *model, *config, *preset, *target, *by, *report;
    cli_data_spec data;
    cli_list exclude, values;
    unsigned top;
    bool exact;
} analyze_args;

#define ARG(field) offsetof(analyze_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_FILE,   0,   NULL,      ARG(model),   "MODEL", "ONNX file, float or quantized", true},
    {CLI_FILE,   'c', "config",  ARG(config),  "FILE",  "qconfig.yaml (default: as `sparsebit quantize`; a quantized file: as it is)", false},
    {CLI_STRING, 0,   "preset",  ARG(preset),  "NAME",  "without a config, as `sparsebit quantize --preset`: `fast`, `balanced` (default) or `best`", false},
    CLI_DATA_OPTS(analyze_args, data, true, "use at most N samples, for calibration and for errors"),
    {CLI_LIST,   0,   "value",   ARG(values),  CLI_VALUE_ARG, CLI_VALUE_HELP, false},
    {CLI_TARGET, 't', "target",  ARG(target),  "TARGET", "runtime that the file would be for (default: BACKEND of the configuration)", false},
    {CLI_LIST,   0,   "exclude", ARG(exclude), "PATTERN", "nodes or modules that stay in float, such as 'head.*'; repeatable", false},
    {CLI_STRING, 0,   "by",      ARG(by),      "WHAT",  "sort by `async` (default), `weights` or `activations`, worst SQNR first, or by `sync`: most noise added first; `sync:sqnr`, `async:mse`, `weights:cosine`: by another measure; `order`: as they run", false},
    {CLI_UINT,   0,   "top",     ARG(top),     "N",     "print the first N layers only (default, and 0: all)", false},
    {CLI_OUT,    0,   "report",  ARG(report),  CLI_REPORT_ARG, CLI_REPORT_HELP, false},
    {CLI_FLAG,   0,   "strict",  ARG(data.strict),  NULL,    "stop at a broken sample instead of skipping it", false},
    {CLI_FLAG,   0,   "exact",   ARG(exact),   NULL,    "disable approximations such as Winograd", false},
    {0},
};

static const cli_example examples[] = {
    {"sparsebit analyze model.onnx -d photos.yaml -n 64", "Errors of all layers with the default settings, worst first"},
    {"sparsebit analyze model.onnx -c w4.yaml -d photos.yaml -n 64 --by weights --top 10", "The ten layers whose weights lose most"},
    {"sparsebit analyze model.onnx -d photos.yaml -n 64 -t tensorrt --report errors.html", "A page to look at, for one target"},
    {"sparsebit analyze model.int8.onnx -d photos.yaml -n 64 --by sync", "A file that is quantized already, with its own scales"},
    {0},
};
/* clang-format on */

extern const cli_cmd cmd_analyze;

/* ---- the order of layers ------------------------------------------------- */

typedef enum {
    BY_ASYNC,
    BY_WEIGHTS,
    BY_ACTIVATIONS,
    BY_SYNC,
    BY_ORDER
} by_what;
typedef enum { BY_ADDED, BY_SQNR, BY_MSE, BY_COSINE } by_measure;

typedef struct {
    by_what what;
    by_measure measure;
} sort_key;

typedef struct {
    const sb_layer_error *layer;
    size_t place; /* in order of execution */
    double key;   /* larger is worse */
} layer_row;

static bool read_by(const char *text, sort_key *out)
{
    static const char *const whats[] = {"async", "weights", "activations",
                                        "sync", "order"};
    static const char *const measures[] = {"added", "sqnr", "mse", "cosine"};
    size_t n = text ? strcspn(text, ":") : 0;
    bool found = !text;

    *out = (sort_key){BY_ASYNC, BY_SQNR};
    for (size_t i = 0; text && i < CLI_COUNT(whats); i++)
        if (strlen(whats[i]) == n && strncmp(text, whats[i], n) == 0) {
            out->what = (by_what)i;
            out->measure = out->what == BY_SYNC ? BY_ADDED : BY_SQNR;
            found = true;
        }
    if (!found || !text || !text[n])
        return found;
    for (size_t i = 0; i < CLI_COUNT(measures); i++)
        if (strcmp(text + n + 1, measures[i]) == 0) {
            out->measure = (by_measure)i;
            return out->what == BY_SYNC ||
                   (out->what != BY_ORDER && out->measure != BY_ADDED);
        }
    return false;
}

static const sb_difference *difference_of(const sb_layer_error *l, by_what what)
{
    switch (what) {
    case BY_WEIGHTS:
        return l->weights;
    case BY_ACTIVATIONS:
        return l->activations;
    case BY_SYNC:
        return l->sync;
    default:
        return l->async;
    }
}

/* What is not a number is worse than all others, what is not there better. */
static double sort_value(const sb_layer_error *l, sort_key by)
{
    const sb_difference *d = difference_of(l, by.what);
    double value;

    if (!d)
        return -(double)INFINITY;
    value = by.measure == BY_ADDED  ? l->sync_added
            : by.measure == BY_SQNR ? -d->sqnr_db
            : by.measure == BY_MSE  ? d->mse
                                    : -d->cosine;
    return isnan(value) ? (double)INFINITY : value;
}

static int compare_rows(const void *a, const void *b)
{
    const layer_row *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? 1 : -1;
    return (x->place > y->place) - (x->place < y->place);
}

static layer_row *sorted_rows(const sb_quant_errors *errors, sort_key by)
{
    size_t n = sb_quant_errors_count(errors);
    layer_row *rows = cli_alloc(n + 1, sizeof *rows);

    for (size_t i = 0; i < n; i++) {
        rows[i].layer = sb_quant_errors_layer(errors, i);
        rows[i].place = i;
        rows[i].key = by.what == BY_ORDER ? 0 : sort_value(rows[i].layer, by);
    }
    qsort(rows, n, sizeof *rows, compare_rows);
    return rows;
}

/* ---- printing ------------------------------------------------------------ */

typedef struct {
    cli_env *env;
    const analyze_args *args;
    sort_key by;
    sb_model *model;
    sb_quant_model *qm;
    sb_quant_errors *errors;
    sb_data *data;
    size_t samples;
    double calibrate, seconds;
} analyze_job;

static void add_db(cli_table *t, const sb_difference *d)
{
    if (!d)
        cli_table_add(t, "-");
    else if (isinf(d->sqnr_db) && d->sqnr_db > 0)
        cli_table_add(t, "exact");
    else if (!isfinite(d->sqnr_db)) /* a divisor that became zero, say */
        cli_table_add(t, "not finite");
    else
        cli_table_add(t, "%.1f dB", d->sqnr_db);
}

static void print_layers(const analyze_job *j)
{
    static const char *const head[] = {"layer",   "operator",    "async",
                                       "weights", "activations", "sync",
                                       "added",   "cosine",      "MSE"};
    size_t n = sb_quant_errors_count(j->errors);
    layer_row *rows = sorted_rows(j->errors, j->by);
    cli_table *t = cli_table_new("llrrrrrrr");

    if (j->args->top > 0 && j->args->top < n)
        n = j->args->top;
    for (size_t i = 0; i < CLI_COUNT(head); i++)
        cli_table_add(t, "%s", head[i]);
    for (size_t i = 0; i < n; i++) {
        const sb_layer_error *l = rows[i].layer;
        const sb_difference *d = difference_of(l, j->by.what);

        d = d ? d : l->async;
        cli_table_add(t, "%s", l->name);
        cli_table_add(t, "%s", l->op);
        add_db(t, l->async);
        add_db(t, l->weights);
        add_db(t, l->activations);
        add_db(t, l->sync);
        if (l->sync && isfinite(l->sync_added))
            /* What rounds to zero has no sign. */
            cli_table_add(t, "%.3f %%", round(1e5 * l->sync_added) / 1e3 + 0.0);
        else
            cli_table_add(t, "-");
        if (isfinite(d->mse)) {
            cli_table_add(t, "%.6f", d->cosine);
            cli_table_add(t, "%.3g", d->mse);
        } else {
            cli_table_add(t, "-");
            cli_table_add(t, "-");
        }
    }
    cli_table_print(t, "");
    free(rows);
}

static void print_outputs(const analyze_job *j)
{
    cli_table *t = cli_table_new("lrrrr");
    static const char *const head[] = {"output", "SQNR", "cosine", "KL",
                                       "same class"};
    const sb_output_error *o;

    for (size_t i = 0; i < CLI_COUNT(head); i++)
        cli_table_add(t, "%s", head[i]);
    for (size_t i = 0; (o = sb_quant_errors_output(j->errors, i)); i++) {
        cli_table_add(t, "%s", o->name);
        add_db(t, o->difference);
        if (o->difference)
            cli_table_add(t, "%.6f", o->difference->cosine);
        else
            cli_table_add(t, "-");
        if (isnan(o->kl)) {
            cli_table_add(t, "-");
            cli_table_add(t, "-");
        } else {
            cli_table_add(t, "%.3g", o->kl);
            cli_table_add(t, "%.2f %%", 100 * o->agreement);
        }
    }
    printf("\n");
    cli_table_print(t, "");
}

/* Below it a page colors layers as ones to look at: an error of 10 %. */
#define BAD_DB 20

static bool is_bad(const sb_difference *d)
{
    return d && !(d->sqnr_db >= BAD_DB);
}

/* Of channels that one scale serves: beyond it most have 5 bits or less. */
#define UNEVEN 8

/* Has a layer one scale for all channels of its weight? */
static bool has_single_scale(const sb_quant_model *qm, const char *layer)
{
    const sb_quantizer_info *q;
    size_t n = strlen(layer);

    for (size_t i = 0; (q = sb_quant_model_quantizer(qm, i)); i++)
        if (q->is_weight && strncmp(q->name, layer, n) == 0 &&
            q->name[n] == '.' && strncmp(q->scheme, "per-tensor", 10) == 0)
            return true;
    return false;
}

/* What evens channels out, as far as it was not done. */
static const char *even_out(const analyze_job *j)
{
    const analyze_args *a = j->args;
    const sb_quant_step *step;

    for (size_t i = 0; (step = sb_quant_model_step(j->qm, i)); i++)
        if (strncmp(step->name, "equalization", 12) == 0)
            return "";
    if (a->config)
        return "`EQUALIZATION: true` under SCHEDULE, or ";
    return a->preset && strcmp(a->preset, "fast") == 0
               ? "another preset, which evens them out, or "
               : "";
}

/* What of a layer loses, and what helps against that. */
static void advise_layer(const analyze_job *j, const sb_layer_error *l)
{
    bool weights =
        l->weights &&
        (!l->activations || !(l->weights->sqnr_db >= l->activations->sqnr_db));
    /* Errors of weights are multiplied with such an input, so these may lose
     * even more than activations, which must have half of a bad error. */
    bool uneven = l->activations && l->channel_spread >= UNEVEN &&
                  !(l->activations->sqnr_db > BAD_DB + 6);

    if (uneven)
        cli_put("%s reads channels of which one reaches %.0f times as far as "
                "half of them, with one scale for all: %s--exclude '%s'\n",
                l->name, l->channel_spread, even_out(j), l->name);
    else
        cli_put("%s loses by its %s: %s, or --exclude '%s'\n", l->name,
                weights ? "weights" : "activations",
                !weights ? "another observer, or more bits"
                : has_single_scale(j->qm, l->name)
                    ? "scales for each channel, or more "
                      "bits"
                    : "more bits",
                l->name);
}

/* The worst layers. */
static size_t advise_layers(const analyze_job *j)
{
    enum { MOST = 3 };
    size_t n = sb_quant_errors_count(j->errors), bad = 0;
    layer_row *rows = sorted_rows(j->errors, (sort_key){BY_ASYNC, BY_SQNR});

    for (; bad < n && bad < MOST && is_bad(rows[bad].layer->async); bad++)
        advise_layer(j, rows[bad].layer);
    free(rows);
    return bad;
}

static void print_advice(const analyze_job *j)
{
    const sb_output_error *o;
    bool lost = false;

    for (size_t i = 0; (o = sb_quant_errors_output(j->errors, i)); i++)
        lost = lost || is_bad(o->difference);
    if (advise_layers(j) == 0 && lost)
        cli_put("no layer is bad by itself, small losses add up: `--by sync` "
                "has those that add most first, `quantize --accuracy-drop` "
                "keeps layers in float\n");
}

static void print_text(const analyze_job *j)
{
    print_layers(j);
    print_outputs(j);
    if (!j->env->common.quiet) {
        printf("\n");
        print_advice(j);
    }
    if (!j->env->common.quiet)
        printf("%zu sample%s: calibrated in %.1f s, compared in %.1f s\n",
               j->samples, j->samples == 1 ? "" : "s", j->calibrate,
               j->seconds);
    if (j->args->report && !j->env->common.quiet)
        cli_put("report: %s\n", j->args->report);
}

static void print_json(const analyze_job *j)
{
    cli_json out = {0};

    cli_json_begin(&out, "analyze");
    cli_json_str(&out, "model", j->args->model);
    cli_json_str(&out, "target", sb_quant_model_target(j->qm));
    cli_json_int(&out, "samples", (long long)j->samples);
    cli_json_open(&out, "seconds", '{');
    cli_json_num(&out, "calibrate", j->calibrate);
    cli_json_num(&out, "compare", j->seconds);
    cli_json_close(&out, '}');
    cli_json_num(&out, "peak_rss_mb", cli_peak_rss_mb());
    layer_row *rows = sorted_rows(j->errors, j->by);
    cli_json_open(&out, "layers", '[');
    for (size_t i = 0; i < sb_quant_errors_count(j->errors); i++)
        if (j->args->top == 0 || i < j->args->top)
            cli_json_layer_error(&out, rows[i].layer);
    cli_json_close(&out, ']');
    free(rows);
    cli_json_output_errors(&out, j->errors);
    cli_json_end(&out);
}

/* ---- work ---------------------------------------------------------------- */

static int analyze_load(analyze_job *j)
{
    const analyze_args *a = j->args;
    sb_quant_options opt = SB_QUANT_OPTIONS_INIT;
    int rc =
        cli_model_open(j->env, &cmd_analyze, a->model, &a->values, &j->model);

    if (rc != CLI_OK)
        return rc;
    opt.config = a->config;
    opt.target = a->target;
    opt.preset = a->preset;
    opt.exact = a->exact;
    opt.exclude = a->exclude.v;
    opt.n_exclude = a->exclude.n;
    sb_status status = sb_quant_model_create(j->model, &opt, &j->qm);
    if (status != SB_OK)
        return cli_fail(j->env, status == SB_BAD_CONFIG && a->config
                                    ? a->config
                                    : a->model);
    return CLI_OK;
}

static int analyze_feed(const analyze_job *j, cli_feed *f)
{
    f->env = j->env;
    f->model = j->model;
    f->data = j->data;
    sb_data_rewind(j->data);
    if (cli_feed_all(f) != SB_OK)
        return cli_feed_fail(f, j->args->model, j->args->data.path);
    return CLI_OK;
}

static int analyze_calibrate(analyze_job *j)
{
    cli_feed f = {
        .run = cli_feed_forward, .user = j->qm, .what = "calibrating"};
    double start = cli_seconds();

    if (sb_quant_model_prepare_calibration(j->qm, NULL) != SB_OK)
        return cli_fail(j->env, j->args->model);
    int rc = sb_quant_model_can_calibrate(j->qm) ? analyze_feed(j, &f) : CLI_OK;
    if (rc == CLI_OK && sb_quant_model_calc_qparams(j->qm) != SB_OK)
        rc = cli_fail(j->env, j->args->model);
    j->calibrate = cli_seconds() - start;
    return rc;
}

static int analyze_compare(analyze_job *j)
{
    sb_quant_errors_options opt = SB_QUANT_ERRORS_OPTIONS_INIT;
    cli_feed f = {.run = cli_feed_errors, .what = "comparing"};

    opt.histograms = j->args->report != NULL;
    if (sb_quant_errors_create(j->qm, &opt, &j->errors) != SB_OK)
        return cli_fail(j->env, j->args->model);
    if (sb_quant_errors_count(j->errors) == 0)
        return cli_error("%s: nothing is quantized", j->args->model);
    f.user = j->errors;
    int rc = analyze_feed(j, &f);
    j->samples = f.samples;
    j->seconds = f.seconds;
    if (rc == CLI_OK && f.samples == 0)
        rc = cli_error("%s: no samples", j->args->data.path);
    return rc;
}

static int analyze_run(cli_env *env, const void *parsed)
{
    analyze_job j = {.env = env, .args = parsed};

    if (!read_by(j.args->by, &j.by))
        return cli_usage(
            &cmd_analyze,
            "--by: found '%s', allowed are async, weights, "
            "activations, sync (these with :sqnr, :mse or :cosine) "
            "and order",
            j.args->by);
    if (cli_check_preset(env, &cmd_analyze, j.args->preset) != CLI_OK)
        return CLI_USAGE;
    if (j.args->preset && j.args->config)
        return cli_usage(&cmd_analyze, "--preset is for analyzing without "
                                       "--config, which says it itself");
    int rc = analyze_load(&j);
    if (rc == CLI_OK)
        rc = cli_data_open(env, &cmd_analyze, j.model, &j.args->data,
                           sb_quant_model_fixed_batch(j.qm), &j.data);
    if (rc == CLI_OK)
        rc = analyze_calibrate(&j);
    if (rc == CLI_OK)
        rc = analyze_compare(&j);
    if (rc == CLI_OK && j.args->report) {
        const cli_quant_page page = {.path = j.args->report,
                                     .model = j.args->model,
                                     .command = "analyze",
                                     .qm = j.qm,
                                     .errors = j.errors,
                                     .samples = j.samples};
        rc = cli_report_quantization(env, &page);
    }
    if (rc == CLI_OK && env->common.json)
        print_json(&j);
    else if (rc == CLI_OK)
        print_text(&j);
    sb_data_free(j.data);
    sb_quant_errors_free(j.errors);
    sb_quant_model_free(j.qm);
    sb_model_free(j.model);
    return rc;
}

const cli_cmd cmd_analyze = {
    .name = "analyze",
    .summary = "which layers lose how much by quantization",
    .description =
        "Calibrates the model as `sparsebit quantize` would, then runs it in "
        "float and quantized side by side and compares the result of each "
        "quantized layer: `async` with only this layer quantized (and with "
        "only its weights, only its activations), `sync` with the whole "
        "network quantized.  One pass, in constant memory.",
    .args_size = sizeof(analyze_args),
    .opts = opts,
    .examples = examples,
    .run = analyze_run,
};
