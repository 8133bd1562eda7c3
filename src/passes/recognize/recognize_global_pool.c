/* Pass "recognize_global_pool": the mean over all positions as
 * GlobalAveragePool.
 *
 *     y = ReduceMean(x, [2,3])                =>  y = GlobalAveragePool(x)
 *     y = ReduceMean(x, [2,3]) {keepdims=0}   =>  y = Flatten(that)
 *
 * torch.export writes average pools as ReduceMean, for which runtimes have no
 * integer kernel.  Means that a normalization takes stay: they are statistics,
 * not features, and must not be quantized as such. */
#include "passes/pass.h"
#include "passes/rewrite.h"

/* Are the axes all those behind batch and channels, in any order? */
static bool global_pool_axes(const sb_graph *g, const sb_node *node, int rank)
{
    int64_t axes[SB_MAX_RANK];
    uint32_t seen = 0;
    int n = sb_const_ints(g, sb_node_in(node, 1), axes, SB_MAX_RANK);

    for (int i = 0; i < n; i++) {
        int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
        if (axis < 2 || axis >= rank)
            return false;
        seen |= 1U << axis;
    }
    return n == rank - 2 && seen == (1U << rank) - 4U;
}

/* Does one of the consumers compute with the mean as normalizations do? */
static bool global_pool_is_statistic(const sb_graph *g, const sb_value *y)
{
    static const char *const ops[] = {"Sub", "Add", "Div",       "Sqrt",
                                      "Pow", "Neg", "Reciprocal"};

    for (uint32_t i = 0; i < y->n_uses; i++)
        for (size_t k = 0; k < SB_COUNT(ops); k++)
            if (sb_node_is(sb_graph_node(g, y->uses[i].node), ops[k]))
                return true;
    return false;
}

/* With one axis, axis 1 may as well be that of a sequence: a convolution on
 * either side shows that it counts channels. */
static bool global_pool_beside_conv(const sb_graph *g, const sb_node *node)
{
    const sb_value *y = sb_graph_value(g, node->outputs[0]);
    const sb_node *producer = sb_graph_producer(g, node->inputs[0]);

    for (int depth = 0; depth < 3 && producer && producer->n_in == 1; depth++)
        producer = producer->inputs[0] == SB_NONE
                       ? NULL
                       : sb_graph_producer(g, producer->inputs[0]);
    if (producer && sb_node_is(producer, "Conv"))
        return true;
    for (uint32_t i = 0; i < y->n_uses; i++)
        if (y->uses[i].input == 0 &&
            sb_node_is(sb_graph_node(g, y->uses[i].node), "Conv"))
            return true;
    return false;
}

static bool global_pool_fits(const sb_graph *g, const sb_node *node)
{
    if (node->dead || !sb_node_is(node, "ReduceMean") ||
        node->inputs[0] == SB_NONE || node->n_out != 1)
        return false;
    const sb_type *x = &sb_graph_value(g, node->inputs[0])->type;
    int rank = x->shape.rank;
    if (rank < 3 || (x->dtype != SB_DTYPE_F32 && x->dtype != SB_DTYPE_F16) ||
        !global_pool_axes(g, node, rank))
        return false;
    return (rank > 3 || global_pool_beside_conv(g, node)) &&
           !global_pool_is_statistic(g, sb_graph_value(g, node->outputs[0]));
}

static sb_status global_pool_apply(sb_graph *g, sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    bool keep = sb_node_int(node, "keepdims", 1) != 0;
    sb_value_id in = node->inputs[0];
    sb_type type = sb_graph_value(g, in)->type;
    sb_node_id pool = SB_NONE, flat = SB_NONE;

    if (keep)
        return sb_rewrite_node(g, id, "GlobalAveragePool", &in, 1, &pool);
    for (int i = 2; i < type.shape.rank; i++)
        type.shape.dim[i] = 1;
    SB_TRY(sb_rewrite_add(g, id, "GlobalAveragePool", &in, 1, &type, &pool));
    in = sb_graph_node(g, pool)->outputs[0];
    return sb_rewrite_node(g, id, "Flatten", &in, 1, &flat);
}

static sb_status global_pool_run(sb_graph *g, size_t *changes)
{
    size_t n = g->n_nodes;

    for (sb_node_id id = 0; id < n; id++) {
        if (!global_pool_fits(g, sb_graph_node(g, id)))
            continue;
        SB_TRY(global_pool_apply(g, id));
        (*changes)++;
    }
    return SB_OK;
}

const sb_pass_def sb_pass_recognize_global_pool = {
    .name = "recognize_global_pool",
    .summary = "ReduceMean over all positions as GlobalAveragePool",
    .run = global_pool_run,
};
