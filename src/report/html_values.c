/* Small charts of the values of a tensor: histograms with what integers can
 * hold, and ranges channel by channel. */
#include <math.h>

#include "report/html.h"

enum {
    WIDTH = 300,
    PLOT = 84,     /* height of the chart itself */
    HEIGHT = 104,  /* with the numbers below */
    GRID_LEAST = 4 /* distance of grid lines that can be told apart */
};

typedef struct values_axis {
    double lo, hi;
} values_axis;

static double values_x(const values_axis *a, double v)
{
    double x = (v - a->lo) / (a->hi - a->lo) * WIDTH;

    return x < 0 ? 0 : x > WIDTH ? WIDTH : x;
}

static void values_begin(sb_str *out, const char *title)
{
    sb_str_addf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"",
                WIDTH, HEIGHT);
    sb_html_text(out, title);
    sb_str_add(out, "\">");
}

static void values_rect(sb_str *out, const char *class, double x, double w)
{
    if (w <= 0)
        return;
    sb_str_addf(out, "<rect class=\"%s\" x=\"", class);
    sb_html_num(out, x, 1);
    sb_str_add(out, "\" y=\"0\" width=\"");
    sb_html_num(out, w, 1);
    sb_str_addf(out, "\" height=\"%d\"/>", PLOT);
}

static void values_line(sb_str *out, const char *class, double x, int top,
                        int bottom)
{
    sb_str_addf(out, "<path class=\"%s\" d=\"M", class);
    sb_html_num(out, x, 1);
    sb_str_addf(out, " %dV%d\"/>", top, bottom);
}

static void values_text(sb_str *out, double x, const char *anchor, double value)
{
    sb_str_add(out, "<text x=\"");
    sb_html_num(out, x, 1);
    sb_str_addf(out, "\" y=\"%d\" text-anchor=\"%s\">", HEIGHT - 4, anchor);
    sb_html_general(out, value);
    sb_str_add(out, "</text>");
}

/* Bars as one shape.  Heights are square roots, so that tails can be seen. */
static void values_bars(sb_str *out, const sb_html_histogram *h,
                        const values_axis *axis)
{
    double most = 0, width = (h->hi - h->lo) / (double)h->n;

    for (size_t i = 0; i < h->n; i++)
        most = fmax(most, h->counts[i]);
    if (most <= 0)
        return;
    sb_str_add(out, "<path class=\"bars\" d=\"");
    for (size_t i = 0; i < h->n; i++) {
        double x = values_x(axis, h->lo + width * (double)i);
        double w = values_x(axis, h->lo + width * (double)(i + 1)) - x;

        if (h->counts[i] <= 0)
            continue;
        sb_str_add(out, "M");
        sb_html_num(out, x, 1);
        sb_str_addf(out, " %dv-", PLOT);
        sb_html_num(out, fmax(1, PLOT * sqrt(h->counts[i] / most)), 1);
        sb_str_add(out, "h");
        sb_html_num(out, fmax(w, 0.6), 1);
        sb_str_addf(out, "V%d", PLOT);
    }
    sb_str_add(out, "\"/>");
}

/* Marks below the bars for every number that an integer stands for. */
static void values_grid(sb_str *out, const sb_html_histogram *h,
                        const values_axis *axis)
{
    double apart = h->step / (axis->hi - axis->lo) * WIDTH;

    if (!(apart >= GRID_LEAST))
        return;
    int marks = (int)((h->clip_hi - h->clip_lo) / h->step + 0.5);
    for (int i = 0; i <= marks && i * apart <= 2.0 * WIDTH; i++)
        values_line(out, "grid", values_x(axis, h->clip_lo + i * h->step), PLOT,
                    PLOT + 5);
}

void sb_html_histogram_add(sb_str *out, const char *title,
                           const sb_html_histogram *h)
{
    values_axis axis = {h->lo, h->hi};
    bool clips = isfinite(h->clip_lo) && isfinite(h->clip_hi);

    if (clips) { /* a range far wider than the values is shown in part */
        double room = (h->hi - h->lo) / 4;
        axis.lo = fmax(fmin(axis.lo, h->clip_lo), h->lo - room);
        axis.hi = fmin(fmax(axis.hi, h->clip_hi), h->hi + room);
    }
    if (!(axis.hi > axis.lo))
        axis.hi = axis.lo + 1;
    values_begin(out, title);
    values_bars(out, h, &axis);
    if (clips) {
        double left = values_x(&axis, h->clip_lo);
        double right = values_x(&axis, h->clip_hi);

        values_rect(out, "out", 0, left);
        values_rect(out, "out", right, WIDTH - right);
        if (h->clip_lo >= axis.lo)
            values_line(out, "clip", left, 0, PLOT);
        if (h->clip_hi <= axis.hi)
            values_line(out, "clip", right, 0, PLOT);
        values_grid(out, h, &axis);
    }
    values_text(out, 0, "start", axis.lo);
    if (axis.lo < 0 && axis.hi > 0 && values_x(&axis, 0) > 50 &&
        values_x(&axis, 0) < WIDTH - 50)
        values_text(out, values_x(&axis, 0), "middle", 0);
    values_text(out, WIDTH, "end", axis.hi);
    sb_str_add(out, "</svg>\n");
}

/* ---- ranges -------------------------------------------------------------- */

/* More than this are drawn several to a line. */
enum { COLUMNS_MOST = 150 };

static double ranges_y(double v, double most)
{
    return PLOT / 2.0 - v / most * (PLOT / 2.0 - 1);
}

/* The range of several: that of all of them. */
static sb_html_range ranges_join(const sb_html_range *r, size_t begin,
                                 size_t end)
{
    sb_html_range all = r[begin];

    for (size_t i = begin + 1; i < end; i++) {
        all.lo = fminf(all.lo, r[i].lo);
        all.hi = fmaxf(all.hi, r[i].hi);
        all.limit_lo = fminf(all.limit_lo, r[i].limit_lo);
        all.limit_hi = fmaxf(all.limit_hi, r[i].limit_hi);
    }
    return all;
}

static void ranges_span(sb_str *out, double x, double lo, double hi)
{
    sb_str_add(out, "M");
    sb_html_num(out, x, 1);
    sb_str_add(out, " ");
    sb_html_num(out, lo, 1);
    sb_str_add(out, "V");
    sb_html_num(out, hi, 1);
}

static void ranges_tick(sb_str *out, double x, double width, double y)
{
    sb_str_add(out, "M");
    sb_html_num(out, x - width / 2, 1);
    sb_str_add(out, " ");
    sb_html_num(out, y, 1);
    sb_str_add(out, "h");
    sb_html_num(out, width, 1);
}

void sb_html_ranges(sb_str *out, const char *title, const sb_html_range *ranges,
                    size_t n)
{
    size_t columns = n < COLUMNS_MOST ? n : COLUMNS_MOST;
    double most = 1e-30, step = WIDTH / (double)(columns ? columns : 1);

    for (size_t i = 0; i < n; i++)
        most = fmax(
            most, fmax(fabs((double)ranges[i].lo), fabs((double)ranges[i].hi)));
    values_begin(out, title);
    sb_str_add(out, "<path class=\"chan\" stroke-width=\"");
    sb_html_num(out, fmax(1, step * 0.7), 1);
    sb_str_add(out, "\" d=\"");
    for (size_t c = 0; c < columns; c++) {
        sb_html_range r =
            ranges_join(ranges, c * n / columns, (c + 1) * n / columns);
        ranges_span(out, step * ((double)c + 0.5),
                    ranges_y((double)r.lo, most) + 0.5,
                    ranges_y((double)r.hi, most) - 0.5);
    }
    sb_str_add(out, "\"/><path class=\"lim\" d=\"");
    for (size_t c = 0; c < columns; c++) {
        sb_html_range r =
            ranges_join(ranges, c * n / columns, (c + 1) * n / columns);
        double x = step * ((double)c + 0.5);
        if ((double)r.limit_lo >= -most)
            ranges_tick(out, x, step, ranges_y((double)r.limit_lo, most));
        if ((double)r.limit_hi <= most)
            ranges_tick(out, x, step, ranges_y((double)r.limit_hi, most));
    }
    sb_str_add(out, "\"/>");
    values_text(out, 0, "start", 0);
    values_text(out, WIDTH, "end", (double)(n ? n - 1 : 0));
    sb_str_add(out, "</svg>\n");
}
