/* html.h - pages with charts, complete in one file: no script, no font and no
 * image from elsewhere, readable without any script.
 *
 * A page is text between sb_html_begin() and sb_html_end().  Charts are inline
 * SVG that takes its colors from the page, which has a light and a dark set.
 * All texts given are escaped here, and numbers are written with a point in any
 * locale.  Like sb_str, nothing fails at the call. */
#ifndef SB_REPORT_HTML_H
#define SB_REPORT_HTML_H

#include "base/str.h"

/* Colors of series; any number is taken modulo that. */
enum { SB_HTML_COLORS = 8 };

void sb_html_begin(sb_str *out, const char *title, const char *subtitle);
void sb_html_end(sb_str *out);
/* The script of reports (page.js), before the end. */
void sb_html_script(sb_str *out);

void sb_html_text(sb_str *out, const char *text);
/* Fixed number of decimals; a dash if not finite. */
void sb_html_num(sb_str *out, double value, int decimals);
/* Three digits at most: "0.012", "1.23", "123". */
void sb_html_short(sb_str *out, double value);

/* As many decimals as three digits take: "0.000123", "1.23e+06". */
void sb_html_general(sb_str *out, double value);

/* A heading, with a paragraph below it unless `text` is NULL. */
void sb_html_section(sb_str *out, const char *heading, const char *text);

/* ---- numbers in large type: begin, some facts, end ---------------------- */
void sb_html_facts_begin(sb_str *out);
void sb_html_fact(sb_str *out, const char *label, const char *value);
void sb_html_facts_end(sb_str *out);

/* ---- tables: begin, cells row by row, end ------------------------------- */
typedef struct sb_html_table {
    sb_str *out;
    const char *align; /* one letter per column: l, r, or n: left, unbroken */
    size_t cell;
    /* The next row is about this node of the graph, plus one; 0: of none. */
    size_t node;
} sb_html_table;

sb_html_table sb_html_table_begin(sb_str *out, const char *align,
                                  const char *const *heads);
void sb_html_cell(sb_html_table *t, const char *text);
/* `decimals` -1: sb_html_short(); a value that is not finite leaves the cell
 * empty. */
void sb_html_cell_num(sb_html_table *t, double value, int decimals);
void sb_html_table_end(sb_html_table *t);

/* ---- charts ------------------------------------------------------------- */

/* A row of a bar chart: `note` stands behind the bar, `tip` (or NULL) appears
 * under the pointer. */
typedef struct sb_html_bar {
    const char *label, *note, *tip;
    double value;
    unsigned color;
} sb_html_bar;

void sb_html_bars(sb_str *out, const char *title, const sb_html_bar *bars,
                  size_t n);

/* A block of a skyline: blocks stand side by side, as wide as `width` says, and
 * are filled from below up to `level` in [0, 1]; a block above 1 is marked on
 * its top. */
typedef struct sb_html_block {
    double width, level;
    const char *tip;
    unsigned color;
} sb_html_block;

/* `x_unit` names what the widths are ("ms"), `y_label` what the levels are. */
void sb_html_skyline(sb_str *out, const char *title, const char *x_unit,
                     const char *y_label, const sb_html_block *blocks,
                     size_t n);

/* Lines over a common axis; what is not finite leaves a gap.  `note` (or NULL)
 * stands under the pointer of point i. */
typedef struct sb_html_line {
    const char *name;
    const double *x, *y;
    const char *const *notes;
    size_t n;
    unsigned color;
    bool dots; /* points, without a line between them */
} sb_html_line;

void sb_html_lines(sb_str *out, const char *title, const char *x_label,
                   const char *y_label, const sb_html_line *lines, size_t n);

/* Values by how often they come, small: [clip_lo, clip_hi] is what the integers
 * can hold, `step` apart. */
typedef struct sb_html_histogram {
    const double *counts;
    size_t n;
    double lo, hi; /* of all bins */
    double clip_lo, clip_hi, step;
} sb_html_histogram;

void sb_html_histogram_add(sb_str *out, const char *title,
                           const sb_html_histogram *h);

/* Ranges side by side, and what each is limited to. */
typedef struct sb_html_range {
    float lo, hi, limit_lo, limit_hi;
} sb_html_range;

void sb_html_ranges(sb_str *out, const char *title, const sb_html_range *ranges,
                    size_t n);

/* Colors and what they mean. */
void sb_html_legend(sb_str *out, const char *const *names,
                    const unsigned *colors, size_t n);

#endif
