/* prune_report.h - what `sparsebit prune` tells: text, JSON, and a page. */
#ifndef CLI_PRUNE_REPORT_H
#define CLI_PRUNE_REPORT_H

#include "cli.h"

typedef struct cli_prune_told {
    const char *model, *output; /* files; the second one may be NULL */
    bool dry_run, done;         /* done: a network was pruned */
    sb_model *source, *result;  /* what was pruned, for the page; result: if
                                   `done` */
    const sb_prune_report *report;
    const sb_prune_scan *scan; /* or NULL */
    double params[2], macs[2]; /* before and after */
    uint64_t bytes[2];
} cli_prune_told;

void cli_prune_text(const cli_env *env, const cli_prune_told *told);
void cli_prune_json(const cli_prune_told *told);
/* The page of --report (prune_page.c). */
int cli_prune_page(cli_env *env, const char *path, const cli_prune_told *told);

#endif
