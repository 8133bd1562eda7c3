/* Pass "collapse_mish": x * tanh(log(1 + exp(x))) becomes one Mish node. */
#include "passes/collapse.h"
#include "passes/pass.h"

/* clang-format off */
static const sb_pat pattern[] = {
    {"y", "Mul", .in = {"x", "t"}, .order = SB_PAT_ANY},
    {"t", "Tanh", .in = {"p"}},
    {"p", "Softplus", .in = {"x"}},
    {"p", "Log", .in = {"d"}},
    {"d", "Add", .in = {"e", "=1"}, .order = SB_PAT_ANY},
    {"e", "Exp", .in = {"x"}},
    {0},
};
/* clang-format on */

static sb_status mish_rewrite(sb_match *m, bool *done)
{
    sb_node_id node;

    return sb_collapse_to(m, "Mish", &node, done);
}

static const sb_rule rules[] = {
    {pattern, sb_collapse_check, mish_rewrite},
};

static sb_status collapse_mish_run(sb_graph *graph, size_t *changes)
{
    return sb_rules_run(graph, rules, SB_COUNT(rules), changes);
}

const sb_pass_def sb_pass_collapse_mish = {
    .name = "collapse_mish",
    .summary = "recognise Mish, x * tanh(softplus(x))",
    .run = collapse_mish_run,
};
