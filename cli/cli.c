/* Options: one table-driven parser for all commands; messages. */
#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define COMMON(field) offsetof(cli_common, field)

/* clang-format off */
const cli_opt cli_common_opts[] = {
    {CLI_FLAG, 'h', "help",    COMMON(help),    NULL, "show this help", false},
    {CLI_FLAG, 0,   "json",    COMMON(json),    NULL, "print JSON, also on failure; see docs/json.md", false},
    {CLI_UINT, 0,   "threads", COMMON(threads), "N",  "threads to use (default: one per core); results do not depend on it", false},
    {CLI_SIZE, 0,   "max-memory", COMMON(max_memory), "SIZE", "most memory to use, in bytes or with K, M, G, T: `2G` (default: what the machine has); a command that needs more ends with a line that says what for", false},
    {CLI_UINT, 0,   "seed",    COMMON(seed),    "N",  "seed of everything random (default: 0)", false},
    {CLI_FLAG, 'q', "quiet",   COMMON(quiet),   NULL, "no progress, summaries or warnings; reports and errors are always printed", false},
    {CLI_FLAG, 'v', "verbose", COMMON(verbose), NULL, "print more", false},
    {0},
};
/* clang-format on */

/* ---- memory ------------------------------------------------------------- */

void *cli_alloc(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size ? size : 1);

    if (!p) {
        (void)cli_error("out of memory");
        exit(CLI_FAILED);
    }
    return p;
}

char *cli_vprintf(const char *fmt, va_list args)
{
    va_list again;

    va_copy(again, args);
    int len = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    char *text = cli_alloc(len < 0 ? 1 : (size_t)len + 1, 1);
    if (len >= 0)
        (void)vsnprintf(text, (size_t)len + 1, fmt, args);
    return text;
}

char *cli_printf(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    char *text = cli_vprintf(fmt, args);
    va_end(args);
    return text;
}

/* ---- messages ----------------------------------------------------------- */

static char last_error[1024];
static bool silent;

void cli_silence(bool on)
{
    silent = on;
}

const char *cli_last_error(void)
{
    return last_error;
}

/* The text of a message, which becomes the last one. */
static char *error_text(const char *fmt, va_list args)
{
    char *text = cli_vprintf(fmt, args);

    sb_make_printable(text);
    (void)snprintf(last_error, sizeof last_error, "%s", text);
    return text;
}

int cli_error(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    char *text = error_text(fmt, args);
    va_end(args);
    (void)fflush(stdout);
    if (!silent)
        (void)fprintf(stderr, "sparsebit: %s\n", text);
    free(text);
    return CLI_FAILED;
}

int cli_fail(const cli_env *env, const char *subject)
{
    const char *message = sb_ctx_error(env->ctx);

    if (strncmp(message, "interrupted", 11) == 0)
        return cli_signals_told() ? CLI_FAILED : cli_error("interrupted");
    if (!subject || strstr(message, subject))
        return cli_error("%s", message);
    return cli_error("%s: %s", subject, message);
}

int cli_usage(const cli_cmd *cmd, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    char *text = error_text(fmt, args);
    va_end(args);
    if (!silent)
        (void)fprintf(stderr,
                      "sparsebit%s%s: %s (see 'sparsebit%s%s --help')\n",
                      cmd ? " " : "", cmd ? cmd->name : "", text,
                      cmd ? " " : "", cmd ? cmd->name : "");
    free(text);
    return CLI_USAGE;
}

int cli_check_preset(const cli_env *env, const cli_cmd *cmd, const char *name)
{
    const sb_listing *row = NULL;

    for (size_t i = 0; name && (row = sb_list_get(env->ctx, "presets", i)); i++)
        if (strcmp(row->name, name) == 0)
            return CLI_OK;
    return !name ? CLI_OK
                 : cli_usage(cmd,
                             "--preset: found '%s', `sparsebit list presets` "
                             "shows what is allowed",
                             name);
}

/* Edit distance of two words, for words of at most 31 letters. */
static size_t cli_distance(const char *a, const char *b)
{
    size_t n = strlen(b), row[32];

    if (n >= 32 || strlen(a) >= 32)
        return SIZE_MAX;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];

        row[0] = i + 1;
        for (size_t j = 1; j <= n; j++) {
            size_t best = diagonal + (a[i] != b[j - 1]);

            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[n];
}

const char *cli_nearest(const char *word, const char *const *names)
{
    const char *best = NULL, *prefix = "";
    size_t least = strlen(word) / 2 + 1;

    for (; *names; names++) {
        size_t d = cli_distance(word, *names);

        if (d < least) {
            least = d;
            best = *names;
        }
        if (strlen(word) > 2 && !*prefix &&
            strncmp(word, *names, strlen(word)) == 0)
            prefix = *names; /* cut short */
    }
    return *prefix ? prefix : best;
}

/* ---- parsing ------------------------------------------------------------ */

typedef struct {
    const cli_cmd *cmd;
    void *args;
    cli_common *common;
    int argc;
    char **argv;
    int at;
    size_t n_positional;
    const cli_opt *given[64]; /* options seen, to check the required ones */
    size_t n_given;
} parser;

static const cli_opt *find_in(const cli_opt *opts, const char *name, size_t len)
{
    for (; opts->kind != CLI_END; opts++) {
        bool is_long = opts->name && strlen(opts->name) == len &&
                       memcmp(opts->name, name, len) == 0;
        bool is_letter = len == 1 && opts->letter && opts->letter == *name;

        if (is_long || is_letter)
            return opts;
    }
    return NULL;
}

static int unknown_option(const parser *p, const char *word)
{
    const char *names[64];
    size_t n = 0;

    for (const cli_opt *o = p->cmd->opts; o->kind != CLI_END && n < 48; o++)
        if (o->name)
            names[n++] = o->name;
    for (const cli_opt *o = cli_common_opts; o->kind != CLI_END; o++)
        names[n++] = o->name;
    names[n] = NULL;
    const char *near = cli_nearest(word + strspn(word, "-"), names);
    if (near)
        return cli_usage(p->cmd, "unknown option '%s', did you mean '--%s'?",
                         word, near);
    return cli_usage(p->cmd, "unknown option '%s'", word);
}

static int set_number(const parser *p, const cli_opt *o, void *field,
                      const char *value)
{
    char *end;

    errno = 0;
    if (o->kind == CLI_UINT || o->kind == CLI_SOME) {
        unsigned long n = strtoul(value, &end, 10);

        if (*value < '0' || *value > '9' || *end || errno || n > UINT32_MAX)
            return cli_usage(
                p->cmd,
                "--%s: found '%s', want a whole number up to 4294967295",
                o->name, value);
        if (o->kind == CLI_SOME && n == 0)
            return cli_usage(p->cmd, "--%s: found 0, want at least 1", o->name);
        *(unsigned *)field = (unsigned)n;
        return CLI_OK;
    }
    double x = strtod(value, &end);
    if (end == value || *end || errno || !(x >= 0 && x < 1e9))
        return cli_usage(p->cmd,
                         "--%s: found '%s', want a number from 0 to 1e9",
                         o->name, value);
    if (o->kind == CLI_ABOVE && !(x > 0))
        return cli_usage(p->cmd, "--%s: found %s, want more than 0", o->name,
                         value);
    if (o->kind == CLI_SHARE && !(x > 0 && x < 1))
        return cli_usage(p->cmd,
                         "--%s: found %s, want a share, more than 0 and less "
                         "than 1",
                         o->name, value);
    *(double *)field = x;
    return CLI_OK;
}

/* 1500000, 64K, 2G; powers of 1024, with or without a B behind them. */
static int set_size(const parser *p, const cli_opt *o, size_t *field,
                    const char *value)
{
    static const char units[] = "KMGT";
    char *end;

    errno = 0;
    unsigned long long n = strtoull(value, &end, 10);
    const char *unit = *end > ' ' ? strchr(units, *end & ~0x20) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    end += unit != NULL;
    end += *end == 'B' || *end == 'b';
    if (*value < '0' || *value > '9' || *end || errno || n == 0 ||
        n > SIZE_MAX >> shift)
        return cli_usage(p->cmd, "--%s: '%s' is not a size such as 512M or 2G",
                         o->name, value);
    *field = (size_t)n << shift;
    return CLI_OK;
}

static bool was_given(const parser *p, const cli_opt *o)
{
    for (size_t i = 0; i < p->n_given; i++)
        if (p->given[i] == o)
            return true;
    return false;
}

static int set_field(parser *p, const cli_opt *o, void *base, const char *value)
{
    void *field = (char *)base + o->offset;

    if (!was_given(p, o) && p->n_given < CLI_COUNT(p->given))
        p->given[p->n_given++] = o;
    switch (o->kind) {
    case CLI_FLAG:
        *(bool *)field = true;
        return CLI_OK;
    case CLI_UINT:
    case CLI_SOME:
    case CLI_REAL:
    case CLI_ABOVE:
    case CLI_SHARE:
        return set_number(p, o, field, value);
    case CLI_SIZE:
        return set_size(p, o, field, value);
    case CLI_LIST: {
        cli_list *list = field;
        const char **v = cli_alloc(list->n + 1, sizeof *v);

        if (list->n)
            memcpy(v, list->v, list->n * sizeof *v);
        v[list->n++] = value;
        free(list->v);
        list->v = v;
        return CLI_OK;
    }
    case CLI_FILE:
    case CLI_OUT:
        if (!*value)
            return cli_usage(p->cmd, "%s%s: the name of the file is empty",
                             o->name ? "--" : "", o->name ? o->name : o->arg);
        *(const char **)field = value;
        return CLI_OK;
    default:
        *(const char **)field = value;
        return CLI_OK;
    }
}

/* Is `text` a list of words of the list `all`? */
static bool words_of(const char *text, const char *all)
{
    for (size_t n; *text; text += n + (text[n] == ',')) {
        const char *w = all;

        n = strcspn(text, ",");
        while (*w && (strcspn(w, ",") != n || memcmp(w, text, n) != 0))
            w += strcspn(w, ",") + (w[strcspn(w, ",")] == ',');
        if (!*w || n == 0 || (text[n] == ',' && !text[n + 1]))
            return false;
    }
    return true;
}

/* A value that may be left out: what follows is taken if it can be one. */
static int set_words(parser *p, const cli_opt *o, void *base, const char *value)
{
    if (value && (!*value || !words_of(value, o->arg)))
        return cli_usage(p->cmd, "--%s: found '%s', allowed are words of %s",
                         o->name, value, o->arg);
    if (!value && p->at < p->argc && *p->argv[p->at] &&
        words_of(p->argv[p->at], o->arg))
        value = p->argv[p->at++];
    return set_field(p, o, base, value ? value : o->arg);
}

/* --name, --name value, --name=value, -x, -x value */
static int parse_option(parser *p, const char *word)
{
    const char *name = word + (word[1] == '-' ? 2 : 1);
    const char *eq = word[1] == '-' ? strchr(name, '=') : NULL;
    size_t len = eq ? (size_t)(eq - name) : strlen(name);
    void *base = p->args;
    const cli_opt *o = NULL;

    if ((word[1] == '-') == (len > 1)) {
        o = find_in(p->cmd->opts, name, len);
        if (!o) {
            o = find_in(cli_common_opts, name, len);
            base = p->common;
        }
    }
    if (!o)
        return unknown_option(p, word);
    if (o->kind == CLI_FLAG && eq)
        return cli_usage(p->cmd, "--%s takes no value", o->name);
    const char *value = eq ? eq + 1 : NULL;
    if (o->kind == CLI_WORDS)
        return set_words(p, o, base, value);
    if (o->kind != CLI_FLAG && !value) {
        if (p->at >= p->argc)
            return cli_usage(p->cmd, "--%s wants %s", o->name, o->arg);
        value = p->argv[p->at++];
    }
    return set_field(p, o, base, value);
}

static int parse_positional(parser *p, const char *word)
{
    size_t i = 0;

    for (const cli_opt *o = p->cmd->opts; o->kind != CLI_END; o++)
        if (!o->name && i++ == p->n_positional) {
            p->n_positional += o->kind != CLI_LIST;
            return set_field(p, o, p->args, word);
        }
    return cli_usage(p->cmd, "unexpected argument '%s'", word);
}

static int check_required(const parser *p)
{
    for (const cli_opt *o = p->cmd->opts; o->kind != CLI_END; o++) {
        if (!o->required || was_given(p, o))
            continue;
        if (o->name)
            return cli_usage(p->cmd, "--%s %s is missing", o->name, o->arg);
        return cli_usage(p->cmd, "%s is missing", o->arg);
    }
    return CLI_OK;
}

int cli_parse(const cli_cmd *cmd, int argc, char **argv, void *args,
              cli_common *common)
{
    parser p = {
        .cmd = cmd, .args = args, .common = common, .argc = argc, .argv = argv};
    bool options = true;

    while (p.at < argc) {
        const char *word = argv[p.at++];
        int rc;

        if (options && strcmp(word, "--") == 0) {
            options = false;
            continue;
        }
        if (options && word[0] == '-' && word[1])
            rc = parse_option(&p, word);
        else
            rc = parse_positional(&p, word);
        if (rc != CLI_OK)
            return rc;
    }
    return common->help ? CLI_OK : check_required(&p);
}

void cli_parse_free(const cli_cmd *cmd, void *args)
{
    for (const cli_opt *o = cmd->opts; o->kind != CLI_END; o++)
        if (o->kind == CLI_LIST)
            free(((cli_list *)(void *)((char *)args + o->offset))->v);
}
