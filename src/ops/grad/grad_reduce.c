/* Gradients of reductions: the gradient of a result goes to all elements that
 * went into it, times a factor of the family. */
#include "ops/grad/grad.h"
#include "ops/grad/grad_rules.h"

#include <string.h>

#include "ops/reduce/reduce.h"

/* `v`, of the shape of the result, with the reduced dimensions as 1, so that
 * it broadcasts to the input. */
static sb_value_id reduce_kept(sb_grad *g, sb_value_id v)
{
    const sb_reduce_attrs *a = g->attrs;
    sb_value_id axes = sb_grad_in(g, 1);

    if (a->keepdims)
        return v;
    /* A sum over everything has no dimension, and broadcasts as it is. */
    return axes == SB_NONE ? v : sb_emit2(g, "Unsqueeze", v, axes);
}

/* How many elements went into one result, as a number of the type of x. */
static sb_value_id reduce_count(sb_grad *g, sb_value_id x, sb_value_id y)
{
    sb_value_id quotient =
        sb_emit2(g, "Div", sb_emit1(g, "Size", x), sb_emit1(g, "Size", y));

    if (g->status != SB_OK)
        return SB_NONE;
    return sb_emit_with(g, "Cast", quotient, SB_NONE,
                        SB_EMIT_INT("to", sb_grad_type(g, x)->dtype));
}

/* 1 where x is the extreme, shared where several are. */
static sb_value_id reduce_extreme(sb_grad *g, sb_value_id x, sb_value_id y,
                                  sb_value_id axes)
{
    sb_value_id equal = sb_emit2(g, "Equal", x, y);

    if (g->status != SB_OK)
        return SB_NONE;
    sb_value_id mask =
        sb_emit_with(g, "Cast", equal, SB_NONE,
                     SB_EMIT_INT("to", sb_grad_type(g, x)->dtype));
    sb_value_id count =
        sb_emit_with(g, "ReduceSum", mask, axes, SB_EMIT_INT("keepdims", 1));
    return sb_emit2(g, "Div", mask, count);
}

static sb_value_id reduce_greatest(sb_grad *g, sb_value_id x, sb_value_id y)
{
    return reduce_extreme(g, x, y, sb_grad_in(g, 1));
}

/* x / y, and 0 for the norm of nothing but zeros. */
static sb_value_id reduce_l2(sb_grad *g, sb_value_id x, sb_value_id y)
{
    sb_value_id zero = sb_emit2(g, "Equal", y, sb_grad_scalar(g, y, 0));

    return sb_emit2(g, "Div", x,
                    sb_emit3(g, "Where", zero, sb_grad_scalar(g, y, 1), y));
}

static sb_value_id reduce_l1(sb_grad *g, sb_value_id x, sb_value_id y)
{
    (void)y;
    return sb_emit1(g, "Sign", x);
}

static sb_value_id reduce_square(sb_grad *g, sb_value_id x, sb_value_id y)
{
    (void)y;
    return sb_emit2(g, "Mul", x, sb_grad_scalar(g, x, 2));
}

static sb_value_id reduce_mean(sb_grad *g, sb_value_id x, sb_value_id y)
{
    return sb_emit1(g, "Reciprocal", reduce_count(g, x, y));
}

static sb_value_id reduce_log_sum(sb_grad *g, sb_value_id x, sb_value_id y)
{
    (void)x;
    return sb_emit1(g, "Exp", sb_emit1(g, "Neg", y));
}

static sb_value_id reduce_log_sum_exp(sb_grad *g, sb_value_id x, sb_value_id y)
{
    return sb_emit1(g, "Exp", sb_emit2(g, "Sub", x, y));
}

/* The product of all others, which is 0 if one of them is. */
static sb_value_id reduce_prod(sb_grad *g, sb_value_id x, sb_value_id y)
{
    (void)y;
    if (g->status != SB_OK)
        return SB_NONE;
    sb_value_id axes = sb_grad_in(g, 1), zero = sb_grad_scalar(g, x, 0);
    const sb_attr kept = SB_EMIT_INT("keepdims", 1);
    const sb_attr to = SB_EMIT_INT("to", sb_grad_type(g, x)->dtype);
    sb_value_id equal = sb_emit2(g, "Equal", x, zero);
    sb_value_id is_zero = sb_emit_with(g, "Cast", equal, SB_NONE, to);
    sb_value_id rest = sb_emit3(g, "Where", equal, sb_grad_scalar(g, x, 1), x);
    sb_value_id product = sb_emit_with(g, "ReduceProd", rest, axes, kept);
    sb_value_id zeros =
        sb_emit2(g, "Sub", sb_emit_with(g, "ReduceSum", is_zero, axes, kept),
                 is_zero); /* among the others */

    return sb_emit3(g, "Where", sb_emit2(g, "Equal", zeros, zero),
                    sb_emit2(g, "Div", product, rest), zero);
}

/* The derivative of a result by one element; NULL: 1.  `y` is the result with
 * its dimensions kept. */
static const struct {
    const char *op;
    sb_value_id (*factor)(sb_grad *g, sb_value_id x, sb_value_id y);
} families[] = {
    {"ReduceL1", reduce_l1},
    {"ReduceL2", reduce_l2},
    {"ReduceLogSum", reduce_log_sum},
    {"ReduceLogSumExp", reduce_log_sum_exp},
    {"ReduceMax", reduce_greatest},
    {"ReduceMean", reduce_mean},
    {"ReduceMin", reduce_greatest},
    {"ReduceProd", reduce_prod},
    {"ReduceSum", NULL},
    {"ReduceSumSquare", reduce_square},
};

sb_status sb_grad_reduce(sb_grad *g)
{
    const sb_reduce_attrs *a = g->attrs;
    sb_value_id x = sb_grad_in(g, 0);

    if (a->noop)
        return sb_grad_refuse(g, "noop_with_empty_axes");
    sb_value_id dy = reduce_kept(g, g->dy[0]);
    for (size_t i = 0; i < SB_COUNT(families); i++)
        if (strcmp(families[i].op, g->node->op) == 0 && families[i].factor)
            dy = sb_emit2(
                g, "Mul", dy,
                families[i].factor(g, x, reduce_kept(g, g->node->outputs[0])));
    if (g->status == SB_OK)
        g->dx[0] = sb_grad_expand(g, dy, x);
    return SB_OK;
}

sb_status sb_grad_global_average(sb_grad *g)
{
    sb_value_id x = sb_grad_in(g, 0);
    sb_value_id count = reduce_count(g, x, g->node->outputs[0]);

    g->dx[0] = sb_grad_expand(g, sb_emit2(g, "Div", g->dy[0], count), x);
    return SB_OK;
}

/* Elements that are the greatest share the gradient. */
sb_status sb_grad_global_max(sb_grad *g)
{
    sb_value_id x = sb_grad_in(g, 0), y = g->node->outputs[0];
    int rank = sb_grad_type(g, x)->shape.rank;
    int64_t axes[SB_MAX_RANK];

    if (rank < 3)
        return sb_grad_refuse(g, "the rank of its input is not known");
    for (int i = 2; i < rank; i++)
        axes[i - 2] = i;
    sb_value_id share =
        reduce_extreme(g, x, y, sb_grad_ints(g, axes, rank - 2));
    g->dx[0] = sb_emit2(g, "Mul", share, g->dy[0]);
    return SB_OK;
}
