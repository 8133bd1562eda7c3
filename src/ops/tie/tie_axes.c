/* Rules of operators that work element by element, or along one axis. */
#include "ops/tie/tie.h"
#include "ops/tie/tie_rules.h"

sb_status sb_tie_elementwise(sb_ties *t)
{
    for (uint32_t i = 0; i < t->node->n_in; i++)
        if (sb_tie_has(t, (int)i))
            sb_tie_broadcast(t, (int)i, SB_OUT(0));
    return SB_OK;
}

sb_status sb_tie_identity(sb_ties *t)
{
    for (uint32_t j = 0; j < t->node->n_out; j++)
        if (sb_tie_has(t, SB_OUT(j)))
            sb_tie_same_all(t, 0, SB_OUT(j));
    return SB_OK;
}

/* Input 0 and all outputs go together but along some axes, which are 1 or left
 * out in results of another size or rank. */
static void tie_along(sb_ties *t, const bool *along, bool keep,
                      void (*mark)(sb_ties *t, int x, int ax, const char *why),
                      const char *why)
{
    int rank = sb_tie_rank(t, 0);

    for (int a = 0, at = 0; a < rank; a++) {
        if (along[a]) {
            mark(t, 0, a, why);
            at += keep;
            continue;
        }
        for (uint32_t j = 0; j < t->node->n_out; j++)
            if (sb_tie_has(t, SB_OUT(j)))
                sb_tie_same(t, 0, a, SB_OUT(j), at);
        at++;
    }
}

sb_status sb_tie_but_axis(sb_ties *t)
{
    int rank = sb_tie_rank(t, 0), axis = sb_tie_axis(t, "axis", rank);
    bool along[SB_MAX_RANK] = {false};

    if (axis < 0 || axis >= rank)
        return SB_OK;
    along[axis] = true;
    tie_along(t, along, sb_tie_rank(t, SB_OUT(0)) == rank, sb_tie_fixed,
              "what works along this axis sees all of it");
    return SB_OK;
}

sb_status sb_tie_cumulate(sb_ties *t)
{
    int rank = sb_tie_rank(t, 0);
    bool along[SB_MAX_RANK] = {false};
    int64_t axis = 0;

    if (sb_tie_ints(t, 1, &axis, 1) != 1)
        return SB_OK;
    axis += axis < 0 ? rank : 0;
    if (axis < 0 || axis >= rank)
        return SB_OK;
    along[axis] = true;
    tie_along(t, along, true, sb_tie_fixed,
              "what works along this axis sees all of it");
    return SB_OK;
}

sb_status sb_tie_but_matrix(sb_ties *t)
{
    for (int a = 0; a < sb_tie_rank(t, 0) - 2; a++)
        sb_tie_same(t, 0, a, SB_OUT(0), a);
    return SB_OK;
}

sb_status sb_tie_reduce(sb_ties *t)
{
    int rank = sb_tie_rank(t, 0);
    int64_t axes[SB_MAX_RANK];
    bool along[SB_MAX_RANK] = {false};
    int64_t n = sb_tie_has(t, 1) ? sb_tie_ints(t, 1, axes, SB_MAX_RANK) : 0;

    if (n < 0)
        return SB_OK;
    if (n == 0 && sb_tie_attr(t, "noop_with_empty_axes"))
        return sb_tie_identity(t);
    for (int a = 0; a < rank; a++)
        along[a] = n == 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t a = axes[i] < 0 ? axes[i] + rank : axes[i];
        if (a >= 0 && a < rank)
            along[a] = true;
    }
    tie_along(t, along, sb_tie_attr(t, "keepdims") != 0, sb_tie_stats,
              "it is reduced over");
    return SB_OK;
}

/* Scales for the whole tensor, or one for each index of an axis. */
sb_status sb_tie_quantize(sb_ties *t)
{
    int rank = sb_tie_rank(t, 0), axis = sb_tie_axis(t, "axis", rank);
    bool single = sb_tie_rank(t, 1) == 0 || sb_tie_dim(t, 1, 0) == 1;

    /* One scale for all goes along no axis, whatever the attribute says. */
    if (sb_tie_rank(t, 1) > 1 || (!single && (axis < 0 || axis >= rank)))
        return SB_OK;
    sb_tie_same_all(t, 0, SB_OUT(0));
    for (int i = 1; i <= 2 && !single; i++)
        if (sb_tie_has(t, i) && sb_tie_rank(t, i) == 1)
            sb_tie_same(t, i, 0, 0, axis);
    return SB_OK;
}
