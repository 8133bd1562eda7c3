/* What a step costs: rows of the graphs that it runs, as one profile. */
#include <stdlib.h>
#include <string.h>

#include "learn/learner.h"

static int profile_by_time(const void *a, const void *b)
{
    double x = (*(const sb_profile_row *const *)a)->median_ms;
    double y = (*(const sb_profile_row *const *)b)->median_ms;

    return (x < y) - (x > y);
}

static const sb_profile_row *const *
profile_join(sb_arena *arena, const sb_profile_row *const *a, size_t n_a,
             const sb_profile_row *const *b, size_t n_b, bool sorted)
{
    const sb_profile_row **all =
        sb_arena_alloc(arena, n_a + n_b + 1, sizeof(*all));

    if (!all)
        return NULL;
    for (size_t i = 0; i < n_a; i++)
        all[i] = a[i];
    for (size_t i = 0; i < n_b; i++)
        all[n_a + i] = b[i];
    if (sorted)
        qsort(all, n_a + n_b, sizeof(*all), profile_by_time);
    return all;
}

static sb_status profile_add(sb_arena *arena, sb_profile *sum,
                             const sb_profile *p)
{
    sum->nodes = profile_join(arena, sum->nodes, sum->n_nodes, p->nodes,
                              p->n_nodes, false);
    sum->types = profile_join(arena, sum->types, sum->n_types, p->types,
                              p->n_types, true);
    sum->n_nodes += p->n_nodes;
    sum->n_types += p->n_types;
    sum->best_ms += p->best_ms;
    sum->median_ms += p->median_ms;
    return sum->nodes && sum->types ? SB_OK : SB_NO_MEMORY;
}

sb_status sb_learner_profile(sb_learner *l, const sb_profile **out)
{
    sb_bound_graph *graphs[] = {&l->learn, &l->accumulate, &l->norm,
                                &l->update};
    const sb_profile *p = NULL;

    sb_arena_free(&l->profile);
    sb_arena_init(&l->profile, l->ctx);
    sb_profile *sum = sb_arena_alloc(&l->profile, 1, sizeof *sum);
    if (!sum)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < SB_COUNT(graphs); i++) {
        if (!graphs[i]->exec)
            continue;
        SB_TRY(sb_exec_profile(graphs[i]->exec, &p));
        if (i == 0)
            sum->runs = p->runs;
        SB_TRY(profile_add(&l->profile, sum, p));
    }
    *out = sum;
    return SB_OK;
}
