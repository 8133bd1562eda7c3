/* Rules of operators that move elements. */
#include "ops/tie/tie.h"
#include "ops/tie/tie_rules.h"

enum { X = 0, Y = SB_OUT_BASE };

/* All axes of x but `axis` are those of y. */
static void tie_others(sb_ties *t, int x, int y, int axis)
{
    for (int a = 0; a < sb_tie_rank(t, x); a++)
        if (a != axis)
            sb_tie_same(t, x, a, y, a);
}

sb_status sb_tie_concat(sb_ties *t)
{
    int axis = sb_tie_axis(t, "axis", sb_tie_rank(t, Y));
    int64_t at = 0;
    bool known = true;

    for (uint32_t i = 0; i < t->node->n_in; i++) {
        int x = (int)i;
        known = known && sb_dim_known(sb_tie_dim(t, x, axis));
        tie_others(t, x, Y, axis);
        if (known)
            sb_tie_from(t, Y, axis, at, x, axis);
        else
            sb_tie_fixed(t, x, axis, "sizes that are not known");
        at += known ? sb_tie_dim(t, x, axis) : 0;
    }
    if (!known)
        sb_tie_fixed(t, Y, axis, "sizes that are not known");
    return SB_OK;
}

sb_status sb_tie_split(sb_ties *t)
{
    int axis = sb_tie_axis(t, "axis", sb_tie_rank(t, X));
    int64_t at = 0;

    for (uint32_t j = 0; j < t->node->n_out; j++) {
        if (!sb_tie_has(t, SB_OUT(j)) ||
            !sb_dim_known(sb_tie_dim(t, SB_OUT(j), axis))) {
            sb_tie_fixed(t, X, axis, "sizes that are not known");
            return SB_OK;
        }
        tie_others(t, X, SB_OUT(j), axis);
        sb_tie_from(t, X, axis, at, SB_OUT(j), axis);
        at += sb_tie_dim(t, SB_OUT(j), axis);
    }
    return SB_OK;
}

/* Axes that are not sliced go with those of the result, whatever the bounds. */
sb_status sb_tie_slice(sb_ties *t)
{
    int rank = sb_tie_rank(t, X);
    int64_t starts[SB_MAX_RANK], axes[SB_MAX_RANK], steps[SB_MAX_RANK];
    int64_t n = sb_tie_has(t, 3) ? sb_tie_ints(t, 3, axes, SB_MAX_RANK)
                                 : sb_tie_dim(t, 1, 0);
    int64_t from[SB_MAX_RANK] = {0};
    bool fixed[SB_MAX_RANK] = {false};
    bool known =
        sb_tie_ints(t, 1, starts, SB_MAX_RANK) == n && sb_tie_is_const(t, 2) &&
        (!sb_tie_has(t, 4) || sb_tie_ints(t, 4, steps, SB_MAX_RANK) == n);

    if (n < 0 || n > rank)
        return SB_OK;
    for (int64_t i = 0; i < n; i++) {
        int64_t a = sb_tie_has(t, 3) ? axes[i] : i, s = known ? starts[i] : 0;
        a += a < 0 ? rank : 0;
        if (a < 0 || a >= rank)
            return SB_OK;
        sb_dim size = sb_tie_dim(t, X, (int)a);
        fixed[a] = !known || (sb_tie_has(t, 4) && steps[i] != 1) ||
                   !sb_dim_known(size);
        s += s < 0 && !fixed[a] ? size : 0;
        from[a] = s < 0 ? 0 : s;
    }
    const char *why = known ? "a slice with steps" : "bounds that are computed";
    for (int a = 0; a < rank; a++) {
        if (!fixed[a]) {
            sb_tie_from(t, X, a, from[a], Y, a);
        } else {
            sb_tie_fixed(t, X, a, why);
            sb_tie_fixed(t, Y, a, why);
        }
    }
    return SB_OK;
}

/* What is added around is there for the consumer only, and may go. */
sb_status sb_tie_pad(sb_ties *t)
{
    int rank = sb_tie_rank(t, X);
    int64_t pads[2 * SB_MAX_RANK];
    bool constant = sb_node_string_is(t->node, "mode", "constant", true);

    if (sb_tie_has(t, 3) ||
        sb_tie_ints(t, 1, pads, (int64_t)SB_COUNT(pads)) != 2 * rank)
        return SB_OK;
    for (int a = 0; a < rank; a++)
        if (constant || (pads[a] == 0 && pads[a + rank] == 0))
            sb_tie_from(t, X, a, -pads[a], Y, a);
    return SB_OK;
}

/* ---- Gather --------------------------------------------------------------- */

/* One axis by constant indices: y's i is x's of[i]. */
static sb_status gather_list(sb_ties *t, int axis)
{
    const sb_tensor *index = sb_const_of(t->graph, sb_tie_value(t, 1));
    int64_t n = sb_tensor_count(index);
    sb_dim size = sb_tie_dim(t, X, axis);
    int64_t *of = sb_alloc(t->graph->ctx, (size_t)n, sizeof *of);

    if (!of)
        return SB_NO_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        of[i] = sb_tensor_get_i64(index, i);
        of[i] += of[i] < 0 && sb_dim_known(size) ? size : 0;
    }
    sb_tie_list(t, X, axis, Y, axis, of, n);
    sb_free(t->graph->ctx, of);
    return SB_OK;
}

sb_status sb_tie_gather(sb_ties *t)
{
    int rank = sb_tie_rank(t, X), axis = sb_tie_axis(t, "axis", rank);
    int more = sb_tie_rank(t, 1) - 1;
    bool table = sb_tie_is_const(t, X) && !sb_tie_is_const(t, 1);

    for (int a = 0; a < rank; a++) {
        if (a == axis)
            continue;
        if (table && a == rank - 1)
            sb_tie_make(t, X, a, Y, a > axis ? a + more : a);
        else
            sb_tie_same(t, X, a, Y, a > axis ? a + more : a);
    }
    if (sb_tie_is_const(t, 1) && more == 0)
        return gather_list(t, axis);
    sb_tie_fixed(t, X, axis, "indices are picked from it");
    return SB_OK;
}

/* ---- others --------------------------------------------------------------- */

sb_status sb_tie_transpose(sb_ties *t)
{
    const sb_attr *perm = sb_node_attr(t->node, "perm");
    int rank = sb_tie_rank(t, X);

    for (int a = 0; a < rank; a++) {
        int64_t from =
            perm && (int)perm->n == rank ? perm->ints[a] : rank - 1 - a;
        if (from >= 0 && from < rank)
            sb_tie_same(t, X, (int)from, Y, a);
    }
    return SB_OK;
}

sb_status sb_tie_tile(sb_ties *t)
{
    int rank = sb_tie_rank(t, X);
    int64_t times[SB_MAX_RANK];

    if (sb_tie_ints(t, 1, times, SB_MAX_RANK) != rank)
        return SB_OK;
    for (int a = 0; a < rank; a++) {
        sb_dim size = sb_tie_dim(t, X, a);
        if (times[a] == 1) {
            sb_tie_same(t, X, a, Y, a);
        } else if (times[a] > 1 && sb_dim_known(size)) {
            int copies = sb_tie_part(t, times[a]), one = sb_tie_part(t, size);
            sb_tie_fixed(t, copies, 0, "copies of the same");
            sb_tie_same(t, one, 0, X, a);
            sb_tie_digits(t, Y, a, (const int[]){copies, one}, 2);
        }
    }
    return SB_OK;
}

sb_status sb_tie_reverse(sb_ties *t)
{
    int64_t batch = sb_tie_attr(t, "batch_axis");
    int64_t time = sb_tie_attr(t, "time_axis");

    for (int a = 0; a < sb_tie_rank(t, X); a++)
        if (a != batch && a != time)
            sb_tie_same(t, X, a, Y, a);
    return SB_OK;
}
