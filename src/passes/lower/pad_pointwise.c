/* Pass "pad_pointwise": the pads of a 1x1 convolution become a Pad before it.
 *
 *     before:  y = Conv(x, w, b) {pads=[1,1,1,1]}
 *     after:   y = Conv(Pad(x, [0,0,1,1,0,0,1,1]), w, b)
 *
 * Such convolutions are rare, and oneDNN has no fast kernel for them.  Those of
 * two dimensions and stride 1 (SqueezeNet has one) need no help: their kernel
 * lays the padding around the result (ops/conv/conv_1x1_padded.c).  For running
 * only: other programs do without. */
#include <string.h>

#include "passes/pass.h"
#include "passes/rewrite.h"

enum { MAX_SPATIAL = 3 };

static bool has_strides(const sb_node *node)
{
    const sb_attr *strides = sb_node_attr(node, "strides");

    for (size_t i = 0;
         strides && strides->type == SB_ATTR_INTS && i < strides->n; i++)
        if (strides->ints[i] != 1)
            return true;
    return false;
}

/* The pads of a convolution whose kernel is one element, if any is not 0. */
static const sb_attr *pads_of(const sb_graph *g, const sb_node *node)
{
    const sb_attr *pads = sb_node_attr(node, "pads");
    sb_value_id weight = sb_node_in(node, 1);
    bool some = false;

    if (node->dead || !sb_node_is(node, "Conv") || !pads ||
        pads->type != SB_ATTR_INTS || !sb_is_const(g, weight) ||
        !sb_node_string_is(node, "auto_pad", "NOTSET", true))
        return NULL;
    const sb_tensor *w = &sb_graph_value(g, weight)->constant;
    if (w->rank < 3 || w->rank > 2 + MAX_SPATIAL ||
        sb_dims_product(w->dims, 2, w->rank) != 1 ||
        pads->n != 2 * ((size_t)w->rank - 2) ||
        (w->rank == 4 && !has_strides(node)))
        return NULL;
    for (size_t i = 0; i < pads->n; i++) {
        if (pads->ints[i] < 0)
            return NULL;
        some = some || pads->ints[i] > 0;
    }
    return some ? pads : NULL;
}

static sb_status pad_pointwise_apply(sb_graph *g, sb_node_id id,
                                     const sb_attr *pads)
{
    int n = (int)pads->n / 2;
    int64_t all[2 * (2 + MAX_SPATIAL)] = {0};
    sb_value_id x = sb_graph_node(g, id)->inputs[0];
    sb_type type = sb_graph_value(g, x)->type;
    sb_node_id pad = SB_NONE;
    sb_value_id in[2] = {x, SB_NONE};

    memcpy(all + 2, pads->ints, (size_t)n * sizeof *all);
    memcpy(all + 4 + n, pads->ints + n, (size_t)n * sizeof *all);
    for (int i = 0; i < n && type.shape.rank == n + 2; i++) {
        sb_dim *d = &type.shape.dim[2 + i];
        *d = sb_dim_known(*d) ? *d + pads->ints[i] + pads->ints[n + i]
                              : SB_DIM_UNKNOWN;
    }
    SB_TRY(sb_rewrite_ints(g, "pads", all, 2 * (n + 2), &in[1]));
    SB_TRY(sb_rewrite_add(g, id, "Pad", in, 2, &type, &pad));
    sb_graph_remove_attr(g, id, "pads");
    return sb_graph_set_input(g, id, 0, sb_graph_node(g, pad)->outputs[0]);
}

static sb_status pad_pointwise_run(sb_graph *g, size_t *changes)
{
    size_t n = g->n_nodes;

    for (sb_node_id id = 0; id < n; id++) {
        const sb_attr *pads = pads_of(g, sb_graph_node(g, id));
        if (!pads)
            continue;
        SB_TRY(pad_pointwise_apply(g, id, pads));
        (*changes)++;
    }
    return SB_OK;
}

const sb_pass_def sb_pass_pad_pointwise = {
    .name = "pad_pointwise",
    .summary = "pads of 1x1 convolutions as their own node (for running)",
    .run = pad_pointwise_run,
};
