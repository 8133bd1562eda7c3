/* sparsebit lint - which parts of a quantized model a runtime runs as
 * integers, and why not the rest. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

typedef struct {
    const char *model, *target;
    bool strict;
} lint_args;

#define ARG(field) offsetof(lint_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_FILE,   0, NULL,     ARG(model),  "MODEL", "ONNX file with QuantizeLinear / DequantizeLinear or integer operators", true},
    {CLI_TARGET, 't', "target", ARG(target), "T",     "runtime (default: the first runtime of 'sparsebit list targets')", false},
    {CLI_FLAG,   0, "strict", ARG(strict), NULL,    "exit with 1 if a quantized node or a layer with weights stays in float", false},
    {0},
};

static const cli_example examples[] = {
    {"sparsebit lint int8.onnx", "Which parts ONNX Runtime on x86 runs as integer kernels, and why not the rest"},
    {"sparsebit lint int8.onnx --target tensorrt --strict", "For a script: fails if TensorRT would fall back to float"},
    {"sparsebit lint int8.onnx -v", "Every node"},
    {0},
};
/* clang-format on */

static const char *const fates[] = {
    [SB_LINT_FATE_FLOAT] = "float",
    [SB_LINT_FATE_INTEGER] = "integer",
    [SB_LINT_FATE_MOVES] = "moves",
    [SB_LINT_FATE_ABSORBED] = "absorbed",
};

static const char *lint_label(const sb_lint_node *node)
{
    return *node->name ? node->name : node->output;
}

/* Should `--strict` complain about it? */
static bool is_bad(const sb_lint_node *node)
{
    return node->fate == SB_LINT_FATE_FLOAT && (node->weighted || *node->rule);
}

/* ---- text --------------------------------------------------------------- */

/* `name  count` for every different kernel, in order of appearance. */
static void print_kernels(const sb_lint *lint)
{
    cli_table *t = cli_table_new("lr");
    bool any = false;

    for (size_t i = 0; i < lint->n_nodes; i++) {
        const sb_lint_node *a = lint->nodes[i];
        bool seen = false;
        size_t n = 0;
        if (a->fate != SB_LINT_FATE_INTEGER)
            continue;
        for (size_t k = 0; k < lint->n_nodes; k++) {
            const sb_lint_node *b = lint->nodes[k];
            if (b->fate != SB_LINT_FATE_INTEGER ||
                strcmp(a->kernel, b->kernel) != 0)
                continue;
            seen = seen || k < i;
            n++;
        }
        if (seen)
            continue;
        cli_table_add(t, "%s", a->kernel);
        cli_table_add(t, "%zu", n);
        any = true;
    }
    if (any)
        printf("integer kernels:\n");
    cli_table_print(t, "  ");
}

/* The nodes that share the rule of node `first`, if it is the first such. */
static void print_rule(const sb_lint_node *const *nodes, size_t n, size_t first)
{
    const sb_lint_node *a = nodes[first];
    size_t count = 0;

    for (size_t i = 0; i < n; i++) {
        if (strcmp(nodes[i]->rule, a->rule) != 0)
            continue;
        if (i < first)
            return;
        count++;
    }
    cli_put("  %s, %zu node%s: %s\n", a->rule, count, count == 1 ? "" : "s",
            a->why);
    cli_put("    remedy: %s\n", a->remedy);
    printf("    nodes: ");
    size_t shown = 0;
    for (size_t i = first; i < n && shown < 8; i++)
        if (strcmp(nodes[i]->rule, a->rule) == 0)
            cli_put("%s%s %s", shown++ ? ", " : "", nodes[i]->op,
                    lint_label(nodes[i]));
    printf(count > shown ? ", ...\n" : "\n");
}

static void print_rules(const char *title, const sb_lint_node *const *nodes,
                        size_t n)
{
    bool any = false;

    for (size_t i = 0; i < n; i++) {
        if (!*nodes[i]->rule)
            continue;
        if (!any)
            printf("%s:\n", title);
        any = true;
        print_rule(nodes, n, i);
    }
}

/* Layers without any Q/DQ near, which no rule speaks of. */
static void print_plain(const sb_lint *lint)
{
    size_t n = 0;

    for (size_t i = 0; i < lint->n_nodes; i++) {
        const sb_lint_node *v = lint->nodes[i];
        if (v->weighted && v->fate == SB_LINT_FATE_FLOAT && !*v->rule)
            cli_put(n++ ? ", %s %s" : "layers that are not quantized: %s %s",
                    v->op, lint_label(v));
    }
    if (n)
        printf("\n");
}

static void print_saturation(const sb_lint *lint)
{
    size_t n = 0;

    for (size_t i = 0; i < lint->n_nodes; i++)
        n += lint->nodes[i]->saturates != 0;
    if (n)
        printf("%zu layer%s can saturate on processors with AVX2 or AVX-512 "
               "but without VNNI: neighboring weights are so large that two "
               "products exceed 16 bits (remedy: `sparsebit quantize "
               "--reduce-range auto`)\n",
               n, n == 1 ? "" : "s");
}

static void print_nodes(const sb_lint *lint)
{
    cli_table *t = cli_table_new("llll");

    for (size_t i = 0; i < lint->n_nodes; i++) {
        const sb_lint_node *v = lint->nodes[i];
        cli_table_add(t, "%s", fates[v->fate]);
        cli_table_add(t, "%s", v->op);
        cli_table_add(t, "%s", *v->kernel ? v->kernel : v->rule);
        cli_table_add(t, "%s%s", lint_label(v),
                      v->saturates ? "  (saturates)" : "");
    }
    cli_table_print(t, "  ");
}

static void print_text(const lint_args *args, const sb_lint *lint, bool all)
{
    if (all)
        print_nodes(lint);
    print_kernels(lint);
    print_rules("refused", lint->broken, lint->n_broken);
    print_rules("stays in float", lint->nodes, lint->n_nodes);
    print_plain(lint);
    print_saturation(lint);
    cli_put("%s: %zu of %zu layers with weights run as integers on %s",
            args->model, lint->n_weighted_integer, lint->n_weighted,
            lint->target);
    if (lint->left_known)
        printf("; it executes %zu Q and %zu DQ nodes, the file has %zu and %zu",
               lint->n_q_left, lint->n_dq_left, lint->n_q, lint->n_dq);
    printf("\n");
    cli_judge_speed(lint);
}

/* ---- JSON --------------------------------------------------------------- */

static void json_nodes(cli_json *j, const char *key,
                       const sb_lint_node *const *nodes, size_t n)
{
    cli_json_open(j, key, '[');
    for (size_t i = 0; i < n; i++) {
        const sb_lint_node *v = nodes[i];
        cli_json_open(j, NULL, '{');
        cli_json_str(j, "name", v->name);
        cli_json_str(j, "output", v->output);
        cli_json_str(j, "op", v->op);
        cli_json_str(j, "fate", fates[v->fate]);
        cli_json_str(j, "kernel", v->kernel);
        cli_json_str(j, "rule", v->rule);
        cli_json_str(j, "why", v->why);
        cli_json_str(j, "remedy", v->remedy);
        cli_json_bool(j, "weighted", v->weighted);
        cli_json_bool(j, "overhead", v->overhead);
        cli_json_bool(j, "saturates", v->saturates);
        cli_json_close(j, '}');
    }
    cli_json_close(j, ']');
}

static void print_json(const lint_args *args, const sb_lint *lint)
{
    cli_json j = {0};

    cli_json_begin(&j, "lint");
    cli_json_str(&j, "model", args->model);
    cli_json_str(&j, "target", lint->target);
    cli_json_int(&j, "weighted", (long long)lint->n_weighted);
    cli_json_int(&j, "weighted_integer", (long long)lint->n_weighted_integer);
    cli_json_int(&j, "quantize", (long long)lint->n_q);
    cli_json_int(&j, "dequantize", (long long)lint->n_dq);
    if (lint->left_known) {
        cli_json_int(&j, "quantize_left", (long long)lint->n_q_left);
        cli_json_int(&j, "dequantize_left", (long long)lint->n_dq_left);
    }
    json_nodes(&j, "nodes", lint->nodes, lint->n_nodes);
    json_nodes(&j, "refused", lint->broken, lint->n_broken);
    cli_json_end(&j);
}

static int lint_run(cli_env *env, const void *parsed)
{
    const lint_args *args = parsed;
    sb_model *model = NULL;
    const sb_lint *lint = NULL;
    int rc = CLI_OK;

    if (sb_model_load(env->ctx, args->model, &model) != SB_OK ||
        sb_model_lint(model, args->target, &lint) != SB_OK)
        rc = cli_fail(env, args->model);
    if (rc == CLI_OK && env->common.json)
        print_json(args, lint);
    else if (rc == CLI_OK)
        print_text(args, lint, env->common.verbose);
    if (rc == CLI_OK && args->strict) {
        bool bad = lint->n_broken > 0;
        for (size_t i = 0; i < lint->n_nodes; i++)
            bad = bad || is_bad(lint->nodes[i]);
        rc = bad ? CLI_FAILED : CLI_OK;
    }
    sb_model_free(model);
    return rc;
}

const cli_cmd cmd_lint = {
    .name = "lint",
    .summary = "what a runtime will run as integers, and why not the rest",
    .description =
        "Reports which groups of nodes of a quantized model the runtime "
        "replaces "
        "by an integer kernel, which stay in float and why, where Q/DQ nodes "
        "cost time and gain nothing, and which layers can saturate on "
        "processors without VNNI. For ONNX Runtime this repeats the steps of "
        "its optimizer; for the others it follows their documented rules. "
        "Works on files written by any tool.",
    .args_size = sizeof(lint_args),
    .opts = opts,
    .examples = examples,
    .run = lint_run,
};
