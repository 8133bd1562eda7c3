/* The parameters of a BatchNormalization, read once for all that fold it. */
#include "passes/bn_channels.h"

#include <math.h>

bool sb_bn_is_plain(const sb_graph *g, const sb_node *node, int64_t n)
{
    if (node->dead || !sb_node_is(node, "BatchNormalization") ||
        sb_node_int(node, "training_mode", 0))
        return false;
    for (uint32_t i = 1; i < node->n_out; i++)
        if (node->outputs[i] != SB_NONE)
            return false;
    for (uint32_t i = 1; i < 5; i++) {
        const sb_tensor *t = sb_const_of(g, sb_node_in(node, i));
        if (!t || t->dtype != SB_DTYPE_F32 || t->rank != 1 || t->dims[0] != n)
            return false;
    }
    return true;
}

sb_status sb_bn_read(const sb_graph *g, const sb_node *bn, int64_t n,
                     sb_bn_channel **out)
{
    float epsilon = sb_node_float(bn, "epsilon", 1e-5f);
    sb_bn_channel *f = sb_alloc(g->ctx, (size_t)n, sizeof *f);
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
