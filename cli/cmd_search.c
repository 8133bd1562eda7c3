/* sparsebit search - bit widths for each layer, within a budget, or layers that
 * stay in float. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "feed_data.h"
#include "quantize_job.h"

typedef struct {
    const char *model, *config, *target, *output, *bits, *budget, *report,
        *drop;
    cli_data_spec data;
    cli_list exclude, values;
} search_args;

#define ARG(field) offsetof(search_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_FILE,   0,   NULL,      ARG(model),   "MODEL", "ONNX file", true},
    {CLI_FILE,   'c', "config",  ARG(config),  "FILE",  "qconfig.yaml to start from; its W has no SPECIFIC (default: 8 bits for weights by channel and for activations, with FUSE_BN and BIAS_CORRECTION)", false},
    CLI_DATA_OPTS(search_args, data, true, "use at most N samples, which are kept in memory"),
    {CLI_LIST,   0,   "value",   ARG(values),  CLI_VALUE_ARG, CLI_VALUE_HELP, false},
    {CLI_TARGET, 't', "target",  ARG(target),  "TARGET", "runtime that the file is for (default: BACKEND of the configuration)", false},
    {CLI_STRING, 0,   "budget",  ARG(budget),  "WHAT:X", "`bits:4.5`: mean bits of a weight; `size:200K`: bytes of the exported file; `mac-bits:1.5G`: multiply-accumulates of a sample times bits of the weight; `error:0.01`: noise to signal (squared) of the outputs, the smallest weights within it", false},
    {CLI_STRING, 0,   "accuracy-drop", ARG(drop), "X", "instead of a budget: which layers stay in float, the worst first, until no more than X per cent are lost on the samples: of top-1 where they have labels, else of what agrees with the float model (classes, boxes, ...)", false},
    {CLI_STRING, 0,   "bits",    ARG(bits),    "8,4,2", "widths to choose from (default: those of 8, 4 and 2 that the target takes and that make its files smaller)", false},
    {CLI_LIST,   0,   "exclude", ARG(exclude), "PATTERN", "nodes or modules that stay in float; repeatable", false},
    {CLI_OUT,    'o', "output",  ARG(output),  "FILE.yaml", "qconfig.yaml to write, for `sparsebit quantize -c`", false},
    {CLI_OUT,    0,   "report",  ARG(report),  CLI_REPORT_ARG, "write a page with the curve of size and error, and all layers", false},
    {CLI_FLAG,   0,   "strict",  ARG(data.strict),  NULL,    "stop at a broken sample instead of skipping it", false},
    {0},
};

static const cli_example examples[] = {
    {"sparsebit search model.onnx -d photos.yaml -n 64 --budget bits:4.5 -o mixed.yaml", "Weights of 4.5 bits on average, where they hurt least"},
    {"sparsebit quantize model.onnx -c mixed.yaml -d photos.yaml -n 64 -o mixed.onnx", "Quantizes with what was found"},
    {"sparsebit search model.onnx -d photos.yaml -n 64 --budget size:2M --bits 8,4 -o mixed.yaml --report curve.html", "The best file of 2 MB, and a page with the curve"},
    {"sparsebit search model.onnx -d photos.yaml -n 64 -t onnxruntime-x86 --accuracy-drop 0.5 -o floats.yaml", "Which layers must stay in float, for top-1 to be at most half a point lower"},
    {0},
};
/* clang-format on */

extern const cli_cmd cmd_search;

typedef struct {
    cli_env *env;
    const search_args *args;
    sb_model *model;
    sb_search *search;
    sb_data *data;
    const sb_search_result *result;
    size_t samples;
    double seconds;
} search_job;

/* ---- options ------------------------------------------------------------- */

static const char *const budgets[] = {"bits", "size", "mac-bits", "error"};

/* WHAT:X, X with K, M or G. */
static bool read_budget(const char *text, sb_search_options *opt)
{
    const char *colon = strchr(text, ':');
    char *end = NULL;

    for (size_t i = 0; colon && i < CLI_COUNT(budgets); i++) {
        size_t n = (size_t)(colon - text);
        if (strlen(budgets[i]) != n || strncmp(text, budgets[i], n) != 0)
            continue;
        opt->budget = (sb_search_budget)i;
        opt->limit = strtod(colon + 1, &end);
        if (end == colon + 1 || !(opt->limit > 0) || !isfinite(opt->limit))
            return false;
        opt->limit *= *end == 'K'   ? 1e3
                      : *end == 'M' ? 1e6
                      : *end == 'G' ? 1e9
                                    : 1;
        return !*end || (strchr("KMG", *end) && !end[1]);
    }
    return false;
}

/* Numbers with commas; how many, 0 if they are none. */
static size_t read_bits(const char *text, int *out, size_t most)
{
    size_t n = 0;

    while (n < most) {
        char *end = NULL;
        long v = strtol(text, &end, 10);
        if (end == text || v < 1 || v > 16)
            return 0;
        out[n++] = (int)v;
        if (!*end)
            return n;
        if (*end != ',')
            return 0;
        text = end + 1;
    }
    return 0;
}

static int search_open(search_job *j)
{
    const search_args *a = j->args;
    sb_search_options opt = SB_SEARCH_OPTIONS_INIT;
    int bits[8];

    opt.config = a->config;
    opt.target = a->target;
    opt.exclude = a->exclude.v;
    opt.n_exclude = a->exclude.n;
    if (!read_budget(a->budget, &opt))
        return cli_usage(&cmd_search,
                         "--budget: found '%s', want bits:4.5, size:200K, "
                         "mac-bits:1.5G or error:0.01",
                         a->budget);
    if (a->bits) {
        opt.bits = bits;
        opt.n_bits = read_bits(a->bits, bits, CLI_COUNT(bits));
        if (opt.n_bits == 0)
            return cli_usage(&cmd_search,
                             "--bits: found '%s', want numbers from 1 to 16, "
                             "descending, with commas",
                             a->bits);
    }
    int rc =
        cli_model_open(j->env, &cmd_search, a->model, &a->values, &j->model);
    if (rc == CLI_OK && sb_search_create(j->model, &opt, &j->search) != SB_OK)
        rc = cli_fail(j->env, a->config ? a->config : a->model);
    return rc;
}

/* ---- work ---------------------------------------------------------------- */

static sb_status search_take(void *search, const sb_tensor *const *inputs,
                             size_t n_in, const sb_tensor **outputs,
                             size_t n_out)
{
    return sb_search_add(search, inputs, n_in, outputs, n_out);
}

static int search_feed(search_job *j)
{
    const search_args *a = j->args;
    cli_feed f = {.env = j->env,
                  .model = j->model,
                  .run = search_take,
                  .user = j->search,
                  .what = "reading samples"};
    int rc = cli_data_open(j->env, &cmd_search, j->model, &a->data,
                           sb_search_fixed_batch(j->search), &j->data);

    f.data = j->data;
    if (rc == CLI_OK && cli_feed_all(&f) != SB_OK)
        rc = cli_feed_fail(&f, a->model, a->data.path);
    j->samples = f.samples;
    return rc;
}

static int search_write(search_job *j)
{
    char *yaml = NULL;
    sb_status status = sb_search_config(j->search, &yaml);

    if (status == SB_OK)
        status = sb_text_save(j->env->ctx, j->args->output, yaml);
    sb_memory_free(yaml);
    return status == SB_OK ? CLI_OK : cli_fail(j->env, j->args->output);
}

/* ---- printing ------------------------------------------------------------ */

static void print_layers(const sb_search_result *r)
{
    cli_table *t = cli_table_new("llrrrr");
    static const char *const head[] = {"layer", "operator", "weights",
                                       "MACs",  "bits",     "costs"};

    for (size_t i = 0; i < CLI_COUNT(head); i++)
        cli_table_add(t, "%s", head[i]);
    for (size_t i = 0; i < r->n_layers; i++) {
        const sb_search_layer *l = r->layers[i];
        char elements[32], macs[32];
        size_t c = 0;

        while (c + 1 < r->n_widths && r->widths[c] != l->bits)
            c++;
        cli_table_add(t, "%s", l->name);
        cli_table_add(t, "%s", l->op);
        cli_table_add(t, "%s", cli_si(l->elements, elements, sizeof elements));
        cli_table_add(t, "%s", cli_si(l->macs, macs, sizeof macs));
        cli_table_add(t, "%d", l->bits);
        cli_table_add(t, "%.3g", l->errors[c]);
    }
    cli_table_print(t, "");
}

static void add_point(cli_table *t, const char *what, const sb_search_point *p)
{
    char bytes[32], macs[32];

    cli_table_add(t, "%s", what);
    cli_table_add(t, "%.3f", p->bits);
    cli_table_add(t, "%s", cli_bytes(p->bytes, bytes, sizeof bytes));
    cli_table_add(t, "%s", cli_si(p->mac_bits, macs, sizeof macs));
    cli_table_add(t, "%.4g", p->error);
}

static void print_text(const search_job *j)
{
    const sb_search_result *r = j->result;
    cli_table *t = cli_table_new("lrrrr");
    static const char *const head[] = {"weights", "mean bits", "bytes",
                                       "MAC-bits", "error"};
    char bytes[32];

    print_layers(r);
    printf("\n");
    for (size_t i = 0; i < CLI_COUNT(head); i++)
        cli_table_add(t, "%s", head[i]);
    for (size_t i = 0; i < r->n_uniform; i++) {
        char *what = cli_printf("all %d bit", r->uniform[i]->uniform);
        add_point(t, what, r->uniform[i]);
        free(what);
    }
    add_point(t, "found", r->found);
    cli_table_print(t, "");
    if (j->env->common.quiet)
        return;
    printf("\nquantized with it: error %.4g, file of %s; %zu runs of %zu "
           "samples in %.1f s\n",
           r->error, cli_bytes(r->file_bytes, bytes, sizeof bytes), r->runs,
           j->samples, j->seconds);
    if (j->args->output)
        cli_put("written: %s\n", j->args->output);
    if (j->args->report)
        cli_put("report: %s\n", j->args->report);
}

static void json_point(cli_json *out, const char *key, const sb_search_point *p)
{
    cli_json_open(out, key, '{');
    if (p->uniform)
        cli_json_int(out, "uniform", p->uniform);
    cli_json_num(out, "bits", p->bits);
    cli_json_num(out, "bytes", p->bytes);
    cli_json_num(out, "mac_bits", p->mac_bits);
    cli_json_num(out, "error", p->error);
    cli_json_bool(out, "measured", p->measured);
    cli_json_close(out, '}');
}

static void print_json(const search_job *j)
{
    const sb_search_result *r = j->result;
    cli_json out = {0};

    cli_json_begin(&out, "search");
    cli_json_str(&out, "model", j->args->model);
    cli_json_int(&out, "samples", (long long)j->samples);
    cli_json_num(&out, "seconds", j->seconds);
    cli_json_int(&out, "runs", (long long)r->runs);
    json_point(&out, "found", r->found);
    cli_json_num(&out, "error", r->error);
    cli_json_num(&out, "file_bytes", r->file_bytes);
    cli_json_open(&out, "uniform", '[');
    for (size_t i = 0; i < r->n_uniform; i++)
        json_point(&out, NULL, r->uniform[i]);
    cli_json_close(&out, ']');
    cli_json_open(&out, "curve", '[');
    for (size_t i = 0; i < r->n_points; i++)
        json_point(&out, NULL, r->points[i]);
    cli_json_close(&out, ']');
    cli_json_open(&out, "layers", '[');
    for (size_t i = 0; i < r->n_layers; i++) {
        const sb_search_layer *l = r->layers[i];

        cli_json_open(&out, NULL, '{');
        cli_json_str(&out, "name", l->name);
        cli_json_str(&out, "op", l->op);
        cli_json_num(&out, "elements", l->elements);
        cli_json_num(&out, "macs", l->macs);
        cli_json_int(&out, "bits", l->bits);
        cli_json_open(&out, "errors", '{');
        for (size_t c = 0; c < r->n_widths; c++) {
            char *key = cli_printf("%d", r->widths[c]);
            cli_json_num(&out, key, l->errors[c]);
            free(key);
        }
        cli_json_close(&out, '}');
        cli_json_close(&out, '}');
    }
    cli_json_close(&out, ']');
    cli_json_end(&out);
}

/* ---- layers in float ----------------------------------------------------- */

static sb_search_options floats_options(const search_args *a)
{
    sb_search_options opt = SB_SEARCH_OPTIONS_INIT;

    opt.config = a->config;
    opt.target = a->target;
    return opt;
}

/* Those of --exclude, and those that were found. */
static int floats_write(cli_env *env, const search_args *a,
                        const quantize_drop *d)
{
    const sb_search_options opt = floats_options(a);
    size_t n = a->exclude.n + (d->n ? d->ends[d->n] : 0);
    const char **all = cli_alloc(n + 1, sizeof *all);
    char *yaml = NULL;

    for (size_t i = 0; i < n; i++)
        all[i] =
            i < a->exclude.n ? a->exclude.v[i] : d->names[i - a->exclude.n];
    sb_status status = sb_search_float_config(env->ctx, &opt, all, n, &yaml);
    if (status == SB_OK)
        status = sb_text_save(env->ctx, a->output, yaml);
    sb_memory_free(yaml);
    free(all);
    return status == SB_OK ? CLI_OK : cli_fail(env, a->output);
}

static void floats_print(const quantize_job *j, double seconds)
{
    cli_json out = {0};

    if (!j->env->common.json) {
        quantize_print_drop(&j->drop);
        if (j->args->output && !j->env->common.quiet)
            cli_put("written: %s\n", j->args->output);
        return;
    }
    cli_json_begin(&out, "search");
    cli_json_str(&out, "model", j->args->model);
    cli_json_int(&out, "samples", (long long)j->samples);
    cli_json_num(&out, "seconds", seconds);
    quantize_json_drop(&out, &j->drop);
    cli_json_end(&out);
}

/* --accuracy-drop: quantizes as `sparsebit quantize` does with the
 * configuration that is written. */
static int floats_run(cli_env *env, const search_args *a)
{
    const quantize_args args = {.model = a->model,
                                .config = a->config,
                                .output = a->output,
                                .target = a->target,
                                .drop = a->drop,
                                .data = a->data,
                                .exclude = a->exclude,
                                .values = a->values};
    const sb_search_options opt = floats_options(a);
    quantize_job j = {.env = env, .cmd = &cmd_search, .args = &args};
    double start = cli_seconds();
    char *text = NULL;
    int rc = quantize_check_drop(&cmd_search, &args, env->ctx);

    if (rc == CLI_OK && !a->config &&
        sb_search_float_config(env->ctx, &opt, NULL, 0, &text) != SB_OK)
        rc = cli_fail(env, a->model);
    j.config_text = text;
    if (rc == CLI_OK)
        rc = quantize_load(&j);
    if (rc == CLI_OK)
        rc = quantize_all_but(&j);
    if (rc == CLI_OK && a->output)
        rc = floats_write(env, a, &j.drop);
    if (rc == CLI_OK)
        floats_print(&j, cli_seconds() - start);
    quantize_free(&j);
    sb_memory_free(text);
    return rc;
}

/* ---- the command --------------------------------------------------------- */

static int check_options(const search_args *a)
{
    if (!a->drop == !a->budget)
        return cli_usage(&cmd_search, "give --budget or --accuracy-drop%s",
                         a->drop ? ", not both" : "");
    if (a->drop && (a->bits || a->report))
        return cli_usage(&cmd_search, "--%s is for --budget",
                         a->bits ? "bits" : "report");
    return CLI_OK;
}

static int search_run(cli_env *env, const void *parsed)
{
    search_job j = {.env = env, .args = parsed};
    cli_progress progress;
    double start = cli_seconds();
    int rc = check_options(parsed);

    if (rc != CLI_OK)
        return rc;
    if (j.args->drop)
        return floats_run(env, parsed);
    rc = search_open(&j);
    if (rc == CLI_OK)
        rc = search_feed(&j);
    if (rc == CLI_OK) {
        cli_progress_begin(&progress, env, "searching", 0);
        if (sb_search_run(j.search, &j.result) != SB_OK)
            rc = cli_fail(env, j.args->model);
        (void)cli_progress_end(&progress);
    }
    j.seconds = cli_seconds() - start;
    if (rc == CLI_OK && j.args->output)
        rc = search_write(&j);
    if (rc == CLI_OK && j.args->report)
        rc = cli_report_search(env, j.args->report, j.args->model, j.search,
                               j.result);
    if (rc == CLI_OK && env->common.json)
        print_json(&j);
    else if (rc == CLI_OK)
        print_text(&j);
    sb_data_free(j.data);
    sb_search_free(j.search);
    sb_model_free(j.model);
    return rc;
}

const cli_cmd cmd_search = {
    .name = "search",
    .summary = "bit widths for each layer, or which stay in float",
    .description =
        "Measures on samples how much the network's outputs suffer from each "
        "bit width of each layer's weights, finds the mixture within the "
        "budget that they suffer least from, measures again around it, and "
        "writes a configuration with SPECIFIC entries.  With --accuracy-drop, "
        "one that names layers that stay in float.",
    .args_size = sizeof(search_args),
    .opts = opts,
    .examples = examples,
    .run = search_run,
};
