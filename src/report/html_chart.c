/* Charts that take the width of the page, whatever that is: rows of bars are
 * ordinary elements, and plots are inline SVG that places everything across in
 * per cent and everything down in pixels.  A drawing that is scaled as a whole
 * would have letters of 5 pixels on a phone, or stick out of it. */
#include <math.h>
#include <string.h>

#include "report/svg.h"

enum {
    LABEL_MOST = 34, /* characters of a label */
    SKY_HEIGHT = 200,
    TICKS_MOST = 40,
};

void sb_svg_begin(sb_str *out, int height, const char *title)
{
    sb_str_addf(out,
                "<div class=\"plot\"><svg style=\"height:%dpx\" role=\"img\" "
                "aria-label=\"",
                SB_SVG_TOP + height + SB_SVG_BOTTOM);
    sb_html_text(out, title);
    sb_str_add(out, "\">\n");
}

void sb_svg_end(sb_str *out, const char *x_label, const char *y_label)
{
    sb_str_add(out, "</svg><div><span>");
    if (*y_label) {
        sb_str_add(out, "↑ ");
        sb_html_text(out, y_label);
    }
    sb_str_add(out, "</span><span>");
    if (*x_label) {
        sb_html_text(out, x_label);
        sb_str_add(out, " →");
    }
    sb_str_add(out, "</span></div></div>\n");
}

void sb_svg_attr(sb_str *out, const char *name, double value)
{
    sb_str_addf(out, " %s=\"", name);
    sb_html_num(out, value, 1);
    sb_str_add(out, "\"");
}

void sb_svg_across(sb_str *out, const char *name, double share)
{
    sb_str_addf(out, " %s=\"", name);
    sb_html_num(out, 100 * share, 2);
    sb_str_add(out, "%\"");
}

static void html_chart_rect(sb_str *out, const sb_html_block *b, double x,
                            double w, double height, double opacity)
{
    sb_str_add(out, "<rect");
    sb_svg_across(out, "x", x);
    sb_svg_attr(out, "y", SB_SVG_TOP + SKY_HEIGHT - height);
    sb_svg_across(out, "width", w);
    sb_svg_attr(out, "height", height);
    if (w > 0.003) /* else the gaps would hide the blocks */
        sb_str_add(out, " class=\"b\"");
    sb_str_addf(out, " style=\"fill:var(--c%u)\"", b->color % SB_HTML_COLORS);
    if (opacity < 1) {
        sb_str_add(out, " opacity=\"");
        sb_html_num(out, opacity, 2);
        sb_str_add(out, "\"");
    }
    if (!b->tip) {
        sb_str_add(out, "/>");
        return;
    }
    sb_str_add(out, "><title>");
    sb_html_text(out, b->tip);
    sb_str_add(out, "</title></rect>");
}

/* A name too long for its place loses its front, since the ends of module
 * paths tell more than their beginnings.  Cuts between UTF-8 characters. */
static void add_label(sb_str *out, const char *text)
{
    size_t chars = 0;

    for (const char *p = text; *p; p++)
        chars += ((unsigned char)*p & 0xc0) != 0x80;
    if (chars > LABEL_MOST) {
        size_t skip = chars - LABEL_MOST + 1;
        while (skip > 0) {
            text++;
            while (((unsigned char)*text & 0xc0) == 0x80)
                text++;
            skip--;
        }
        sb_str_add(out, "…");
    }
    sb_html_text(out, text);
}

/* As many decimals as it needs. */
static void html_chart_number(sb_str *out, double value)
{
    int decimals = 0;
    double scaled = value;

    for (; decimals < 6 && fabs(scaled - round(scaled)) > 1e-6; decimals++)
        scaled *= 10;
    sb_html_num(out, value, decimals);
}

void sb_svg_mark_x(sb_str *out, double share, int height, double value,
                   bool spare)
{
    sb_str_addf(out, "<text class=\"%s\" text-anchor=\"middle\"",
                spare ? "d spare" : "d");
    sb_svg_across(out, "x", share);
    sb_svg_attr(out, "y", SB_SVG_TOP + height + 18);
    sb_str_add(out, ">");
    html_chart_number(out, value);
    sb_str_add(out, "</text>");
}

void sb_svg_mark_y(sb_str *out, double y, double value, const char *unit)
{
    sb_str_add(out, "<line class=\"g\" x2=\"100%\"");
    sb_svg_attr(out, "y1", y);
    sb_svg_attr(out, "y2", y);
    sb_str_add(out, "/><text class=\"d\" text-anchor=\"end\" x=\"-8\"");
    sb_svg_attr(out, "y", y + 4);
    sb_str_add(out, ">");
    html_chart_number(out, value);
    sb_str_addf(out, "%s</text>", unit);
}

double sb_svg_step(double range, int parts)
{
    double raw = range / parts, unit = pow(10, floor(log10(raw)));
    double m = raw / unit;

    return unit * (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10);
}

/* ---- bars --------------------------------------------------------------- */

void sb_html_bars(sb_str *out, const char *title, const sb_html_bar *bars,
                  size_t n)
{
    double most = 0;

    for (size_t i = 0; i < n; i++)
        if (isfinite(bars[i].value) && bars[i].value > most)
            most = bars[i].value;
    sb_str_add(out, "<div class=\"rows\" role=\"figure\" aria-label=\"");
    sb_html_text(out, title);
    sb_str_add(out, "\">\n");
    for (size_t i = 0; i < n; i++) {
        bool drawn = most > 0 && isfinite(bars[i].value) && bars[i].value > 0;

        sb_str_add(out, "<div title=\"");
        sb_html_text(out, bars[i].tip ? bars[i].tip : "");
        sb_str_add(out, "\"><span>");
        add_label(out, bars[i].label);
        sb_str_addf(out, "</span><i style=\"background:var(--c%u);--v:",
                    bars[i].color % SB_HTML_COLORS);
        sb_html_num(out, drawn ? bars[i].value / most : 0, 4);
        sb_str_add(out, "\"></i><em>");
        sb_html_text(out, bars[i].note ? bars[i].note : "");
        sb_str_add(out, "</em></div>\n");
    }
    sb_str_add(out, "</div>\n");
}

/* ---- skyline ------------------------------------------------------------ */

/* On top of a block that is higher than the chart. */
static void html_chart_cap(sb_str *out, double x, double w)
{
    sb_str_add(out, "<rect class=\"o\"");
    sb_svg_across(out, "x", x);
    sb_svg_attr(out, "y", SB_SVG_TOP - 5);
    sb_svg_across(out, "width", w);
    sb_svg_attr(out, "height", 4);
    sb_str_add(out, "/>");
}

void sb_html_skyline(sb_str *out, const char *title, const char *x_unit,
                     const char *y_label, const sb_html_block *blocks, size_t n)
{
    double total = 0, at = 0;

    for (size_t i = 0; i < n; i++)
        total += blocks[i].width > 0 ? blocks[i].width : 0;
    total = total > 0 ? total : 1;
    sb_svg_begin(out, SKY_HEIGHT, title);
    for (int i = 0; i <= 4; i++)
        sb_svg_mark_y(out, SB_SVG_TOP + SKY_HEIGHT * (4 - i) / 4.0, 25 * i,
                      " %");
    sb_str_add(out, "\n");
    for (size_t i = 0; i < n; i++) {
        double w = blocks[i].width > 0 ? blocks[i].width / total : 0;
        double level = blocks[i].level > 1 ? 1 : blocks[i].level;

        html_chart_rect(out, &blocks[i], at, w, SKY_HEIGHT, 0.18);
        if (level > 0)
            html_chart_rect(out, &blocks[i], at, w, SKY_HEIGHT * level, 1);
        if (blocks[i].level > 1)
            html_chart_cap(out, at, w);
        sb_str_add(out, "\n");
        at += w;
    }
    double step = sb_svg_step(total, SB_SVG_TICKS);
    for (int i = 0; i < TICKS_MOST && i * step <= total; i++)
        sb_svg_mark_x(out, i * step / total, SKY_HEIGHT, i * step, i % 2);
    sb_svg_end(out, x_unit, y_label);
}

/* ---- legend ------------------------------------------------------------- */

static void legend_entry(sb_str *out, const char *name, unsigned color)
{
    sb_str_addf(out, "<span><i style=\"background:var(--c%u)\"></i>",
                color % SB_HTML_COLORS);
    sb_html_text(out, name);
    sb_str_add(out, "</span>");
}

void sb_html_legend(sb_str *out, const char *const *names,
                    const unsigned *colors, size_t n)
{
    sb_str_add(out, "<div class=\"legend\">");
    for (size_t i = 0; i < n; i++)
        legend_entry(out, names[i], colors[i]);
    sb_str_add(out, "</div>\n");
}
