/* The frame of a page, texts, numbers, tables. */
#include "report/html.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "report/page.h"

/* Colors by number: --c0 ... --c7, told apart by people who do not see red or
 * green, too. */
static const char style[] =
    ":root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#5b6470;"
    "--line:#d8dde3;--soft:#f3f5f7;--c0:#0b6bb5;--c1:#d9822b;--c2:#12876a;"
    "--c3:#b5478d;--c4:#4aa3d9;--c5:#c2410c;--c6:#7a5bc7;--c7:#77808c}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#14181d;--fg:#e4e8ec;"
    "--dim:#98a2ad;--line:#343c45;--soft:#1d232a;--c0:#4f9fe0;--c1:#eaa04f;"
    "--c2:#3fb893;--c3:#dd7fb8;--c4:#86c8ee;--c5:#ee7c4a;--c6:#a78bea;"
    "--c7:#9aa4af}}\n"
    "body{margin:0 auto;padding:24px;max-width:1040px;background:var(--bg);"
    "color:var(--fg);font:15px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:24px;margin:0;overflow-wrap:anywhere}"
    "h2{font-size:18px;margin:36px 0 4px}"
    "p{margin:0 0 12px;color:var(--dim)}\n"
    ".facts{display:flex;flex-wrap:wrap;gap:12px;margin:20px 0}"
    ".facts div{background:var(--soft);border-radius:8px;padding:10px 16px;"
    "min-width:110px}.facts b{display:block;font-size:20px;font-weight:600;"
    "overflow-wrap:anywhere}"
    ".facts span{color:var(--dim);font-size:13px}\n"
    "svg text{fill:var(--fg);font:13px system-ui,sans-serif}"
    "svg text.d{fill:var(--dim)}svg .g{stroke:var(--line);fill:none}"
    "svg .o{fill:var(--fg)}svg .b{stroke:var(--bg);stroke-width:1}\n"
    ".plot{padding:0 16px 0 58px;margin:8px 0}"
    ".plot>svg{display:block;width:100%;overflow:visible}"
    ".plot svg svg{overflow:visible}"
    ".plot path{fill:none;stroke-width:2;vector-effect:non-scaling-stroke}"
    ".plot div{display:flex;flex-wrap:wrap;justify-content:space-between;"
    "gap:0 18px;color:var(--dim);font-size:13px}\n"
    ".rows{margin:8px 0;font-size:13px;line-height:18px}"
    ".rows div{display:flex;padding:3px 0}"
    ".rows span{flex:0 0 30%;box-sizing:border-box;padding-right:10px;"
    "text-align:right;overflow:hidden;white-space:nowrap}"
    ".rows i{flex:none;width:calc((70% - 210px)*var(--v));min-width:1px}"
    ".rows em{padding-left:8px;font-style:normal;color:var(--dim);"
    "white-space:nowrap}\n"
    /* Where names, bars and notes do not fit side by side, bars lie below. */
    "@media(max-width:800px){body{padding:12px}"
    ".rows div{display:grid;grid-template-columns:1fr auto}"
    ".rows span{padding:0;text-align:left;white-space:normal;"
    "overflow-wrap:anywhere}"
    ".rows i{grid-row:2;grid-column:1/-1;width:calc(100%*var(--v));"
    "height:12px}}\n"
    "@media(max-width:560px){.plot .spare{display:none}}\n"
    /* Phones show no bar: a shadow lies at an edge behind which there is
       more, under a cover that scrolls with what is at the end. */
    ".wide{overflow-x:auto;background:"
    "linear-gradient(90deg,var(--bg) 24px,transparent) 0 0/48px 100% local,"
    "linear-gradient(270deg,var(--bg) 24px,transparent) 100% 0/48px 100% "
    "local,"
    "linear-gradient(90deg,#808080b0,transparent) 0 0/18px 100%,"
    "linear-gradient(270deg,#808080b0,transparent) 100% 0/18px 100%;"
    "background-repeat:no-repeat}\n"
    "table{border-collapse:collapse;width:100%;"
    "font-size:13px;font-variant-numeric:tabular-nums}"
    "th,td{padding:4px 10px;text-align:left;white-space:nowrap;"
    "border-bottom:1px solid var(--line)}th{color:var(--dim);"
    "font-weight:600;vertical-align:bottom}.r{text-align:right}"
    "td.l{white-space:normal;overflow-wrap:break-word;"
    "min-width:min(240px,40vw);max-width:300px}\n"
    ".legend{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:13px}"
    ".legend i{display:inline-block;width:11px;height:11px;"
    "border-radius:3px;margin-right:6px}\n";

/* The character at `text`; bytes that are none become U+FFFD, as browsers show
 * them, and control characters nothing.  Returns its size. */
static size_t html_char(sb_str *out, const char *text, const char *end)
{
    size_t n = sb_utf8_size(text, (size_t)(end - text));

    if (n == 0) {
        sb_str_add(out, "\xef\xbf\xbd");
        return 1;
    }
    switch (*text) {
    case '&':
        sb_str_add(out, "&amp;");
        break;
    case '<':
        sb_str_add(out, "&lt;");
        break;
    case '>':
        sb_str_add(out, "&gt;");
        break;
    case '"':
        sb_str_add(out, "&quot;");
        break;
    case '\'':
        sb_str_add(out, "&#39;");
        break;
    default:
        if (sb_printable_size(text, n) == n)
            sb_str_addn(out, text, n);
    }
    return n;
}

void sb_html_text(sb_str *out, const char *text)
{
    const char *end = text + strlen(text);

    while (text < end)
        text += html_char(out, text, end);
}

void sb_html_num(sb_str *out, double value, int decimals)
{
    char text[64];

    if (!isfinite(value) || fabs(value) >= 1e18) {
        sb_str_add(out, "–");
        return;
    }
    (void)snprintf(text, sizeof text, "%.*f", decimals, value);
    sb_number_point(text);
    sb_str_add(out, text);
}

void sb_html_short(sb_str *out, double value)
{
    double a = fabs(value);

    sb_html_num(out, value,
                a == 0       ? 0
                : a < 0.0995 ? 3
                : a < 9.995  ? 2
                : a < 99.95  ? 1
                             : 0);
}

void sb_html_general(sb_str *out, double value)
{
    char text[64];

    if (!isfinite(value)) {
        sb_str_add(out, "–");
        return;
    }
    (void)snprintf(text, sizeof text, "%.3g", value);
    sb_number_point(text);
    sb_str_add(out, text);
}

void sb_html_begin(sb_str *out, const char *title, const char *subtitle)
{
    sb_str_add(out, "<!doctype html>\n<html lang=\"en\">\n<head>\n"
                    "<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
                    "content=\"width=device-width,initial-scale=1\">\n"
                    "<title>");
    sb_html_text(out, title);
    sb_str_add(out, "</title>\n<style>\n");
    sb_str_add(out, style);
    sb_str_add(out, sb_page_css);
    sb_str_add(out, "</style>\n</head>\n<body>\n<h1>");
    sb_html_text(out, title);
    sb_str_add(out, "</h1>\n<p>");
    sb_html_text(out, subtitle);
    sb_str_add(out, "</p>\n");
}

void sb_html_script(sb_str *out)
{
    sb_str_add(out, "<script>\n");
    sb_str_add(out, sb_page_js);
    sb_str_add(out, "</script>\n");
}

void sb_html_end(sb_str *out)
{
    sb_str_add(out, "</body>\n</html>\n");
}

void sb_html_section(sb_str *out, const char *heading, const char *text)
{
    sb_str_add(out, "<h2>");
    sb_html_text(out, heading);
    sb_str_add(out, "</h2>\n");
    if (text) {
        sb_str_add(out, "<p>");
        sb_html_text(out, text);
        sb_str_add(out, "</p>\n");
    }
}

/* ---- facts -------------------------------------------------------------- */

void sb_html_facts_begin(sb_str *out)
{
    sb_str_add(out, "<div class=\"facts\">\n");
}

void sb_html_fact(sb_str *out, const char *label, const char *value)
{
    sb_str_add(out, "<div><b>");
    sb_html_text(out, value);
    sb_str_add(out, "</b><span>");
    sb_html_text(out, label);
    sb_str_add(out, "</span></div>\n");
}

void sb_html_facts_end(sb_str *out)
{
    sb_str_add(out, "</div>\n");
}

/* ---- tables ------------------------------------------------------------- */

sb_html_table sb_html_table_begin(sb_str *out, const char *align,
                                  const char *const *heads)
{
    sb_html_table t = {.out = out, .align = align};

    sb_str_add(out, "<div class=\"wide\"><table>\n<thead><tr>");
    for (size_t i = 0; align[i]; i++) {
        sb_str_addf(out, "<th class=\"%c\">", align[i]);
        sb_html_text(out, heads[i]);
        sb_str_add(out, "</th>");
    }
    sb_str_add(out, "</tr></thead>\n<tbody>\n");
    return t;
}

static void cell_begin(sb_html_table *t)
{
    size_t n = strlen(t->align), column = t->cell % n;

    if (column == 0) {
        sb_str_add(t->out, t->cell ? "</tr>\n<tr" : "<tr");
        if (t->node > 0)
            sb_str_addf(t->out, " data-node=\"%zu\"", t->node - 1);
        sb_str_add(t->out, ">");
    }
    sb_str_addf(t->out, "<td class=\"%c\">", t->align[column]);
    t->cell++;
}

/* Names may break behind what separates their words, and only there. */
static void html_breakable(sb_str *out, const char *text)
{
    const char *end = text + strlen(text);

    while (text < end) {
        const bool is_gap = strchr("/._:", *text) != NULL;

        text += html_char(out, text, end);
        if (is_gap && text < end)
            sb_str_add(out, "<wbr>");
    }
}

void sb_html_cell(sb_html_table *t, const char *text)
{
    cell_begin(t);
    if (t->align[(t->cell - 1) % strlen(t->align)] == 'l')
        html_breakable(t->out, text);
    else
        sb_html_text(t->out, text);
    sb_str_add(t->out, "</td>");
}

void sb_html_cell_num(sb_html_table *t, double value, int decimals)
{
    cell_begin(t);
    if (isfinite(value)) {
        if (decimals < 0)
            sb_html_short(t->out, value);
        else
            sb_html_num(t->out, value, decimals);
    }
    sb_str_add(t->out, "</td>");
}

void sb_html_table_end(sb_html_table *t)
{
    sb_str_add(t->out, t->cell ? "</tr>\n</tbody></table></div>\n"
                               : "</tbody></table></div>\n");
}
