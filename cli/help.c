/* Help texts, man page and docs/commands.md, all from the command tables. */
#include <string.h>

#include "cli.h"

enum { HELP_COLUMN = 26, HELP_WIDTH = 80, MARKDOWN_WIDTH = 100 };

/* "-o, --output FILE" */
static void option_label(const cli_opt *o, char *out, size_t size)
{
    char letter[8] = "    ";

    if (o->letter)
        (void)snprintf(letter, sizeof letter, "-%c, ", o->letter);
    (void)snprintf(out, size, "%s--%s%s%s%s", letter, o->name,
                   !o->arg                ? ""
                   : o->kind == CLI_WORDS ? " ["
                                          : " ",
                   o->arg ? o->arg : "", o->kind == CLI_WORDS ? "]" : "");
}

/* Prints `text` wrapped, the first line after `used` columns. */
static void print_wrapped(const char *text, int indent, int used, int width)
{
    int column = used;

    while (*text) {
        size_t len = strcspn(text, " ");

        if (column > indent && column + 1 + (int)len > width) {
            (void)putchar('\n');
            column = 0;
        }
        if (column < indent) {
            printf("%*s", indent - column, "");
            column = indent;
        } else if (column > indent) {
            (void)putchar(' ');
            column++;
        }
        printf("%.*s", (int)len, text);
        column += (int)len;
        text += len;
        text += strspn(text, " ");
    }
    (void)putchar('\n');
}

static void print_options(const cli_opt *opts)
{
    for (; opts->kind != CLI_END; opts++) {
        char label[64];

        if (!opts->name)
            continue;
        option_label(opts, label, sizeof label);
        int used = printf("  %s", label);
        if (used >= HELP_COLUMN) {
            (void)putchar('\n');
            used = 0;
        }
        print_wrapped(opts->help, HELP_COLUMN, used, HELP_WIDTH);
    }
}

/* "sparsebit run [options] MODEL" */
static void print_usage(const cli_cmd *cmd)
{
    printf("sparsebit %s", cmd->name);
    for (const cli_opt *o = cmd->opts; o->kind != CLI_END; o++)
        if (!o->name)
            printf(o->required ? " %s" : " [%s]", o->arg);
    for (const cli_opt *o = cmd->opts; o->kind != CLI_END; o++)
        if (o->name && o->required) {
            if (o->letter)
                printf(" -%c %s", o->letter, o->arg);
            else
                printf(" --%s %s", o->name, o->arg);
        }
    printf(" [options]");
}

static bool has_options(const cli_cmd *cmd)
{
    for (const cli_opt *o = cmd->opts; o->kind != CLI_END; o++)
        if (o->name)
            return true;
    return false;
}

void cli_help(const cli_cmd *cmd)
{
    printf("usage: ");
    print_usage(cmd);
    printf("\n\n");
    print_wrapped(cmd->description, 0, 0, HELP_WIDTH);
    for (const cli_opt *o = cmd->opts; o->kind != CLI_END; o++)
        if (!o->name) {
            int used = printf("\n  %s", o->arg) - 1;
            print_wrapped(o->help, HELP_COLUMN, used, HELP_WIDTH);
        }
    if (has_options(cmd)) {
        printf("\noptions:\n");
        print_options(cmd->opts);
    }
    printf("\noptions of every command:\n");
    print_options(cli_common_opts);
    if (cmd->examples && cmd->examples->line)
        printf("\nexamples:\n");
    for (const cli_example *e = cmd->examples; e && e->line; e++)
        printf("  %s\n      %s\n", e->line, e->what);
}

void cli_help_all(void)
{
    const cli_cmd *cmd;

    printf(
        "usage: sparsebit COMMAND [arguments]\n\n"
        "Quantizes, checks, simplifies, evaluates and runs ONNX networks.\n\n"
        "commands:\n");
    for (size_t i = 0; (cmd = cli_command(i)); i++)
        printf("  %-12s%s\n", cmd->name, cmd->summary);
    printf(
        "\n'sparsebit COMMAND --help' explains a command, with examples.\n"
        "Exit codes: 0 done, 1 the work failed, 2 wrong usage; a signal ends "
        "the command as signals do (130 after Ctrl-C).\n");
}

/* ---- man page ----------------------------------------------------------- */

/* Dashes and backslashes mean something to roff, and so does a leading dot. */
static void help_roff(const char *text)
{
    if (*text == '.' || *text == '\'')
        printf("\\&");
    for (; *text; text++) {
        if (*text == '-' || *text == '\\')
            (void)putchar('\\');
        (void)putchar(*text);
    }
}

static void roff_options(const cli_opt *opts)
{
    for (; opts->kind != CLI_END; opts++) {
        printf(".TP\n.B ");
        if (opts->letter)
            printf("\\-%c, ", opts->letter);
        if (opts->name)
            printf("\\-\\-");
        help_roff(opts->name ? opts->name : opts->arg);
        if (opts->name && opts->arg) {
            (void)putchar(' ');
            help_roff(opts->arg);
        }
        (void)putchar('\n');
        help_roff(opts->help);
        (void)putchar('\n');
    }
}

void cli_manual_roff(void)
{
    const cli_cmd *cmd;

    printf(
        ".TH SPARSEBIT 1 \"\" \"sparsebit %s\" \"User Commands\"\n"
        ".SH NAME\nsparsebit \\- quantize, check, simplify, evaluate and run "
        "ONNX networks\n.SH SYNOPSIS\n",
        sb_version());
    for (size_t i = 0; (cmd = cli_command(i)); i++) {
        printf(".B ");
        print_usage(cmd);
        printf("\n.br\n");
    }
    printf(".SH COMMANDS\n");
    for (size_t i = 0; (cmd = cli_command(i)); i++) {
        printf(".SS %s\n", cmd->name);
        help_roff(cmd->description);
        (void)putchar('\n');
        roff_options(cmd->opts);
        for (const cli_example *e = cmd->examples; e && e->line; e++) {
            printf(".PP\n.nf\n    ");
            help_roff(e->line);
            printf("\n.fi\n.RS 8\n");
            help_roff(e->what);
            printf("\n.RE\n");
        }
    }
    printf(".SH COMMON OPTIONS\n");
    roff_options(cli_common_opts);
    printf(".SH EXIT STATUS\n0 done, 1 the work failed, 2 wrong usage; a "
           "signal ends "
           "the command as signals do (130 after Ctrl-C).\n");
}

/* ---- docs/commands.md --------------------------------------------------- */

static void markdown_options(const cli_opt *opts)
{
    printf("| option | meaning |\n|---|---|\n");
    for (; opts->kind != CLI_END; opts++) {
        char label[64];

        if (opts->name)
            option_label(opts, label, sizeof label);
        else
            (void)snprintf(label, sizeof label, "%s", opts->arg);
        printf("| `%s` | %s |\n", label + strspn(label, " "), opts->help);
    }
    (void)putchar('\n');
}

void cli_manual_markdown(void)
{
    const cli_cmd *cmd;

    printf("# Commands\n\nGenerated from the command tables by `make docs`; "
           "`sparsebit COMMAND --help` shows the same.\n\n"
           "Every command takes:\n\n");
    markdown_options(cli_common_opts);
    print_wrapped("Exit codes: 0 done, 1 the work failed, 2 wrong usage; a "
                  "signal ends the command as signals do (130 after Ctrl-C).",
                  0, 0, MARKDOWN_WIDTH);
    (void)putchar('\n');
    for (size_t i = 0; (cmd = cli_command(i)); i++) {
        printf("\n## %s\n\n    ", cmd->name);
        print_usage(cmd);
        printf("\n\n");
        print_wrapped(cmd->description, 0, 0, MARKDOWN_WIDTH);
        (void)putchar('\n');
        if (cmd->opts->kind != CLI_END)
            markdown_options(cmd->opts);
        for (const cli_example *e = cmd->examples; e && e->line; e++)
            printf("%s    %s\n\n%s%s\n", e == cmd->examples ? "" : "\n",
                   e->line, e->what,
                   e->what[strlen(e->what) - 1] == '?' ? "" : ".");
    }
}
