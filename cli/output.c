/* Tables, JSON and numbers for people. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* ---- text --------------------------------------------------------------- */

void cli_put(const char *fmt, ...)
{
    size_t len = strlen(fmt);
    bool ends_line = len > 0 && fmt[len - 1] == '\n';
    va_list args;

    va_start(args, fmt);
    char *text = cli_vprintf(fmt, args);
    va_end(args);
    if (ends_line && *text)
        text[strlen(text) - 1] = '\0';
    sb_make_printable(text);
    (void)fputs(text, stdout);
    if (ends_line)
        (void)putchar('\n');
    free(text);
}

/* ---- tables ------------------------------------------------------------- */

/* The character at `text`, of `n` bytes of UTF-8. */
static unsigned long character_at(const char *text, size_t n)
{
    static const unsigned first_bits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    unsigned long c = (unsigned char)*text & first_bits[n];

    for (size_t i = 1; i < n; i++)
        c = c << 6 | ((unsigned char)text[i] & 0x3f);
    return c;
}

/* Columns that it takes on a terminal, by Unicode's East Asian Width. */
static size_t character_width(unsigned long c)
{
    static const unsigned long none[][2] = {
        {0x300, 0x36f}, {0x200b, 0x200f}, {0xfe00, 0xfe0f}};
    static const unsigned long wide[][2] = {
        {0x1100, 0x115f},   {0x2e80, 0xa4cf},   {0xac00, 0xd7a3},
        {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff01, 0xff60},
        {0xffe0, 0xffe6},   {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff},
        {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}};

    for (size_t i = 0; i < CLI_COUNT(none); i++)
        if (c >= none[i][0] && c <= none[i][1])
            return 0;
    for (size_t i = 0; i < CLI_COUNT(wide); i++)
        if (c >= wide[i][0] && c <= wide[i][1])
            return 2;
    return 1;
}

static size_t text_width(const char *text)
{
    size_t size = strlen(text), width = 0;

    for (size_t i = 0; i < size;) {
        size_t n = sb_utf8_length(text + i, size - i);

        width += n ? character_width(character_at(text + i, n)) : 1;
        i += n ? n : 1;
    }
    return width;
}

struct cli_table {
    const char *align;
    char **cells;
    size_t n, cap;
};

cli_table *cli_table_new(const char *align)
{
    cli_table *t = cli_alloc(1, sizeof *t);

    t->align = align;
    return t;
}

void cli_table_add(cli_table *t, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    char *text = cli_vprintf(fmt, args);
    va_end(args);
    sb_make_printable(text);
    if (t->n == t->cap) {
        char **cells = cli_alloc(2 * t->cap + 64, sizeof *cells);

        if (t->n)
            memcpy(cells, t->cells, t->n * sizeof *cells);
        free(t->cells);
        t->cells = cells;
        t->cap = 2 * t->cap + 64;
    }
    t->cells[t->n++] = text;
}

/* Is nothing in the row from cell i on?  No blanks are put before nothing. */
static bool is_rest_empty(const cli_table *t, size_t i, size_t columns)
{
    size_t end = i - i % columns + columns;

    while (i < end && i < t->n && !*t->cells[i])
        i++;
    return i == end || i == t->n;
}

void cli_table_print(cli_table *t, const char *indent)
{
    size_t columns = strlen(t->align);
    size_t *width = cli_alloc(columns, sizeof *width);

    for (size_t i = 0; i < t->n; i++)
        if (text_width(t->cells[i]) > width[i % columns])
            width[i % columns] = text_width(t->cells[i]);
    for (size_t i = 0; i < t->n; i++) {
        size_t c = i % columns;
        bool ends = c + 1 == columns || i + 1 == t->n;
        bool last = ends || is_rest_empty(t, i + 1, columns);
        int pad = (int)(width[c] - text_width(t->cells[i]));

        if (c == 0)
            printf("%s", indent);
        if (t->align[c] == 'r' && !(last && !*t->cells[i]))
            printf("%*s", pad, "");
        printf("%s", t->cells[i]);
        if (t->align[c] == 'l' && !last)
            printf("%*s", pad, "");
        printf("%s", ends ? "\n" : last ? "" : "  ");
    }
    free(width);
    cli_table_free(t);
}

void cli_table_free(cli_table *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->cells[i]);
    free(t->cells);
    free(t);
}

/* ---- JSON --------------------------------------------------------------- */

/* A byte that is no UTF-8 becomes half of a surrogate pair, as in Python. */
static void json_bytes(const char *text, size_t size)
{
    (void)putchar('"');
    for (size_t i = 0; i < size;) {
        unsigned char c = (unsigned char)text[i];
        size_t n = sb_utf8_length(text + i, size - i);

        if (n == 0)
            printf("\\udc%02x", c);
        else if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < 0x20)
            printf("\\u%04x", c);
        else
            (void)fwrite(text + i, 1, n, stdout);
        i += n ? n : 1;
    }
    (void)putchar('"');
}

static void json_text(const char *text)
{
    json_bytes(text, strlen(text));
}

static void json_key(cli_json *j, const char *key)
{
    if (j->comma)
        (void)putchar(',');
    if (j->depth > 0)
        printf("\n%*s", 2 * j->depth, "");
    if (key) {
        json_text(key);
        printf(": ");
    }
    j->comma = true;
}

static bool json_begun;

void cli_json_begin(cli_json *j, const char *command)
{
    json_begun = true;
    cli_json_open(j, NULL, '{');
    cli_json_int(j, "schema", CLI_JSON_SCHEMA);
    cli_json_str(j, "command", command);
}

void cli_json_end(cli_json *j)
{
    cli_json_close(j, '}');
}

void cli_json_error(cli_json *j, int exit_code)
{
    cli_json_open(j, "error", '{');
    cli_json_str(j, "message", cli_last_error());
    cli_json_int(j, "exit_code", exit_code);
    cli_json_close(j, '}');
}

void cli_json_failure(const char *command, int exit_code)
{
    cli_json j = {0};

    if (json_begun)
        return;
    cli_json_begin(&j, command);
    cli_json_error(&j, exit_code);
    cli_json_end(&j);
}

void cli_json_open(cli_json *j, const char *key, char bracket)
{
    json_key(j, key);
    (void)putchar(bracket);
    j->depth++;
    j->comma = false;
}

void cli_json_close(cli_json *j, char bracket)
{
    j->depth--;
    if (j->comma)
        printf("\n%*s", 2 * j->depth, "");
    (void)putchar(bracket);
    j->comma = true;
    if (j->depth == 0)
        (void)putchar('\n');
}

void cli_json_str(cli_json *j, const char *key, const char *text)
{
    json_key(j, key);
    json_text(text);
}

void cli_json_bytes(cli_json *j, const char *key, const char *text, size_t len)
{
    json_key(j, key);
    json_bytes(text, len);
}

static void json_number(double value)
{
    if (isfinite(value))
        printf("%.9g", value);
    else
        printf("null");
}

void cli_json_num(cli_json *j, const char *key, double value)
{
    json_key(j, key);
    json_number(value);
}

void cli_json_ints(cli_json *j, const char *key, const int64_t *v, size_t n)
{
    json_key(j, key);
    for (size_t i = 0; i < n; i++)
        printf("%s%lld", i ? ", " : "[", (long long)v[i]);
    printf(n ? "]" : "[]");
}

void cli_json_floats(cli_json *j, const char *key, const float *v, size_t n)
{
    json_key(j, key);
    for (size_t i = 0; i < n; i++) {
        printf("%s", i ? ", " : "[");
        json_number((double)v[i]);
    }
    printf(n ? "]" : "[]");
}

void cli_json_int(cli_json *j, const char *key, long long value)
{
    json_key(j, key);
    printf("%lld", value);
}

void cli_json_bool(cli_json *j, const char *key, bool value)
{
    json_key(j, key);
    printf(value ? "true" : "false");
}

/* ---- numbers ------------------------------------------------------------ */

const char *cli_si(double value, char *out, size_t size)
{
    static const char *const units[] = {"", " k", " M", " G", " T"};
    size_t u = 0;

    while (value >= 1000 && u + 1 < CLI_COUNT(units)) {
        value /= 1000;
        u++;
    }
    (void)snprintf(out, size, u ? "%.2f%s" : "%.0f%s", value, units[u]);
    return out;
}

const char *cli_bytes(double bytes, char *out, size_t size)
{
    char number[32];

    cli_si(bytes, number, sizeof number);
    (void)snprintf(out, size, "%s%sB", number, strchr(number, ' ') ? "" : " ");
    return out;
}

double cli_peak_rss_mb(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[128];
    double kb = 0;

    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %lf kB", &kb) == 1)
            break;
    if (f)
        (void)fclose(f);
    return kb * 1024 / 1e6;
}

char *cli_join(const cli_list *list)
{
    size_t len = 1;

    if (list->n == 0)
        return NULL;
    for (size_t i = 0; i < list->n; i++)
        len += strlen(list->v[i]) + 1;
    char *text = cli_alloc(len, 1);
    for (size_t i = 0; i < list->n; i++) {
        if (i)
            strcat(text, " ");
        strcat(text, list->v[i]);
    }
    return text;
}
