/* Losses as nodes.  The operators of class_loss.c take classes along the last
 * axis; a Transpose brings axis 1 there, which costs nothing for images that
 * lie channels-last. */
#include "ops/learn/loss.h"

#include "ops/grad/grad.h"

/* `v` with this axis last. */
static sb_value_id loss_last(sb_grad *g, sb_value_id v, int rank, int axis)
{
    int64_t perm[SB_MAX_RANK];

    if (axis == rank - 1)
        return v;
    for (int i = 0; i < rank; i++)
        perm[i] = i < axis ? i : i + 1 < rank ? i + 1 : axis;
    return sb_emit_with(g, "Transpose", v, SB_NONE,
                        SB_EMIT_INTS("perm", perm, rank));
}

/* With m the smaller of |d| and beta, m (|d| - m / 2) / beta is d^2 / 2 beta up
 * to beta and |d| - beta / 2 from there on. */
static sb_value_id loss_smooth_l1(sb_grad *g, sb_value_id d, float beta)
{
    sb_value_id a = sb_emit1(g, "Abs", d);
    sb_value_id m = sb_emit2(g, "Min", a, sb_grad_scalar(g, a, (double)beta));
    sb_value_id half = sb_emit2(g, "Mul", m, sb_grad_scalar(g, m, 0.5));
    sb_value_id y = sb_emit2(g, "Mul", m, sb_emit2(g, "Sub", a, half));

    return sb_emit2(g, "Div", y, sb_grad_scalar(g, y, (double)beta));
}

/* -t log s(x) - (1 - t) log(1 - s(x)) of the sigmoid s. */
static sb_value_id loss_bce(sb_grad *g, sb_value_id x, sb_value_id target)
{
    return sb_emit2(g, "Sub", sb_emit1(g, "Softplus", x),
                    sb_emit2(g, "Mul", x, target));
}

/* The mean over all elements. */
static sb_value_id loss_of_elements(sb_grad *g, const sb_loss_options *opt,
                                    sb_value_id x, sb_value_id target)
{
    sb_value_id y = SB_NONE;

    if (opt->kind == SB_LOSS_BCE) {
        y = loss_bce(g, x, target);
    } else {
        sb_value_id d = sb_emit2(g, "Sub", x, target);

        y = opt->kind == SB_LOSS_MSE  ? sb_emit2(g, "Mul", d, d)
            : opt->kind == SB_LOSS_L1 ? sb_emit1(g, "Abs", d)
                                      : loss_smooth_l1(g, d, opt->beta);
    }
    return sb_emit_with(g, "ReduceMean", y, SB_NONE,
                        SB_EMIT_INT("keepdims", 0));
}

static sb_value_id loss_of_classes(sb_grad *g, const sb_loss_options *opt,
                                   sb_value_id x, sb_value_id target)
{
    bool labels = opt->kind == SB_LOSS_CROSS_ENTROPY;
    int rank = sb_grad_type(g, x)->shape.rank;
    int axis = opt->axis < 0 ? opt->axis + rank : opt->axis;
    const sb_attr kl[] = {SB_EMIT_FLOAT(
        "temperature", opt->temperature > 0 ? opt->temperature : 1)};
    const sb_attr entropy[] = {SB_EMIT_FLOAT("smoothing", opt->smoothing),
                               SB_EMIT_INT("ignore_index", opt->ignore_index)};

    if (axis < 0 || axis >= rank ||
        sb_grad_type(g, target)->shape.rank != rank - labels) {
        g->status = sb_fail(
            g->graph->ctx, SB_BAD_ARG,
            "target '%s' of rank %d does not fit '%s' of rank %d with classes "
            "along axis %d",
            sb_graph_value(g->graph, target)->name,
            sb_grad_type(g, target)->shape.rank,
            sb_graph_value(g->graph, x)->name, rank, opt->axis);
        return SB_NONE;
    }
    x = loss_last(g, x, rank, axis);
    target = labels ? target : loss_last(g, target, rank, axis);
    return sb_emit(
        g, &(sb_emit_spec){.op = labels ? "CrossEntropy" : "KlDivergence",
                           .in = {x, target},
                           .n_in = 2,
                           .attrs = labels ? entropy : kl,
                           .n_attrs = labels ? 2 : 1});
}

sb_status sb_graph_add_loss(sb_graph *graph, const sb_loss_options *opt,
                            sb_value_id x, sb_value_id target, sb_value_id *out)
{
    sb_grad g = {.graph = graph};
    bool classes =
        opt->kind == SB_LOSS_CROSS_ENTROPY || opt->kind == SB_LOSS_KL;
    sb_value_id loss = classes ? loss_of_classes(&g, opt, x, target)
                               : loss_of_elements(&g, opt, x, target);

    SB_TRY(g.status);
    SB_TRY(sb_graph_claim_name(graph, loss, "loss"));
    *out = loss;
    return SB_OK;
}
