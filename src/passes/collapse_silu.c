/* Pass "collapse_silu": x * sigmoid(alpha x) becomes one Swish node.
 *
 * SiLU is alpha = 1; "quick GELU" is alpha = 1.702. */
#include "passes/collapse.h"
#include "passes/pass.h"
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
           sb_collapse_check(m);
}

static sb_status scaled_rewrite(sb_match *m, bool *done)
{
    double alpha = 1;
    sb_node_id node;

    (void)sb_const_scalar(m->graph, sb_match_value(m, "alpha"), &alpha);
    SB_TRY(sb_collapse_to(m, "Swish", &node, done));
    return sb_rewrite_set_float(m->graph, node, "alpha", (float)alpha);
}

static sb_status plain_rewrite(sb_match *m, bool *done)
{
    sb_node_id node;

    return sb_collapse_to(m, "Swish", &node, done);
}

static const sb_rule rules[] = {
    {scaled_pattern, scaled_check, scaled_rewrite},
    {plain_pattern, sb_collapse_check, plain_rewrite},
};

static sb_status collapse_silu_run(sb_graph *graph, size_t *changes)
{
    return sb_rules_run(graph, rules, SB_COUNT(rules), changes);
}

const sb_pass_def sb_pass_collapse_silu = {
    .name = "collapse_silu",
    .summary = "recognise SiLU (Swish), x * sigmoid(x)",
    .run = collapse_silu_run,
};
