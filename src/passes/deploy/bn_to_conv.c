/* Pass "bn_to_conv": a BatchNormalization that no layer before it can take, as
 * a convolution of one weight a channel.
 *
 *     y = BatchNormalization(x, gamma, beta, mean, var)
 *     =>  y = Conv(x, w, b) {group=C}
 *         w = gamma * r,  b = beta - mean * r * gamma,  r = 1 / sqrt(var + e)
 *
 * Networks that normalize before they activate (DenseNet) have many.  Runtimes
 * have no integer kernel for the normalization; for the convolution they do,
 * the activation behind it joins it, and one weight a channel has no rounding
 * error in int8. */
#include "passes/deploy/bn_to_conv.h"

#include <math.h>

#include "passes/bn_channels.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

/* Weights and biases; *done is false if one is not finite. */
static sb_status bn_to_conv_params(sb_graph *g, const sb_node *bn, int64_t n,
                                   float *w, float *b, bool *done)
{
    sb_bn_channel *f = NULL;

    SB_TRY(sb_bn_read(g, bn, n, &f));
    *done = true;
    for (int64_t c = 0; c < n; c++) {
        w[c] = sb_bn_factor(&f[c]);
        b[c] = sb_bn_bias(&f[c], 0);
        *done = *done && isfinite(w[c]) && isfinite(b[c]);
    }
    sb_free(g->ctx, f);
    return SB_OK;
}

static sb_status bn_to_conv_apply(sb_graph *g, sb_node_id id, int64_t n,
                                  const float *w, const float *b)
{
    const int64_t dims[4] = {n, 1, 1, 1};
    const sb_node *bn = sb_graph_node(g, id);
    sb_value_id in[3] = {bn->inputs[0], SB_NONE, SB_NONE};
    const char *stem = sb_graph_value(g, bn->inputs[1])->name;
    sb_node_id conv = SB_NONE;

    SB_TRY(sb_graph_add_constant(g, stem, SB_DTYPE_F32, 4, dims, w, &in[1]));
    stem = sb_graph_value(g, sb_graph_node(g, id)->inputs[2])->name;
    SB_TRY(sb_graph_add_constant(g, stem, SB_DTYPE_F32, 1, dims, b, &in[2]));
    SB_TRY(sb_rewrite_node(g, id, "Conv", in, 3, &conv));
    SB_TRY(sb_graph_set_attr_ints(g, conv, "kernel_shape", dims + 1, 2));
    return sb_graph_set_attr_int(g, conv, "group", n);
}

sb_status sb_bn_to_conv(sb_graph *g, sb_node_id id, bool *done)
{
    const sb_node *bn = sb_graph_node(g, id);

    *done = false;
    if (bn->n_in < 5 || bn->inputs[0] == SB_NONE)
        return SB_OK;
    const sb_type *x = &sb_graph_value(g, bn->inputs[0])->type;
    int64_t n = x->shape.rank == 4 ? x->shape.dim[1] : 0;
    if (n < 1 || !sb_dim_known(n) || x->dtype != SB_DTYPE_F32 ||
        !sb_bn_is_plain(g, bn, n))
        return SB_OK;
    float *w = sb_alloc(g->ctx, 2 * (size_t)n, sizeof *w);
    if (!w)
        return SB_NO_MEMORY;
    sb_status status = bn_to_conv_params(g, bn, n, w, w + n, done);
    if (status == SB_OK && *done)
        status = bn_to_conv_apply(g, id, n, w, w + n);
    sb_free(g->ctx, w);
    return status;
}

static sb_status bn_to_conv_run(sb_graph *g, size_t *changes)
{
    size_t n = g->n_nodes;

    for (sb_node_id id = 0; id < n; id++) {
        bool done = false;
        SB_TRY(sb_bn_to_conv(g, id, &done));
        *changes += done;
    }
    return SB_OK;
}

const sb_pass_def sb_pass_bn_to_conv = {
    .name = "bn_to_conv",
    .summary = "batch normalization as convolution, one weight a channel",
    .run = bn_to_conv_run,
};
