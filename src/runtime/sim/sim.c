/* The order of things: steps in rounds, then groups, then the report. */
#include "runtime/sim/sim.h"

#include "passes/rewrite.h"
#include "runtime/sim/sim_internal.h"

/* ONNX Runtime repeats each level of its optimizations at most so often. */
enum { MAX_ROUNDS = 10 };

/* ---- bookkeeping -------------------------------------------------------- */

sb_node_id sb_sim_origin(const sb_sim *sim, sb_node_id node)
{
    for (size_t i = sim->n_heirs; i-- > 0;)
        if (sim->heirs[i][0] == node)
            node = sim->heirs[i][1];
    return node < sim->n_file ? node : SB_NONE;
}

sb_status sb_sim_heir(sb_sim *sim, sb_node_id fresh, sb_node_id old)
{
    SB_TRY(sb_grow(sim->g->ctx, &sim->heirs, &sim->cap_heirs, sim->n_heirs + 1,
                   sizeof *sim->heirs));
    sim->heirs[sim->n_heirs][0] = fresh;
    sim->heirs[sim->n_heirs++][1] = old;
    return SB_OK;
}

sb_status sb_sim_merged(sb_sim *sim, sb_node_id gone, sb_node_id kept)
{
    sb_node_id a = sb_sim_origin(sim, gone), b = sb_sim_origin(sim, kept);

    if (!sim->verdicts || a == SB_NONE || b == SB_NONE)
        return SB_OK;
    SB_TRY(sb_grow(sim->g->ctx, &sim->merged, &sim->cap_merged,
                   sim->n_merged + 1, sizeof *sim->merged));
    sim->merged[sim->n_merged][0] = a;
    sim->merged[sim->n_merged++][1] = b;
    return SB_OK;
}

/* What an equal node replaced has that one's fate. */
static void settle_merged(sb_sim *sim)
{
    for (size_t i = sim->n_merged; i-- > 0;) {
        sb_sim_verdict *gone = &sim->verdicts[sim->merged[i][0]];
        const sb_sim_verdict *kept = &sim->verdicts[sim->merged[i][1]];
        if (kept->fate == SB_SIM_INTEGER) {
            gone->fate = SB_SIM_ABSORBED;
        } else {
            gone->fate = kept->fate;
            gone->reason = kept->reason;
            gone->overhead = kept->overhead;
        }
    }
}

void sb_sim_note(sb_sim *sim, sb_node_id node, sb_sim_fate fate,
                 const char *kernel)
{
    sb_node_id origin = sb_sim_origin(sim, node);

    if (!sim->verdicts || origin == SB_NONE)
        return;
    sb_sim_verdict *v = &sim->verdicts[origin];
    v->fate = fate;
    v->kernel = kernel;
    v->reason = NULL;
    v->overhead = false;
}

/* ---- steps -------------------------------------------------------------- */

static sb_status level_1(sb_sim *sim)
{
    SB_TRY(sb_sim_clean(sim));
    SB_TRY(sb_sim_products(sim));
    SB_TRY(sb_sim_move(sim));
    SB_TRY(sb_sim_weights(sim));
    SB_TRY(sb_sim_unique(sim));
    SB_TRY(sb_sim_where(sim));
    return sim->round == 0 ? sb_sim_empty_pairs(sim) : SB_OK;
}

static sb_status level_2(sb_sim *sim)
{
    SB_TRY(sb_sim_signs(sim));
    SB_TRY(sb_sim_select(sim));
    return sb_sim_leftovers(sim);
}

/* Until a round changes nothing. */
static sb_status sim_rounds(sb_sim *sim, sb_status (*round)(sb_sim *))
{
    for (int i = 0; i < MAX_ROUNDS; i++) {
        size_t before = sim->changes;
        sim->round = i;
        SB_TRY(round(sim));
        if (sim->changes == before)
            break;
    }
    return SB_OK;
}

static sb_status sim_run(sb_sim *sim)
{
    switch (sim->target->steps) {
    case SB_SIM_UNKNOWN:
        break;
    case SB_SIM_UNITS:
        return sb_sim_select(sim);
    case SB_SIM_INPUTS:
        return sb_sim_inputs(sim);
    case SB_SIM_ORT:
        SB_TRY(sb_sim_unique(sim));
        SB_TRY(sim_rounds(sim, level_1));
        return sim_rounds(sim, level_2);
    }
    return SB_OK;
}

static bool has_qdq(const sb_graph *g)
{
    for (size_t i = 0; i < g->n_nodes; i++)
        if (!g->nodes[i].dead && sb_is_qdq(&g->nodes[i]))
            return true;
    return false;
}

static sb_status integer_graph(sb_graph *g, const sb_target_def *target,
                               size_t *changes)
{
    sb_sim sim = {.g = g, .target = target};
    sb_status status = has_qdq(g) ? sim_run(&sim) : SB_OK;
    sb_graph *body;

    *changes += sim.changes;
    sb_free(g->ctx, sim.heirs);
    for (size_t i = 0; i < g->n_nodes && status == SB_OK; i++)
        for (size_t k = 0; status == SB_OK && !g->nodes[i].dead &&
                           (body = sb_node_body(&g->nodes[i], k)) != NULL;
             k++)
            status = integer_graph(body, target, changes);
    return status;
}

sb_status sb_sim_to_integer(sb_graph *g, const sb_target_def *target)
{
    size_t changes = 0;

    if (target->steps != SB_SIM_ORT)
        return SB_OK;
    SB_TRY(integer_graph(g, target, &changes));
    return changes > 0 ? sb_graph_infer(g) : SB_OK;
}

/* ---- the report --------------------------------------------------------- */

static void sim_count(const sb_graph *g, size_t *n_q, size_t *n_dq)
{
    *n_q = *n_dq = 0;
    for (size_t i = 0; i < g->n_nodes; i++) {
        *n_q += !g->nodes[i].dead && sb_is_q(&g->nodes[i]);
        *n_dq += !g->nodes[i].dead && sb_is_dq(&g->nodes[i]);
    }
}

/* What can be said before any step is taken. */
static void first_verdict(const sb_graph *g, const sb_target_def *target,
                          const sb_node *node, sb_sim_verdict *out)
{
    const sb_target_op *row = sb_target_op_find(target, node);
    uint32_t weight = 0;

    if (sb_op_is_integer(node, &weight))
        out->fate = SB_SIM_ALREADY;
    else if ((row && sb_target_is_weighted(row)) ||
             sb_node_is(node, "ConvTranspose"))
        weight = 1;
    out->weighted = weight > 0 && weight < node->n_in &&
                    sb_qdq_from_const(g, node->inputs[weight]);
}

/* Is the node fed with integers of at most 16 bits? */
static bool on_small_integers(const sb_graph *g, const sb_node *node)
{
    sb_value_id x = sb_node_in(node, 0);
    if (x == SB_NONE || sb_is_qdq(node))
        return false;
    sb_dtype t = sb_graph_value(g, x)->type.dtype;
    return sb_dtype_is_integral(t) && t != SB_DTYPE_BOOL &&
           sb_dtype_get(t)->bits <= 16;
}

static sb_status add_broken(sb_sim_report *out, sb_node_id node,
                            const sb_sim_reason *reason)
{
    SB_TRY(sb_grow(out->ctx, &out->broken, &out->cap_broken, out->n_broken + 1,
                   sizeof *out->broken));
    out->broken[out->n_broken].node = node;
    out->broken[out->n_broken++].reason = reason;
    return SB_OK;
}

/* Turns verdicts on the copy's nodes, which has no dead ones, into verdicts on
 * the original's, Q and DQ left out. */
static sb_status sim_collect(const sb_graph *g, const sb_target_def *target,
                             sb_sim_report *out)
{
    size_t live = 0, n = 0;

    for (size_t i = 0; i < g->n_nodes; i++) {
        const sb_node *node = &g->nodes[i];
        if (node->dead)
            continue;
        sb_sim_verdict *v = &out->nodes[live++];
        if (sb_is_qdq(node)) {
            const sb_sim_reason *r =
                target->broken ? target->broken(g, node) : NULL;
            if (r)
                SB_TRY(add_broken(out, (sb_node_id)i, r));
            continue;
        }
        if (v->fate == SB_SIM_FLOAT && sb_op_is_integer(node, NULL))
            v->fate = SB_SIM_ALREADY;
        if (v->fate == SB_SIM_ALREADY)
            v->kernel = node->op;
        if (v->fate == SB_SIM_FLOAT && !v->reason && on_small_integers(g, node))
            v->fate = SB_SIM_MOVES;
        /* Without calibrated activations there is nothing to be mended around
         * nodes without weights. */
        if (out->n_q == 0 && !v->weighted)
            v->reason = NULL;
        v->node = (sb_node_id)i;
        out->nodes[n++] = *v;
    }
    out->n_nodes = n;
    return SB_OK;
}

static sb_status sim_analyze(const sb_graph *g, const sb_target_def *target,
                             sb_sim *sim, sb_sim_report *out)
{
    SB_TRY(sb_graph_clone(g, &sim->g));
    sim->n_file = (sb_node_id)sim->g->n_nodes;
    out->nodes = sb_alloc(g->ctx, sim->n_file, sizeof *out->nodes);
    if (!out->nodes)
        return SB_NO_MEMORY;
    sim->verdicts = out->nodes;
    for (sb_node_id i = 0; i < sim->n_file; i++)
        first_verdict(sim->g, target, sb_graph_node(sim->g, i), &out->nodes[i]);
    SB_TRY(sim_run(sim));
    settle_merged(sim);
    (void)sb_graph_remove_dead(sim->g);
    sim_count(g, &out->n_q, &out->n_dq);
    sim_count(sim->g, &out->n_q_left, &out->n_dq_left);
    out->n_q_left -= sim->used_q < out->n_q_left ? sim->used_q : out->n_q_left;
    out->n_dq_left -=
        sim->used_dq < out->n_dq_left ? sim->used_dq : out->n_dq_left;
    return sim_collect(g, target, out);
}

sb_status sb_sim_analyze(const sb_graph *g, const sb_target_def *target,
                         sb_sim_report *out)
{
    sb_sim sim = {.target = target};

    *out = (sb_sim_report){.ctx = g->ctx};
    sb_status status = sim_analyze(g, target, &sim, out);
    sb_free(g->ctx, sim.heirs);
    sb_free(g->ctx, sim.merged);
    sb_graph_free(sim.g);
    if (status != SB_OK)
        sb_sim_report_free(out);
    return status;
}

void sb_sim_report_free(sb_sim_report *report)
{
    sb_free(report->ctx, report->nodes);
    sb_free(report->ctx, report->broken);
    *report = (sb_sim_report){.ctx = report->ctx};
}
