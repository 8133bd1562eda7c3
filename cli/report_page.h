/* report_page.h - the pages of --report. */
#ifndef CLI_REPORT_PAGE_H
#define CLI_REPORT_PAGE_H

#include "cli.h"

/* What help says about --report. */
#define CLI_REPORT_ARG "FILE.html"
#define CLI_REPORT_HELP \
    "write a page with the graph, charts and tables, complete in one file"

/* What a page about a quantized model is made from. */
typedef struct cli_quant_page {
    const char *path;
    const char *model; /* its file */
    const char *command;
    const sb_quant_model *qm;
    const sb_quant_errors *errors;
    size_t samples;
} cli_quant_page;

/* Writes the page. */
int cli_report_quantization(cli_env *env, const cli_quant_page *page);
/* The curve of a search, and its layers. */
int cli_report_search(cli_env *env, const char *path, const char *model,
                      const sb_search *search, const sb_search_result *result);
/* What a page about training is made from. */
typedef struct cli_train_page {
    const char *path;
    const char *model, *output; /* files */
    const char *folder;         /* with the log */
    const sb_model *before;
    sb_model *after;               /* trained in float; or NULL: */
    const sb_quant_model *qm;      /* with quantizers ... */
    const sb_quant_errors *errors; /* ... which do this to the layers */
    const sb_train_check *check;   /* with `qm` */
    const sb_train_state *last;
} cli_train_page;

/* The graph by how far weights moved, and a table (train_moved.c). */
sb_status cli_report_moved(sb_report *report, const sb_model *before,
                           sb_model *after);
/* Is what was validated a share, else a number of which less is better? */
bool cli_metric_is_share(const sb_train_state *state);
/* The curves of all epochs, those before a resumed run included. */
int cli_report_training(cli_env *env, const cli_train_page *page);
/* Nodes of a graph, with a number that colors each, and a row of a table about
 * each: new, then for each node a row and as many cells as there are columns,
 * then add to a page, free. */
typedef struct cli_nodes {
    const char *align;
    const char *const *heads;
    const char **results; /* borrowed */
    double *values;
    char **cells;
    size_t n, n_cells, most; /* rows */
} cli_nodes;

cli_nodes *cli_nodes_new(size_t most, const char *align,
                         const char *const *heads);
/* `result` NULL: a row of no node. */
void cli_nodes_row(cli_nodes *nodes, const char *result, double value);
void cli_nodes_cell(cli_nodes *nodes, const char *fmt, ...) CLI_PRINTF(2, 3);
/* "64x32x3x3", with " → 39x20x3x3" if it has become that; NULL: none. */
void cli_nodes_shape(cli_nodes *nodes, const sb_tensor *before,
                     const sb_tensor *after);
/* The graph and the table; of `marks` all but the nodes is given. */
sb_status cli_nodes_graph(const cli_nodes *nodes, sb_report *report,
                          const sb_model *model, sb_report_marks marks);
void cli_nodes_table(const cli_nodes *nodes, sb_report *report,
                     const sb_model *model);
void cli_nodes_free(cli_nodes *nodes);
/* A node's name, or that of its result. */
const char *cli_node_label(const sb_node_info *node);
/* Of what can be trained, unlike sizes and indices. NULL: no. */
bool cli_is_float(const sb_tensor *tensor);

/* The name of a file without its folders. */
const char *cli_base_name(const char *path);
/* The same, but all of the path if another file would be called like it; NULL
 * if there is none. */
const char *cli_name_beside(const char *path, const char *other);
/* A fact made by printf(). */
void cli_report_fact(sb_report *report, const char *label, const char *fmt, ...)
    CLI_PRINTF(3, 4);

#endif
