/* report.h - pages about what was done to a model: one file each, that fetches
 * nothing and reads well in a light and a dark browser, without its script,
 * too.  Part of sparsebit.h, whose rules hold.
 *
 *     sb_report_create -> facts, sections, charts and tables in the order in
 *         which they shall stand -> sb_report_save -> sb_report_free
 *
 * Texts are copied, and escaped: they may come from anywhere. */
#ifndef SPARSEBIT_REPORT_H
#define SPARSEBIT_REPORT_H

#include <sparsebit/analyze.h>
#include <sparsebit/search.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sb_report sb_report; /* a page being written */

/** An empty page.
 *  @param title    for its head, e.g. the model's name
 *  @param subtitle a line below it */
SB_API SB_MUST_USE sb_status sb_report_create(sb_ctx *ctx, const char *title,
                                              const char *subtitle,
                                              sb_report **out);
/** A number in large type with its meaning; those in a row stand side by
 *  side. */
SB_API void sb_report_fact(sb_report *report, const char *label,
                           const char *value);
/** A heading, with a paragraph below it unless `text` is NULL. */
SB_API void sb_report_section(sb_report *report, const char *heading,
                              const char *text);
/** A table that can be searched and sorted.
 *  @param align one letter per column: `l` left, `r` right, for numbers, `n`
 *               left and never broken
 *  @param heads one text per column
 *  @param cells row by row */
SB_API void sb_report_table(sb_report *report, const char *align,
                            const char *const *heads, const char *const *cells,
                            size_t n_rows);

/** A curve of a chart. */
typedef struct sb_report_line {
    size_t struct_size; /**< set by the INIT macro */
    const char *name;
    const double *x, *y;      /**< what is not finite leaves a gap */
    const char *const *notes; /**< NULL, or one (or NULL) for each point */
    size_t n;
    int dots; /**< points alone, without a line between them */
} sb_report_line;

#define SB_REPORT_LINE_INIT                                  \
    {                                                        \
        sizeof(sb_report_line), NULL, NULL, NULL, NULL, 0, 0 \
    }

/** Up to 8 curves over one axis. */
SB_API SB_MUST_USE sb_status sb_report_lines(
    sb_report *report, const char *title, const char *x_label,
    const char *y_label, const sb_report_line *const *lines, size_t n_lines);
/** What nodes of a graph are colored by: a number for each, or several, of
 *  which the most alarming counts. */
typedef struct sb_report_marks {
    size_t struct_size; /**< set by the INIT macro */
    size_t n;
    const char *const *results; /**< names of results of nodes; or NULL */
    const double *values;       /**< NaN: not known */
    /** Rising: what is less than limits[k] has the k-th of five colors, from
     *  harmless to alarming, and what is less than none of them the last. */
    double limits[4];
    /** What the colors mean.  All NULL: values are signal to noise in dB,
     *  colored as sb_report_quantization() does. */
    const char *texts[5];
    const char *none; /**< what no color means */
    const char *jump; /**< text of a button to the most alarming node */
} sb_report_marks;

#define SB_REPORT_MARKS_INIT                                          \
    {                                                                 \
        sizeof(sb_report_marks), 0, NULL, NULL, {0}, {NULL}, "", NULL \
    }

/** The graph of a model.
 *  @param marks NULL: without colors */
SB_API SB_MUST_USE sb_status sb_report_graph(sb_report *report,
                                             const sb_model *model,
                                             const sb_report_marks *marks);
/** A table whose rows are about nodes of the model whose graph is in the page:
 *  a click on either shows the other.
 *  @param results by row, the name of a result of its node; NULL: of none */
SB_API void sb_report_nodes(sb_report *report, const sb_model *model,
                            const char *const *results, const char *align,
                            const char *const *heads, const char *const *cells,
                            size_t n_rows);
/** What quantization does to a model: the graph with each node colored by its
 *  error, the layers that lose most, all layers as a table, and for each
 *  quantized tensor its histogram, range and grid.  Errors that saw no samples
 *  leave out what they do not know. */
SB_API SB_MUST_USE sb_status
sb_report_quantization(sb_report *report, const sb_quant_errors *errors);
/** What a search chose: the graph with each layer colored by what its width
 *  costs, and all layers as a table.  sb_search_run() comes first. */
SB_API SB_MUST_USE sb_status sb_report_search(sb_report *report,
                                              const sb_search *search);
/** What a runtime makes of the quantized model. */
SB_API void sb_report_lint(sb_report *report, const sb_lint *lint);
/** Writes the page, whole or not at all. */
SB_API SB_MUST_USE sb_status sb_report_save(sb_report *report,
                                            const char *path);
/** Frees it; NULL is allowed. */
SB_API void sb_report_free(sb_report *report);

#ifdef __cplusplus
}
#endif
#endif /* SPARSEBIT_REPORT_H */
