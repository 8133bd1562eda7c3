/* Gradients of the losses that a file may hold, NegativeLogLikelihoodLoss and
 * SoftmaxCrossEntropyLoss, with p the input or the logarithm of its softmax:
 *
 *     loss[n, d] = -w p[n, t, d],  w = weight[t], or 0 where t is ignored */
#include "ops/grad/grad.h"
#include "ops/grad/grad_rules.h"

enum { IN_X, IN_TARGET, IN_WEIGHT };

/* `t` with a class that exists where it is to be ignored, and the weight of
 * each. */
static sb_value_id nll_weights(sb_grad *g, sb_value_id x, sb_value_id *t)
{
    sb_value_id weight = sb_grad_in(g, IN_WEIGHT);
    const sb_attr *ignored = sb_node_attr(g->node, "ignore_index");
    sb_value_id kept = SB_NONE, one = sb_grad_scalar(g, x, 1);
    sb_value_id target = *t;

    if (ignored) {
        kept =
            sb_emit1(g, "Not",
                     sb_emit2(g, "Equal", target,
                              sb_grad_scalar(g, target, (double)ignored->i)));
        *t = sb_emit3(g, "Where", kept, target, sb_grad_scalar(g, target, 0));
    }
    if (weight != SB_NONE)
        one = sb_emit2(g, "Gather", weight, *t);
    else
        one = sb_emit2(g, "Expand", one, sb_grad_shape(g, target));
    return ignored ? sb_emit3(g, "Where", kept, one, sb_grad_scalar(g, x, 0))
                   : one;
}

sb_status sb_grad_nll_loss(sb_grad *g)
{
    sb_value_id x = sb_grad_in(g, IN_X), t = sb_grad_in(g, IN_TARGET);
    const int64_t class_axis = 1;
    sb_value_id axis = sb_grad_ints(g, &class_axis, 1), dp = SB_NONE;
    const sb_attr on_axis = SB_EMIT_INT("axis", class_axis);
    bool softmax = sb_node_is(g->node, "SoftmaxCrossEntropyLoss");

    if (sb_grad_wants(g, IN_WEIGHT))
        return sb_grad_refuse(g, "its weights");
    if (g->dy[0] != SB_NONE) {
        sb_value_id w = nll_weights(g, x, &t);
        sb_value_id each = sb_emit1(g, "Neg", sb_emit2(g, "Mul", w, g->dy[0]));
        if (sb_node_string_is(g->node, "reduction", "mean", true))
            each = sb_emit2(g, "Div", each,
                            sb_emit_with(g, "ReduceSum", w, SB_NONE,
                                         SB_EMIT_INT("keepdims", 0)));
        const float off_on[] = {0, 1};
        sb_value_id values = SB_NONE;
        SB_TRY(sb_graph_add_constant(g->graph, "back.const", SB_DTYPE_F32, 1,
                                     (const int64_t[]){2}, off_on, &values));
        dp = sb_emit2(
            g, "Mul", sb_emit2(g, "Unsqueeze", each, axis),
            sb_emit(g, &(sb_emit_spec){.op = "OneHot",
                                       .in = {t, sb_grad_dim(g, x, 1), values},
                                       .n_in = 3,
                                       .attrs = &on_axis,
                                       .n_attrs = 1}));
    }
    if (g->node->n_out > 1 && g->dy[1] != SB_NONE)
        dp = dp == SB_NONE ? g->dy[1] : sb_emit2(g, "Add", dp, g->dy[1]);
    if (softmax) {
        const sb_attr attrs[] = {on_axis, SB_EMIT_INT("log", 1)};
        dp = sb_emit(g,
                     &(sb_emit_spec){.op = "SoftmaxGrad",
                                     .in = {dp, sb_emit_with(g, "LogSoftmax", x,
                                                             SB_NONE, on_axis)},
                                     .n_in = 2,
                                     .attrs = attrs,
                                     .n_attrs = 2});
    }
    g->dx[IN_X] = dp;
    return SB_OK;
}
