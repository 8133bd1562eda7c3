/* sparsebit quantize - calibrate a model on data and write it quantized. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "feed_data.h"
#include "quantize_job.h"

#define ARG(field) offsetof(quantize_args, field)

/* Graphs, tables and threads take it, whatever the model: with less, reading
 * one may end before the smallest limit for it is known. */
enum { LIMIT_LEAST = 10 << 20 };

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_FILE,   0,   NULL,      ARG(model),   "MODEL", "ONNX file, float or quantized", true},
    {CLI_FILE,   'c', "config",  ARG(config),  "FILE",  "qconfig.yaml (default: what `sparsebit config default` prints)", false},
    {CLI_STRING, 0,   "preset",  ARG(preset),  "NAME",  "without a config, what is done for accuracy: `fast`, `balanced` (default) or `best`; see `sparsebit list presets`", false},
    CLI_DATA_OPTS(quantize_args, data, false, "use at most N samples"),
    {CLI_UINT,   0,   "augment", ARG(augment), "N",     "calibrate on N other versions of each sample, too, changed at random as AUGMENT of the data file says (--seed); for weights of less than 8 bits", false},
    {CLI_STRING, 0,   "calibrate", ARG(calibrate), "WHAT", "`self`: without --data, calibrate a language model on texts that it writes itself, --samples windows (64) of 256 tokens, or of as many as it takes", false},
    {CLI_LIST,   0,   "value",   ARG(values),  CLI_VALUE_ARG, CLI_VALUE_HELP, false},
    {CLI_WORDS,  0,   "asym",    ARG(asym),    "w,a",   "calibrate each layer on the outputs of quantized weights (w), activations (a) or both; with a the network runs block by block", false},
    {CLI_UINT,   0,   "asym-memory", ARG(memory), "MB", "memory for activations kept by --asym; the rest goes to a file in TMPDIR (default: 512)", false},
    {CLI_SIZE,   0,   "memory-limit", ARG(limit), "SIZE", "quantize in so much memory, such as `2G`: weights are taken from their files layer by layer, and copies of them, packed ones that have no room, and samples lie in temporary files in TMPDIR; the result is the same", false},
    {CLI_OUT,    'o', "output",  ARG(output),  "FILE",  "quantized file to write; one that ends in .gguf is for `--format gguf`", false},
    {CLI_TARGET, 't', "target",  ARG(target),  "NAME",  "runtime to write for; see `sparsebit list targets` (default: BACKEND of the config, or `virtual`: for simulation, slower than float in runtimes)", false},
    {CLI_STRING, 0,   "format",  ARG(format),  "FORM",  "`qdq` (default); `qoperator`: QOperator nodes such as QLinearConv; `matmulnbits`: MatMulNBits, for `A: none`; of language models also `gguf` (for llama.cpp) and `gptq` (a Hugging Face folder)", false},
    {CLI_FILE,   0,   "tokenizer", ARG(tokenizer), "FILE", "of `--format gguf` and `gptq`, and of `--calibrate`: the tokenizer (default: the model's own, or what is beside it)", false},
    {CLI_STRING, 0,   "float-as", ARG(float_as), "TYPE", "of `--format gguf` and `gptq`: what matrices that stay in float become: `f32`, `f16`, `bf16`, in GGUF files also blocks: `q8_0` (default there, but `q6_k` for mixtures of `--gguf-type`), `q4_k` and others", false},
    {CLI_STRING, 0,   "gguf-type", ARG(gguf_type), "TYPE", "of `--format gguf`: what linear layers become, whatever bits and groups the config says: `q2_k_pure`, `q3_k`, `q4_k`, `q5_k`, `q6_k` (rows that 256 does not divide take blocks of 32, which is said), `q4_0`, `q4_1`, `q5_0`, `q5_1`, `q8_0`; or the mixtures that llama.cpp calls `q2_k`, `q3_k_s`, `q3_k_m`, `q3_k_l`, `q4_k_s`, `q4_k_m`, `q5_k_s`, `q5_k_m`, with embeddings as `q6_k`; without a config, by `gptq` if there is data", false},
    {CLI_UINT,   0,   "gptq-version", ARG(version), "N", "of `--format gptq`: 1, with zero points less one, or 2 (default: 1 for symmetric weights but of 3 bits, else 2)", false},
    {CLI_UINT,   0,   "opset",   ARG(opset),   "N",     "opset of the file (default: that of the model, or the lowest above it that holds all nodes)", false},
    {CLI_UINT,   0,   "accuracy-level", ARG(level), "N", "of `--format matmulnbits`: 4 (default) rounds activations to 8 bits, fast for one token at a time; 1 computes in float, fast for many at once", false},
    {CLI_STRING, 0,   "weights", ARG(weights), "FORM",  "`int`: integers and DQ (default); `float-qdq`: floats, Q and DQ", false},
    {CLI_STRING, 0,   "reduce-range", ARG(reduce), "WHAT", "keep sums of two 8-bit products within 16 bits, for x86 processors without VNNI: `auto` (default) enlarges scales where a channel needs it, `all` keeps every weight within [-64, 64], `off` is for processors with VNNI", false},
    {CLI_FLAG,   0,   "extra-info", ARG(extra_info), NULL, "write the attribute `bits` on Q and DQ nodes, as Sparsebit did", false},
    {CLI_OUT,    0,   "save-calibration", ARG(save), "FILE", "write the collected statistics as JSON", false},
    {CLI_LIST,   0,   "load-calibration", ARG(load), "FILE", "use the statistics in FILE instead of --data or in addition to it; repeatable", false},
    {CLI_OUT,    0,   "report",  ARG(report),  CLI_REPORT_ARG, CLI_REPORT_HELP "; runs the samples once more", false},
    {CLI_LIST,   0,   "exclude", ARG(exclude), "PATTERN", "nodes or modules that stay in float, such as 'head.*'; repeatable", false},
    {CLI_STRING, 0,   "accuracy-drop", ARG(drop), "X",  "keep layers in float, the worst first, until no more than X per cent are lost on the samples: of top-1 where they have labels, else of what agrees with the float model (classes, boxes, ...)", false},
    {CLI_LIST,   0,   "dump-after", ARG(dump_after), "STAGE", "print the graph after this stage; see `sparsebit list stages`; repeatable", false},
    CLI_FORCE_FOLDER(ARG(force)),
    {CLI_FLAG,   0,   "dry-run", ARG(dry_run), NULL,    "print what would be quantized and the approximate size; read no data, write nothing", false},
    {CLI_FLAG,   0,   "strict",  ARG(data.strict),  NULL,    "stop at a broken sample instead of skipping it", false},
    {CLI_FLAG,   0,   "exact",   ARG(exact),   NULL,    "disable approximations such as Winograd", false},
    {0},
};

static const cli_example examples[] = {
    {"sparsebit quantize model.onnx -c qconfig.yaml -d photos.yaml -n 64 -o model.int8.onnx", "Calibrates on 64 samples and writes Q/DQ ONNX"},
    {"sparsebit quantize model.onnx -d photos.yaml -t onnxruntime-x86 -o out.onnx", "Default settings, Q/DQ nodes placed where ONNX Runtime fuses them"},
    {"sparsebit quantize yolo.onnx -d photos/ --set LETTERBOX=640 -o out.onnx", "From a folder of images, without a data file"},
    {"sparsebit quantize model.onnx -c w4.yaml -o model.w4.onnx", "Weight-only quantization (`A: none` in w4.yaml) needs no data"},
    {"sparsebit quantize model.onnx -d photos.yaml -t tensorrt --exclude 'layer3.*' -o out.onnx", "Keeps the layers of a module in float"},
    {"sparsebit quantize model.onnx -d photos.yaml -t onnxruntime-x86 --accuracy-drop 0.5 -o out.onnx", "Layers stay in float until top-1 is at most half a point lower"},
    {"sparsebit quantize llama/ -c gptq.yaml --calibrate self --memory-limit 2G --format matmulnbits -o llama.w4.onnx", "A language model that does not fit into memory, without text to calibrate on"},
    {"sparsebit quantize model.onnx -t tensorrt --dry-run -v", "What would be quantized, before data is at hand"},
    {"sparsebit quantize model.onnx -d photos.yaml --asym -o out.onnx", "Calibrates each layer on the outputs of the quantized layers before it"},
    {"sparsebit quantize model.onnx --load-calibration seen.json -o out.onnx", "Without data, from the statistics that --save-calibration wrote"},
    {"sparsebit quantize model.onnx --load-calibration 1.json --load-calibration 2.json -o out.onnx", "Merges the statistics of two processes, each on its part of the samples (--skip, --samples)"},
    {0},
};
/* clang-format on */

extern const cli_cmd cmd_quantize;

/* In the order of sb_export_format, and of float_weights; those of language
 * models behind them. */
static const char *const formats[] = {"qdq",  "qoperator", "matmulnbits",
                                      "gguf", "gptq",      NULL};
enum { FORMAT_GGUF = SB_EXPORT_FORMAT_MATMULNBITS + 1, FORMAT_GPTQ };
/* The type says bits, groups and scheme. */
#define GGUF_CONFIG(type)                                       \
    "W: {QSCHEME: per-group-symmetric, QUANTIZER: {TYPE: " type \
    ", BIT: 4, GROUP_SIZE: 32}}\nA: none\n"
static const char gguf_fitted[] = GGUF_CONFIG("gptq");
static const char gguf_nearest[] = GGUF_CONFIG("uniform");
static const char *const reductions[] = {"off", "auto", "all", NULL};
static const char *const weight_forms[] = {"int", "float-qdq", NULL};

static int word_in(const char *word, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(word, names[i]) == 0)
            return i;
    return -1;
}

/* In `formats`, -1: none of them.  A name that ends in .gguf says it, too. */
static int format_of(const quantize_args *a)
{
    size_t n = a->output ? strlen(a->output) : 0;
    bool gguf = n > 5 && strcasecmp(a->output + n - 5, ".gguf") == 0;

    return a->format ? word_in(a->format, formats)
           : gguf    ? FORMAT_GGUF
                     : SB_EXPORT_FORMAT_QDQ;
}

bool quantize_is_language(const quantize_args *a)
{
    return format_of(a) >= FORMAT_GGUF;
}

/* ---- work --------------------------------------------------------------- */

/* The model to quantize, with the nodes that --exclude names and others in
 * float; none if these others leave nothing to quantize. */
static int quantize_create(quantize_job *j, const char *const *floats, size_t n)
{
    const quantize_args *a = j->args;
    sb_quant_options opt = SB_QUANT_OPTIONS_INIT;
    const char **exclude = cli_alloc(a->exclude.n + n + 1, sizeof *exclude);
    char *dump_after = cli_join(&a->dump_after);

    for (size_t i = 0; i < a->exclude.n + n; i++)
        exclude[i] =
            i < a->exclude.n ? a->exclude.v[i] : floats[i - a->exclude.n];
    opt.config = j->config_text ? NULL : a->config;
    opt.config_text = j->config_text;
    opt.target = a->target;
    opt.preset = a->preset;
    opt.exact = a->exact;
    opt.dump_after = dump_after;
    opt.exclude = exclude;
    opt.n_exclude = a->exclude.n + n;
    opt.calibrate = a->data.path || a->load.n > 0 || a->calibrate;
    opt.half_scales = quantize_is_language(a);
    opt.gguf_type = a->gguf_type;
    if (a->gguf_type && !a->config)
        opt.config_text =
            a->data.path || a->calibrate ? gguf_fitted : gguf_nearest;
    if (a->reduce)
        opt.reduce_range = (sb_reduce_range)word_in(a->reduce, reductions);
    sb_status status = sb_quant_model_create(j->model, &opt, &j->qm);
    free(dump_after);
    free(exclude);
    if (status == SB_BAD_MODEL && n > 0)
        return CLI_OK; /* it was good with fewer in float: none is left */
    if (status != SB_OK)
        return cli_fail(j->env, status == SB_BAD_CONFIG && a->config
                                    ? a->config
                                    : a->model);
    return CLI_OK;
}

int quantize_load(quantize_job *j)
{
    const quantize_args *a = j->args;

    if (a->limit > 0 && (j->env->common.max_memory == 0 ||
                         a->limit < j->env->common.max_memory))
        sb_ctx_set_max_memory(j->env->ctx, a->limit);
    int rc = cli_model_open(j->env, j->cmd, a->model, &a->values, &j->model);

    if (rc != CLI_OK)
        return rc;
    j->bytes = (double)sb_model_file_bytes(j->model);
    return quantize_create(j, NULL, 0);
}

/* quantize_redo_fn */
static int quantize_redo(quantize_job *j, const char *const *floats, size_t n)
{
    double before = j->calibrate;

    sb_quant_model_free(j->qm);
    sb_data_free(j->data);
    j->qm = NULL;
    j->data = NULL;
    int rc = quantize_create(j, floats, n);
    if (rc == CLI_OK && j->qm)
        rc = quantize_calibrate(j);
    j->calibrate += before;
    return rc;
}

/* --accuracy-drop, whose number was checked. */
static int quantize_drop_layers(quantize_job *j)
{
    if (!j->args->drop || !j->data)
        return CLI_OK;
    j->drop.most = strtod(j->args->drop, NULL);
    return quantize_limit_drop(j, quantize_redo);
}

int quantize_check_drop(const cli_cmd *cmd, const quantize_args *a,
                        const sb_ctx *ctx)
{
    char *end = NULL;
    double most = a->drop ? strtod(a->drop, &end) : 0;

    if (!a->drop)
        return CLI_OK;
    if (end == a->drop || *end || !(most >= 0) || !(most <= 100))
        return cli_usage(cmd,
                         "--accuracy-drop: found '%s', want per cent, such as "
                         "0.5",
                         a->drop);
    if (!a->data.path)
        return cli_usage(cmd, "--accuracy-drop needs samples: give --data");
    if (sb_ctx_ranks(ctx) > 1)
        return cli_usage(cmd, "--accuracy-drop is for one process");
    return CLI_OK;
}

int quantize_all_but(quantize_job *j)
{
    int rc = quantize_calibrate(j);

    return rc == CLI_OK ? quantize_drop_layers(j) : rc;
}

static sb_export_options export_options(const quantize_args *a)
{
    sb_export_options opt = SB_EXPORT_OPTIONS_INIT;

    opt.float_weights = a->weights && word_in(a->weights, weight_forms) == 1;
    opt.extra_info = a->extra_info;
    opt.opset = a->opset;
    opt.accuracy_level = (int)a->level;
    opt.format = quantize_is_language(a) ? SB_EXPORT_FORMAT_MATMULNBITS
                                         : (sb_export_format)format_of(a);
    return opt;
}

/* A type of files, not of blocks: llama.cpp writes the embedding as Q6_K. */
static bool is_llama_mix(const char *type)
{
    size_t n = type ? strlen(type) : 0;

    return n > 3 && (strcasecmp(type, "q2_k") == 0 ||
                     (type[n - 2] == '_' && strchr("smlSML", type[n - 1])));
}

static sb_language_options language_options(const quantize_args *a)
{
    sb_language_options opt = SB_LANGUAGE_OPTIONS_INIT;
    bool gguf = format_of(a) == FORMAT_GGUF;

    opt.format = gguf ? SB_LANGUAGE_GGUF : SB_LANGUAGE_GPTQ;
    opt.tokenizer = a->tokenizer ? a->tokenizer : a->model;
    opt.float_as = a->float_as                          ? a->float_as
                   : gguf && is_llama_mix(a->gguf_type) ? "q6_k"
                   : gguf                               ? "q8_0"
                                                        : NULL;
    opt.round = 1; /* offsets; scales are float16 already */
    opt.gptq_version = (int)a->version;
    return opt;
}

/* What would only fail after the work. */
static int check_export(quantize_job *j)
{
    const quantize_args *a = j->args;
    const sb_export_options opt = export_options(a);

    if (a->output && sb_quant_model_check_export(j->qm, &opt) != SB_OK)
        return cli_usage(&cmd_quantize, "%s", sb_ctx_error(j->env->ctx));
    if (a->output && quantize_is_language(a)) {
        const sb_language_options file = language_options(a);

        if (sb_quant_model_check_language(j->qm, j->model, &file) != SB_OK)
            return cli_fail(j->env, a->output);
    }
    return CLI_OK;
}

/* The file of a language model. */
static sb_status export_language(quantize_job *j)
{
    const quantize_args *a = j->args;
    const sb_export_options opt = export_options(a);
    const sb_language_options file = language_options(a);
    sb_model *model = NULL;

    sb_status status = sb_quant_model_export_model(j->qm, &opt, &model);
    if (status == SB_OK)
        status = sb_model_save_language(model, a->output, &file);
    sb_model_free(model);
    return status;
}

static int export_model(quantize_job *j)
{
    const quantize_args *a = j->args;
    const sb_export_options opt = export_options(a);
    cli_progress progress;

    if (!a->output)
        return CLI_OK;
    cli_progress_begin(&progress, j->env, "exporting", 0);
    sb_status status = quantize_is_language(a)
                           ? export_language(j)
                           : sb_quant_model_export(j->qm, a->output, &opt);
    if (status == SB_OK && j->journal)
        status = sb_quant_model_end_journal(j->qm);
    if (status != SB_OK)
        return cli_fail(j->env, a->output);
    j->write = cli_progress_end(&progress);
    return CLI_OK;
}

void quantize_free(quantize_job *j)
{
    sb_data_free(j->data);
    sb_quant_model_free(j->qm);
    sb_model_free(j->model);
    for (size_t i = 0; j->drop.names && j->drop.names[i]; i++)
        free(j->drop.names[i]);
    free(j->drop.names);
    free(j->drop.ends);
    free(j->journal);
}

static int check_limit(const quantize_args *args)
{
    if (args->limit == 0 || args->limit >= LIMIT_LEAST)
        return CLI_OK;
    return cli_usage(&cmd_quantize,
                     "--memory-limit: found %zu bytes, want at least %dM, "
                     "which tables of a model take alone",
                     args->limit, LIMIT_LEAST >> 20);
}

/* Options that only some formats of the file have. */
static int check_format(const quantize_args *args)
{
    if (format_of(args) < 0)
        return cli_usage(&cmd_quantize,
                         "--format: found '%s', allowed are qdq, qoperator, "
                         "matmulnbits, gguf, gptq",
                         args->format);
    if (((args->tokenizer && !args->calibrate) || args->float_as) &&
        !quantize_is_language(args))
        return cli_usage(&cmd_quantize, "--%s is for --format gguf and gptq",
                         args->float_as ? "float-as" : "tokenizer");
    if (args->gguf_type && format_of(args) != FORMAT_GGUF)
        return cli_usage(&cmd_quantize, "--gguf-type is for --format gguf");
    if (quantize_is_language(args) && !args->config && !args->gguf_type)
        return cli_usage(&cmd_quantize,
                         "%s files are weight-only: give a --config with "
                         "`A: none`%s",
                         formats[format_of(args)],
                         format_of(args) == FORMAT_GGUF
                             ? ", or a type such as `--gguf-type q4_k_m`"
                             : "");
    if (args->version && (args->version > 2 || format_of(args) != FORMAT_GPTQ))
        return cli_usage(&cmd_quantize,
                         "--gptq-version is 1 or 2 and for --format gptq");
    if (args->level &&
        (args->level > 4 || format_of(args) != SB_EXPORT_FORMAT_MATMULNBITS))
        return cli_usage(&cmd_quantize, "--accuracy-level is 1 to 4 and for "
                                        "--format matmulnbits");
    return CLI_OK;
}

/* What is wrong with the words, before anything is read. */
static int check_options(const cli_env *env, const quantize_args *args)
{
    if (args->memory && (!args->asym || !strchr(args->asym, 'a')))
        return cli_usage(&cmd_quantize, "--asym-memory is for --asym a");
    if (args->calibrate && strcmp(args->calibrate, "self") != 0)
        return cli_usage(&cmd_quantize, "--calibrate: found '%s', want `self`",
                         args->calibrate);
    if (args->calibrate && args->data.path)
        return cli_usage(&cmd_quantize, "--calibrate self stands for --data: "
                                        "give one of the two");
    if (check_format(args) != CLI_OK)
        return CLI_USAGE;
    if (args->reduce && word_in(args->reduce, reductions) < 0)
        return cli_usage(&cmd_quantize,
                         "--reduce-range: found '%s', allowed are off, auto, "
                         "all",
                         args->reduce);
    if (args->weights && word_in(args->weights, weight_forms) < 0)
        return cli_usage(&cmd_quantize,
                         "--weights: found '%s', allowed are int, float-qdq",
                         args->weights);
    if (cli_check_preset(env, &cmd_quantize, args->preset) != CLI_OK)
        return CLI_USAGE;
    /* Steps without one are judged by samples that they did not see, of which
     * there would be other versions. */
    if (args->augment && !args->config)
        return cli_usage(&cmd_quantize, "--augment goes with --config");
    if (args->preset && (args->config || args->gguf_type))
        return cli_usage(&cmd_quantize,
                         "--preset is for quantizing without "
                         "--%s, which says it itself",
                         args->config ? "config" : "gguf-type");
    if (!args->output && !args->save && !args->report && !args->dry_run &&
        !env->common.json && !env->common.verbose && args->dump_after.n == 0)
        return cli_usage(&cmd_quantize, "nothing would be written: give "
                                        "--output (or --dry-run)");
    return quantize_check_drop(&cmd_quantize, args, env->ctx);
}

static void warn_limit(const quantize_job *j)
{
    double limit = (double)j->args->limit / 1e6, peak = cli_peak_rss_mb();

    if (limit > 0 && peak > limit && !j->env->common.quiet)
        (void)cli_error("--memory-limit: the run took %.0f MB, more than the "
                        "%.0f MB given, which are for samples and weights that "
                        "are kept, not for the program itself",
                        peak, limit);
}

static bool quantize_writes_folder(const void *parsed)
{
    return format_of(parsed) == FORMAT_GPTQ;
}

/* Writes and tells what came of it. */
static int quantize_finish(quantize_job *j)
{
    const quantize_args *args = j->args;
    bool quiet = j->env->common.quiet;
    int rc = export_model(j);

    if (rc == CLI_OK && args->report)
        rc = quantize_write_report(j);
    if (rc != CLI_OK)
        return rc;
    warn_limit(j);
    if (args->extra_info && args->output && !quiet)
        (void)cli_error("%s: ONNX Runtime refuses files with the attribute "
                        "`bits` (--extra-info)",
                        args->output);
    if (j->env->common.json)
        quantize_print_json(j);
    else if (!quiet)
        quantize_print_text(j);
    return CLI_OK;
}

static int quantize_run(cli_env *env, const void *parsed)
{
    const quantize_args *args = parsed;
    quantize_job j = {.env = env, .cmd = &cmd_quantize, .args = args};
    cli_progress progress;

    if (check_limit(args) != CLI_OK || check_options(env, args) != CLI_OK)
        return CLI_USAGE;
    cli_progress_begin(&progress, env, "loading", 0);
    int rc = quantize_load(&j);
    j.load = cli_progress_end(&progress);
    if (rc == CLI_OK)
        rc = check_export(&j);
    if (rc == CLI_OK && args->dry_run)
        quantize_print_plan(&j);
    if (rc == CLI_OK && !args->dry_run)
        rc = quantize_all_but(&j);
    /* The first rank writes and tells. */
    if (rc == CLI_OK && !args->dry_run && sb_ctx_rank(env->ctx) == 0)
        rc = quantize_finish(&j);
    quantize_free(&j);
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
    .writes_folder = quantize_writes_folder,
    .run = quantize_run,
    .ranks = true,
};
