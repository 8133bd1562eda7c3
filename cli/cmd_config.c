/* sparsebit config - validates configs, prints a default one, explains keys. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

typedef struct {
    const char *what;
    cli_list words;
    bool markdown;
} config_args;

#define ARG(field) offsetof(config_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_STRING, 0, NULL,       ARG(what),     "check|default|explain", "what to do", true},
    {CLI_LIST,   0, NULL,       ARG(words),    "FILE|KEY", "files to check; keys to explain (default: all of a config; data: all of a data file)", false},
    {CLI_FLAG,   0, "markdown", ARG(markdown), NULL, "with explain: as a table for a document", false},
    {0},
};

static const cli_example examples[] = {
    {"sparsebit config default > q.yaml", "Start from a complete config with comments"},
    {"sparsebit config check q.yaml", "Validates it and prints what it says"},
    {"sparsebit config explain A.OBSERVER.TYPE", "What a key means and allows"},
    {"sparsebit config explain W", "The same for every key below W"},
    {"sparsebit config explain data", "The same for every key of a data file"},
    {0},
};
/* clang-format on */

extern const cli_cmd cmd_config;

/* ---- check -------------------------------------------------------------- */

/* Prints the lines of a summary. */
static void print_lines(const char *text, const char *indent)
{
    while (*text) {
        size_t n = strcspn(text, "\n");

        cli_put("%s%.*s\n", indent, (int)n, text);
        text += n + (text[n] == '\n');
    }
}

static void json_lines(cli_json *j, const char *key, const char *text)
{
    cli_json_open(j, key, '[');
    while (*text) {
        size_t n = strcspn(text, "\n");
        char *line = cli_printf("%.*s", (int)n, text);

        cli_json_str(j, NULL, line);
        free(line);
        text += n + (text[n] == '\n');
    }
    cli_json_close(j, ']');
}

static int check_file(cli_env *env, const char *path, cli_json *j)
{
    char *summary = NULL;
    sb_status status = sb_config_check(env->ctx, path, &summary);
    bool valid = status == SB_OK;

    if (env->common.json) {
        cli_json_open(j, NULL, '{');
        cli_json_str(j, "file", path);
        cli_json_bool(j, "valid", valid);
        if (valid)
            json_lines(j, "summary", summary);
        else
            cli_json_str(j, "error", sb_ctx_error(env->ctx));
        cli_json_close(j, '}');
    } else if (!valid) {
        return cli_fail(env, path);
    } else {
        cli_put("%s: valid\n", path);
        print_lines(summary, "  ");
    }
    sb_memory_free(summary);
    return valid ? CLI_OK : CLI_FAILED;
}

static int config_check(cli_env *env, const cli_list *files)
{
    cli_json j = {0};
    int rc = CLI_OK;

    if (files->n == 0)
        return cli_usage(&cmd_config, "check: FILE is missing");
    if (env->common.json) {
        cli_json_begin(&j, "config");
        cli_json_open(&j, "files", '[');
    }
    for (size_t i = 0; i < files->n; i++) {
        int one = check_file(env, files->v[i], &j);

        rc = rc == CLI_OK ? one : rc;
    }
    if (env->common.json) {
        cli_json_close(&j, ']');
        cli_json_end(&j);
    }
    return rc;
}

/* ---- explain ------------------------------------------------------------ */

static void explain_json(const sb_config_key *k, cli_json *j)
{
    cli_json_open(j, NULL, '{');
    cli_json_str(j, "key", k->key);
    if (k->preset)
        cli_json_str(j, "default", k->preset);
    cli_json_str(j, "allowed", k->allowed);
    cli_json_str(j, "help", k->help);
    cli_json_str(j, "more", k->more);
    cli_json_bool(j, "section", k->section);
    cli_json_close(j, '}');
}

static void explain_markdown(const sb_config_key *k)
{
    if (k->section)
        printf("| **`%s`** | | | %s |\n", k->key, k->help);
    else
        printf("| `%s` | %s%s%s | %s | %s |\n", k->key, k->preset ? "`" : "",
               k->preset ? k->preset : "", k->preset ? "`" : "", k->allowed,
               k->help);
}

static void explain_text(const sb_config_key *k)
{
    printf("%s: %s\n", k->key, k->help);
    if (!k->section) {
        printf("  allowed  %s\n", k->allowed);
        printf("  default  %s\n", k->preset ? k->preset : "none");
    }
    print_lines(k->more, "    ");
}

static int explain_keys(cli_env *env, const char *key, bool markdown,
                        cli_json *j)
{
    sb_key_list *keys = NULL;
    const sb_config_key *k;
    sb_status status = sb_config_keys(env->ctx, key, &keys);

    if (status == SB_BAD_ARG)
        return cli_usage(&cmd_config, "%s", sb_ctx_error(env->ctx));
    if (status != SB_OK)
        return cli_fail(env, "explain");
    for (size_t i = 0; (k = sb_key_list_get(keys, i)) != NULL; i++) {
        if (env->common.json)
            explain_json(k, j);
        else if (markdown)
            explain_markdown(k);
        else
            explain_text(k);
    }
    sb_key_list_free(keys);
    return CLI_OK;
}

static int config_explain(cli_env *env, const config_args *args)
{
    cli_json j = {0};
    int rc = CLI_OK;

    if (env->common.json) {
        cli_json_begin(&j, "config");
        cli_json_open(&j, "keys", '[');
    } else if (args->markdown)
        printf("| key | default | allowed | meaning |\n|---|---|---|---|\n");
    if (args->words.n == 0)
        rc = explain_keys(env, NULL, args->markdown, &j);
    for (size_t i = 0; i < args->words.n && rc == CLI_OK; i++)
        rc = explain_keys(env, args->words.v[i], args->markdown, &j);
    if (env->common.json) {
        cli_json_close(&j, ']');
        if (rc != CLI_OK)
            cli_json_error(&j, rc);
        cli_json_end(&j);
    }
    return rc;
}

static int print_default(cli_env *env, const cli_list *words)
{
    char *text = NULL;

    if (words->n)
        return cli_usage(&cmd_config, "default: unexpected argument '%s'",
                         words->v[0]);
    if (sb_config_default(env->ctx, &text) != SB_OK)
        return cli_fail(env, "default");
    if (env->common.json) {
        cli_json j = {0};

        cli_json_begin(&j, "config");
        cli_json_str(&j, "yaml", text);
        cli_json_end(&j);
    } else {
        fputs(text, stdout);
    }
    sb_memory_free(text);
    return CLI_OK;
}

static int config_run(cli_env *env, const void *parsed)
{
    const config_args *args = parsed;

    if (strcmp(args->what, "check") == 0)
        return config_check(env, &args->words);
    if (strcmp(args->what, "default") == 0)
        return print_default(env, &args->words);
    if (strcmp(args->what, "explain") == 0)
        return config_explain(env, args);
    static const char *const names[] = {"check", "default", "explain", NULL};
    const char *near = cli_nearest(args->what, names);
    if (near)
        return cli_usage(&cmd_config, "'%s', did you mean '%s'?", args->what,
                         near);
    return cli_usage(&cmd_config, "'%s', want check, default or explain",
                     args->what);
}

const cli_cmd cmd_config = {
    .name = "config",
    .summary = "check a config, print a default one, explain keys",
    .description =
        "Checks config files (the keys of Sparsebit's qconfig.yaml and "
        "sconfig.yaml) and data files, prints a complete config to start from, "
        "or explains keys. docs/config.md is the reference.",
    .args_size = sizeof(config_args),
    .opts = opts,
    .examples = examples,
    .run = config_run,
};
