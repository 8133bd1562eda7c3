/* pass.h - graph passes: rows, the manager, and the matcher. */
#ifndef SB_PASSES_PASS_H
#define SB_PASSES_PASS_H

#include "graph/graph.h"

typedef struct sb_pass_def sb_pass_def;
struct sb_pass_def {
    const char *name;
    const char *summary;
    /* Changes the graph and adds to *changes.  Sub-graphs are visited by the
     * manager, not by the pass. */
    sb_status (*run)(sb_graph *graph, size_t *changes);
    /* Instead of `run`, of a pass that a plug-in added: `added` is its own. */
    sb_status (*run_added)(const sb_pass_def *pass, sb_graph *graph,
                           size_t *changes);
    const void *added;
    /* Runs in the first round only: it must see the graph as it was. */
    bool once;
    /* Runs when the others have nothing left to change, and once: it takes
     * apart what they look for. */
    bool last;
};

/* The row of the table, else what a plug-in added to the context (NULL: only
 * the table), else NULL. */
const sb_pass_def *sb_pass_find(const sb_ctx *ctx, const char *name);
const sb_pass_def *const *sb_pass_all(size_t *n);

typedef struct sb_pipeline {
    const char *name;
    const char *summary;
    const char *const *passes; /* NULL-terminated */
} sb_pipeline;

const sb_pipeline *sb_pipeline_find(const char *name);

/* Runs `spec` (pipeline and pass names separated by commas) over and over
 * until a whole round changes nothing (at most 16 rounds), verifying the graph
 * after each pass in builds with assertions.  "-name" takes a pass out of the
 * pipelines named before it.  `results` gets one entry per pass, in the order
 * of first use; sb_free() it; both results may be NULL. */
SB_MUST_USE sb_status sb_passes_run(sb_graph *graph, const char *spec,
                                    const char *dump_after,
                                    sb_pass_result **results,
                                    size_t *n_results);

/* Can the file that the graph came from hold the operator, one that the pass
 * "decompose" knows?  Graphs that never were in a file hold all. */
bool sb_graph_holds(const sb_graph *graph, const char *op);
/* Writes out one node that "decompose" knows, whatever the file can hold. */
SB_MUST_USE sb_status sb_decompose_node(sb_graph *graph, sb_node_id id);
/* Does the graph, which came from a file, hold operators newer than the file
 * that the pass "decompose" would write out?  Asked before saving. */
bool sb_graph_wants_decompose(const sb_graph *graph);
/* The pass for a file of that very opset; what it cannot write out stays. */
SB_MUST_USE sb_status sb_graph_decompose(sb_graph *g, int64_t opset);

#endif
