/* sparsebit list - what this version knows. */
#include "cli.h"

typedef struct {
    const char *what;
} list_args;

#define ARG(field) offsetof(list_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_STRING, 0, NULL, ARG(what), "LIST", "nets, ops, passes, observers, quantizers, presets, criteria, sources, stages or targets", true},
    {0},
};

static const cli_example examples[] = {
    {"sparsebit list nets", "Untrained networks that `sparsebit new` writes"},
    {"sparsebit list ops", "Operators that can be run, and since which opset in this form"},
    {"sparsebit list passes", "Graph passes for simplify --passes"},
    {"sparsebit list observers", "Ways to choose ranges, see docs/observers.md"},
    {"sparsebit list presets", "How much quantize does for accuracy without a config"},
    {"sparsebit list criteria", "What prune chooses by, see docs/pruning.md"},
    {"sparsebit list sources", "Where data sets may come from, see docs/data.md"},
    {"sparsebit list stages", "Stages of quantize, for --dump-after"},
    {"sparsebit list targets", "Runtimes that files can be written for"},
    {0},
};
/* clang-format on */

extern const cli_cmd cmd_list;

static int list_run(cli_env *env, const void *parsed)
{
    const list_args *args = parsed;
    cli_table *t = cli_table_new("ll");
    cli_json j = {0};
    const sb_listing *row;

    if (!sb_list_get(env->ctx, args->what, 0)) {
        static const char *const names[] = {
            "nets",       "ops",     "passes",   "observers",
            "quantizers", "presets", "criteria", "sources",
            "stages",     "targets", NULL};
        const char *near = cli_nearest(args->what, names);

        cli_table_free(t);
        return cli_usage(
            &cmd_list,
            "no list '%s', want nets, ops, passes, observers, "
            "quantizers, presets, criteria, sources, stages or targets%s%s%s",
            args->what, near ? "; did you mean '" : "", near ? near : "",
            near ? "'?" : "");
    }
    if (env->common.json) {
        cli_json_begin(&j, "list");
        cli_json_str(&j, "list", args->what);
        cli_json_open(&j, "entries", '[');
    }
    for (size_t i = 0; (row = sb_list_get(env->ctx, args->what, i)) != NULL;
         i++) {
        cli_table_add(t, "%s%s%s", row->domain, *row->domain ? "::" : "",
                      row->name);
        if (row->since > 0)
            cli_table_add(t, "opset %d", row->since);
        else
            cli_table_add(t, "%s", row->summary);
        if (env->common.json) {
            cli_json_open(&j, NULL, '{');
            cli_json_str(&j, "name", row->name);
            cli_json_str(&j, "domain", row->domain);
            cli_json_str(&j, "summary", row->summary);
            cli_json_int(&j, "since", row->since);
            cli_json_close(&j, '}');
        }
    }
    if (env->common.json) {
        cli_json_close(&j, ']');
        cli_json_end(&j);
        cli_table_free(t);
    } else {
        cli_table_print(t, "");
    }
    return CLI_OK;
}

const cli_cmd cmd_list = {
    .name = "list",
    .summary = "operators, observers, targets ... that this version knows",
    .description =
        "Lists the operators that can be run, the graph passes, the observers "
        "and "
        "quantizers of a configuration, the sources of data sets, or the "
        "runtimes that quantized files can be written for.",
    .args_size = sizeof(list_args),
    .opts = opts,
    .examples = examples,
    .run = list_run,
};
