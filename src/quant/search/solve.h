/* solve.h - one of several choices for each of many things, so that the sum of
 * their errors is least for any sum of their sizes: the multiple-choice
 * knapsack problem, solved for all sizes at once. */
#ifndef SB_QUANT_SEARCH_SOLVE_H
#define SB_QUANT_SEARCH_SOLVE_H

#include "base/alloc.h"

/* A sum of choices that no other beats in both size and error. */
typedef struct sb_solution {
    double size, error;
    uint32_t before; /* the solution of the things before the last one */
    uint32_t choice; /* of the last thing */
} sb_solution;

typedef struct sb_frontier {
    sb_ctx *ctx;
    size_t n_things, n_choices;
    sb_solution **steps; /* by thing; ascending sizes, descending errors */
    size_t *n_steps;
} sb_frontier;

/* `size` and `error`, neither negative, are [n_things, n_choices]; a size that
 * is not finite is no choice.  sb_frontier_free() in any case. */
SB_MUST_USE sb_status sb_frontier_make(sb_ctx *ctx, size_t n_things,
                                       size_t n_choices, const double *size,
                                       const double *error, sb_frontier *out);
void sb_frontier_free(sb_frontier *f);
/* The solutions for all things; *n of them, none only if a thing has no
 * choice. */
const sb_solution *sb_frontier_solutions(const sb_frontier *f, size_t *n);
/* The choices of solution i. */
void sb_frontier_choices(const sb_frontier *f, size_t i, uint32_t *choices);

#endif
