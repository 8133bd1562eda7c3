/* Gradients of normalizations over groups of channels, by a norm, and by what
 * is near. */
#include "ops/grad/grad.h"
#include "ops/grad/grad_rules.h"

/* ---- groups ------------------------------------------------------------- */

/* x [N, C, ...] as [N, groups, rest], of which `rest` is normalized. */
static sb_value_id group_shape(sb_grad *g, sb_value_id x, int rank)
{
    int64_t groups = sb_node_int(g->node, "num_groups", 0);
    sb_value_id rest = sb_grad_dim(g, x, 1), n_groups;
    sb_value_id sizes[SB_EMIT_INPUTS];
    const sb_attr first = SB_EMIT_INT("axis", 0);

    if (groups > 0) {
        n_groups = sb_grad_ints(g, &groups, 1);
        rest = sb_emit2(g, "Div", rest, n_groups);
    } else { /* InstanceNormalization: each channel by itself */
        const int64_t one = 1;
        n_groups = rest;
        rest = sb_grad_ints(g, &one, 1);
    }
    for (int i = 2; i < rank; i++)
        rest = sb_emit2(g, "Mul", rest, sb_grad_dim(g, x, i));
    sizes[0] = sb_grad_dim(g, x, 0);
    sizes[1] = n_groups;
    sizes[2] = rest;
    return sb_emit(g, &(sb_emit_spec){.op = "Concat",
                                      .more_in = sizes,
                                      .n_in = 3,
                                      .attrs = &first,
                                      .n_attrs = 1});
}

static sb_value_id group_view(sb_grad *g, sb_value_id v, sb_value_id shape)
{
    return sb_emit_with(g, "Reshape", v, shape, SB_EMIT_INT("allowzero", 1));
}

/* With z, the normalized x: dscale = sum(dy z), and dx is that of a layer
 * normalization of each group by dy scale. */
sb_status sb_grad_group_norm(sb_grad *g)
{
    sb_value_id x = sb_grad_in(g, 0), dy = g->dy[0];
    int rank = sb_grad_type(g, x)->shape.rank;
    const int64_t last = 2;
    const sb_attr attrs[] = {
        SB_EMIT_INT("axis", -1),
        SB_EMIT_FLOAT("epsilon", sb_node_float(g->node, "epsilon", 1e-5f))};

    if (rank < 2)
        return sb_grad_refuse(g, "the rank of its input is not known");
    sb_value_id shape = group_shape(g, x, rank);
    sb_value_id ones =
        sb_emit2(g, "Expand", sb_grad_scalar(g, x, 1),
                 sb_emit2(g, "Gather", shape, sb_grad_ints(g, &last, 1)));
    sb_value_id groups = group_view(g, x, shape);
    if (g->wanted[0]) {
        sb_value_id scaled = sb_emit2(
            g, "Mul", dy, sb_grad_channel_column(g, sb_grad_in(g, 1), rank));
        g->dx[0] = sb_grad_reshape(
            g,
            sb_emit(g, &(sb_emit_spec){.op = "NormGrad",
                                       .in = {group_view(g, scaled, shape),
                                              groups, ones},
                                       .n_in = 3,
                                       .attrs = attrs,
                                       .n_attrs = 2}),
            x);
    }
    if (g->wanted[1]) {
        sb_value_id z = sb_emit(g, &(sb_emit_spec){.op = "LayerNormalization",
                                                   .in = {groups, ones},
                                                   .n_in = 2,
                                                   .attrs = attrs,
                                                   .n_attrs = 2});
        g->dx[1] = sb_grad_channel_sum(
            g, sb_emit2(g, "Mul", dy, sb_grad_reshape(g, z, x)), rank);
    }
    if (g->wanted[2])
        g->dx[2] = sb_grad_channel_sum(g, dy, rank);
    return SB_OK;
}

/* ---- norms -------------------------------------------------------------- */

/* y = x / |x|:  dx = (dy - y sum(dy y)) / |x| for p = 2, and with the signs of
 * x instead of the first y for p = 1; 0 where the norm is. */
sb_status sb_grad_lp_norm(sb_grad *g)
{
    sb_value_id x = sb_grad_in(g, 0), dy = g->dy[0], y = g->node->outputs[0];
    bool two = sb_node_int(g->node, "p", 2) == 2;
    int64_t axis = sb_node_int(g->node, "axis", -1);
    sb_value_id axes = sb_grad_ints(g, &axis, 1);
    const sb_attr keep = SB_EMIT_INT("keepdims", 1);
    sb_value_id norm =
        sb_emit_with(g, two ? "ReduceL2" : "ReduceL1", x, axes, keep);
    sb_value_id sum =
        sb_emit_with(g, "ReduceSum", sb_emit2(g, "Mul", dy, y), axes, keep);
    sb_value_id along =
        sb_emit2(g, "Mul", two ? y : sb_emit1(g, "Sign", x), sum);
    sb_value_id dx = sb_emit2(g, "Div", sb_emit2(g, "Sub", dy, along), norm);
    sb_value_id zero = sb_grad_scalar(g, x, 0);

    g->dx[0] = sb_emit3(g, "Where", sb_emit2(g, "Equal", norm, zero), zero, dx);
    return SB_OK;
}

/* y = (x - mean) / sigma over some axes, where each element has a mean of its
 * own group:  dx = (dy - mean(dy) - y mean(dy y)) / sigma */
sb_status sb_grad_mean_variance(sb_grad *g)
{
    static const int64_t usual[] = {0, 2, 3};
    const sb_attr *given = sb_node_attr(g->node, "axes");
    bool some = given && given->n > 0;
    sb_value_id x = sb_grad_in(g, 0), dy = g->dy[0], y = g->node->outputs[0];
    sb_value_id axes =
        sb_grad_ints(g, some ? given->ints : usual, some ? (int)given->n : 3);
    const sb_attr keep = SB_EMIT_INT("keepdims", 1);
    sb_value_id c =
        sb_emit2(g, "Sub", x, sb_emit_with(g, "ReduceMean", x, axes, keep));
    sb_value_id sigma = sb_emit1(
        g, "Sqrt",
        sb_emit_with(g, "ReduceMean", sb_emit2(g, "Mul", c, c), axes, keep));
    sb_value_id along = sb_emit2(
        g, "Mul", y,
        sb_emit_with(g, "ReduceMean", sb_emit2(g, "Mul", dy, y), axes, keep));
    sb_value_id dx =
        sb_emit2(g, "Sub", dy, sb_emit_with(g, "ReduceMean", dy, axes, keep));

    g->dx[0] = sb_emit2(g, "Div", sb_emit2(g, "Sub", dx, along),
                        sb_emit2(g, "Add", sigma, sb_grad_scalar(g, x, 1e-9)));
    return SB_OK;
}

/* ---- neighbors ---------------------------------------------------------- */

/* The mean over nearby channels, zeros beyond the first and the last counted,
 * or its gradient; channels are the first axis of an image. */
static sb_value_id lrn_pool(sb_grad *g, const char *op, sb_value_id v,
                            sb_value_id like, int rank)
{
    int64_t size = sb_node_int(g->node, "size", 1), front = 1;
    int64_t window[SB_MAX_RANK], pads[2 * SB_MAX_RANK] = {0};
    int n = rank - 1;
    sb_value_id axis = sb_grad_ints(g, &front, 1);

    for (int i = 0; i < n; i++)
        window[i] = i ? 1 : size;
    pads[0] = (size - 1) / 2;
    pads[n] = size - 1 - pads[0];
    const sb_attr attrs[] = {SB_EMIT_INTS("kernel_shape", window, n),
                             SB_EMIT_INTS("pads", pads, 2 * n),
                             SB_EMIT_INT("count_include_pad", 1)};
    sb_emit_spec spec = {.op = op,
                         .in = {sb_emit2(g, "Unsqueeze", v, axis)},
                         .n_in = 1,
                         .attrs = attrs,
                         .n_attrs = 3};
    if (like != SB_NONE)
        spec.in[spec.n_in++] = sb_emit2(g, "Unsqueeze", like, axis);
    return sb_emit2(g, "Squeeze", sb_emit(g, &spec), axis);
}

/* y = x s^-beta, s = bias + alpha near(x x):
 * dx = dy s^-beta - 2 alpha beta x near'(dy x s^(-beta - 1)) */
sb_status sb_grad_lrn(sb_grad *g)
{
    sb_value_id x = sb_grad_in(g, 0), dy = g->dy[0];
    double alpha = (double)sb_node_float(g->node, "alpha", 1e-4f);
    double beta = (double)sb_node_float(g->node, "beta", 0.75f);
    double bias = (double)sb_node_float(g->node, "bias", 1);
    int rank = sb_grad_type(g, x)->shape.rank;

    if (rank < 2)
        return sb_grad_refuse(g, "the rank of its input is not known");
    sb_value_id near =
        lrn_pool(g, "AveragePool", sb_emit2(g, "Mul", x, x), SB_NONE, rank);
    sb_value_id s = sb_emit2(
        g, "Add", sb_emit2(g, "Mul", near, sb_grad_scalar(g, x, alpha)),
        sb_grad_scalar(g, x, bias));
    sb_value_id direct = sb_emit2(
        g, "Mul", dy, sb_emit2(g, "Pow", s, sb_grad_scalar(g, x, -beta)));
    sb_value_id inner =
        sb_emit2(g, "Mul", sb_emit2(g, "Mul", dy, x),
                 sb_emit2(g, "Pow", s, sb_grad_scalar(g, x, -beta - 1)));
    sb_value_id back =
        sb_emit2(g, "Mul", lrn_pool(g, "AveragePoolGrad", inner, x, rank),
                 sb_emit2(g, "Mul", x, sb_grad_scalar(g, x, 2 * alpha * beta)));

    g->dx[0] = sb_emit2(g, "Sub", direct, back);
    return SB_OK;
}
