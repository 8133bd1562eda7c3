/* sparsebit graph - the graph as text or as the source of a picture. */
#include "cli.h"

typedef struct {
    const char *model;
    bool text, dot, mermaid;
} graph_args;

#define ARG(field) offsetof(graph_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_FILE, 0, NULL,      ARG(model),   "MODEL", "ONNX file to read", true},
    {CLI_FLAG, 0, "text",    ARG(text),    NULL, "one line a node, with shapes (the default)", false},
    {CLI_FLAG, 0, "dot",     ARG(dot),     NULL, "source for Graphviz", false},
    {CLI_FLAG, 0, "mermaid", ARG(mermaid), NULL, "source for Mermaid, as Markdown viewers draw it", false},
    {0},
};

static const cli_example examples[] = {
    {"sparsebit graph model.onnx | less", "Every node with its inputs, attributes and module"},
    {"sparsebit graph model.onnx --dot | dot -Tsvg > model.svg", "A picture of it"},
    {0},
};
/* clang-format on */

extern const cli_cmd cmd_graph;

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
    if (sb_model_load(env->ctx, args->model, &model) != SB_OK ||
        sb_model_print(env->ctx, model, format, &text) != SB_OK) {
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
                   "which they can run, with shapes and modules.",
    .args_size = sizeof(graph_args),
    .opts = opts,
    .examples = examples,
    .run = graph_run,
};
