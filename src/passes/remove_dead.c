/* Pass "remove_dead": nodes none of whose results is needed. */
#include "passes/pass.h"

static sb_status remove_dead_run(sb_graph *graph, size_t *changes)
{
    *changes += sb_graph_remove_dead(graph);
    return SB_OK;
}

const sb_pass_def sb_pass_remove_dead = {
    .name = "remove_dead",
    .summary = "remove nodes none of whose results is needed",
    .run = remove_dead_run,
};
