/* sparsebit completion - scripts that complete words in a shell, from the same
 * tables as the help.
 *
 * Each script holds all commands and options, so that completing starts no
 * program, except for names that plug-ins or versions differ in: those come
 * from `sparsebit list`. */
#include <string.h>

#include "cli.h"

typedef struct {
    const char *shell;
} completion_args;

#define ARG(field) offsetof(completion_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_STRING, 0, NULL, ARG(shell), "bash|zsh|fish", "the shell to write for", true},
    {0},
};

static const cli_example examples[] = {
    {"source <(sparsebit completion bash)", "For this shell only; `make install` does it for all"},
    {"sparsebit completion zsh > _sparsebit", "Into a folder of zsh's fpath"},
    {"sparsebit completion fish > sparsebit.fish", "For fish"},
    {0},
};

/* Values of options, by their name or by what help calls the value, that are
 * words of a list: of `sparsebit list` or these. */
static const struct {
    const char *name;
    const char *list, *words;
} values[] = {
    {"target",       "targets", NULL},
    {"passes",       "passes",  NULL},
    {"STAGE",        "stages",  NULL},
    {"PASS",         "passes",  NULL},
    {"format",       NULL,      "qdq qoperator matmulnbits"},
    {"weights",      NULL,      "int float-qdq"},
    {"reduce-range", NULL,      "auto all off"},
    {"manual",       NULL,      "man markdown"},
    {"LIST",         NULL,      "ops passes observers quantizers sources stages targets"},
};
/* clang-format on */

extern const cli_cmd cmd_completion;

/* How a value is completed: names of a list, words, files or nothing. */
typedef struct {
    const char *list;
    char words[256];
    bool files;
} completion_value;

/* Words between `|` or `,`, separated by spaces. */
static void completion_words(const char *arg, char *out, size_t size)
{
    (void)snprintf(out, size, "%s", arg);
    for (char *p = out; *p; p++)
        if (*p == '|' || *p == ',')
            *p = ' ';
}

static void completion_commands(char *out, size_t size)
{
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; cli_command(i) && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? " " : "",
                                 cli_command(i)->name);
}

static completion_value completion_of(const cli_opt *o)
{
    completion_value v = {NULL, "", false};
    const char *name = o->name ? o->name : o->arg;

    for (size_t i = 0; i < CLI_COUNT(values); i++)
        if (strcmp(values[i].name, name) == 0 ||
            strcmp(values[i].name, o->arg) == 0) {
            v.list = values[i].list;
            if (values[i].words)
                completion_words(values[i].words, v.words, sizeof v.words);
            return v;
        }
    if (o->kind == CLI_WORDS || strchr(o->arg, '|'))
        completion_words(o->arg, v.words, sizeof v.words);
    else if (strcmp(name, "COMMAND") == 0)
        completion_commands(v.words, sizeof v.words);
    /* Lists are often of files: NAME=FILE, FILE. */
    v.files = o->kind == CLI_FILE || o->kind == CLI_OUT ||
              strstr(o->arg, "FILE") != NULL;
    return v;
}

/* ---- bash ----------------------------------------------------------------- */

static void bash_reply(const completion_value *v)
{
    if (v->list)
        printf("_sparsebit_words \"$(sparsebit list %s 2>/dev/null | cut -d' ' "
               "-f1)\"",
               v->list);
    else if (v->words[0] && !v->files)
        printf("_sparsebit_words '%s'", v->words);
    else if (v->files)
        printf("_sparsebit_files");
    else
        printf(":");
}

/* `-o|--output) files ;;` for each option with a value. */
static void bash_values(const cli_opt *o)
{
    for (; o->kind != CLI_END; o++) {
        if (!o->name || o->kind == CLI_FLAG)
            continue;
        completion_value v = completion_of(o);
        printf("        ");
        if (o->letter)
            printf("-%c|", o->letter);
        printf("--%s) ", o->name);
        bash_reply(&v);
        printf("; return ;;\n");
    }
}

static void bash_names(const cli_opt *o)
{
    for (; o->kind != CLI_END; o++)
        if (o->name)
            printf(" --%s", o->name);
}

static void bash_positional(const cli_opt *o)
{
    const cli_opt *first = o;

    while (first->kind != CLI_END && first->name)
        first++;
    if (first->kind == CLI_END)
        return;
    const cli_opt *second = first + 1;
    while (second->kind != CLI_END && second->name)
        second++;
    completion_value v = completion_of(first);
    printf("        ");
    bash_reply(&v);
    /* Files may follow words: config check FILE. */
    printf(second->kind == CLI_END || v.files ? "\n" : "; _sparsebit_files\n");
}

static void completion_bash(void)
{
    const cli_cmd *cmd;

    printf("# bash completion for sparsebit, written by `sparsebit completion "
           "bash`.\n"
           "_sparsebit_words() { COMPREPLY+=($(compgen -W \"$1\" -- "
           "\"$cur\")); }\n"
           "_sparsebit_files() {\n    local IFS=$'\\n'\n"
           "    compopt -o filenames 2>/dev/null\n"
           "    COMPREPLY+=($(compgen -f -- \"$cur\"))\n}\n"
           "_sparsebit() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} "
           "prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
           "    COMPREPLY=()\n"
           "    if [ \"$COMP_CWORD\" = 1 ]; then\n        _sparsebit_words '");
    for (size_t i = 0; (cmd = cli_command(i)); i++)
        printf("%s ", cmd->name);
    printf("--help --version'\n        return\n    fi\n"
           "    case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; (cmd = cli_command(i)); i++) {
        printf("    %s)\n        case $prev in\n", cmd->name);
        bash_values(cmd->opts);
        bash_values(cli_common_opts);
        printf("        esac\n        [[ $cur == -* ]] && _sparsebit_words '");
        bash_names(cmd->opts);
        bash_names(cli_common_opts);
        printf("' && return\n");
        bash_positional(cmd->opts);
        printf("        ;;\n");
    }
    printf("    esac\n}\ncomplete -F _sparsebit sparsebit\n");
}

/* ---- zsh ------------------------------------------------------------------ */

/* Inside '...[help]:...': no quotes, brackets or colons. */
static void zsh_text(const char *text)
{
    for (; *text; text++)
        if (*text == '\'')
            printf("'\\''");
        else if (strchr("[]:\\", *text))
            printf("\\%c", *text);
        else
            (void)putchar(*text);
}

static void zsh_value(const cli_opt *o)
{
    completion_value v = completion_of(o);

    printf(o->kind == CLI_WORDS ? "::" : ":");
    zsh_text(o->arg);
    (void)putchar(':');
    if (v.list)
        printf("($(sparsebit list %s 2>/dev/null | cut -d\" \" -f1))", v.list);
    else if (v.words[0] && !v.files)
        printf("(%s)", v.words);
    else if (v.files)
        printf("_files");
}

static void zsh_options(const cli_opt *o)
{
    for (; o->kind != CLI_END; o++) {
        printf(" \\\n            ");
        if (!o->name) {
            printf("%s", o->kind == CLI_LIST ? "'*" : "'");
            zsh_value(o);
            (void)putchar('\'');
            continue;
        }
        if (o->letter)
            printf("%s{-%c,--%s}'[", o->kind == CLI_LIST ? "'*'" : "",
                   o->letter, o->name);
        else
            printf("'%s--%s[", o->kind == CLI_LIST ? "*" : "", o->name);
        zsh_text(o->help);
        (void)putchar(']');
        if (o->arg)
            zsh_value(o);
        (void)putchar('\'');
    }
}

static void completion_zsh(void)
{
    const cli_cmd *cmd;

    printf("#compdef sparsebit\n# zsh completion for sparsebit, written by "
           "`sparsebit completion zsh`.\n"
           "_sparsebit() {\n    local -a commands\n    commands=(\n");
    for (size_t i = 0; (cmd = cli_command(i)); i++) {
        printf("        '%s:", cmd->name);
        zsh_text(cmd->summary);
        printf("'\n");
    }
    printf("    )\n    if (( CURRENT == 2 )); then\n"
           "        _describe command commands\n        return\n    fi\n"
           "    local command=${words[2]}\n"
           "    shift words\n    (( CURRENT-- ))\n    case $command in\n");
    for (size_t i = 0; (cmd = cli_command(i)); i++) {
        printf("    %s)\n        _arguments", cmd->name);
        zsh_options(cmd->opts);
        zsh_options(cli_common_opts);
        printf("\n        ;;\n");
    }
    printf(
        "    esac\n}\n"
        "if [ \"$funcstack[1]\" = _sparsebit ]; then\n"
        "    _sparsebit \"$@\"\nelse\n    compdef _sparsebit sparsebit\nfi\n");
}

/* ---- fish ----------------------------------------------------------------- */

static void fish_text(const char *text)
{
    (void)putchar('\'');
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\')
            (void)putchar('\\');
        (void)putchar(*text);
    }
    (void)putchar('\'');
}

static void fish_options(const char *command, const cli_opt *o)
{
    for (; o->kind != CLI_END; o++) {
        completion_value v = {NULL, "", false};

        if (o->arg)
            v = completion_of(o);
        if (!o->name && (v.files || !v.words[0]))
            continue; /* fish completes files by itself */
        printf("complete -c sparsebit -n '__fish_seen_subcommand_from %s'",
               command);
        if (o->letter)
            printf(" -s %c", o->letter);
        if (o->name)
            printf(" -l %s", o->name);
        if (o->kind != CLI_FLAG && o->kind != CLI_WORDS)
            printf(v.files ? " -r" : o->name ? " -x" : " -f");
        if (v.list)
            printf(" -a '(sparsebit list %s 2>/dev/null | string split -f1 "
                   "\" \")'",
                   v.list);
        else if (v.words[0] && !v.files)
            printf(" -a '%s'", v.words);
        printf(" -d ");
        fish_text(o->help);
        (void)putchar('\n');
    }
}

static void completion_fish(void)
{
    const cli_cmd *cmd;

    printf("# fish completion for sparsebit, written by `sparsebit completion "
           "fish`.\n");
    for (size_t i = 0; (cmd = cli_command(i)); i++) {
        printf("complete -c sparsebit -n __fish_use_subcommand -f -a %s -d ",
               cmd->name);
        fish_text(cmd->summary);
        (void)putchar('\n');
        fish_options(cmd->name, cmd->opts);
        fish_options(cmd->name, cli_common_opts);
    }
}

static int completion_run(cli_env *env, const void *parsed)
{
    const completion_args *args = parsed;
    static const char *const shells[] = {"bash", "zsh", "fish", NULL};
    static void (*const print[])(void) = {completion_bash, completion_zsh,
                                          completion_fish};

    if (env->common.json)
        return cli_usage(&cmd_completion, "a script cannot be printed as JSON");
    for (size_t i = 0; shells[i]; i++)
        if (strcmp(args->shell, shells[i]) == 0) {
            print[i]();
            return CLI_OK;
        }
    return cli_usage(&cmd_completion, "'%s', want bash, zsh or fish",
                     args->shell);
}

const cli_cmd cmd_completion = {
    .name = "completion",
    .summary = "shell completion for bash, zsh or fish",
    .description =
        "Prints a script that completes commands, options and values of "
        "sparsebit in a shell. The installed package brings the three scripts.",
    .args_size = sizeof(completion_args),
    .opts = opts,
    .examples = examples,
    .run = completion_run,
};
