/* Pass "fuse_bn": a BatchNormalization behind a convolution or a linear layer
 * with constant weights goes into them.
 *
 *     r = 1 / sqrt(var + epsilon)      for each output channel
 *     w' = w * (gamma * r),   b' = (b - mean) * r * gamma + beta
 *
 * In float and in this order, as PyTorch does it.  The last bit counts: with a
 * symmetric range the largest weight of a channel lies right between the two
 * last integers, and what it is quantized to hangs on the rounding here.  Only
 * in inference form, and only where the result in between has no other
 * consumer. */
#include <string.h>

#include "ops/op_registry.h"
#include "passes/bn_channels.h"
#include "passes/pass.h"
#include "passes/rewrite.h"
#include "tensor/mapped.h"

/* The layer in front and how its weights are laid out. */
typedef struct layer {
    sb_node_id node;
    sb_value_id weight, bias; /* bias SB_NONE: none yet */
    int64_t channels;         /* of the output */
    /* Weights as [outer, channels, inner]; with groups of a transposed
     * convolution the channel also depends on the outer index. */
    int64_t outer, inner, per_group, outer_per_group;
    int axis; /* of the channels in the weights; -1: with groups, none */
    float bias_factor; /* beta of Gemm */
} layer;

static const sb_tensor *f32_const(const sb_graph *g, sb_value_id v)
{
    if (!sb_is_const(g, v))
        return NULL;
    const sb_tensor *t = &sb_graph_value(g, v)->constant;
    return t->dtype == SB_DTYPE_F32 ? t : NULL;
}

/* Axis `axis` of the weights counts output channels. */
static bool set_weights(layer *l, const sb_tensor *w, int axis, int64_t groups)
{
    if (axis < 0 || groups < 1)
        return false;
    l->outer = sb_dims_product(w->dims, 0, axis);
    l->inner = sb_dims_product(w->dims, axis + 1, w->rank);
    l->per_group = w->dims[axis];
    l->channels = l->per_group * (axis == 1 ? groups : 1);
    l->axis = axis == 1 && groups > 1 ? -1 : axis;
    l->outer_per_group = axis == 1 && groups > 0 ? l->outer / groups : l->outer;
    return l->outer_per_group > 0 && (axis == 0 || l->outer % groups == 0);
}

static bool is_linear(const sb_graph *g, const sb_node *node,
                      const sb_tensor *w)
{
    const sb_shape *x = &sb_graph_value(g, node->inputs[0])->type.shape;

    return (sb_node_is(node, "Gemm") || sb_node_is(node, "MatMul")) &&
           w->rank == 2 && x->rank == 2;
}

/* Is the value made by a layer that can take the factors? */
static bool find_layer(const sb_graph *g, sb_value_id x, layer *l)
{
    const sb_value *value = sb_graph_value(g, x);
    const sb_node *node = sb_graph_producer(g, x);

    if (!node || value->n_uses != 1 || value->is_output)
        return false;
    const sb_tensor *w = f32_const(g, sb_node_in(node, 1));
    if (!w)
        return false;
    *l = (layer){.node = value->producer,
                 .weight = node->inputs[1],
                 .bias = sb_node_in(node, 2),
                 .bias_factor = 1};
    if (sb_node_is(node, "Gemm"))
        l->bias_factor = sb_node_float(node, "beta", 1);
    if (!sb_node_is(node, "Conv") && !sb_node_is(node, "ConvTranspose") &&
        !is_linear(g, node, w))
        return false;
    if (!set_weights(l, w, sb_op_weight_axis(node, w->rank),
                     sb_node_int(node, "group", 1)))
        return false;
    if (l->bias == SB_NONE)
        return true;
    const sb_tensor *b = f32_const(g, l->bias);
    return b && b->rank == 1 && b->dims[0] == l->channels;
}

static sb_status scaled_weights(sb_graph *g, const layer *l,
                                const sb_bn_channel *f, sb_value_id *out)
{
    const sb_value *old = sb_graph_value(g, l->weight);
    sb_tensor t =
        sb_tensor_make(SB_DTYPE_F32, old->constant.rank, old->constant.dims);

    SB_TRY(sb_tensor_alloc_weight_raw(g->ctx, &t));
    memcpy(t.data, old->constant.data, sb_tensor_bytes(&t));
    float *w = t.data;
    for (int64_t o = 0; o < l->outer; o++) {
        int64_t first = o / l->outer_per_group * l->per_group;
        for (int64_t c = 0; c < l->per_group; c++) {
            const sb_bn_channel *k = &f[first + c];
            float factor = sb_bn_factor(k);
            for (int64_t i = 0; i < l->inner; i++, w++)
                *w = *w * factor;
        }
    }
    sb_status status = sb_graph_add_value_like(g, old->name, out);
    if (status == SB_OK)
        status = sb_graph_set_constant(g, *out, &t);
    sb_tensor_drop(&t);
    return status;
}

static sb_status shifted_bias(sb_graph *g, const layer *l,
                              const sb_bn_channel *f, sb_value_id *out)
{
    int64_t n = l->channels;
    float *b = sb_alloc(g->ctx, (size_t)n, sizeof *b);

    if (!b)
        return SB_NO_MEMORY;
    for (int64_t c = 0; c < n; c++) {
        float old = 0;
        if (l->bias != SB_NONE)
            old = (float)sb_tensor_get_f64(
                      &sb_graph_value(g, l->bias)->constant, c) *
                  l->bias_factor;
        b[c] = sb_bn_bias(&f[c], old);
    }
    const char *stem = sb_graph_value(g, l->weight)->name;
    sb_status status =
        sb_graph_add_constant(g, stem, SB_DTYPE_F32, 1, &n, b, out);
    sb_free(g->ctx, b);
    return status;
}

/* Tells by what the weights were multiplied. */
static sb_status report_factors(sb_graph *g, const layer *l,
                                const sb_bn_channel *f, sb_value_id scaled)
{
    if (!g->on_rescale || l->axis < 0)
        return SB_OK;
    float *factor = sb_alloc(g->ctx, (size_t)l->channels, sizeof *factor);
    if (!factor)
        return SB_NO_MEMORY;
    for (int64_t c = 0; c < l->channels; c++)
        factor[c] = sb_bn_factor(&f[c]);
    const sb_rescale r = {l->weight, scaled, l->axis, factor, l->channels};
    sb_status status = g->on_rescale(g->on_rescale_user, g, &r);
    sb_free(g->ctx, factor);
    return status;
}

/* The layer with new weights takes the place of the normalization. */
static sb_status fuse_bn_replace(sb_graph *g, sb_node_id bn, const layer *l,
                                 const sb_bn_channel *f)
{
    const sb_node old = *sb_graph_node(g, l->node);
    const char *op = sb_node_is(&old, "MatMul") ? "Gemm" : old.op;
    sb_value_id in[3] = {old.inputs[0], SB_NONE, SB_NONE};
    sb_node_id fresh = SB_NONE;

    SB_TRY(scaled_weights(g, l, f, &in[1]));
    SB_TRY(report_factors(g, l, f, in[1]));
    SB_TRY(shifted_bias(g, l, f, &in[2]));
    SB_TRY(sb_rewrite_node(g, bn, op, in, 3, &fresh));
    sb_node *node = sb_graph_node(g, fresh);
    node->name = old.name;
    node->module = old.module;
    node->origin = old.origin;
    for (uint32_t i = 0; i < old.n_attrs; i++)
        if (strcmp(old.attrs[i].name, "beta") != 0)
            SB_TRY(sb_graph_set_attr(g, fresh, &old.attrs[i]));
    return sb_rewrite_prune(g, l->node);
}

static sb_status fuse_bn_run(sb_graph *g, size_t *changes)
{
    size_t n_nodes = g->n_nodes;

    for (sb_node_id id = 0; id < n_nodes; id++) {
        const sb_node *node = sb_graph_node(g, id);
        layer l;
        sb_bn_channel *f = NULL;

        if (node->dead || !sb_node_is(node, "BatchNormalization") ||
            !find_layer(g, node->inputs[0], &l) ||
            !sb_bn_is_plain(g, node, l.channels))
            continue;
        SB_TRY(sb_bn_read(g, node, l.channels, &f));
        sb_status status = fuse_bn_replace(g, id, &l, f);
        sb_free(g->ctx, f);
        SB_TRY(status);
        (*changes)++;
    }
    return SB_OK;
}

const sb_pass_def sb_pass_fuse_bn = {
    .name = "fuse_bn",
    .summary = "fold batch normalization into the layer before it",
    .run = fuse_bn_run,
};
