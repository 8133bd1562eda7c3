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
    const char *model, *output;  /* files */
    const char *folder;          /* with the log */
    const sb_quant_model *qm;    /* NULL: trained in float */
    const sb_train_check *check; /* with `qm` */
    const sb_train_state *last;
} cli_train_page;

/* The curves of all epochs, those before a resumed run included. */
int cli_report_training(cli_env *env, const cli_train_page *page);
/* The name of a file without its folders. */
const char *cli_base_name(const char *path);
/* The same, but all of the path if another file would be called like it; NULL
 * if there is none. */
const char *cli_name_beside(const char *path, const char *other);
/* A fact made by printf(). */
void cli_report_fact(sb_report *report, const char *label, const char *fmt, ...)
    CLI_PRINTF(3, 4);

#endif
