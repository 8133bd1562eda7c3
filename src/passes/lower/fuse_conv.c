/* Pass "fuse_conv": convolution, residual sum and activation become one node
 * of the executor's own domain, computed in one pass over the output.
 *
 *     y = act(Conv(x, w, b) + z)        sum, then activation
 *     y = act(Conv(x, w, b)) + z        with sum_last
 *
 * For running only: the node means nothing to other programs. */
#include <string.h>

#include "passes/lower/fuse_epilogue.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

typedef struct fusion {
    sb_node_id conv;  /* Conv or FusedConv */
    sb_node_id next;  /* the only consumer of its result */
    sb_value_id z;    /* what to add, or SB_NONE */
    sb_fused_act act; /* no name: none */
} fusion;

static bool is_fused(const sb_node *node)
{
    return strcmp(node->op, "FusedConv") == 0 &&
           strcmp(node->domain, SB_FUSED_DOMAIN) == 0;
}

static bool find_fusion(const sb_graph *g, sb_node_id id, fusion *f)
{
    const sb_node *conv = sb_graph_node(g, id);

    if (conv->dead || !(sb_node_is(conv, "Conv") || is_fused(conv)))
        return false;
    *f = (fusion){.conv = id, .next = sb_fused_next(g, conv), .z = SB_NONE};
    if (f->next == SB_NONE)
        return false;
    bool has_act = sb_node_attr(conv, "activation") != NULL;
    bool has_sum = sb_node_in(conv, 3) != SB_NONE;
    const sb_node *next = sb_graph_node(g, f->next);
    if (!has_act && sb_fused_act_of(g, next, &f->act))
        return true;
    f->act.name = NULL;
    if (!has_sum)
        f->z = sb_fused_addend(g, next, conv->outputs[0]);
    return f->z != SB_NONE;
}

static sb_status fuse_conv_apply(sb_graph *g, const fusion *f)
{
    const sb_node conv = *sb_graph_node(g, f->conv);
    sb_value_id in[4];
    sb_node_id fresh = SB_NONE;
    bool had_act = sb_node_attr(&conv, "activation") != NULL;

    for (uint32_t i = 0; i < 4; i++)
        in[i] = sb_node_in(&conv, i);
    if (f->z != SB_NONE)
        in[3] = f->z;
    SB_TRY(sb_fused_replace(g, f->conv, f->next, "FusedConv", in,
                            in[3] != SB_NONE ? 4 : 3, &fresh));
    for (uint32_t i = 0; i < conv.n_attrs; i++)
        SB_TRY(sb_graph_set_attr(g, fresh, &conv.attrs[i]));
    if (f->act.name)
        SB_TRY(sb_fused_act_set(g, fresh, &f->act));
    else if (had_act)
        SB_TRY(sb_graph_set_attr_int(g, fresh, "sum_last", 1));
    return sb_rewrite_prune(g, f->conv);
}

/* New nodes come last, so one walk sees what it made and fuses on. */
static sb_status fuse_conv_run(sb_graph *g, size_t *changes)
{
    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        fusion f;
        if (!find_fusion(g, id, &f))
            continue;
        SB_TRY(fuse_conv_apply(g, &f));
        (*changes)++;
    }
    return SB_OK;
}

const sb_pass_def sb_pass_fuse_conv = {
    .name = "fuse_conv",
    .summary = "convolution, sum and activation in one (for running)",
    .run = fuse_conv_run,
};
