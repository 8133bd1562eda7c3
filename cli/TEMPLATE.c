/* sparsebit NAME - what it does, in one line.  (TEMPLATE; not compiled.)
 *
 * To make a command of this: copy it to cli/cmd_<name>.c, replace NAME and
 * `name`, add CLI_CMD(name) to cmds.def, and write tests/cli/<name>.sh
 * (tests/cli/run COMMAND <name> --update writes what it must print).  Help,
 * man page and docs/commands.md follow from the tables below; `make docs`
 * writes the latter. */
#include "cli.h"

/* What the options are read into. */
typedef struct {
    const char *model;
    unsigned count;
} name_args;

#define ARG(field) offsetof(name_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_FILE, 0,   NULL,    ARG(model), "MODEL", "ONNX file to read", true},
    {CLI_UINT, 'n', "count", ARG(count), "N",     "how many (default: 1)", false},
    {0},
};

static const cli_example examples[] = {
    {"sparsebit name model.onnx -n 3", "What this does"},
    {0},
};
/* clang-format on */

/* Everything through the public header.  Errors of the library are printed by
 * cli_fail(); what is wrong with the words on the command line by cli_usage().
 * A report is always printed, a summary of what was written not with -q; with
 * --json one object, see cli_json_begin(). */
static int name_run(cli_env *env, const void *parsed)
{
    const name_args *args = parsed;
    sb_model *model = NULL;

    if (sb_model_load(env->ctx, args->model, &model) != SB_OK)
        return cli_fail(env, args->model);
    printf("%u\n", args->count ? args->count : 1);
    sb_model_free(model);
    return CLI_OK;
}

const cli_cmd cmd_name = {
    .name = "name",
    .summary = "what it does, lower case, no full stop",
    .description = "What it does, in sentences.",
    .args_size = sizeof(name_args),
    .opts = opts,
    .examples = examples,
    .run = name_run,
};
