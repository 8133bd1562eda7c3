/* sparsebit version */
#include "cli.h"

static const cli_opt opts[] = {{0}};

static int version_run(cli_env *env, const void *parsed)
{
    cli_json j = {0};

    (void)parsed;
    if (env->common.json) {
        cli_json_begin(&j, "version");
        cli_json_str(&j, "version", sb_version());
        cli_json_end(&j);
    } else {
        printf("sparsebit %s\n", sb_version());
    }
    return CLI_OK;
}

const cli_cmd cmd_version = {
    .name = "version",
    .summary = "the version",
    .description = "Prints the version of the program.",
    .opts = opts,
    .run = version_run,
};
