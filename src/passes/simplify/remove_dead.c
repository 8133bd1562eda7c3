/* Pass "remove_dead": nodes none of whose results is needed, and constants
 * without a consumer, so that they do not reach the file. */
#include "passes/pass.h"

/* Not counted as changes: nothing new can come of it. */
static void drop_constants(sb_graph *g)
{
    for (size_t i = 0; i < g->n_values; i++) {
        sb_value *v = sb_graph_value(g, (sb_value_id)i);
        if (!v->is_constant || v->is_input || v->is_output || v->n_uses > 0)
            continue;
        sb_tensor_drop(&v->constant);
        v->constant = (sb_tensor){.dtype = SB_DTYPE_NONE};
        v->is_constant = false;
    }
}

static sb_status remove_dead_run(sb_graph *graph, size_t *changes)
{
    *changes += sb_graph_remove_dead(graph);
    drop_constants(graph);
    return SB_OK;
}

const sb_pass_def sb_pass_remove_dead = {
    .name = "remove_dead",
    .summary = "remove nodes and constants that nothing needs",
    .run = remove_dead_run,
};
