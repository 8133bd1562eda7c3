/* Rules of normalizations: what is tied, and over what statistics are. */
#include "ops/tie/tie.h"
#include "ops/tie/tie_rules.h"

enum { X = 0, Y = SB_OUT_BASE };

static const char *const changes = "it is normalized over";

/* A scale and others of one element for each channel. */
static void tie_per_channel(sb_ties *t)
{
    sb_tie_scale(t, 1, 0, X, 1);
    for (uint32_t i = 2; i < t->node->n_in; i++)
        if (sb_tie_has(t, (int)i))
            sb_tie_same(t, (int)i, 0, X, 1);
}

sb_status sb_tie_batch_norm(sb_ties *t)
{
    if (sb_tie_rank(t, X) < 2)
        return SB_OK;
    sb_tie_same_all(t, X, Y);
    tie_per_channel(t);
    for (uint32_t j = 1; j < t->node->n_out; j++)
        if (sb_tie_has(t, SB_OUT(j)))
            sb_tie_same(t, SB_OUT(j), 0, X, 1);
    return SB_OK;
}

sb_status sb_tie_instance_norm(sb_ties *t)
{
    SB_TRY(sb_tie_batch_norm(t));
    for (int a = 2; a < sb_tie_rank(t, X); a++)
        sb_tie_stats(t, X, a, changes);
    return SB_OK;
}

/* Whole groups may go without a change of the others. */
sb_status sb_tie_group_norm(sb_ties *t)
{
    int64_t groups = sb_tie_attr(t, "num_groups"), c = sb_tie_dim(t, X, 1);

    if (groups < 1 || c < groups || c % groups != 0)
        return SB_OK;
    int group = sb_tie_part(t, groups), within = sb_tie_part(t, c / groups);
    sb_tie_same_all(t, X, Y);
    tie_per_channel(t);
    if (c > groups)
        sb_tie_stats(t, within, 0, changes);
    sb_tie_digits(t, X, 1, (const int[]){group, within}, 2);
    return SB_OK;
}

sb_status sb_tie_layer_norm(sb_ties *t)
{
    int rank = sb_tie_rank(t, X), axis = sb_tie_axis(t, "axis", rank);

    if (axis < 0)
        return SB_OK;
    sb_tie_same_all(t, X, Y);
    for (uint32_t i = 1; i < t->node->n_in; i++)
        if (sb_tie_has(t, (int)i))
            sb_tie_broadcast(t, (int)i, X);
    for (uint32_t j = 1; j < t->node->n_out; j++)
        if (sb_tie_has(t, SB_OUT(j)))
            sb_tie_broadcast(t, SB_OUT(j), X);
    for (; axis < rank; axis++)
        sb_tie_stats(t, X, axis, changes);
    return SB_OK;
}

sb_status sb_tie_skip_layer_norm(sb_ties *t)
{
    int rank = sb_tie_rank(t, X);

    for (uint32_t i = 0; i < t->node->n_in; i++)
        if (sb_tie_has(t, (int)i))
            sb_tie_broadcast(t, (int)i, Y);
    for (uint32_t j = 1; j < t->node->n_out; j++)
        if (sb_tie_has(t, SB_OUT(j)))
            sb_tie_broadcast(t, SB_OUT(j), Y);
    sb_tie_stats(t, X, rank - 1, changes);
    return SB_OK;
}

sb_status sb_tie_lrn(sb_ties *t)
{
    if (sb_tie_rank(t, X) < 2)
        return SB_OK;
    sb_tie_same_all(t, X, Y);
    sb_tie_stats(t, X, 1, "neighboring channels are normalized together");
    return SB_OK;
}

sb_status sb_tie_lp_norm(sb_ties *t)
{
    int axis = sb_tie_axis(t, "axis", sb_tie_rank(t, X));

    if (axis < 0)
        return SB_OK;
    sb_tie_same_all(t, X, Y);
    sb_tie_stats(t, X, axis, changes);
    return SB_OK;
}

sb_status sb_tie_mean_variance(sb_ties *t)
{
    static const int64_t usual[] = {0, 2, 3};
    const sb_attr *a = sb_node_attr(t->node, "axes");
    const int64_t *axes = a ? a->ints : usual;
    int rank = sb_tie_rank(t, X);

    sb_tie_same_all(t, X, Y);
    for (size_t i = 0; i < (a ? a->n : SB_COUNT(usual)); i++) {
        int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
        if (axis >= 0 && axis < rank)
            sb_tie_stats(t, X, (int)axis, changes);
    }
    return SB_OK;
}
