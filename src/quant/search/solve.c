/* The frontier of sizes and errors grows thing by thing: every solution so far
 * with every choice of the next, less those that another beats.  It is exact
 * as long as it has no more than SOLUTIONS_MOST members; beyond that, of
 * solutions of nearly the same size only the best stays, whose size is still
 * its own: what is returned always fits. */
#include "quant/search/solve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SOLUTIONS_MOST = 16384 };

static int solve_by_size(const void *a, const void *b)
{
    const sb_solution *x = a, *y = b;

    if (x->size != y->size)
        return x->size < y->size ? -1 : 1;
    if (x->error != y->error)
        return x->error < y->error ? -1 : 1;
    if (x->before != y->before)
        return x->before < y->before ? -1 : 1;
    return (x->choice > y->choice) - (x->choice < y->choice);
}

/* Sorts, and keeps what no other beats. */
static size_t solve_prune(sb_solution *s, size_t n)
{
    size_t kept = 0;

    qsort(s, n, sizeof *s, solve_by_size);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || s[i].error < s[kept - 1].error)
            s[kept++] = s[i];
    return kept;
}

/* Of each of SOLUTIONS_MOST equal parts of the sizes, the largest, which has
 * the least error; and the smallest of all. */
static size_t solve_thin(sb_solution *s, size_t n)
{
    double low = s[0].size, width = s[n - 1].size - low;
    size_t kept = 1;

    if (n <= SOLUTIONS_MOST)
        return n;
    for (size_t i = 1; i < n; i++) {
        double here = floor((s[i].size - low) / width * (SOLUTIONS_MOST - 2));
        double next =
            i + 1 < n
                ? floor((s[i + 1].size - low) / width * (SOLUTIONS_MOST - 2))
                : -1;
        if (here != next)
            s[kept++] = s[i];
    }
    return kept;
}

static sb_status solve_step(sb_frontier *f, size_t thing, const double *size,
                            const double *error)
{
    static const sb_solution nothing = {0};
    const sb_solution *last = thing ? f->steps[thing - 1] : &nothing;
    size_t n_last = thing ? f->n_steps[thing - 1] : 1, n = 0;
    sb_solution *s = sb_alloc_raw(f->ctx, n_last * f->n_choices + 1, sizeof *s);

    if (!s)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n_last; i++)
        for (size_t c = 0; c < f->n_choices; c++)
            if (isfinite(size[c]))
                s[n++] = (sb_solution){last[i].size + size[c],
                                       last[i].error + error[c], (uint32_t)i,
                                       (uint32_t)c};
    n = n > 0 ? solve_thin(s, solve_prune(s, n)) : 0;
    f->steps[thing] = s;
    f->n_steps[thing] = n;
    return SB_OK;
}

sb_status sb_frontier_make(sb_ctx *ctx, size_t n_things, size_t n_choices,
                           const double *size, const double *error,
                           sb_frontier *out)
{
    *out =
        (sb_frontier){.ctx = ctx, .n_things = n_things, .n_choices = n_choices};
    out->steps = sb_alloc(ctx, n_things + 1, sizeof(sb_solution *));
    out->n_steps = sb_alloc(ctx, n_things + 1, sizeof *out->n_steps);
    if (!out->steps || !out->n_steps)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n_things; i++) {
        SB_TRY(sb_ctx_poll(ctx));
        SB_TRY(solve_step(out, i, size + i * n_choices, error + i * n_choices));
    }
    return SB_OK;
}

void sb_frontier_free(sb_frontier *f)
{
    for (size_t i = 0; f->steps && i < f->n_things; i++)
        sb_free(f->ctx, f->steps[i]);
    sb_free(f->ctx, f->steps);
    sb_free(f->ctx, f->n_steps);
    *f = (sb_frontier){0};
}

const sb_solution *sb_frontier_solutions(const sb_frontier *f, size_t *n)
{
    *n = f->n_things ? f->n_steps[f->n_things - 1] : 0;
    return f->n_things ? f->steps[f->n_things - 1] : NULL;
}

void sb_frontier_choices(const sb_frontier *f, size_t i, uint32_t *choices)
{
    for (size_t thing = f->n_things; thing > 0; thing--) {
        const sb_solution *s = &f->steps[thing - 1][i];
        choices[thing - 1] = s->choice;
        i = s->before;
    }
}
