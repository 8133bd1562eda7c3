/* sparsebit graph - the graph as text, or as source for a diagram. */
#include <stdlib.h>

#include "json_model.h"
#include "learn_args.h"

typedef struct {
    const char *model, *config, *target;
    cli_list dump_after, exclude;
    cli_learn_args learn;
    bool text, dot, mermaid, keep_inputs, gradient;
} graph_args;

#define ARG(field) offsetof(graph_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_FILE, 0, NULL,      ARG(model),   "MODEL", "ONNX file to read", true},
    {CLI_FLAG, 0, "text",    ARG(text),    NULL, "one line per node, with shapes (default)", false},
    {CLI_FLAG, 0, "dot",     ARG(dot),     NULL, "source for Graphviz", false},
    {CLI_FLAG, 0, "mermaid", ARG(mermaid), NULL, "source for Mermaid, as Markdown viewers draw it", false},
    CLI_KEEP_INPUTS(ARG(keep_inputs)),
    {CLI_FILE,   'c', "config", ARG(config), "FILE", "qconfig.yaml: show the quantizers it asks for, and modules it skips as one node", false},
    {CLI_TARGET, 't', "target", ARG(target), "NAME", "show the quantizers that this runtime wants; see `sparsebit list targets`", false},
    {CLI_LIST, 0, "exclude", ARG(exclude), "PATTERN", "with -c or -t: nodes or modules that stay in float; repeatable", false},
    {CLI_LIST, 0, "dump-after", ARG(dump_after), "STAGE", "with -c or -t: print the graph after this stage, too; see `sparsebit list stages`; repeatable", false},
    {CLI_FLAG, 0, "gradient", ARG(gradient), NULL, "with a loss behind it and the nodes that compute the gradients of its parameters", false},
    CLI_LEARN_LOSS(ARG(learn.loss), "with --gradient"),
    CLI_LEARN_OUTPUT(ARG(learn.output), "with --gradient"),
    {0},
};

static const cli_example examples[] = {
    {"sparsebit graph model.onnx | less", "Every node with its inputs, attributes and module"},
    {"sparsebit graph model.onnx --dot | dot -Tsvg > model.svg", "A diagram of it"},
    {"sparsebit graph model.onnx --gradient", "What a step of training computes: forward, loss and backward"},
    {"sparsebit graph model.onnx -c qconfig.yaml --mermaid", "Where its quantizers are placed"},
    {0},
};
/* clang-format on */

extern const cli_cmd cmd_graph;

static sb_status graph_quantize(const graph_args *args, const sb_model *model,
                                sb_quant_model **qm)
{
    sb_quant_options opt = SB_QUANT_OPTIONS_INIT;
    char *dump_after = cli_join(&args->dump_after);

    opt.dump_after = dump_after;
    opt.config = args->config;
    opt.target = args->target;
    opt.exclude = args->exclude.v;
    opt.n_exclude = args->exclude.n;
    sb_status status = sb_quant_model_create(model, &opt, qm);
    free(dump_after);
    return status;
}

static sb_status print_text(const graph_args *args, const sb_model *model,
                            const sb_quant_model *qm)
{
    sb_graph_format format = args->dot       ? SB_GRAPH_FORMAT_DOT
                             : args->mermaid ? SB_GRAPH_FORMAT_MERMAID
                                             : SB_GRAPH_FORMAT_TEXT;
    char *text = NULL;
    sb_status status = qm ? sb_quant_model_print(qm, format, &text)
                          : sb_model_print(model, format, &text);

    if (status == SB_OK)
        (void)fputs(text, stdout);
    sb_memory_free(text);
    return status;
}

/* The graph as it is in the file, and the quantizers beside it. */
static sb_status print_json(const graph_args *args, sb_model *model,
                            const sb_quant_model *qm)
{
    cli_json j = {0};

    cli_json_begin(&j, "graph");
    cli_json_str(&j, "model", args->model);
    sb_status status = cli_json_graph(&j, model);
    if (qm)
        cli_json_quantizers(&j, qm, false);
    cli_json_end(&j);
    return status;
}

/* The model becomes the graph with gradients. */
static int graph_learn(cli_env *env, const graph_args *args, sb_model **model)
{
    sb_learn_options opt = SB_LEARN_OPTIONS_INIT;
    sb_learner *learner = NULL;
    sb_model *graph = NULL;
    int rc = cli_learn_options(&cmd_graph, &args->learn, &opt);

    if (rc != CLI_OK)
        return rc;
    opt.norm = SB_LEARN_NORM_MODEL;
    sb_status status = sb_learner_create(*model, &opt, &learner);
    if (status == SB_OK)
        status = sb_learner_graph(learner, &graph);
    sb_learner_free(learner);
    if (status != SB_OK)
        return cli_fail(env, args->model);
    sb_model_free(*model);
    *model = graph;
    return CLI_OK;
}

static int graph_check(const cli_env *env, const graph_args *args)
{
    if (args->text + args->dot + args->mermaid + env->common.json > 1)
        return cli_usage(&cmd_graph, "--text, --dot, --mermaid and --json "
                                     "exclude each other");
    if ((args->dump_after.n > 0 || args->exclude.n > 0) && !args->config &&
        !args->target)
        return cli_usage(&cmd_graph, "--%s is for --config or --target",
                         args->exclude.n > 0 ? "exclude" : "dump-after");
    if ((args->learn.loss || args->learn.output) && !args->gradient)
        return cli_usage(&cmd_graph, "--loss and --loss-output are for "
                                     "--gradient");
    if (args->gradient && (args->config || args->target))
        return cli_usage(&cmd_graph,
                         "--gradient is of a network in float: not with "
                         "--config or --target");
    return CLI_OK;
}

static int graph_run(cli_env *env, const void *parsed)
{
    const graph_args *args = parsed;
    sb_load_options load = SB_LOAD_OPTIONS_INIT;
    sb_model *model = NULL;
    sb_quant_model *qm = NULL;

    int rc = graph_check(env, args);
    if (rc != CLI_OK)
        return rc;
    load.keep_inputs = args->keep_inputs;
    sb_status status = sb_model_load_with(env->ctx, args->model, &load, &model);
    if (status == SB_OK && args->gradient) {
        rc = graph_learn(env, args, &model);
        if (rc != CLI_OK) {
            sb_model_free(model);
            return rc;
        }
    }
    if (status == SB_OK && (args->config || args->target))
        status = graph_quantize(args, model, &qm);
    if (status == SB_OK)
        status = env->common.json ? print_json(args, model, qm)
                                  : print_text(args, model, qm);
    rc = status == SB_OK ? CLI_OK : cli_fail(env, args->model);
    sb_quant_model_free(qm);
    sb_model_free(model);
    return rc;
}

const cli_cmd cmd_graph = {
    .name = "graph",
    .summary = "the graph as text, Graphviz or Mermaid",
    .description =
        "Prints the graph of a model: its nodes in an order in "
        "which they can run, with shapes and modules; "
        "with --config or --target, as it is quantized; with --gradient, "
        "as it is trained.",
    .args_size = sizeof(graph_args),
    .opts = opts,
    .examples = examples,
    .run = graph_run,
};
