/* What the passes share that recognize activation functions. */
#include "passes/recognize/recognize.h"

#include "passes/rewrite.h"

bool sb_recognize_check(const sb_match *m)
{
    const sb_graph *g = m->graph;
    sb_value_id y = sb_graph_node(g, m->root)->outputs[0];
    const sb_type *xt = &sb_graph_value(g, sb_match_value(m, "x"))->type;
    const sb_type *yt = &sb_graph_value(g, y)->type;

    if (!sb_dtype_is_float(xt->dtype))
        return false;
    if (xt->shape.rank < 0 || yt->shape.rank < 0)
        return m->number_rank == 0;
    return xt->shape.rank == yt->shape.rank;
}

bool sb_recognize_check_f32(const sb_match *m)
{
    sb_value_id x = sb_match_value(m, "x");
    sb_dtype dtype = sb_graph_value(m->graph, x)->type.dtype;

    return (dtype == SB_DTYPE_F32 || dtype == SB_DTYPE_F16) &&
           sb_recognize_check(m);
}

sb_status sb_recognize_as(sb_match *m, const char *op, sb_node_id *node,
                          bool *done)
{
    sb_value_id x = sb_match_value(m, "x");

    *done = true;
    return sb_rewrite_node(m->graph, m->root, op, &x, 1, node);
}
