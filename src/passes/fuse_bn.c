/* Pass "fuse_bn": a BatchNormalization behind a convolution or a linear layer
 * with constant weights goes into them.
 *
 *     r = 1 / sqrt(var + epsilon)      for each output channel
 *     w' = w * (gamma * r),   b' = (b - mean) * r * gamma + beta
 *
 * In float and in this order, as PyTorch does it.  The last bit counts: with a
 * symmetric range the largest weight of a channel lies right between the two
 * last integers, and what it is quantized to hangs on the rounding here.  Only
 * in inference form, and only where nobody else reads the result in between. */
#include <math.h>
#include <string.h>

#include "passes/pass.h"
#include "passes/rewrite.h"

/* The layer in front and how its weights are laid out. */
typedef struct layer {
    sb_node_id node;
    sb_value_id weight, bias; /* bias SB_NONE: none yet */
    int64_t channels;         /* of the output */
    /* Weights as [outer, channels, inner]; with groups of a transposed
     * convolution the channel also depends on the outer index. */
    int64_t outer, inner, per_group, outer_per_group;
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
    if (w->rank <= axis || groups < 1)
        return false;
    l->outer = sb_dims_product(w->dims, 0, axis);
    l->inner = sb_dims_product(w->dims, axis + 1, w->rank);
    l->per_group = w->dims[axis];
    l->channels = l->per_group * (axis == 1 ? groups : 1);
    l->outer_per_group = axis == 1 && groups > 0 ? l->outer / groups : l->outer;
    return l->outer_per_group > 0 && (axis == 0 || l->outer % groups == 0);
}

static bool set_linear(const sb_graph *g, const sb_node *node, layer *l,
                       const sb_tensor *w)
{
    bool gemm = sb_node_is(node, "Gemm");
    int axis = gemm && sb_node_int(node, "transB", 0) ? 0 : 1;
    const sb_shape *x = &sb_graph_value(g, node->inputs[0])->type.shape;

    if (w->rank != 2 || x->rank != 2)
        return false;
    l->bias_factor = gemm ? sb_node_float(node, "beta", 1) : 1;
    return set_weights(l, w, axis, 1);
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
    bool known = false;
    if (sb_node_is(node, "Conv"))
        known = set_weights(l, w, 0, 1);
    else if (sb_node_is(node, "ConvTranspose"))
        known = set_weights(l, w, 1, sb_node_int(node, "group", 1));
    else if (sb_node_is(node, "Gemm") || sb_node_is(node, "MatMul"))
        known = set_linear(g, node, l, w);
    if (!known || l->bias == SB_NONE)
        return known;
    const sb_tensor *b = f32_const(g, l->bias);
    return b && b->rank == 1 && b->dims[0] == l->channels;
}

/* What the normalisation does to one channel. */
typedef struct channel {
    float r, gamma, beta, mean;
} channel;

static sb_status read_channels(const sb_graph *g, const sb_node *bn, int64_t n,
                               channel **out)
{
    float epsilon = sb_node_float(bn, "epsilon", 1e-5f);
    channel *f = sb_alloc(g->ctx, (size_t)n, sizeof *f);
    const sb_tensor *t[4];

    if (!f)
        return SB_NO_MEMORY;
    for (int i = 0; i < 4; i++)
        t[i] = &sb_graph_value(g, bn->inputs[1 + i])->constant;
    for (int64_t c = 0; c < n; c++) {
        f[c].gamma = (float)sb_tensor_get_f64(t[0], c);
        f[c].beta = (float)sb_tensor_get_f64(t[1], c);
        f[c].mean = (float)sb_tensor_get_f64(t[2], c);
        f[c].r = 1.0F / sqrtf((float)sb_tensor_get_f64(t[3], c) + epsilon);
    }
    *out = f;
    return SB_OK;
}

static sb_status scaled_weights(sb_graph *g, const layer *l, const channel *f,
                                sb_value_id *out)
{
    const sb_value *old = sb_graph_value(g, l->weight);
    sb_tensor t =
        sb_tensor_make(SB_DTYPE_F32, old->constant.rank, old->constant.dims);

    SB_TRY(sb_tensor_alloc(g->ctx, &t));
    memcpy(t.data, old->constant.data, sb_tensor_bytes(&t));
    float *w = t.data;
    for (int64_t o = 0; o < l->outer; o++) {
        int64_t first = o / l->outer_per_group * l->per_group;
        for (int64_t c = 0; c < l->per_group; c++) {
            const channel *k = &f[first + c];
            float factor = k->gamma * k->r;
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

static sb_status shifted_bias(sb_graph *g, const layer *l, const channel *f,
                              sb_value_id *out)
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
        b[c] = (old - f[c].mean) * f[c].r * f[c].gamma + f[c].beta;
    }
    const char *stem = sb_graph_value(g, l->weight)->name;
    sb_status status =
        sb_graph_add_constant(g, stem, SB_DTYPE_F32, 1, &n, b, out);
    sb_free(g->ctx, b);
    return status;
}

/* The layer with new weights takes the place of the normalisation. */
static sb_status replace(sb_graph *g, sb_node_id bn, const layer *l,
                         const channel *f)
{
    const sb_node old = *sb_graph_node(g, l->node);
    const char *op = sb_node_is(&old, "MatMul") ? "Gemm" : old.op;
    sb_value_id in[3] = {old.inputs[0], SB_NONE, SB_NONE};
    sb_node_id fresh = SB_NONE;

    SB_TRY(scaled_weights(g, l, f, &in[1]));
    SB_TRY(shifted_bias(g, l, f, &in[2]));
    SB_TRY(sb_rewrite_node(g, bn, op, in, 3, &fresh));
    sb_node *node = sb_graph_node(g, fresh);
    node->name = old.name;
    node->module = old.module;
    for (uint32_t i = 0; i < old.n_attrs; i++)
        if (strcmp(old.attrs[i].name, "beta") != 0)
            SB_TRY(sb_graph_set_attr(g, fresh, &old.attrs[i]));
    return sb_rewrite_prune(g, l->node);
}

static bool is_plain_bn(const sb_graph *g, const sb_node *node, int64_t n)
{
    if (sb_node_int(node, "training_mode", 0))
        return false;
    for (uint32_t i = 1; i < node->n_out; i++)
        if (node->outputs[i] != SB_NONE)
            return false;
    for (uint32_t i = 1; i < 5; i++) {
        const sb_tensor *t = f32_const(g, sb_node_in(node, i));
        if (!t || t->rank != 1 || t->dims[0] != n)
            return false;
    }
    return true;
}

static sb_status fuse_bn_run(sb_graph *g, size_t *changes)
{
    size_t n_nodes = g->n_nodes;

    for (sb_node_id id = 0; id < n_nodes; id++) {
        const sb_node *node = sb_graph_node(g, id);
        layer l;
        channel *f = NULL;

        if (node->dead || !sb_node_is(node, "BatchNormalization") ||
            !find_layer(g, node->inputs[0], &l) ||
            !is_plain_bn(g, node, l.channels))
            continue;
        SB_TRY(read_channels(g, node, l.channels, &f));
        sb_status status = replace(g, id, &l, f);
        sb_free(g->ctx, f);
        SB_TRY(status);
        (*changes)++;
    }
    return SB_OK;
}

const sb_pass_def sb_pass_fuse_bn = {
    .name = "fuse_bn",
    .summary = "fold batch normalisation into the layer before it",
    .run = fuse_bn_run,
};
