/* The order of things: steps in rounds, then groups, then the report. */
#include "passes/qdq_groups.h"

#include <string.h>

#include "passes/qdq_sim.h"
#include "passes/rewrite.h"

/* ONNX Runtime repeats each level of its optimizations at most so often. */
enum { MAX_ROUNDS = 10 };

/* Operators that compute with integers as they stand in a file, and the input
 * that is their weight. */
static const struct integer_op {
    const char *domain, *op;
    uint32_t weight;
} integer_ops[] = {
    {"", "ConvInteger", 1},
    {"", "MatMulInteger", 1},
    {"", "QLinearConv", 3},
    {"", "QLinearMatMul", 3},
    {"com.microsoft", "DynamicQuantizeLSTM", 1},
    {"com.microsoft", "DynamicQuantizeMatMul", 1},
    {"com.microsoft", "MatMulIntegerToFloat", 1},
    {"com.microsoft", "MatMulNBits", 1},
    {"com.microsoft", "QAttention", 1},
    {"com.microsoft", "QGemm", 3},
    {"com.microsoft", "QLinearAdd", 0},
    {"com.microsoft", "QLinearAveragePool", 0},
    {"com.microsoft", "QLinearConcat", 0},
    {"com.microsoft", "QLinearConv", 3},
    {"com.microsoft", "QLinearGlobalAveragePool", 0},
    {"com.microsoft", "QLinearLeakyRelu", 0},
    {"com.microsoft", "QLinearMul", 0},
    {"com.microsoft", "QLinearSigmoid", 0},
    {"com.microsoft", "QLinearSoftmax", 0},
    {"com.microsoft", "QLinearWhere", 0},
};

static const struct integer_op *integer_op_of(const sb_node *node)
{
    for (size_t i = 0; i < SB_COUNT(integer_ops); i++)
        if (strcmp(integer_ops[i].op, node->op) == 0 &&
            strcmp(integer_ops[i].domain, node->domain) == 0)
            return &integer_ops[i];
    return NULL;
}

/* ---- bookkeeping -------------------------------------------------------- */

sb_node_id sb_sim_origin(const sb_qdq_sim *sim, sb_node_id node)
{
    for (size_t i = sim->n_heirs; i-- > 0;)
        if (sim->heirs[i][0] == node)
            node = sim->heirs[i][1];
    return node < sim->n_file ? node : SB_NONE;
}

sb_status sb_sim_heir(sb_qdq_sim *sim, sb_node_id fresh, sb_node_id old)
{
    SB_TRY(sb_grow(sim->g->ctx, &sim->heirs, &sim->cap_heirs, sim->n_heirs + 1,
                   sizeof *sim->heirs));
    sim->heirs[sim->n_heirs][0] = fresh;
    sim->heirs[sim->n_heirs++][1] = old;
    return SB_OK;
}

sb_status sb_sim_merged(sb_qdq_sim *sim, sb_node_id gone, sb_node_id kept)
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
static void settle_merged(sb_qdq_sim *sim)
{
    for (size_t i = sim->n_merged; i-- > 0;) {
        sb_qdq_verdict *gone = &sim->verdicts[sim->merged[i][0]];
        const sb_qdq_verdict *kept = &sim->verdicts[sim->merged[i][1]];
        if (kept->fate == SB_QDQ_INTEGER) {
            gone->fate = SB_QDQ_ABSORBED;
        } else {
            gone->fate = kept->fate;
            gone->reason = kept->reason;
            gone->overhead = kept->overhead;
        }
    }
}

void sb_sim_note(sb_qdq_sim *sim, sb_node_id node, sb_qdq_fate fate,
                 const char *kernel, const char *domain)
{
    sb_node_id origin = sb_sim_origin(sim, node);

    if (!sim->verdicts || origin == SB_NONE)
        return;
    sb_qdq_verdict *v = &sim->verdicts[origin];
    v->fate = fate;
    v->kernel = kernel;
    v->kernel_domain = domain;
    v->reason = NULL;
    v->overhead = false;
}

/* ---- steps -------------------------------------------------------------- */

static sb_status level_1(sb_qdq_sim *sim)
{
    SB_TRY(sb_sim_clean(sim));
    SB_TRY(sb_sim_products(sim));
    SB_TRY(sb_sim_move(sim));
    SB_TRY(sb_sim_weights(sim));
    SB_TRY(sb_sim_unique(sim));
    SB_TRY(sb_sim_where(sim));
    return sim->round == 0 ? sb_sim_empty_pairs(sim) : SB_OK;
}

static sb_status level_2(sb_qdq_sim *sim)
{
    SB_TRY(sb_sim_signs(sim));
    SB_TRY(sb_sim_select(sim));
    return sb_sim_leftovers(sim);
}

/* Until a round changes nothing. */
static sb_status rounds(sb_qdq_sim *sim, sb_status (*round)(sb_qdq_sim *))
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

static sb_status run(sb_qdq_sim *sim)
{
    bool has_inputs = false;

    for (size_t i = 0; i < sim->rules->n_rows; i++)
        has_inputs = has_inputs || sim->rules->rows[i].kind >= SB_QDQ_INPUTS;
    if (has_inputs)
        return sb_sim_inputs(sim);
    if (!(sim->rules->flags & SB_QDQ_STEPS_ORT))
        return sb_sim_select(sim);
    SB_TRY(sb_sim_unique(sim));
    SB_TRY(rounds(sim, level_1));
    return rounds(sim, level_2);
}

static bool has_qdq(const sb_graph *g)
{
    for (size_t i = 0; i < g->n_nodes; i++)
        if (!g->nodes[i].dead && sb_is_qdq(&g->nodes[i]))
            return true;
    return false;
}

sb_status sb_qdq_to_integer(sb_graph *g, const sb_qdq_rules *rules,
                            size_t *changes)
{
    sb_qdq_sim sim = {.g = g, .rules = rules};

    if (!has_qdq(g) || !(rules->flags & SB_QDQ_STEPS_ORT))
        return SB_OK;
    sb_status status = run(&sim);
    *changes += sim.changes;
    sb_free(g->ctx, sim.heirs);
    return status;
}

/* ---- the report --------------------------------------------------------- */

static void count(const sb_graph *g, size_t *n_q, size_t *n_dq)
{
    *n_q = *n_dq = 0;
    for (size_t i = 0; i < g->n_nodes; i++) {
        *n_q += !g->nodes[i].dead && sb_is_q(&g->nodes[i]);
        *n_dq += !g->nodes[i].dead && sb_is_dq(&g->nodes[i]);
    }
}

/* What can be said before any step is taken. */
static void first_verdict(const sb_graph *g, const sb_qdq_rules *rules,
                          const sb_node *node, sb_qdq_verdict *out)
{
    const struct integer_op *known = integer_op_of(node);
    const sb_qdq_rule *rule = sb_qdq_rule_find(rules, node);
    bool weighted = rule && (rule->flags & SB_QDQ_WEIGHTED);
    uint32_t weight = known ? known->weight : weighted ? 1 : 0;

    if (sb_node_is(node, "ConvTranspose"))
        weight = 1;
    out->weighted = weight > 0 && weight < node->n_in &&
                    sb_qdq_from_const(g, node->inputs[weight]);
    if (known) {
        out->fate = SB_QDQ_ALREADY;
        out->kernel = known->op;
        out->kernel_domain = known->domain;
    }
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

static sb_status add_broken(sb_qdq_report *out, sb_node_id node,
                            const sb_qdq_reason *reason)
{
    SB_TRY(sb_grow(out->ctx, &out->broken, &out->cap_broken, out->n_broken + 1,
                   sizeof *out->broken));
    out->broken[out->n_broken].node = node;
    out->broken[out->n_broken++].reason = reason;
    return SB_OK;
}

/* Turns verdicts on the copy's nodes, which has no dead ones, into verdicts on
 * the original's, Q and DQ left out. */
static sb_status collect(const sb_graph *g, const sb_qdq_rules *rules,
                         sb_qdq_report *out)
{
    size_t live = 0, n = 0;

    for (size_t i = 0; i < g->n_nodes; i++) {
        const sb_node *node = &g->nodes[i];
        if (node->dead)
            continue;
        sb_qdq_verdict *v = &out->nodes[live++];
        if (sb_is_qdq(node)) {
            const sb_qdq_reason *r =
                rules->flags & SB_QDQ_TRT_PARSER ? sb_trt_check(g, node) : NULL;
            if (r)
                SB_TRY(add_broken(out, (sb_node_id)i, r));
            continue;
        }
        if (v->fate == SB_QDQ_FLOAT && !v->reason && on_small_integers(g, node))
            v->fate = SB_QDQ_MOVES;
        v->node = (sb_node_id)i;
        out->nodes[n++] = *v;
    }
    out->n_nodes = n;
    return SB_OK;
}

static sb_status analyze(const sb_graph *g, const sb_qdq_rules *rules,
                         sb_qdq_sim *sim, sb_qdq_report *out)
{
    SB_TRY(sb_graph_clone(g, &sim->g));
    sim->n_file = (sb_node_id)sim->g->n_nodes;
    out->nodes = sb_alloc(g->ctx, sim->n_file, sizeof *out->nodes);
    if (!out->nodes)
        return SB_NO_MEMORY;
    sim->verdicts = out->nodes;
    for (sb_node_id i = 0; i < sim->n_file; i++)
        first_verdict(sim->g, rules, sb_graph_node(sim->g, i), &out->nodes[i]);
    SB_TRY(run(sim));
    settle_merged(sim);
    for (sb_node_id i = 0; i < sim->n_file; i++)
        if (out->nodes[i].fate == SB_QDQ_FLOAT && out->nodes[i].kernel)
            out->nodes[i].fate = SB_QDQ_ALREADY;
    (void)sb_graph_remove_dead(sim->g);
    count(g, &out->n_q, &out->n_dq);
    count(sim->g, &out->n_q_left, &out->n_dq_left);
    out->n_q_left -= sim->used_q < out->n_q_left ? sim->used_q : out->n_q_left;
    out->n_dq_left -=
        sim->used_dq < out->n_dq_left ? sim->used_dq : out->n_dq_left;
    return collect(g, rules, out);
}

sb_status sb_qdq_analyze(const sb_graph *g, const sb_qdq_rules *rules,
                         sb_qdq_report *out)
{
    sb_qdq_sim sim = {.rules = rules};

    *out = (sb_qdq_report){.ctx = g->ctx};
    sb_status status = analyze(g, rules, &sim, out);
    sb_free(g->ctx, sim.heirs);
    sb_free(g->ctx, sim.merged);
    sb_graph_free(sim.g);
    if (status != SB_OK)
        sb_qdq_report_free(out);
    return status;
}

void sb_qdq_report_free(sb_qdq_report *report)
{
    sb_free(report->ctx, report->nodes);
    sb_free(report->ctx, report->broken);
    *report = (sb_qdq_report){.ctx = report->ctx};
}
