/* Charts as inline SVG. */
#include <math.h>
#include <string.h>

#include "report/html.h"

/* The coordinates of all charts; the page scales them to its width. */
enum {
    WIDTH = 1000,
    BAR_ROW = 24,
    BAR_LABEL = 250, /* room left of bars */
    BAR_NOTE = 210,  /* room right of them */
    LABEL_MOST = 34, /* characters of a label */
    PLOT_LEFT = 62,
    PLOT_RIGHT = 24,
    PLOT_TOP = 16,
    PLOT_BOTTOM = 48,
    SKY_HEIGHT = 200,
    TICKS = 6,
    TICKS_MOST = 40,
};

static void svg_begin(sb_str *out, int height, const char *title)
{
    sb_str_addf(out,
                "<svg viewBox=\"0 0 %d %d\" role=\"img\" "
                "aria-label=\"",
                WIDTH, height);
    sb_html_text(out, title);
    sb_str_add(out, "\">\n");
}

/* ` name="value"` */
static void attr(sb_str *out, const char *name, double value)
{
    sb_str_addf(out, " %s=\"", name);
    sb_html_num(out, value, 1);
    sb_str_add(out, "\"");
}

static void rect(sb_str *out, double x, double y, double w, double h,
                 unsigned color, double opacity, const char *tip)
{
    sb_str_add(out, "<rect");
    attr(out, "x", x);
    attr(out, "y", y);
    attr(out, "width", w);
    attr(out, "height", h);
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

static void text_at(sb_str *out, double x, double y, const char *anchor,
                    bool dim, const char *text)
{
    sb_str_add(out, "<text");
    attr(out, "x", x);
    attr(out, "y", y);
    sb_str_addf(out, " text-anchor=\"%s\"%s>", anchor,
                dim ? " class=\"d\"" : "");
    add_label(out, text);
    sb_str_add(out, "</text>");
}

/* The number on an axis: as many decimals as it needs. */
static void num_at(sb_str *out, double x, double y, const char *anchor,
                   double value)
{
    int decimals = 0;
    double scaled = value;

    for (; decimals < 6 && fabs(scaled - round(scaled)) > 1e-6; decimals++)
        scaled *= 10;
    sb_str_add(out, "<text class=\"d\"");
    attr(out, "x", x);
    attr(out, "y", y);
    sb_str_addf(out, " text-anchor=\"%s\">", anchor);
    sb_html_num(out, value, decimals);
    sb_str_add(out, "</text>");
}

static void rule(sb_str *out, double x1, double y1, double x2, double y2)
{
    sb_str_add(out, "<line class=\"g\"");
    attr(out, "x1", x1);
    attr(out, "y1", y1);
    attr(out, "x2", x2);
    attr(out, "y2", y2);
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
    svg_begin(out, (int)n * BAR_ROW + 8, title);
    for (size_t i = 0; i < n; i++) {
        double y = 4 + (double)i * BAR_ROW, w = 0;

        if (most > 0 && isfinite(bars[i].value) && bars[i].value > 0)
            w = room * bars[i].value / most;
        text_at(out, BAR_LABEL - 10, y + 16, "end", false, bars[i].label);
        rect(out, BAR_LABEL, y + 3, w < 1 ? 1 : w, BAR_ROW - 6, bars[i].color,
             1, bars[i].tip);
        if (bars[i].note)
            text_at(out, BAR_LABEL + w + 8, y + 16, "start", true,
                    bars[i].note);
        sb_str_add(out, "\n");
    }
    sb_str_add(out, "</svg>\n");
}

/* ---- scales ------------------------------------------------------------- */

/* Values from 0 to hi on a way from a to b, with marks at round numbers. */
typedef struct scale {
    double hi, a, b;
    double tick[TICKS_MOST];
    size_t n_ticks;
} scale;

static double place(const scale *s, double v)
{
    return s->a + (s->b - s->a) * v / s->hi;
}

static double round_step(double range, int parts)
{
    double raw = range / parts, unit = pow(10, floor(log10(raw)));
    double m = raw / unit;

    return unit * (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10);
}

static scale scale_make(double hi, double a, double b)
{
    scale s = {.hi = hi, .a = a, .b = b};
    double step = round_step(hi, TICKS);

    while (s.n_ticks < TICKS_MOST && (double)s.n_ticks * step <= hi) {
        s.tick[s.n_ticks] = (double)s.n_ticks * step;
        s.n_ticks++;
    }
    return s;
}

/* ---- skyline ------------------------------------------------------------ */

void sb_html_skyline(sb_str *out, const char *title, const char *x_unit,
                     const char *y_label, const sb_html_block *blocks, size_t n)
{
    double total = 0, at = 0;
    const double bottom = PLOT_TOP + SKY_HEIGHT;

    for (size_t i = 0; i < n; i++)
        total += blocks[i].width > 0 ? blocks[i].width : 0;
    scale x = scale_make(total > 0 ? total : 1, PLOT_LEFT, WIDTH - PLOT_RIGHT);
    svg_begin(out, SKY_HEIGHT + PLOT_TOP + PLOT_BOTTOM, title);
    for (int i = 0; i <= 4; i++) {
        double y = bottom - SKY_HEIGHT * i / 4.0;
        char text[] = "100 %";
        rule(out, PLOT_LEFT, y, WIDTH - PLOT_RIGHT, y);
        if (i < 4) {
            static const char *const share[] = {"0 %", "25 %", "50 %", "75 %"};
            memcpy(text, share[i], strlen(share[i]) + 1);
        }
        text_at(out, PLOT_LEFT - 8, y + 4, "end", true, text);
    }
    sb_str_add(out, "\n");
    for (size_t i = 0; i < n; i++) {
        double w = blocks[i].width > 0 ? blocks[i].width : 0;
        double left = place(&x, at), right = place(&x, at + w);
        double level = blocks[i].level > 1 ? 1 : blocks[i].level;
        double gap = right - left > 3 ? 1 : 0;

        rect(out, left, PLOT_TOP, right - left - gap, SKY_HEIGHT,
             blocks[i].color, 0.18, blocks[i].tip);
        if (level > 0)
            rect(out, left, bottom - SKY_HEIGHT * level, right - left - gap,
                 SKY_HEIGHT * level, blocks[i].color, 1, blocks[i].tip);
        sb_str_add(out, "\n");
        at += w;
    }
    for (size_t i = 0; i < x.n_ticks; i++)
        num_at(out, place(&x, x.tick[i]), bottom + 18, "middle", x.tick[i]);
    text_at(out, WIDTH - PLOT_RIGHT, bottom + 38, "end", true, x_unit);
    text_at(out, PLOT_LEFT, bottom + 38, "start", true, y_label);
    sb_str_add(out, "\n</svg>\n");
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
