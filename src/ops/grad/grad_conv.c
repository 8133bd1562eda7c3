/* Gradients of convolutions, pools and batch normalization. */
#include "ops/grad/grad.h"
#include "ops/grad/grad_rules.h"

enum { WINDOW_ATTRS_MOST = 8 };

/* The attributes of the node that its gradients have, too. */
static size_t window_attrs(const sb_grad *g, sb_attr *out)
{
    static const char *const names[] = {
        "auto_pad",  "ceil_mode", "count_include_pad",
        "dilations", "group",     "kernel_shape",
        "pads",      "strides"};
    size_t n = 0;

    _Static_assert(SB_COUNT(names) == WINDOW_ATTRS_MOST, "one of each");
    for (size_t k = 0; k < SB_COUNT(names); k++) {
        const sb_attr *a = sb_node_attr(g->node, names[k]);
        if (a)
            out[n++] = *a;
    }
    return n;
}

/* An operator of the same window. */
static sb_value_id window_emit(sb_grad *g, const char *op,
                               const sb_value_id *in, size_t n_in)
{
    sb_attr attrs[WINDOW_ATTRS_MOST];

    return sb_emit(g, &(sb_emit_spec){.op = op,
                                      .more_in = in,
                                      .n_in = n_in,
                                      .attrs = attrs,
                                      .n_attrs = window_attrs(g, attrs)});
}

static sb_status grad_rank(sb_grad *g, sb_value_id v, int *rank)
{
    *rank = sb_grad_type(g, v)->shape.rank;
    return *rank < 2 ? sb_grad_refuse(g, "the rank of its input is not known")
                     : SB_OK;
}

/* ---- convolutions ------------------------------------------------------- */

sb_status sb_grad_conv(sb_grad *g)
{
    sb_value_id x = sb_grad_in(g, 0), w = sb_grad_in(g, 1), dy = g->dy[0];
    int rank;

    SB_TRY(grad_rank(g, x, &rank));
    if (g->wanted[0])
        g->dx[0] =
            window_emit(g, "ConvGradX",
                        (const sb_value_id[]){dy, w, SB_NONE, SB_NONE, x}, 5);
    if (g->wanted[1])
        g->dx[1] =
            window_emit(g, "ConvGradW", (const sb_value_id[]){x, dy, w}, 3);
    if (sb_grad_wants(g, 2))
        g->dx[2] = sb_grad_channel_sum(g, dy, rank);
    return SB_OK;
}

/* It is the gradient of a convolution, so that its own is that convolution;
 * pads that follow from the shape of the result are not found again. */
sb_status sb_grad_conv_transpose(sb_grad *g)
{
    sb_value_id x = sb_grad_in(g, 0), w = sb_grad_in(g, 1), dy = g->dy[0];
    int rank;

    SB_TRY(grad_rank(g, x, &rank));
    if (sb_node_attr(g->node, "output_shape") ||
        !(sb_node_string_is(g->node, "auto_pad", "NOTSET", true) ||
          sb_node_string_is(g->node, "auto_pad", "VALID", false)))
        return sb_grad_refuse(g,
                              "its pads follow from the shape of its result; "
                              "give pads instead");
    if (g->wanted[0])
        g->dx[0] = window_emit(g, "Conv", (const sb_value_id[]){dy, w}, 2);
    if (g->wanted[1])
        g->dx[1] =
            window_emit(g, "ConvGradW", (const sb_value_id[]){dy, x, w}, 3);
    if (sb_grad_wants(g, 2))
        g->dx[2] = sb_grad_channel_sum(g, dy, rank);
    return SB_OK;
}

/* ---- pools -------------------------------------------------------------- */

sb_status sb_grad_max_pool(sb_grad *g)
{
    g->dx[0] = window_emit(
        g, "MaxPoolGrad", (const sb_value_id[]){g->dy[0], sb_grad_in(g, 0)}, 2);
    return SB_OK;
}

sb_status sb_grad_average_pool(sb_grad *g)
{
    g->dx[0] =
        window_emit(g, "AveragePoolGrad",
                    (const sb_value_id[]){g->dy[0], sb_grad_in(g, 0)}, 2);
    return SB_OK;
}

/* y = (sum |x|^p)^(1/p):  dx = sign(x) |x|^(p-1) times the dy y^(1-p) of all
 * windows that hold it; nothing comes from windows of zeros. */
static sb_value_id lp_pool_given(sb_grad *g, int64_t p)
{
    sb_value_id y = g->node->outputs[0], one = sb_grad_scalar(g, y, 1);
    sb_value_id zero = sb_grad_scalar(g, y, 0);
    sb_value_id none = sb_emit2(g, "Equal", y, zero);
    sb_value_id power = sb_emit2(g, "Pow", sb_emit3(g, "Where", none, one, y),
                                 sb_grad_scalar(g, y, (double)(1 - p)));

    return sb_emit3(g, "Where", none, zero,
                    sb_emit2(g, "Mul", g->dy[0], power));
}

static sb_value_id lp_pool_slope(sb_grad *g, int64_t p)
{
    sb_value_id x = sb_grad_in(g, 0);

    return sb_emit2(g, "Mul", sb_emit1(g, "Sign", x),
                    sb_emit2(g, "Pow", sb_emit1(g, "Abs", x),
                             sb_grad_scalar(g, x, (double)(p - 1))));
}

sb_status sb_grad_global_lp_pool(sb_grad *g)
{
    int64_t p = sb_node_int(g->node, "p", 2);

    g->dx[0] = sb_emit2(g, "Mul", lp_pool_slope(g, p), lp_pool_given(g, p));
    return SB_OK;
}

sb_status sb_grad_lp_pool(sb_grad *g)
{
    int64_t p = sb_node_int(g->node, "p", 2);
    const sb_attr *window = sb_node_attr(g->node, "kernel_shape");
    sb_value_id x = sb_grad_in(g, 0);
    sb_attr attrs[WINDOW_ATTRS_MOST + 1];
    size_t n = window_attrs(g, attrs);
    double count = 1;

    if (sb_node_int(g->node, "ceil_mode", 0) != 0 || !window)
        return sb_grad_refuse(g, "ceil_mode");
    for (size_t i = 0; i < window->n; i++)
        count *= (double)window->ints[i];
    attrs[n++] = SB_EMIT_INT("count_include_pad", 1);
    sb_value_id mean =
        sb_emit(g, &(sb_emit_spec){.op = "AveragePoolGrad",
                                   .in = {lp_pool_given(g, p), x},
                                   .n_in = 2,
                                   .attrs = attrs,
                                   .n_attrs = n});
    g->dx[0] = sb_emit2(g, "Mul", lp_pool_slope(g, p),
                        sb_emit2(g, "Mul", mean, sb_grad_scalar(g, x, count)));
    return SB_OK;
}

/* ---- batch normalization ------------------------------------------------ */

/* With statistics that stay: y = (x - mean) inv scale + bias. */
sb_status sb_grad_batch_norm(sb_grad *g)
{
    sb_value_id x = sb_grad_in(g, 0), scale = sb_grad_in(g, 1), dy = g->dy[0];
    sb_value_id mean = sb_grad_in(g, 3), var = sb_grad_in(g, 4);
    double epsilon = (double)sb_node_float(g->node, "epsilon", 1e-5f);
    int rank;

    SB_TRY(grad_rank(g, x, &rank));
    if (sb_node_int(g->node, "training_mode", 0) != 0)
        return sb_grad_refuse(g, "with training_mode; BatchNormTrain can");
    sb_value_id inv = sb_emit1(
        g, "Reciprocal",
        sb_emit1(g, "Sqrt",
                 sb_emit2(g, "Add", var, sb_grad_scalar(g, var, epsilon))));
    if (g->wanted[0])
        g->dx[0] = sb_emit2(
            g, "Mul", dy,
            sb_grad_channel_column(g, sb_emit2(g, "Mul", scale, inv), rank));
    if (g->wanted[1] || sb_grad_wants(g, 4)) {
        sb_value_id d =
            sb_emit2(g, "Sub", x, sb_grad_channel_column(g, mean, rank));
        g->dx[1] = sb_emit2(
            g, "Mul", sb_grad_channel_sum(g, sb_emit2(g, "Mul", dy, d), rank),
            inv);
    }
    if (g->wanted[2] || sb_grad_wants(g, 3))
        g->dx[2] = sb_grad_channel_sum(g, dy, rank);
    /* Networks that normalize their weights compute statistics of them. */
    if (sb_grad_wants(g, 3))
        g->dx[3] = sb_emit1(
            g, "Neg",
            sb_emit2(g, "Mul", g->dx[2], sb_emit2(g, "Mul", scale, inv)));
    if (sb_grad_wants(g, 4))
        g->dx[4] = sb_emit2(g, "Mul", sb_emit2(g, "Mul", g->dx[1], scale),
                            sb_emit2(g, "Mul", sb_emit2(g, "Mul", inv, inv),
                                     sb_grad_scalar(g, var, -0.5)));
    return SB_OK;
}

/* With those of the batch, which it leaves as results 1 and 2. */
sb_status sb_grad_batch_norm_train(sb_grad *g)
{
    sb_value_id dx[3];

    if (g->node->n_out < 3 || g->node->outputs[1] == SB_NONE ||
        g->node->outputs[2] == SB_NONE)
        return sb_grad_refuse(g, "without its results mean and inv_std");
    (void)sb_emit(
        g, &(sb_emit_spec){.op = "BatchNormGrad",
                           .in = {g->dy[0], sb_grad_in(g, 0), sb_grad_in(g, 1),
                                  g->node->outputs[1], g->node->outputs[2]},
                           .n_in = 5,
                           .n_out = 3,
                           .more_out = dx});
    for (uint32_t i = 0; i < 3 && g->status == SB_OK; i++)
        if (g->wanted[i])
            g->dx[i] = dx[i];
    return SB_OK;
}
