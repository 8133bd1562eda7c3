/* sparsebit simplify - the same network with fewer nodes. */
#include <stdlib.h>

#include "cli.h"

typedef struct {
    const char *model, *output, *passes, *dump_after;
    cli_list shapes;
} simplify_args;

#define ARG(field) offsetof(simplify_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_FILE,   0,   NULL,         ARG(model),      "MODEL", "ONNX file to read", true},
    {CLI_FILE,   'o', "output",     ARG(output),     "FILE",  "ONNX file to write", true},
    {CLI_STRING, 0,   "passes",     ARG(passes),     "LIST",  "passes to run, separated by commas (default: simplify, which is all of them; see 'sparsebit list passes')", false},
    {CLI_LIST,   0,   "shape",      ARG(shapes),     "NAME=1x3x224x224", "fix the shape of an input; repeatable", false},
    {CLI_STRING, 0,   "dump-after", ARG(dump_after), "PASS",  "print the graph after each run of this pass", false},
    {0},
};

static const cli_example examples[] = {
    {"sparsebit simplify model.onnx -o small.onnx", "Fold, merge and remove what can be"},
    {"sparsebit simplify model.onnx -o fixed.onnx --shape images=1x3x640x640", "The same for one input size: shape arithmetic goes away"},
    {0},
};
/* clang-format on */

typedef struct {
    size_t before, after;
    const sb_pass_result *passes;
    size_t n_passes;
} outcome;

static void print_outcome(const cli_env *env, const simplify_args *args,
                          const outcome *o)
{
    cli_table *t;
    cli_json j = {0};

    if (env->common.json) {
        cli_json_open(&j, NULL, '{');
        cli_json_str(&j, "output", args->output);
        cli_json_int(&j, "nodes_before", (long long)o->before);
        cli_json_int(&j, "nodes_after", (long long)o->after);
        cli_json_open(&j, "passes", '[');
        for (size_t i = 0; i < o->n_passes; i++) {
            cli_json_open(&j, NULL, '{');
            cli_json_str(&j, "name", o->passes[i].name);
            cli_json_int(&j, "changes", (long long)o->passes[i].changes);
            cli_json_num(&j, "seconds", o->passes[i].seconds);
            cli_json_close(&j, '}');
        }
        cli_json_close(&j, ']');
        cli_json_close(&j, '}');
        return;
    }
    if (env->common.quiet)
        return;
    t = cli_table_new("lrl");
    for (size_t i = 0; i < o->n_passes; i++) {
        if (o->passes[i].changes == 0 && !env->common.verbose)
            continue;
        cli_table_add(t, "%s", o->passes[i].name);
        cli_table_add(t, "%zu", o->passes[i].changes);
        if (env->common.verbose)
            cli_table_add(t, "changes  %.1f ms", o->passes[i].seconds * 1e3);
        else
            cli_table_add(t, o->passes[i].changes == 1 ? "change" : "changes");
    }
    cli_table_print(t, "  ");
    printf("%zu nodes -> %zu nodes, written to %s\n", o->before, o->after,
           args->output);
}

static int simplify_run(cli_env *env, const void *parsed)
{
    const simplify_args *args = parsed;
    sb_simplify_options opt = SB_SIMPLIFY_OPTIONS_INIT;
    char *shapes = cli_join(&args->shapes);
    sb_model *model = NULL;
    sb_model_info before = {0}, after = {0};
    outcome o = {0};
    int rc = CLI_OK;

    if (args->passes)
        opt.passes = args->passes;
    opt.dump_after = args->dump_after;
    opt.input_shapes = shapes;
    if (sb_model_load(env->ctx, args->model, &model) != SB_OK ||
        sb_model_info_get(env->ctx, model, &before) != SB_OK ||
        sb_model_simplify(env->ctx, model, &opt, &o.passes, &o.n_passes) !=
            SB_OK ||
        sb_model_info_get(env->ctx, model, &after) != SB_OK)
        rc = cli_fail(env, args->model);
    else if (sb_model_save(env->ctx, model, args->output) != SB_OK)
        rc = cli_fail(env, args->output);
    if (rc == CLI_OK) {
        o.before = before.nodes;
        o.after = after.nodes;
        print_outcome(env, args, &o);
    }
    free(shapes);
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
