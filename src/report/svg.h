/* svg.h - what the wide charts of a page are drawn with. */
#ifndef SB_REPORT_SVG_H
#define SB_REPORT_SVG_H

#include "report/html.h"

/* The coordinates of all wide charts; the page scales them to its width. */
enum {
    SB_SVG_WIDTH = 1000,
    SB_SVG_LEFT = 62, /* room around what is plotted */
    SB_SVG_RIGHT = 24,
    SB_SVG_TOP = 16,
    SB_SVG_BOTTOM = 48,
    SB_SVG_TICKS = 6, /* marks on an axis, about */
};

/* The frame of a chart, which `</svg></div>` ends. */
void sb_svg_begin(sb_str *out, int height, const char *title);
/* ` name="value"` */
void sb_svg_attr(sb_str *out, const char *name, double value);
/* A text, cut at its front if it is long; `dim`: in a weaker color. */
void sb_svg_text(sb_str *out, double x, double y, const char *anchor, bool dim,
                 const char *text);
/* The number on an axis: as many decimals as it needs. */
void sb_svg_number(sb_str *out, double x, double y, const char *anchor,
                   double value);
/* A thin line of the background. */
void sb_svg_rule(sb_str *out, double x1, double y1, double x2, double y2);
/* A round distance that cuts the range into about so many parts. */
double sb_svg_step(double range, int parts);

#endif
