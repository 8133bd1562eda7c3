/* sb_model_lint: the fate of every node under a target's rules, in words. */
#include "api/model.h"
#include "passes/rewrite.h"
#include "quant/target.h"

static sb_status copy(sb_arena *arena, const char *text, const char **out)
{
    *out = text && *text ? sb_arena_str(arena, text) : "";
    return *out ? SB_OK : SB_NO_MEMORY;
}

/* An integer operator of the file and one that comes of a group are the same
 * to the reader. */
static sb_lint_fate fate_of(sb_qdq_fate fate)
{
    switch (fate) {
    case SB_QDQ_INTEGER:
    case SB_QDQ_ALREADY:
        return SB_LINT_INTEGER;
    case SB_QDQ_MOVES:
        return SB_LINT_MOVES;
    case SB_QDQ_ABSORBED:
        return SB_LINT_ABSORBED;
    case SB_QDQ_FLOAT:
        break;
    }
    return SB_LINT_FLOAT;
}

static sb_status describe(sb_arena *arena, const sb_graph *g,
                          const sb_qdq_verdict *v, sb_lint_node *out)
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
    SB_TRY(copy(arena, node->name, &out->name));
    SB_TRY(copy(arena, node->op, &out->op));
    SB_TRY(copy(arena, y == SB_NONE ? "" : sb_graph_value(g, y)->name,
                &out->output));
    return copy(arena, v->kernel, &out->kernel);
}

static sb_status fill(sb_arena *arena, const sb_graph *g,
                      const sb_qdq_report *report, sb_lint *out)
{
    sb_lint_node *nodes = sb_arena_alloc(arena, report->n_nodes, sizeof *nodes);
    sb_lint_node *broken =
        sb_arena_alloc(arena, report->n_broken, sizeof *broken);

    if (!nodes || !broken)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < report->n_nodes; i++) {
        SB_TRY(describe(arena, g, &report->nodes[i], &nodes[i]));
        out->n_weighted += nodes[i].weighted != 0;
        out->n_weighted_integer +=
            nodes[i].weighted && nodes[i].fate == SB_LINT_INTEGER;
    }
    for (size_t i = 0; i < report->n_broken; i++) {
        sb_qdq_verdict v = {.node = report->broken[i].node,
                            .reason = report->broken[i].reason};
        SB_TRY(describe(arena, g, &v, &broken[i]));
    }
    out->nodes = nodes;
    out->n_nodes = report->n_nodes;
    out->broken = broken;
    out->n_broken = report->n_broken;
    out->n_q = report->n_q;
    out->n_dq = report->n_dq;
    out->n_q_left = report->n_q_left;
    out->n_dq_left = report->n_dq_left;
    return SB_OK;
}

sb_status sb_model_lint(sb_ctx *ctx, sb_model *model, const char *target,
                        sb_lint *out)
{
    const sb_target_def *def = sb_target_find(target);
    sb_qdq_report report;

    if (!def)
        return sb_target_unknown(ctx, target);
    if (!def->rules)
        return sb_fail(ctx, SB_BAD_ARG,
                       "target '%s' is no runtime, so nothing is known of what "
                       "it fuses",
                       target);
    SB_TRY(sb_qdq_analyze(model->graph, def->rules, &report));
    sb_lint lint = {.target = def->name,
                    .left_known = (def->rules->flags & SB_QDQ_STEPS_ORT) != 0};
    sb_arena_free(&model->lint_arena);
    sb_arena_init(&model->lint_arena, ctx);
    sb_status status = fill(&model->lint_arena, model->graph, &report, &lint);
    sb_qdq_report_free(&report);
    if (status == SB_OK)
        *out = lint;
    return status;
}
