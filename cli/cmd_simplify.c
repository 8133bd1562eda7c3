/* sparsebit simplify - the same network with fewer nodes. */
#include <stdlib.h>

#include "cli.h"

typedef struct {
    const char *model, *output, *passes, *dump_after;
    cli_list shapes, values;
    unsigned opset;
    bool keep_inputs, float32, force, sparse;
} simplify_args;

#define ARG(field) offsetof(simplify_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_FILE,   0,   NULL,         ARG(model),      "MODEL", "ONNX file to read", true},
    {CLI_OUT,    'o', "output",     ARG(output),     "FILE",  "ONNX file to write", true},
    {CLI_STRING, 0,   "passes",     ARG(passes),     "LIST",  "passes to run, separated by commas (default: simplify, which is all of them; see 'sparsebit list passes')", false},
    {CLI_LIST,   0,   "shape",      ARG(shapes),     "NAME=1x3x224x224", "fix the shape of an input; repeatable", false},
    {CLI_LIST,   0,   "value",      ARG(values),     CLI_VALUE_ARG, CLI_VALUE_HELP, false},
    {CLI_UINT,   0,   "opset",      ARG(opset),      "N",     "opset of the file (default: that of the model, or the lowest above it that holds all nodes)", false},
    CLI_KEEP_INPUTS(ARG(keep_inputs)),
    {CLI_FLAG,   0,   "float32",    ARG(float32),    NULL,    "write a float16 or bfloat16 network in float32, inputs and outputs too", false},
    {CLI_FLAG,   0,   "sparse",     ARG(sparse),     NULL,    "write weights that are mostly zero as sparse initializers", false},
    CLI_FORCE(ARG(force)),
    {CLI_STRING, 0,   "dump-after", ARG(dump_after), "PASS",  "print the graph after each run of this pass", false},
    {0},
};

static const cli_example examples[] = {
    {"sparsebit simplify model.onnx -o small.onnx", "Folds constants, merges and removes nodes"},
    {"sparsebit simplify model.onnx -o fixed.onnx --shape images=1x3x640x640", "The same for one input size, which removes shape arithmetic"},
    {"sparsebit simplify vad.onnx -o vad16k.onnx --value sr=16000", "An input that never changes becomes a constant: the If that asks for it goes away"},
    {"sparsebit simplify model.onnx -o old.onnx --opset 17", "For a runtime that does not read newer opsets"},
    {0},
};
/* clang-format on */

extern const cli_cmd cmd_simplify;

typedef struct {
    size_t before, after;
    const sb_pass_result *const *passes;
    size_t n_passes;
} outcome;

static void print_outcome(const cli_env *env, const simplify_args *args,
                          const outcome *o)
{
    cli_table *t;
    cli_json j = {0};

    if (env->common.json) {
        cli_json_begin(&j, "simplify");
        cli_json_str(&j, "model", args->model);
        cli_json_str(&j, "output", args->output);
        cli_json_int(&j, "nodes_before", (long long)o->before);
        cli_json_int(&j, "nodes_after", (long long)o->after);
        cli_json_open(&j, "passes", '[');
        for (size_t i = 0; i < o->n_passes; i++) {
            cli_json_open(&j, NULL, '{');
            cli_json_str(&j, "name", o->passes[i]->name);
            cli_json_int(&j, "changes", (long long)o->passes[i]->changes);
            cli_json_num(&j, "seconds", o->passes[i]->seconds);
            cli_json_close(&j, '}');
        }
        cli_json_close(&j, ']');
        cli_json_end(&j);
        return;
    }
    if (env->common.quiet)
        return;
    t = cli_table_new("lrl");
    for (size_t i = 0; i < o->n_passes; i++) {
        if (o->passes[i]->changes == 0 && !env->common.verbose)
            continue;
        cli_table_add(t, "%s", o->passes[i]->name);
        cli_table_add(t, "%zu", o->passes[i]->changes);
        if (env->common.verbose)
            cli_table_add(t, "changes  %.1f ms", o->passes[i]->seconds * 1e3);
        else
            cli_table_add(t, o->passes[i]->changes == 1 ? "change" : "changes");
    }
    cli_table_print(t, "  ");
    cli_put("%zu nodes -> %zu nodes, written to %s\n", o->before, o->after,
            args->output);
}

static int simplify_run(cli_env *env, const void *parsed)
{
    const simplify_args *args = parsed;
    sb_simplify_options opt = SB_SIMPLIFY_OPTIONS_INIT;
    sb_load_options load = SB_LOAD_OPTIONS_INIT;
    char *passes =
        cli_printf("%s%s", args->float32 ? "widen_half,widen_io," : "",
                   args->passes ? args->passes : "simplify");
    sb_model *model = NULL;
    const sb_model_info *info = NULL;
    outcome o = {0};
    int rc = CLI_OK;

    opt.passes = passes;
    opt.dump_after = args->dump_after;
    load.keep_inputs = args->keep_inputs;
    if (sb_model_load_with(env->ctx, args->model, &load, &model) != SB_OK ||
        sb_model_info_get(model, &info) != SB_OK)
        rc = cli_fail(env, args->model);
    if (rc == CLI_OK) {
        o.before = info->nodes;
        rc = cli_model_fix(env, &cmd_simplify, model, &args->shapes,
                           &args->values);
    }
    if (rc == CLI_OK &&
        (sb_model_simplify(model, &opt, &o.passes, &o.n_passes) != SB_OK ||
         sb_model_info_get(model, &info) != SB_OK))
        rc = cli_fail(env, args->model);
    if (rc == CLI_OK && args->opset &&
        sb_model_set_opset(model, args->opset) != SB_OK)
        rc = cli_fail(env, args->model);
    if (rc == CLI_OK)
        sb_model_set_sparse(model, args->sparse);
    if (rc == CLI_OK && sb_model_save(model, args->output) != SB_OK)
        rc = cli_fail(env, args->output);
    if (rc == CLI_OK) {
        o.after = info->nodes;
        print_outcome(env, args, &o);
    }
    free(passes);
    sb_model_free(model);
    return rc;
}

const cli_cmd cmd_simplify = {
    .name = "simplify",
    .summary = "the same network with fewer nodes",
    .description =
        "Runs graph passes over a model until nothing changes and writes the "
        "result: constants folded, shape arithmetic resolved, operators that "
        "exporters take apart (LayerNormalization, Gelu, ...) put together "
        "again. The network computes the same.",
    .args_size = sizeof(simplify_args),
    .opts = opts,
    .examples = examples,
    .run = simplify_run,
};
