/* Tables, JSON and numbers for people. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* Names come from files: nothing in them may move the cursor. */
static void make_printable(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

/* ---- tables ------------------------------------------------------------- */

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
    char text[1024];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    make_printable(text);
    if (t->n == t->cap) {
        char **cells = cli_alloc(2 * t->cap + 64, sizeof *cells);

        if (t->n)
            memcpy(cells, t->cells, t->n * sizeof *cells);
        free(t->cells);
        t->cells = cells;
        t->cap = 2 * t->cap + 64;
    }
    t->cells[t->n++] = cli_printf("%s", text);
}

void cli_table_print(cli_table *t, const char *indent)
{
    size_t columns = strlen(t->align);
    size_t *width = cli_alloc(columns, sizeof *width);

    for (size_t i = 0; i < t->n; i++)
        if (strlen(t->cells[i]) > width[i % columns])
            width[i % columns] = strlen(t->cells[i]);
    for (size_t i = 0; i < t->n; i++) {
        size_t c = i % columns;
        bool last = c + 1 == columns || i + 1 == t->n;
        int pad = (int)(width[c] - strlen(t->cells[i]));

        if (c == 0)
            printf("%s", indent);
        if (t->align[c] == 'r')
            printf("%*s", pad, "");
        printf("%s", t->cells[i]);
        if (t->align[c] == 'l' && !last)
            printf("%*s", pad, "");
        printf("%s", last ? "\n" : "  ");
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
static void json_text(const char *text)
{
    size_t size = strlen(text);

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

void cli_json_num(cli_json *j, const char *key, double value)
{
    json_key(j, key);
    if (isfinite(value))
        printf("%.9g", value);
    else
        printf("null");
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
