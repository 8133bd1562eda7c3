/* Pass "recognize_mish": x * tanh(log(1 + exp(x))) becomes one Mish node. */
#include "passes/pass.h"
#include "passes/recognize/recognize.h"

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

    return sb_recognize_as(m, "Mish", &node, done);
}

static const sb_rule rules[] = {
    {pattern, sb_recognize_check, mish_rewrite},
};

static sb_status recognize_mish_run(sb_graph *graph, size_t *changes)
{
    return sb_rules_run(graph, rules, SB_COUNT(rules), changes);
}

const sb_pass_def sb_pass_recognize_mish = {
    .name = "recognize_mish",
    .summary = "recognize Mish, x * tanh(softplus(x))",
    .run = recognize_mish_run,
};
