/* What rewrites for one runtime share (deploy.h). */
#include "passes/deploy/deploy.h"

#include <string.h>

const sb_rewrite_def *const sb_rewrites_common[] = {
    &sb_rewrite_focus_to_conv, &sb_rewrite_chain_pools, NULL};

bool sb_deploy_may(const sb_deploy *how, const sb_graph *g, const sb_node *node)
{
    return !how || !how->may || how->may(how->user, g, node);
}

sb_status sb_deploy_origin(const sb_graph *g, const sb_deploy *how,
                           sb_value_id value, sb_value_id from,
                           const int32_t *gather)
{
    sb_origins *o = how ? how->origins : NULL;

    if (!o)
        return SB_OK;
    SB_TRY(sb_grow(g->ctx, &o->v, &o->cap, o->n + 1, sizeof *o->v));
    o->v[o->n++] = (sb_origin){value, from, gather};
    return SB_OK;
}

sb_status sb_deploy_gather(sb_graph *g, int64_t n, int32_t **out)
{
    if (n > INT32_MAX)
        return SB_NO_MEMORY;
    *out = sb_arena_alloc(g->arena, (size_t)n, sizeof **out);
    if (!*out)
        return SB_NO_MEMORY;
    memset(*out, -1, (size_t)n * sizeof **out);
    return SB_OK;
}

sb_status sb_deploy_constant(sb_graph *g, const sb_deploy *how, sb_node_id node,
                             uint32_t input, int rank, const int64_t *dims,
                             const int32_t *gather)
{
    sb_value_id old = sb_graph_node(g, node)->inputs[input], value = SB_NONE;
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, rank, dims);

    SB_TRY(sb_tensor_alloc(g->ctx, &t));
    const float *from = sb_graph_value(g, old)->constant.data;
    float *to = t.data;
    for (int64_t i = 0; i < sb_tensor_count(&t); i++)
        to[i] = gather[i] < 0 ? 0 : from[gather[i]];
    sb_status status =
        sb_graph_add_value_like(g, sb_graph_value(g, old)->name, &value);
    if (status == SB_OK)
        status = sb_graph_set_constant(g, value, &t);
    sb_tensor_drop(&t);
    SB_TRY(status);
    SB_TRY(sb_deploy_origin(g, how, value, old, gather));
    return sb_graph_set_input(g, node, input, value);
}
