/* Charts as inline SVG. */
#include <math.h>
#include <string.h>

#include "report/svg.h"

enum {
    WIDTH = SB_SVG_WIDTH,
    BAR_ROW = 24,
    BAR_LABEL = 300, /* room left of bars; wide fonts: 8.5 for a letter */
    BAR_NOTE = 210,  /* room right of them */
    LABEL_MOST = 34, /* characters of a label */
    PLOT_LEFT = SB_SVG_LEFT,
    PLOT_RIGHT = SB_SVG_RIGHT,
    PLOT_TOP = SB_SVG_TOP,
    PLOT_BOTTOM = SB_SVG_BOTTOM,
    SKY_HEIGHT = 200,
    TICKS = SB_SVG_TICKS,
    TICKS_MOST = 40,
};

void sb_svg_begin(sb_str *out, int height, const char *title)
{
    sb_str_addf(out,
                "<div class=\"wide\"><svg viewBox=\"0 0 %d %d\" role=\"img\" "
                "aria-label=\"",
                WIDTH, height);
    sb_html_text(out, title);
    sb_str_add(out, "\">\n");
}

void sb_svg_attr(sb_str *out, const char *name, double value)
{
    sb_str_addf(out, " %s=\"", name);
    sb_html_num(out, value, 1);
    sb_str_add(out, "\"");
}

static void html_chart_rect(sb_str *out, double x, double y, double w, double h,
                            unsigned color, double opacity, const char *tip)
{
    sb_str_add(out, "<rect");
    sb_svg_attr(out, "x", x);
    sb_svg_attr(out, "y", y);
    sb_svg_attr(out, "width", w);
    sb_svg_attr(out, "height", h);
    sb_str_addf(out, " style=\"fill:var(--c%u)\"", color % SB_HTML_COLORS);
    if (opacity < 1) {
        sb_str_add(out, " opacity=\"");
        sb_html_num(out, opacity, 2);
        sb_str_add(out, "\"");
    }
    if (!tip) {
        sb_str_add(out, "/>");
        return;
    }
    sb_str_add(out, "><title>");
    sb_html_text(out, tip);
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

void sb_svg_text(sb_str *out, double x, double y, const char *anchor, bool dim,
                 const char *text)
{
    sb_str_add(out, "<text");
    sb_svg_attr(out, "x", x);
    sb_svg_attr(out, "y", y);
    sb_str_addf(out, " text-anchor=\"%s\"%s>", anchor,
                dim ? " class=\"d\"" : "");
    add_label(out, text);
    sb_str_add(out, "</text>");
}

void sb_svg_number(sb_str *out, double x, double y, const char *anchor,
                   double value)
{
    int decimals = 0;
    double scaled = value;

    for (; decimals < 6 && fabs(scaled - round(scaled)) > 1e-6; decimals++)
        scaled *= 10;
    sb_str_add(out, "<text class=\"d\"");
    sb_svg_attr(out, "x", x);
    sb_svg_attr(out, "y", y);
    sb_str_addf(out, " text-anchor=\"%s\">", anchor);
    sb_html_num(out, value, decimals);
    sb_str_add(out, "</text>");
}

void sb_svg_rule(sb_str *out, double x1, double y1, double x2, double y2)
{
    sb_str_add(out, "<line class=\"g\"");
    sb_svg_attr(out, "x1", x1);
    sb_svg_attr(out, "y1", y1);
    sb_svg_attr(out, "x2", x2);
    sb_svg_attr(out, "y2", y2);
    sb_str_add(out, "/>");
}

/* ---- bars --------------------------------------------------------------- */

void sb_html_bars(sb_str *out, const char *title, const sb_html_bar *bars,
                  size_t n)
{
    const double room = WIDTH - BAR_LABEL - BAR_NOTE;
    double most = 0;

    for (size_t i = 0; i < n; i++)
        if (isfinite(bars[i].value) && bars[i].value > most)
            most = bars[i].value;
    sb_svg_begin(out, (int)n * BAR_ROW + 8, title);
    for (size_t i = 0; i < n; i++) {
        double y = 4 + (double)i * BAR_ROW, w = 0;

        if (most > 0 && isfinite(bars[i].value) && bars[i].value > 0)
            w = room * bars[i].value / most;
        sb_svg_text(out, BAR_LABEL - 10, y + 16, "end", false, bars[i].label);
        html_chart_rect(out, BAR_LABEL, y + 3, w < 1 ? 1 : w, BAR_ROW - 6,
                        bars[i].color, 1, bars[i].tip);
        if (bars[i].note)
            sb_svg_text(out, BAR_LABEL + w + 8, y + 16, "start", true,
                        bars[i].note);
        sb_str_add(out, "\n");
    }
    sb_str_add(out, "</svg></div>\n");
}

/* ---- scales ------------------------------------------------------------- */

/* Values from 0 to hi on a way from a to b, with marks at round numbers. */
typedef struct scale {
    double hi, a, b;
    double tick[TICKS_MOST];
    size_t n_ticks;
} scale;

static double html_chart_place(const scale *s, double v)
{
    return s->a + (s->b - s->a) * v / s->hi;
}

double sb_svg_step(double range, int parts)
{
    double raw = range / parts, unit = pow(10, floor(log10(raw)));
    double m = raw / unit;

    return unit * (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10);
}

static scale scale_make(double hi, double a, double b)
{
    scale s = {.hi = hi, .a = a, .b = b};
    double step = sb_svg_step(hi, TICKS);

    while (s.n_ticks < TICKS_MOST && (double)s.n_ticks * step <= hi) {
        s.tick[s.n_ticks] = (double)s.n_ticks * step;
        s.n_ticks++;
    }
    return s;
}

/* ---- skyline ------------------------------------------------------------ */

/* On top of a block that is higher than the chart. */
static void html_chart_cap(sb_str *out, double x, double w)
{
    sb_str_add(out, "<rect class=\"o\"");
    sb_svg_attr(out, "x", x);
    sb_svg_attr(out, "y", PLOT_TOP - 5);
    sb_svg_attr(out, "width", w);
    sb_svg_attr(out, "height", 4);
    sb_str_add(out, "/>");
}

void sb_html_skyline(sb_str *out, const char *title, const char *x_unit,
                     const char *y_label, const sb_html_block *blocks, size_t n)
{
    double total = 0, at = 0;
    const double bottom = PLOT_TOP + SKY_HEIGHT;

    for (size_t i = 0; i < n; i++)
        total += blocks[i].width > 0 ? blocks[i].width : 0;
    scale x = scale_make(total > 0 ? total : 1, PLOT_LEFT, WIDTH - PLOT_RIGHT);
    sb_svg_begin(out, SKY_HEIGHT + PLOT_TOP + PLOT_BOTTOM, title);
    for (int i = 0; i <= 4; i++) {
        double y = bottom - SKY_HEIGHT * i / 4.0;
        char text[] = "100 %";
        sb_svg_rule(out, PLOT_LEFT, y, WIDTH - PLOT_RIGHT, y);
        if (i < 4) {
            static const char *const share[] = {"0 %", "25 %", "50 %", "75 %"};
            memcpy(text, share[i], strlen(share[i]) + 1);
        }
        sb_svg_text(out, PLOT_LEFT - 8, y + 4, "end", true, text);
    }
    sb_str_add(out, "\n");
    for (size_t i = 0; i < n; i++) {
        double w = blocks[i].width > 0 ? blocks[i].width : 0;
        double left = html_chart_place(&x, at),
               right = html_chart_place(&x, at + w);
        double level = blocks[i].level > 1 ? 1 : blocks[i].level;
        double gap = right - left > 3 ? 1 : 0;

        html_chart_rect(out, left, PLOT_TOP, right - left - gap, SKY_HEIGHT,
                        blocks[i].color, 0.18, blocks[i].tip);
        if (level > 0)
            html_chart_rect(out, left, bottom - SKY_HEIGHT * level,
                            right - left - gap, SKY_HEIGHT * level,
                            blocks[i].color, 1, blocks[i].tip);
        if (blocks[i].level > 1)
            html_chart_cap(out, left, right - left - gap);
        sb_str_add(out, "\n");
        at += w;
    }
    for (size_t i = 0; i < x.n_ticks; i++)
        sb_svg_number(out, html_chart_place(&x, x.tick[i]), bottom + 18,
                      "middle", x.tick[i]);
    sb_svg_text(out, WIDTH - PLOT_RIGHT, bottom + 38, "end", true, x_unit);
    sb_svg_text(out, PLOT_LEFT, bottom + 38, "start", true, y_label);
    sb_str_add(out, "\n</svg></div>\n");
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
