/* pass.h - graph passes: rows, the manager, and the matcher. */
#ifndef SB_PASSES_PASS_H
#define SB_PASSES_PASS_H

#include "graph/graph.h"

typedef struct sb_pass_def {
    const char *name;
    const char *summary;
    /* Changes the graph and adds to *changes.  Sub-graphs are visited by the
     * manager, not by the pass. */
    sb_status (*run)(sb_graph *graph, size_t *changes);
    /* Runs in the first round only: it must see the graph as it was. */
    bool once;
    /* Runs when the others have nothing left to change, and once: it takes
     * apart what they look for. */
    bool last;
} sb_pass_def;

const sb_pass_def *sb_pass_find(const char *name);
const sb_pass_def *const *sb_pass_all(size_t *n);

typedef struct sb_pipeline {
    const char *name;
    const char *summary;
    const char *const *passes; /* NULL-terminated */
} sb_pipeline;

const sb_pipeline *sb_pipeline_find(const char *name);

/* Runs `spec` (pipeline and pass names separated by commas) over and over
 * until a whole round changes nothing (at most 16 rounds), verifying the graph
 * after each pass in builds with assertions.  `results` gets one entry a pass,
 * in the order of first use; sb_free() it. */
SB_MUST_USE sb_status sb_passes_run(sb_graph *graph, const char *spec,
                                    const char *dump_after,
                                    sb_pass_result **results,
                                    size_t *n_results);

/* Does the graph, which came from a file, hold operators newer than the file
 * that the pass "expand" would write out?  Asked before saving. */
bool sb_graph_wants_expand(const sb_graph *graph);

#endif
