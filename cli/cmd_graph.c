/* sparsebit graph - the graph as text or as the source of a picture. */
#include "cli.h"

typedef struct {
    const char *model, *config, *target;
    bool text, dot, mermaid;
} graph_args;

#define ARG(field) offsetof(graph_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_FILE, 0, NULL,      ARG(model),   "MODEL", "ONNX file to read", true},
    {CLI_FLAG, 0, "text",    ARG(text),    NULL, "one line a node, with shapes (the default)", false},
    {CLI_FLAG, 0, "dot",     ARG(dot),     NULL, "source for Graphviz", false},
    {CLI_FLAG, 0, "mermaid", ARG(mermaid), NULL, "source for Mermaid, as Markdown viewers draw it", false},
    {CLI_FILE,   'c', "config", ARG(config), "FILE", "qconfig.yaml: show the quantizers it asks for, and modules it skips as one node", false},
    {CLI_STRING, 't', "target", ARG(target), "NAME", "show the quantizers that this runtime wants; see `sparsebit list targets`", false},
    {0},
};

static const cli_example examples[] = {
    {"sparsebit graph model.onnx | less", "Every node with its inputs, attributes and module"},
    {"sparsebit graph model.onnx --dot | dot -Tsvg > model.svg", "A picture of it"},
    {"sparsebit graph model.onnx -c qconfig.yaml --mermaid", "Where its quantizers stand"},
    {0},
};
/* clang-format on */

extern const cli_cmd cmd_graph;

static sb_status print_quantized(cli_env *env, const graph_args *args,
                                 const sb_model *model, sb_graph_format format,
                                 char **text)
{
    sb_quant_options opt = SB_QUANT_OPTIONS_INIT;
    sb_quant_model *qm = NULL;

    opt.config = args->config;
    opt.target = args->target;
    sb_status status = sb_quant_model_create(env->ctx, model, &opt, &qm);
    if (status == SB_OK)
        status = sb_quant_model_print(qm, format, text);
    sb_quant_model_free(qm);
    return status;
}

static int graph_run(cli_env *env, const void *parsed)
{
    const graph_args *args = parsed;
    sb_graph_format format = args->dot       ? SB_GRAPH_DOT
                             : args->mermaid ? SB_GRAPH_MERMAID
                                             : SB_GRAPH_TEXT;
    sb_model *model = NULL;
    char *text = NULL;
    int rc = CLI_OK;

    if (args->text + args->dot + args->mermaid > 1)
        return cli_usage(&cmd_graph,
                         "--text, --dot and --mermaid exclude each other");
    sb_status status = sb_model_load(env->ctx, args->model, &model);
    if (status == SB_OK && (args->config || args->target))
        status = print_quantized(env, args, model, format, &text);
    else if (status == SB_OK)
        status = sb_model_print(env->ctx, model, format, &text);
    if (status != SB_OK) {
        rc = cli_fail(env, args->model);
    } else if (env->common.json) {
        cli_json j = {0};

        cli_json_open(&j, NULL, '{');
        cli_json_str(&j, "graph", text);
        cli_json_close(&j, '}');
    } else {
        (void)fputs(text, stdout);
    }
    sb_text_free(env->ctx, text);
    sb_model_free(model);
    return rc;
}

const cli_cmd cmd_graph = {
    .name = "graph",
    .summary = "the graph as text, Graphviz or Mermaid",
    .description = "Prints the graph of a model: its nodes in an order in "
                   "which they can run, with shapes and modules; "
                   "with --config or --target, as it is quantized.",
    .args_size = sizeof(graph_args),
    .opts = opts,
    .examples = examples,
    .run = graph_run,
};
