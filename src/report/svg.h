/* svg.h - what the plots of a page are drawn with: as wide as the page lets
 * them be, so that what lies across is a share of the width, and what lies down
 * is in pixels. */
#ifndef SB_REPORT_SVG_H
#define SB_REPORT_SVG_H

#include "report/html.h"

enum {
    SB_SVG_TOP = 16, /* room above what is plotted */
    SB_SVG_BOTTOM = 24,
    SB_SVG_TICKS = 6, /* marks on an axis, about */
};

/* The frame of a plot, `height` without the room around it. */
void sb_svg_begin(sb_str *out, int height, const char *title);
/* Its end, and what the axes are. */
void sb_svg_end(sb_str *out, const char *x_label, const char *y_label);
/* ` name="value"` */
void sb_svg_attr(sb_str *out, const char *name, double value);
/* ` name="50%"`, of a share of the width. */
void sb_svg_across(sb_str *out, const char *name, double share);
/* The number below a plot; a spare one is left out where it is narrow. */
void sb_svg_mark_x(sb_str *out, double share, int height, double value,
                   bool spare);
/* The number beside it, and a thin line. */
void sb_svg_mark_y(sb_str *out, double y, double value, const char *unit);
/* A round distance that cuts the range into about so many parts. */
double sb_svg_step(double range, int parts);

#endif
