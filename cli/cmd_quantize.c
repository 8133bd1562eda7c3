/* sparsebit quantize - calibrate a model on data and write it quantized. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

typedef struct {
    const char *model, *config, *data, *output, *target, *weights;
    const char *save, *format, *asym, *reduce;
    cli_list load;
    unsigned samples, skip, batch, memory;
    bool strict, exact, extra_info, all_values;
} quantize_args;

#define ARG(field) offsetof(quantize_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_FILE,   0,   NULL,      ARG(model),   "MODEL", "ONNX file, float or quantized", true},
    {CLI_FILE,   'c', "config",  ARG(config),  "FILE",  "qconfig.yaml (default: what `sparsebit config default` prints)", false},
    {CLI_FILE,   'd', "data",    ARG(data),    "FILE",  "data.yaml with calibration samples", false},
    {CLI_UINT,   'n', "samples", ARG(samples), "N",     "use at most N samples (default: all)", false},
    {CLI_UINT,   0,   "skip",    ARG(skip),    "N",     "leave out the first N samples", false},
    {CLI_UINT,   'b', "batch",   ARG(batch),   "N",     "samples in a batch (default: as the data file says)", false},
    {CLI_WORDS,  0,   "asym",    ARG(asym),    "w,a",   "observe behind quantized weights (w), activations (a) or both; with a the network runs block by block", false},
    {CLI_UINT,   0,   "asym-memory", ARG(memory), "MB", "activations that --asym keeps in memory; more go to a file in TMPDIR (default: 512)", false},
    {CLI_FLAG,   0,   "all-values", ARG(all_values), NULL, "histograms count every value of large activations, not a part; slower", false},
    {CLI_FILE,   'o', "output",  ARG(output),  "FILE",  "quantized ONNX file to write", false},
    {CLI_STRING, 't', "target",  ARG(target),  "NAME",  "runtime to write for; see `sparsebit list targets` (default: BACKEND of the config)", false},
    {CLI_STRING, 0,   "format",  ARG(format),  "FORM",  "`qdq` (default); `qoperator`: QLinearConv and its like; `matmulnbits`: MatMulNBits, for `A: none`", false},
    {CLI_STRING, 0,   "weights", ARG(weights), "FORM",  "`int`: integers and DQ (default); `float-qdq`: floats, Q and DQ", false},
    {CLI_STRING, 0,   "reduce-range", ARG(reduce), "WHAT", "8-bit weights within [-64, 64], where sums of two products could exceed 16 bits on processors without VNNI: `off` (default), `auto`: in layers that can, `all`", false},
    {CLI_FLAG,   0,   "extra-info", ARG(extra_info), NULL, "attribute `bits` on Q and DQ nodes, as Sparsebit wrote it", false},
    {CLI_FILE,   0,   "save-calibration", ARG(save), "FILE", "keep what was observed, as JSON", false},
    {CLI_LIST,   0,   "load-calibration", ARG(load), "FILE", "take what was observed from FILE, instead of --data or beside it; repeatable", false},
    {CLI_FLAG,   0,   "strict",  ARG(strict),  NULL,    "stop at a broken sample instead of leaving it out", false},
    {CLI_FLAG,   0,   "exact",   ARG(exact),   NULL,    "no faster algorithms that round differently", false},
    {0},
};

static const cli_example examples[] = {
    {"sparsebit quantize model.onnx -c qconfig.yaml -d photos.yaml -n 64 -o model.int8.onnx", "Calibrates on 64 samples and writes Q/DQ ONNX"},
    {"sparsebit quantize model.onnx -d photos.yaml -t onnxruntime-x86 -o out.onnx", "Default settings, placed where ONNX Runtime fuses"},
    {"sparsebit quantize model.onnx -c w4.yaml -o model.w4.onnx", "Weights only (`A: none` in w4.yaml), which needs no data"},
    {"sparsebit quantize model.onnx -d photos.yaml --asym -o out.onnx", "Each layer is calibrated on what the quantized layers before it give"},
    {"sparsebit quantize model.onnx --load-calibration seen.json -o out.onnx", "Without data, from what --save-calibration kept"},
    {"sparsebit quantize model.onnx --load-calibration 1.json --load-calibration 2.json -o out.onnx", "From what two processes saw, each on its part of the samples (--skip, --samples)"},
    {0},
};
/* clang-format on */

extern const cli_cmd cmd_quantize;

/* In the order of sb_export_format, and of float_weights. */
static const char *const formats[] = {"qdq", "qoperator", "matmulnbits", NULL};
static const char *const reductions[] = {"off", "auto", "all", NULL};
static const char *const weight_forms[] = {"int", "float-qdq", NULL};

static int word_in(const char *word, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(word, names[i]) == 0)
            return i;
    return -1;
}

typedef struct {
    cli_env *env;
    const quantize_args *args;
    sb_model *model;
    sb_quant_model *qm;
    sb_data *data;
    size_t samples;
    double load, calibrate, write; /* seconds */
    const char *subject;           /* of a failure: the file it is about */
    double bytes;                  /* of the model file */
} job;

static bool asym_has(const job *j, char what)
{
    return j->args->asym && strchr(j->args->asym, what);
}

static double file_bytes(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? (double)st.st_size : 0;
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;

    return a && b && stat(a, &x) == 0 && stat(b, &y) == 0 &&
           x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* ---- work --------------------------------------------------------------- */

static int load(job *j)
{
    const quantize_args *a = j->args;
    sb_quant_options opt = SB_QUANT_OPTIONS_INIT;
    sb_model_info info;
    sb_ctx *ctx = j->env->ctx;

    opt.config = a->config;
    opt.target = a->target;
    opt.exact = a->exact;
    opt.calibrate = a->data || a->load.n > 0;
    if (a->reduce)
        opt.reduce_range = (sb_reduce_range)word_in(a->reduce, reductions);
    sb_status status = sb_model_load(ctx, a->model, &j->model);
    if (status == SB_OK)
        status = sb_model_info_get(ctx, j->model, &info);
    if (status == SB_OK) {
        j->bytes = (double)info.file_bytes;
        status = sb_quant_model_create(ctx, j->model, &opt, &j->qm);
    }
    if (status != SB_OK)
        return cli_fail(j->env, status == SB_BAD_CONFIG && a->config
                                    ? a->config
                                    : a->model);
    return CLI_OK;
}

static int open_data(job *j)
{
    const quantize_args *a = j->args;
    sb_data_options opt = SB_DATA_OPTIONS_INIT;
    int64_t fixed = sb_quant_model_batch(j->qm);

    opt.samples = a->samples;
    opt.skip = a->skip;
    opt.batch = fixed > 0 ? (size_t)fixed : a->batch;
    opt.strict = a->strict;
    opt.seed = j->env->common.seed;
    if (sb_data_open(j->env->ctx, a->data, &opt, &j->data) != SB_OK)
        return cli_fail(j->env, a->data);
    sb_data_fit(j->data, j->model);
    return CLI_OK;
}

static void step(void *progress, size_t done, size_t total)
{
    cli_progress *p = progress;

    p->total = total;
    cli_progress_step(p, done);
}

/* Runs all batches; the names of the model's inputs say which tensor goes
 * where. */
static sb_status feed(job *j, cli_progress *progress)
{
    size_t n_in = sb_model_input_count(j->model);
    const char **names = cli_alloc(n_in + 1, sizeof *names);
    const sb_tensor **inputs = cli_alloc(n_in + 1, sizeof(sb_tensor *));
    const sb_tensor **outputs =
        cli_alloc(sb_model_output_count(j->model) + 1, sizeof(sb_tensor *));
    sb_batch batch = {0};
    sb_status status = SB_OK;

    for (size_t i = 0; i < n_in; i++)
        names[i] = sb_model_input(j->model, i).name;
    while (status == SB_OK) {
        j->subject = j->args->data;
        status = sb_data_next(j->data, &batch);
        if (status != SB_OK || batch.count == 0)
            break;
        status = sb_batch_inputs(j->env->ctx, &batch, names, n_in, inputs);
        if (status != SB_OK)
            break;
        j->subject = j->args->model;
        status = sb_quant_model_forward(j->qm, inputs, outputs);
        j->samples += batch.count;
        cli_progress_step(progress, j->samples);
    }
    free(names);
    free(inputs);
    free(outputs);
    return status;
}

static sb_status save(job *j)
{
    if (!j->args->save)
        return SB_OK;
    j->subject = j->args->save;
    return sb_quant_model_save_calibration(j->qm, j->args->save);
}

/* Everything before scales are computed. */
static sb_status observe(job *j, cli_progress *progress)
{
    const quantize_args *a = j->args;
    sb_calibration_options opt = SB_CALIBRATION_OPTIONS_INIT;

    opt.asym_weights = asym_has(j, 'w');
    opt.asym_features = asym_has(j, 'a');
    opt.memory_limit = (size_t)a->memory << 20;
    opt.all_values = a->all_values;
    opt.progress = step;
    opt.progress_user = progress;
    sb_status status = sb_quant_model_prepare_calibration(j->qm, &opt);
    if (status == SB_OK && j->data)
        status = feed(j, progress);
    for (size_t i = 0; status == SB_OK && i < a->load.n; i++) {
        j->subject = a->load.v[i];
        status = sb_quant_model_load_calibration(j->qm, j->subject);
    }
    /* Block by block, values are observed while scales are computed. */
    if (status == SB_OK && !opt.asym_features)
        status = save(j);
    return status;
}

static int calibrate(job *j)
{
    const quantize_args *a = j->args;
    bool blocks = asym_has(j, 'a'), needs = sb_quant_model_needs_data(j->qm);
    cli_progress progress;

    if (needs && !a->data && a->load.n == 0)
        return cli_usage(&cmd_quantize, "activations need samples to be "
                                        "calibrated on: give --data or "
                                        "--load-calibration");
    if (sb_quant_model_takes_data(j->qm) && a->data) {
        int rc = open_data(j);
        if (rc != CLI_OK)
            return rc;
    }
    j->subject = a->model;
    cli_progress_begin(&progress, j->env,
                       blocks ? "reading samples" : "calibrating",
                       j->data ? sb_data_count(j->data) : 0);
    sb_status status = observe(j, &progress);
    j->calibrate = cli_progress_end(&progress);
    cli_progress_begin(&progress, j->env, "calibrating", 0);
    if (status == SB_OK) {
        j->subject = a->model;
        status = sb_quant_model_calc_qparams(j->qm);
    }
    if (status == SB_OK && blocks)
        status = save(j);
    j->calibrate += cli_progress_end(&progress);
    return status == SB_OK ? CLI_OK : cli_fail(j->env, j->subject);
}

/* Written onto what is read: a slip, and the end of a file that somebody wrote.
 * The model itself may be replaced. */
static int check_outputs(const quantize_args *a)
{
    const char *read[] = {a->data, a->config};
    const char *written[] = {a->output, a->save};

    for (size_t w = 0; w < CLI_COUNT(written); w++) {
        for (size_t r = 0; r < CLI_COUNT(read); r++)
            if (same_file(written[w], read[r]))
                return cli_usage(&cmd_quantize,
                                 "'%s' would be written over: it is read too",
                                 read[r]);
    }
    if (same_file(a->save, a->model) ||
        (a->save && a->output && strcmp(a->save, a->output) == 0))
        return cli_usage(&cmd_quantize,
                         "--save-calibration: '%s' is a model's file", a->save);
    return CLI_OK;
}

static int export_model(job *j)
{
    const quantize_args *a = j->args;
    sb_export_options opt = SB_EXPORT_OPTIONS_INIT;
    cli_progress progress;

    if (!a->output)
        return CLI_OK;
    opt.float_weights = a->weights && word_in(a->weights, weight_forms) == 1;
    opt.extra_info = a->extra_info;
    if (a->format)
        opt.format = (sb_export_format)word_in(a->format, formats);
    cli_progress_begin(&progress, j->env, "exporting", 0);
    if (sb_quant_model_export(j->qm, a->output, &opt) != SB_OK)
        return cli_fail(j->env, a->output);
    j->write = cli_progress_end(&progress);
    return CLI_OK;
}

/* ---- results ------------------------------------------------------------ */

static void json_numbers(cli_json *j, const char *key, const float *v, size_t n)
{
    if (n == 1) {
        cli_json_num(j, key, (double)v[0]);
        return;
    }
    cli_json_open(j, key, '[');
    for (size_t i = 0; i < n; i++)
        cli_json_num(j, NULL, (double)v[i]);
    cli_json_close(j, ']');
}

static void json_quantizer(cli_json *j, const sb_quantizer_info *q)
{
    cli_json_open(j, NULL, '{');
    cli_json_str(j, "name", q->name);
    cli_json_str(j, "value", q->value);
    cli_json_str(j, "kind", q->is_weight ? "weight" : "activation");
    cli_json_int(j, "bits", q->bits);
    cli_json_str(j, "scheme", q->scheme);
    cli_json_str(j, "quantizer", q->quantizer);
    cli_json_str(j, "observer", q->observer);
    cli_json_int(j, "axis", q->axis);
    cli_json_int(j, "qmin", q->qmin);
    cli_json_int(j, "qmax", q->qmax);
    json_numbers(j, "scale", q->scale, q->n);
    json_numbers(j, "zero_point", q->zero_point, q->n);
    cli_json_close(j, '}');
}

static void print_json(const job *j)
{
    cli_json out = {0};

    cli_json_open(&out, NULL, '{');
    cli_json_str(&out, "model", j->args->model);
    if (j->args->output)
        cli_json_str(&out, "output", j->args->output);
    cli_json_int(&out, "samples", (long long)j->samples);
    if (j->args->asym) {
        cli_json_open(&out, "asym", '{');
        cli_json_bool(&out, "weights", asym_has(j, 'w'));
        cli_json_bool(&out, "activations", asym_has(j, 'a'));
        cli_json_close(&out, '}');
    }
    cli_json_int(&out, "broken_samples",
                 j->data ? (long long)sb_data_broken_count(j->data) : 0);
    cli_json_open(&out, "seconds", '{');
    cli_json_num(&out, "load", j->load);
    cli_json_num(&out, "calibrate", j->calibrate);
    cli_json_num(&out, "export", j->write);
    cli_json_close(&out, '}');
    cli_json_num(&out, "peak_rss_mb", cli_peak_rss_mb());
    cli_json_open(&out, "quantizers", '[');
    for (size_t i = 0; i < sb_quant_model_quantizer_count(j->qm); i++) {
        sb_quantizer_info q = sb_quant_model_quantizer(j->qm, i);
        if (!q.fused && q.n > 0)
            json_quantizer(&out, &q);
    }
    cli_json_close(&out, ']');
    cli_json_close(&out, '}');
}

static void print_quantizers(const job *j)
{
    cli_table *t = cli_table_new("llrlrr");
    static const char *const head[] = {"quantizer", "kind",  "bits",
                                       "scheme",    "scale", "zero point"};

    for (size_t i = 0; i < CLI_COUNT(head); i++)
        cli_table_add(t, "%s", head[i]);
    for (size_t i = 0; i < sb_quant_model_quantizer_count(j->qm); i++) {
        sb_quantizer_info q = sb_quant_model_quantizer(j->qm, i);

        if (q.fused || q.n == 0)
            continue;
        cli_table_add(t, "%s", q.name);
        cli_table_add(t, "%s", q.is_weight ? "weight" : "activation");
        cli_table_add(t, "%d", q.bits);
        cli_table_add(t, "%s", q.scheme);
        if (q.n == 1) {
            cli_table_add(t, "%.6g", (double)q.scale[0]);
            cli_table_add(t, "%g", (double)q.zero_point[0]);
        } else {
            cli_table_add(t, "%zu scales", q.n);
            cli_table_add(t, "%s", "");
        }
    }
    cli_table_print(t, "  ");
}

static void print_size(const job *j)
{
    const quantize_args *args = j->args;
    char before[32], after[32];

    (void)printf("written: %s, %s (%s: %s)\n", args->output,
                 cli_bytes(file_bytes(args->output), after, sizeof after),
                 args->model, cli_bytes(j->bytes, before, sizeof before));
}

static void print_text(const job *j)
{
    size_t weights = 0, features = 0, fixed = 0; /* with scales in the file */

    for (size_t i = 0; i < sb_quant_model_quantizer_count(j->qm); i++) {
        sb_quantizer_info q = sb_quant_model_quantizer(j->qm, i);
        if (q.fused)
            continue;
        *(q.is_weight ? &weights : &features) += 1;
        fixed += !q.is_weight && q.n > 0;
    }
    if (j->env->common.verbose)
        print_quantizers(j);
    (void)printf("%zu weight%s and %zu activation%s quantized", weights,
                 weights == 1 ? "" : "s", features, features == 1 ? "" : "s");
    if (j->data)
        (void)printf(", calibrated on %zu sample%s in %.1f s", j->samples,
                     j->samples == 1 ? "" : "s", j->calibrate);
    else if (!sb_quant_model_needs_data(j->qm))
        (void)printf("%s; no calibration data needed%s",
                     fixed > 0      ? " as the file says"
                     : features > 0 ? " at run time"
                                    : "",
                     j->args->data ? ", --data was not read" : "");
    (void)printf("\n");
    if (j->data && sb_data_broken_count(j->data) > 0)
        (void)printf("%zu broken samples left out\n",
                     sb_data_broken_count(j->data));
    if (j->args->output)
        print_size(j);
}

static int quantize_run(cli_env *env, const void *parsed)
{
    const quantize_args *args = parsed;
    job j = {.env = env, .args = args};
    cli_progress progress;

    if (!args->data && !args->output)
        return cli_usage(&cmd_quantize, "nothing to do: give --data, --output");
    if (check_outputs(args) != CLI_OK)
        return CLI_USAGE;
    if (args->memory && (!args->asym || !strchr(args->asym, 'a')))
        return cli_usage(&cmd_quantize, "--asym-memory is for --asym a");
    if (args->format && word_in(args->format, formats) < 0)
        return cli_usage(&cmd_quantize,
                         "--format: found '%s', allowed are qdq, qoperator, "
                         "matmulnbits",
                         args->format);
    if (args->reduce && word_in(args->reduce, reductions) < 0)
        return cli_usage(&cmd_quantize,
                         "--reduce-range: found '%s', allowed are off, auto, "
                         "all",
                         args->reduce);
    if (args->weights && word_in(args->weights, weight_forms) < 0)
        return cli_usage(&cmd_quantize,
                         "--weights: found '%s', allowed are int, float-qdq",
                         args->weights);
    cli_progress_begin(&progress, env, "loading", 0);
    int rc = load(&j);
    j.load = cli_progress_end(&progress);
    if (rc == CLI_OK)
        rc = calibrate(&j);
    if (rc == CLI_OK)
        rc = export_model(&j);
    if (rc == CLI_OK && args->extra_info && args->output && !env->common.quiet)
        (void)fprintf(stderr,
                      "sparsebit: %s: ONNX Runtime refuses files with the "
                      "attribute `bits` (--extra-info)\n",
                      args->output);
    if (rc == CLI_OK && env->common.json)
        print_json(&j);
    else if (rc == CLI_OK && !env->common.quiet)
        print_text(&j);
    sb_data_free(j.data);
    sb_quant_model_free(j.qm);
    sb_model_free(j.model);
    return rc;
}

const cli_cmd cmd_quantize = {
    .name = "quantize",
    .summary = "calibrate a model and write it quantized",
    .description =
        "Runs the model in float on calibration samples, chooses a scale for "
        "every weight and activation as the configuration says, and writes an "
        "ONNX file with QuantizeLinear and DequantizeLinear nodes.  With `A: "
        "none` or `A: dynamic` in the configuration no samples are needed.",
    .args_size = sizeof(quantize_args),
    .opts = opts,
    .examples = examples,
    .run = quantize_run,
};
