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
    PLOT_HEIGHT = 340,
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

/* Values from lo to hi on a way from a to b, with marks at round numbers. */
typedef struct scale {
    double lo, hi, a, b;
    bool log;
    double tick[TICKS_MOST];
    size_t n_ticks;
} scale;

static double place(const scale *s, double v)
{
    double lo = s->log ? log(s->lo) : s->lo, hi = s->log ? log(s->hi) : s->hi;

    v = s->log ? log(v) : v;
    return s->a + (s->b - s->a) * (hi > lo ? (v - lo) / (hi - lo) : 0.5);
}

static double round_step(double range, int parts)
{
    double raw = range / parts, unit = pow(10, floor(log10(raw)));
    double m = raw / unit;

    return unit * (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10);
}

static void linear_ticks(scale *s)
{
    double step = round_step(s->hi - s->lo, TICKS);

    s->lo = floor(s->lo / step + 1e-9) * step;
    s->hi = ceil(s->hi / step - 1e-9) * step;
    for (int i = 0; s->n_ticks < TICKS_MOST; i++) {
        double v = s->lo + i * step;
        if (v >= s->hi + step / 2)
            break;
        s->tick[s->n_ticks++] = fabs(v) < step * 1e-9 ? 0 : v;
    }
}

/* Powers of two if few, else powers of ten. */
static void log_ticks(scale *s)
{
    double base = log2(s->hi / s->lo) <= 10 ? 2 : 10;
    double first = floor(log(s->lo) / log(base) + 1e-9);

    for (int i = 0; s->n_ticks < TICKS_MOST; i++) {
        double v = pow(base, first + i);
        if (v > s->hi * 1.0001)
            break;
        if (v >= s->lo * 0.9999)
            s->tick[s->n_ticks++] = v;
    }
}

static scale scale_make(double lo, double hi, double a, double b, bool log_)
{
    scale s = {.lo = lo, .hi = hi, .a = a, .b = b, .log = log_};

    if (!(hi > lo)) {
        double half = lo == 0 ? 1 : fabs(lo) / 2;
        s.lo = log_ ? lo / 2 : lo - half;
        s.hi = log_ ? lo * 2 : lo + half;
    }
    if (log_)
        log_ticks(&s);
    else
        linear_ticks(&s);
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
    scale x = scale_make(0, total > 0 ? total : 1, PLOT_LEFT,
                         WIDTH - PLOT_RIGHT, false);
    x.hi = total > 0 ? total : 1; /* to the very end, not to a round number */
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
        if (x.tick[i] <= x.hi)
            num_at(out, place(&x, x.tick[i]), bottom + 18, "middle", x.tick[i]);
    text_at(out, WIDTH - PLOT_RIGHT, bottom + 38, "end", true, x_unit);
    text_at(out, PLOT_LEFT, bottom + 38, "start", true, y_label);
    sb_str_add(out, "\n</svg>\n");
}

/* ---- lines -------------------------------------------------------------- */

static bool shown(const sb_html_lines *c, const sb_html_line *l, size_t i)
{
    return isfinite(l->x[i]) && isfinite(l->y[i]) &&
           (!c->log_x || l->x[i] > 0) && (!c->log_y || l->y[i] > 0);
}

/* The corners of what is to be drawn; false if there is nothing. */
static bool extent(const sb_html_lines *c, double lo[2], double hi[2])
{
    bool any = false;

    for (size_t k = 0; k < c->n; k++) {
        const sb_html_line *l = &c->lines[k];
        for (size_t i = 0; i < l->n; i++) {
            double v[2] = {l->x[i], l->y[i]};
            if (!shown(c, l, i))
                continue;
            for (int d = 0; d < 2; d++) {
                lo[d] = any && lo[d] < v[d] ? lo[d] : v[d];
                hi[d] = any && hi[d] > v[d] ? hi[d] : v[d];
            }
            any = true;
        }
    }
    return any;
}

static void axes(sb_str *out, const sb_html_lines *c, const scale *x,
                 const scale *y)
{
    for (size_t i = 0; i < y->n_ticks; i++) {
        double at = place(y, y->tick[i]);
        rule(out, x->a, at, x->b, at);
        num_at(out, x->a - 8, at + 4, "end", y->tick[i]);
    }
    for (size_t i = 0; i < x->n_ticks; i++) {
        double at = place(x, x->tick[i]);
        rule(out, at, y->a, at, y->a + 5);
        num_at(out, at, y->a + 20, "middle", x->tick[i]);
    }
    text_at(out, x->b, y->a + 40, "end", true, c->x_label);
    text_at(out, x->a, y->a + 40, "start", true, c->y_label);
    sb_str_add(out, "\n");
}

static void one_line(sb_str *out, const sb_html_lines *c, size_t k,
                     const scale *x, const scale *y)
{
    const sb_html_line *l = &c->lines[k];
    unsigned color = (unsigned)(k % SB_HTML_COLORS);

    sb_str_addf(out,
                "<polyline style=\"fill:none;stroke:var(--c%u);"
                "stroke-width:2\" points=\"",
                color);
    for (size_t i = 0; i < l->n; i++) {
        if (!shown(c, l, i))
            continue;
        sb_html_num(out, place(x, l->x[i]), 1);
        sb_str_add(out, ",");
        sb_html_num(out, place(y, l->y[i]), 1);
        sb_str_add(out, " ");
    }
    sb_str_add(out, "\"/>\n");
    for (size_t i = 0; i < l->n; i++) {
        if (!shown(c, l, i))
            continue;
        sb_str_add(out, "<circle r=\"4\"");
        attr(out, "cx", place(x, l->x[i]));
        attr(out, "cy", place(y, l->y[i]));
        sb_str_addf(out, " style=\"fill:var(--c%u)\"><title>", color);
        sb_html_text(out, l->name);
        sb_str_add(out, ": ");
        sb_html_short(out, l->x[i]);
        sb_str_add(out, ", ");
        sb_html_short(out, l->y[i]);
        sb_str_add(out, "</title></circle>");
    }
    sb_str_add(out, "\n");
}

static void legend_entry(sb_str *out, const char *name, unsigned color)
{
    sb_str_addf(out, "<span><i style=\"background:var(--c%u)\"></i>",
                color % SB_HTML_COLORS);
    sb_html_text(out, name);
    sb_str_add(out, "</span>");
}

void sb_html_line_chart(sb_str *out, const sb_html_lines *chart)
{
    double lo[2] = {0, 0}, hi[2] = {1, 1};
    const double bottom = PLOT_HEIGHT - PLOT_BOTTOM;

    if (!extent(chart, lo, hi))
        return;
    /* A linear axis of amounts starts at nothing, unless that would leave the
     * picture empty. */
    if (!chart->log_y && lo[1] > 0 && lo[1] < 0.7 * hi[1])
        lo[1] = 0;
    scale x =
        scale_make(lo[0], hi[0], PLOT_LEFT, WIDTH - PLOT_RIGHT, chart->log_x);
    scale y = scale_make(lo[1], hi[1], bottom, PLOT_TOP, chart->log_y);
    svg_begin(out, PLOT_HEIGHT, chart->title);
    axes(out, chart, &x, &y);
    for (size_t k = 0; k < chart->n; k++)
        one_line(out, chart, k, &x, &y);
    sb_str_add(out, "</svg>\n<div class=\"legend\">");
    for (size_t k = 0; k < chart->n; k++)
        legend_entry(out, chart->lines[k].name, (unsigned)k);
    sb_str_add(out, "</div>\n");
}

void sb_html_legend(sb_str *out, const char *const *names,
                    const unsigned *colors, size_t n)
{
    sb_str_add(out, "<div class=\"legend\">");
    for (size_t i = 0; i < n; i++)
        legend_entry(out, names[i], colors[i]);
    sb_str_add(out, "</div>\n");
}
