/* sparsebit help - help, and the whole manual for man page and docs. */
#include <string.h>

#include "cli.h"

typedef struct {
    const char *command, *format;
} help_args;

#define ARG(field) offsetof(help_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_STRING, 0, NULL,     ARG(command), "COMMAND", "which command", false},
    {CLI_STRING, 0, "manual", ARG(format),  "man|markdown", "print the whole manual in this form", false},
    {0},
};

static const cli_example examples[] = {
    {"sparsebit help run", "The same as sparsebit run --help"},
    {"sparsebit help --json", "All commands and their options, for a script"},
    {"sparsebit help --manual man | man -l -", "The manual on the screen"},
    {0},
};
/* clang-format on */

extern const cli_cmd cmd_help;

static int unknown_command(const char *word)
{
    const char *names[64] = {0};

    for (size_t i = 0; i + 1 < CLI_COUNT(names) && cli_command(i); i++)
        names[i] = cli_command(i)->name;
    const char *near = cli_nearest(word, names);
    return cli_usage(&cmd_help, "no command '%s'%s%s%s", word,
                     near ? ", did you mean '" : "", near ? near : "",
                     near ? "'?" : "");
}

static int help_run(cli_env *env, const void *parsed)
{
    const help_args *args = parsed;

    if (args->format && env->common.json)
        return cli_usage(&cmd_help, "want either --manual or --json");
    if (args->format && strcmp(args->format, "man") == 0) {
        cli_manual_roff();
    } else if (args->format && strcmp(args->format, "markdown") == 0) {
        cli_manual_markdown();
    } else if (args->format) {
        return cli_usage(&cmd_help, "--manual: '%s', want man or markdown",
                         args->format);
    } else if (args->command) {
        const cli_cmd *cmd = cli_command_find(args->command);

        if (!cmd)
            return unknown_command(args->command);
        if (env->common.json)
            cli_help_json(cmd);
        else
            cli_help(cmd);
    } else if (env->common.json) {
        cli_help_json(NULL);
    } else {
        cli_help_all();
    }
    return CLI_OK;
}

const cli_cmd cmd_help = {
    .name = "help",
    .summary = "help for a command",
    .description = "Prints the list of commands, or the help of one.",
    .args_size = sizeof(help_args),
    .opts = opts,
    .examples = examples,
    .run = help_run,
};
