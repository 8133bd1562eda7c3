/* passtest.h - testing a pass: text graph in, text graph out, same results. */
#ifndef SB_TESTS_PASSTEST_H
#define SB_TESTS_PASSTEST_H

#include "sbtest.h"

/* A graph with these inputs, outputs and lines. */
#define TEST_GRAPH(in, out, lines) \
    "graph main(" in ") -> (" out ") {\n" lines "}\n"

typedef struct pass_case {
    const char *what;
    const char *before; /* a graph as in graph/text.h */
    /* The lines between the braces that must come out, without indent; NULL:
     * the graph must come out as it went in. */
    const char *after;
    bool no_run; /* cannot run (unknown operators): compare text only */
} pass_case;

/* Runs `passes` on each graph, then "remove_dead", compares the text, and
 * checks that random inputs give the same outputs before and after. */
void test_passes(const char *passes, const pass_case *cases, size_t n);

/* Runs `passes` on one graph, checks that no node of operator `op` is left and
 * that random inputs give the same outputs before and after. */
void test_pass_removes(const char *passes, const char *what, const char *text,
                       const char *op);

/* A chain of `n` times `link`, where %o and %i are the numbers of output and
 * input, such as "v%o = Relu(v%i)\n", from v0 to the output; runs the passes
 * and returns the number of nodes left. */
size_t test_pass_chain(const char *passes, const char *type, const char *consts,
                       const char *link, size_t n);

#endif
