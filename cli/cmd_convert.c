/* sparsebit convert - a language model in the format of another program. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

typedef struct {
    const char *model, *output, *format, *tokenizer, *float_as, *lora;
    unsigned shard, version;
    bool round, force;
} convert_args;

#define ARG(field) offsetof(convert_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_FILE,   0,   NULL,         ARG(model),     "MODEL",  "language model: a Hugging Face folder (floats, GPTQ, AWQ), a GGUF file, a llama2.c checkpoint, or an ONNX file made from one", true},
    {CLI_OUT,    0,   NULL,         ARG(output),    "OUT",    "file or folder to write", true},
    {CLI_STRING, 0,   "format",     ARG(format),    "FORM",   "`gguf`, `gptq` or `float` (folders), `onnx`, `genai` (a folder for onnxruntime-genai; default: by the name of the output; a folder is `gptq` if weights are packed, else `float`)", false},
    {CLI_STRING, 0,   "float-as",   ARG(float_as),  "TYPE",   "what matrices of floats become: `f32`, `f16`, `bf16`, in GGUF files also blocks: `q8_0`, `q4_k` and others (default: what they are)", false},
    {CLI_FLAG,   0,   "round",      ARG(round),     NULL,     "round scales and offsets that the format does not hold exactly, instead of refusing", false},
    {CLI_FILE,   0,   "tokenizer",  ARG(tokenizer), "FILE",   "the tokenizer (default: the model's own, or what is beside it)", false},
    {CLI_FILE,   0,   "lora",       ARG(lora),      "FOLDER", "merge the adapters of a PEFT folder into their layers, which become floats", false},
    {CLI_UINT,   0,   "shard-size", ARG(shard),     "MB",     "most bytes of one safetensors file (default: 4096)", false},
    {CLI_UINT,   0,   "gptq-version", ARG(version), "N",      "of a GPTQ folder: 1, with zero points less one, or 2 (default: 1 around one zero point in the middle, else 2)", false},
    CLI_FORCE_FOLDER(ARG(force)),
    {0},
};

static const cli_example examples[] = {
    {"sparsebit convert llama/ llama.gguf --float-as q8_0", "A Hugging Face folder for llama.cpp, 8 bit"},
    {"sparsebit convert llama-gptq/ llama.gguf", "Weights that GPTQ packed, the same codes in blocks of GGUF"},
    {"sparsebit convert model.gguf folder --format float", "The weights of a GGUF file as floats, for transformers"},
    {0},
};
/* clang-format on */

extern const cli_cmd cmd_convert;

typedef enum {
    TO_GGUF,
    TO_FLOAT,
    TO_GPTQ,
    TO_ONNX,
    TO_GENAI,
    TO_FOLDER, /* one of two, by the weights */
} target;

static const char *const names[] = {"gguf", "float", "gptq", "onnx", "genai"};

/* False if there is no such format. */
static bool find_target(const convert_args *args, target *out)
{
    *out = cli_ends_with(args->output, ".gguf")   ? TO_GGUF
           : cli_ends_with(args->output, ".onnx") ? TO_ONNX
                                                  : TO_FOLDER;
    if (!args->format)
        return true;
    for (size_t i = 0; i < CLI_COUNT(names); i++)
        if (strcmp(args->format, names[i]) == 0) {
            *out = (target)i;
            return true;
        }
    return false;
}

static bool convert_writes_folder(const void *parsed)
{
    target to;

    return find_target(parsed, &to) && to != TO_GGUF && to != TO_ONNX;
}

static sb_status write_model(const convert_args *args, const sb_model *model,
                             target to)
{
    sb_language_options opt = SB_LANGUAGE_OPTIONS_INIT;

    if (to == TO_ONNX)
        return sb_model_save(model, args->output);
    opt.format = to == TO_FLOAT   ? SB_LANGUAGE_FLOAT
                 : to == TO_GGUF  ? SB_LANGUAGE_GGUF
                 : to == TO_GENAI ? SB_LANGUAGE_GENAI
                                  : SB_LANGUAGE_GPTQ;
    opt.tokenizer = args->tokenizer ? args->tokenizer : args->model;
    opt.float_as = args->float_as;
    opt.round = args->round;
    opt.shard_bytes = (uint64_t)args->shard << 20;
    opt.gptq_version = (int)args->version;
    return sb_model_save_language(model, args->output, &opt);
}

static void print_outcome(const cli_env *env, const convert_args *args,
                          target to)
{
    cli_json j = {0};

    if (env->common.json) {
        cli_json_begin(&j, "convert");
        cli_json_str(&j, "model", args->model);
        cli_json_str(&j, "output", args->output);
        cli_json_str(&j, "format", names[to]);
        cli_json_end(&j);
        return;
    }
    if (env->common.quiet)
        return;
    cli_put("written: %s, %s, %.2f MB\n", args->output, names[to],
            cli_path_bytes(args->output) / 1e6);
}

static int convert_run(cli_env *env, const void *parsed)
{
    const convert_args *args = parsed;
    const sb_model_info *info = NULL;
    sb_model *model = NULL;
    target to;

    if (!find_target(args, &to))
        return cli_usage(&cmd_convert,
                         "--format: found '%s', allowed are gguf, gptq, float, "
                         "onnx, genai",
                         args->format);
    if (to == TO_GENAI && (args->float_as || args->round))
        return cli_usage(&cmd_convert,
                         "--%s is not for --format genai, which "
                         "keeps types",
                         args->float_as ? "float-as" : "round");
    if (args->version > 2 ||
        (args->version && to != TO_GPTQ && to != TO_FOLDER))
        return cli_usage(&cmd_convert,
                         "--gptq-version is 1 or 2 and for GPTQ folders");
    int rc = CLI_OK;
    if (sb_model_load(env->ctx, args->model, &model) != SB_OK ||
        sb_model_info_get(model, &info) != SB_OK)
        rc = cli_fail(env, args->model);
    if (rc == CLI_OK && to != TO_ONNX)
        rc = cli_want_language(model, args->model);
    if (rc == CLI_OK && args->lora &&
        (sb_model_load_lora(model, args->lora) != SB_OK ||
         sb_model_merge_lora(model) != SB_OK ||
         sb_model_info_get(model, &info) != SB_OK))
        rc = cli_fail(env, args->lora);
    if (rc == CLI_OK && to == TO_FOLDER)
        to = info->n_quant_weights > 0 ? TO_GPTQ : TO_FLOAT;
    if (rc == CLI_OK && write_model(args, model, to) != SB_OK)
        rc = cli_fail(env, args->output);
    if (rc == CLI_OK)
        print_outcome(env, args, to);
    sb_model_free(model);
    return rc;
}

const cli_cmd cmd_convert = {
    .name = "convert",
    .summary = "write a language model in the format of another program",
    .description =
        "Reads a language model and writes it as GGUF for llama.cpp, as a "
        "Hugging Face folder with floats or GPTQ's packed weights, as ONNX, or "
        "as a folder that onnxruntime-genai runs.  Nothing is quantized anew: "
        "packed weights go into a format that "
        "holds the same codes, scales and zero points, and where there is none "
        "the weight is named and nothing is written. Adapters that were "
        "trained beside the weights can be merged into them.",
    .args_size = sizeof(convert_args),
    .opts = opts,
    .examples = examples,
    .writes_folder = convert_writes_folder,
    .run = convert_run,
};
