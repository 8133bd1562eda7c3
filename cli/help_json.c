/* Help for machines: the tables of the commands as JSON. */
#include "cli.h"

static const char *const kinds[] = {
    [CLI_FLAG] = "flag",     [CLI_UINT] = "integer", [CLI_REAL] = "number",
    [CLI_ABOVE] = "number",  [CLI_SHARE] = "number", [CLI_SIZE] = "size",
    [CLI_STRING] = "string", [CLI_FILE] = "file",    [CLI_OUT] = "file",
    [CLI_TARGET] = "string", [CLI_LIST] = "list",    [CLI_WORDS] = "words",
    [CLI_SOME] = "integer",
};

/* Positional arguments, or options. */
static void put_opts(cli_json *j, const char *key, const cli_opt *opts,
                     bool positional)
{
    cli_json_open(j, key, '[');
    for (const cli_opt *o = opts; o->kind != CLI_END; o++) {
        const char letter[] = {o->letter, '\0'};

        if ((o->name == NULL) != positional)
            continue;
        cli_json_open(j, NULL, '{');
        cli_json_str(j, "name", positional ? o->arg : o->name);
        if (o->letter)
            cli_json_str(j, "letter", letter);
        cli_json_str(j, "kind", kinds[o->kind]);
        if (o->arg && !positional)
            cli_json_str(j, "value", o->arg);
        cli_json_str(j, "help", o->help);
        cli_json_bool(j, "required", o->required);
        cli_json_close(j, '}');
    }
    cli_json_close(j, ']');
}

static void put_command(cli_json *j, const cli_cmd *cmd)
{
    cli_json_open(j, NULL, '{');
    cli_json_str(j, "name", cmd->name);
    cli_json_str(j, "summary", cmd->summary);
    cli_json_str(j, "description", cmd->description);
    put_opts(j, "arguments", cmd->opts, true);
    put_opts(j, "options", cmd->opts, false);
    put_opts(j, "common_options", cli_common_opts, false);
    cli_json_open(j, "examples", '[');
    for (const cli_example *e = cmd->examples; e && e->line; e++) {
        cli_json_open(j, NULL, '{');
        cli_json_str(j, "line", e->line);
        cli_json_str(j, "what", e->what);
        cli_json_close(j, '}');
    }
    cli_json_close(j, ']');
    cli_json_close(j, '}');
}

void cli_help_json(const cli_cmd *cmd)
{
    cli_json j = {0};

    cli_json_begin(&j, "help");
    cli_json_open(&j, "commands", '[');
    if (cmd)
        put_command(&j, cmd);
    for (size_t i = 0; !cmd && cli_command(i); i++)
        put_command(&j, cli_command(i));
    cli_json_close(&j, ']');
    cli_json_end(&j);
}
