/* Curves: several lines, or points, over a common axis. */
#include <math.h>

#include "report/svg.h"

enum { PLOT_HEIGHT = 240, PATH_WIDTH = 1000, TICKS_MOST = 40, DOTS_MOST = 120 };

typedef struct lines_axis {
    double lo, hi; /* of the values */
    bool whole;    /* they are counts: there is nothing between two */
} lines_axis;

static double lines_share(const lines_axis *axis, double v)
{
    return (v - axis->lo) / (axis->hi - axis->lo);
}

/* From the top of the chart itself. */
static double lines_down(const lines_axis *axis, double v)
{
    return PLOT_HEIGHT * (1 - lines_share(axis, v));
}

static lines_axis lines_range(const sb_html_line *lines, size_t n, bool y)
{
    lines_axis axis = {
        .lo = (double)INFINITY, .hi = -(double)INFINITY, .whole = true};

    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < lines[k].n; i++) {
            double v = y ? lines[k].y[i] : lines[k].x[i];
            if (!isfinite(v))
                continue;
            axis.lo = fmin(axis.lo, v);
            axis.hi = fmax(axis.hi, v);
            axis.whole = axis.whole && v == floor(v);
        }
    if (!(axis.hi > axis.lo)) { /* one value, or none */
        axis.lo = isfinite(axis.lo) ? axis.lo - 1 : 0;
        axis.hi = axis.lo + 2;
    }
    return axis;
}

static void lines_ticks(sb_str *out, const lines_axis *axis, bool y)
{
    double step = sb_svg_step(axis->hi - axis->lo, SB_SVG_TICKS);
    if (axis->whole && !y)
        step = fmax(step, 1);
    double v = ceil(axis->lo / step) * step;

    for (int i = 0; i < TICKS_MOST && v <= axis->hi + step / 1e6; i++) {
        if (y)
            sb_svg_mark_y(out, SB_SVG_TOP + lines_down(axis, v), v, "");
        else
            sb_svg_mark_x(out, lines_share(axis, v), PLOT_HEIGHT, v, i % 2);
        v += step;
    }
    sb_str_add(out, "\n");
}

/* Paths have no per cent: they lie in a drawing of their own, which is
 * stretched. */
static void lines_path(sb_str *out, const sb_html_line *line,
                       const lines_axis *x, const lines_axis *y)
{
    bool on = false;

    sb_str_addf(out,
                "<svg y=\"%d\" width=\"100%%\" height=\"%d\" "
                "viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\">"
                "<path style=\"stroke:var(--c%u)\" d=\"",
                SB_SVG_TOP, PLOT_HEIGHT, PATH_WIDTH, PLOT_HEIGHT,
                line->color % SB_HTML_COLORS);
    for (size_t i = 0; i < line->n; i++) {
        bool there = isfinite(line->x[i]) && isfinite(line->y[i]);
        if (there) {
            sb_str_add(out, on ? "L" : "M");
            sb_html_num(out, PATH_WIDTH * lines_share(x, line->x[i]), 1);
            sb_str_add(out, " ");
            sb_html_num(out, lines_down(y, line->y[i]), 1);
        }
        on = there;
    }
    sb_str_add(out, "\"/></svg>\n");
}

static void lines_dots(sb_str *out, const sb_html_line *line,
                       const lines_axis *x, const lines_axis *y)
{
    for (size_t i = 0; i < line->n; i++) {
        if (!isfinite(line->x[i]) || !isfinite(line->y[i]))
            continue;
        sb_str_add(out, "<circle");
        sb_svg_across(out, "cx", lines_share(x, line->x[i]));
        sb_svg_attr(out, "cy", SB_SVG_TOP + lines_down(y, line->y[i]));
        sb_str_addf(out, " r=\"%s\" style=\"fill:var(--c%u)\"",
                    line->dots            ? "5"
                    : line->n > DOTS_MOST ? "1.5"
                                          : "3",
                    line->color % SB_HTML_COLORS);
        if (line->notes && line->notes[i]) {
            sb_str_add(out, "><title>");
            sb_html_text(out, line->notes[i]);
            sb_str_add(out, "</title></circle>\n");
        } else {
            sb_str_add(out, "/>\n");
        }
    }
}

void sb_html_lines(sb_str *out, const char *title, const char *x_label,
                   const char *y_label, const sb_html_line *lines, size_t n)
{
    lines_axis x = lines_range(lines, n, false),
               y = lines_range(lines, n, true);

    sb_svg_begin(out, PLOT_HEIGHT, title);
    lines_ticks(out, &y, true);
    lines_ticks(out, &x, false);
    for (size_t k = 0; k < n; k++) {
        if (!lines[k].dots)
            lines_path(out, &lines[k], &x, &y);
        lines_dots(out, &lines[k], &x, &y);
    }
    sb_svg_end(out, x_label, y_label);
    sb_str_add(out, "<div class=\"key\">");
    for (size_t k = 0; k < n; k++) {
        sb_str_addf(out, "<span><i style=\"background:var(--c%u)\"></i>",
                    lines[k].color % SB_HTML_COLORS);
        sb_html_text(out, lines[k].name);
        sb_str_add(out, "</span>");
    }
    sb_str_add(out, "</div>\n");
}
