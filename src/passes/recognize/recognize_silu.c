/* Pass "recognize_silu": x * sigmoid(alpha x) becomes one Swish node.
 *
 * SiLU is alpha = 1; "quick GELU" is alpha = 1.702.
 *
 * Pass "write_silu": all forms of it become that product. */
#include "passes/pass.h"
#include "passes/recognize/recognize.h"
#include "passes/rewrite.h"

/* clang-format off */
static const sb_pat scaled_pattern[] = {
    {"y", "Mul", .in = {"x", "s"}, .order = SB_PAT_ANY},
    {"s", "Sigmoid", .in = {"ax"}},
    {"ax", "Mul", .in = {"x", "$alpha"}, .order = SB_PAT_ANY},
    {0},
};

static const sb_pat plain_pattern[] = {
    {"y", "Mul", .in = {"x", "s"}, .order = SB_PAT_ANY},
    {"y", "Div", .in = {"x", "d"}},
    {"s", "Sigmoid", .in = {"x"}},
    {"d", "Add", .in = {"e", "=1"}, .order = SB_PAT_ANY},
    {"e", "Exp", .in = {"n"}},
    {"n", "Neg", .in = {"x"}},
    {0},
};
/* clang-format on */

static bool scaled_check(const sb_match *m)
{
    double alpha;

    return sb_const_scalar(m->graph, sb_match_value(m, "alpha"), &alpha) &&
           sb_recognize_check(m);
}

static sb_status scaled_rewrite(sb_match *m, bool *done)
{
    double alpha = 1;
    sb_node_id node;

    (void)sb_const_scalar(m->graph, sb_match_value(m, "alpha"), &alpha);
    SB_TRY(sb_recognize_as(m, "Swish", &node, done));
    return sb_rewrite_set_float(m->graph, node, "alpha", (float)alpha);
}

static sb_status plain_rewrite(sb_match *m, bool *done)
{
    sb_node_id node;

    return sb_recognize_as(m, "Swish", &node, done);
}

static const sb_rule rules[] = {
    {scaled_pattern, scaled_check, scaled_rewrite},
    {plain_pattern, sb_recognize_check, plain_rewrite},
};

static sb_status recognize_silu_run(sb_graph *graph, size_t *changes)
{
    return sb_rules_run(graph, rules, SB_COUNT(rules), changes);
}

const sb_pass_def sb_pass_recognize_silu = {
    .name = "recognize_silu",
    .summary = "recognize SiLU (Swish), x * sigmoid(x)",
    .run = recognize_silu_run,
};

/* Once is enough: what it writes is what it looks for. */
static sb_status write_silu_run(sb_graph *graph, size_t *changes)
{
    SB_TRY(sb_rules_run(graph, rules, SB_COUNT(rules), changes));
    for (sb_node_id id = 0, n = (sb_node_id)graph->n_nodes; id < n; id++)
        if (!graph->nodes[id].dead && sb_node_is(&graph->nodes[id], "Swish"))
            SB_TRY(sb_decompose_node(graph, id));
    return SB_OK;
}

const sb_pass_def sb_pass_write_silu = {
    .name = "write_silu",
    .summary = "SiLU in any form as x * sigmoid(x), for older opsets",
    .run = write_silu_run,
    .once = true,
};
