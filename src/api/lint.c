/* sb_model_lint: the fate of every node under a target's rules, in words. */
#include "api/model.h"
#include "passes/rewrite.h"
#include "runtime/sim/sim.h"

static sb_status lint_copy(sb_arena *arena, const char *text, const char **out)
{
    *out = text && *text ? sb_arena_str(arena, text) : "";
    return *out ? SB_OK : SB_NO_MEMORY;
}

/* An integer operator of the file and one that comes of a group are the same
 * to the reader. */
static sb_lint_fate fate_of(sb_sim_fate fate)
{
    switch (fate) {
    case SB_SIM_INTEGER:
    case SB_SIM_ALREADY:
        return SB_LINT_FATE_INTEGER;
    case SB_SIM_MOVES:
        return SB_LINT_FATE_MOVES;
    case SB_SIM_ABSORBED:
        return SB_LINT_FATE_ABSORBED;
    case SB_SIM_FLOAT:
        break;
    }
    return SB_LINT_FATE_FLOAT;
}

static sb_status lint_describe(sb_arena *arena, const sb_graph *g,
                               const sb_sim_verdict *v, sb_lint_node *out)
{
    const sb_node *node = sb_graph_node(g, v->node);
    const sb_value_id y = node->n_out > 0 ? node->outputs[0] : SB_NONE;

    out->fate = fate_of(v->fate);
    out->weighted = v->weighted;
    out->overhead = v->overhead;
    out->saturates = v->saturates;
    out->rule = v->reason ? v->reason->rule : "";
    out->why = v->reason ? v->reason->why : "";
    out->remedy = v->reason ? v->reason->remedy : "";
    SB_TRY(lint_copy(arena, node->name, &out->name));
    SB_TRY(lint_copy(arena, node->op, &out->op));
    SB_TRY(lint_copy(arena, y == SB_NONE ? "" : sb_graph_value(g, y)->name,
                     &out->output));
    return lint_copy(arena, v->kernel, &out->kernel);
}

static sb_status lint_index(sb_arena *arena, const sb_lint_node *rows, size_t n,
                            const sb_lint_node *const **out)
{
    const sb_lint_node **list = sb_arena_alloc(arena, n, sizeof(*list));

    for (size_t i = 0; list && i < n; i++)
        list[i] = &rows[i];
    *out = list;
    return list ? SB_OK : SB_NO_MEMORY;
}

static sb_status lint_fill(sb_arena *arena, const sb_graph *g,
                           const sb_sim_report *report, sb_lint *out)
{
    sb_lint_node *nodes = sb_arena_alloc(arena, report->n_nodes, sizeof *nodes);
    sb_lint_node *broken =
        sb_arena_alloc(arena, report->n_broken, sizeof *broken);

    if (!nodes || !broken)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < report->n_nodes; i++) {
        SB_TRY(lint_describe(arena, g, &report->nodes[i], &nodes[i]));
        out->n_weighted += nodes[i].weighted != 0;
        out->n_weighted_integer +=
            nodes[i].weighted && nodes[i].fate == SB_LINT_FATE_INTEGER;
    }
    for (size_t i = 0; i < report->n_broken; i++) {
        sb_sim_verdict v = {.node = report->broken[i].node,
                            .reason = report->broken[i].reason};
        SB_TRY(lint_describe(arena, g, &v, &broken[i]));
    }
    SB_TRY(lint_index(arena, nodes, report->n_nodes, &out->nodes));
    SB_TRY(lint_index(arena, broken, report->n_broken, &out->broken));
    out->n_nodes = report->n_nodes;
    out->n_broken = report->n_broken;
    out->n_q = report->n_q;
    out->n_dq = report->n_dq;
    out->n_q_left = report->n_q_left;
    out->n_dq_left = report->n_dq_left;
    return SB_OK;
}

static bool lint_knows(const sb_target_def *target)
{
    return target->steps != SB_SIM_UNKNOWN;
}

int sb_target_is_runtime(const char *target)
{
    const sb_target_def *def = target ? sb_target_find(target) : NULL;

    return def && lint_knows(def);
}

sb_status sb_model_lint(sb_model *model, const char *target,
                        const sb_lint **out)
{
    const sb_target_def *def =
        target ? sb_target_find(target) : sb_target_default();
    sb_sim_report report;

    if (!def)
        return sb_target_unknown(model->ctx, target);
    if (!lint_knows(def))
        return sb_fail(model->ctx, SB_BAD_ARG,
                       "target '%s' is no runtime, so nothing is known of what "
                       "it fuses",
                       def->name);
    sb_arena *arena = sb_model_answer(model, SB_QUESTION_LINT);
    sb_lint *lint = sb_arena_alloc(arena, 1, sizeof *lint);
    if (!lint)
        return SB_NO_MEMORY;
    lint->target = def->name;
    lint->left_known = def->steps == SB_SIM_ORT;
    SB_TRY(sb_sim_analyze(model->graph, def, &report));
    sb_status status = lint_fill(arena, model->graph, &report, lint);
    sb_sim_report_free(&report);
    if (status == SB_OK)
        *out = lint;
    return status;
}
