/* Pass "recognize_hardswish": x clip(x + 3, 0, 6) / 6, in any grouping, becomes
 * one HardSwish node. */
#include <math.h>

#include "passes/pass.h"
#include "passes/recognize/recognize.h"
#include "passes/rewrite.h"

static bool sixth_and_half(const sb_graph *g, const sb_node *node)
{
    (void)g;
    return fabsf(sb_node_float(node, "alpha", 0.2f) - 1.0f / 6) < 1e-5f &&
           fabsf(sb_node_float(node, "beta", 0.5f) - 0.5f) < 1e-5f;
}

/* clang-format off */
static const sb_pat pattern[] = {
    {"y", "Mul", .in = {"x", "s"}, .order = SB_PAT_ANY},
    {"y", "Div", .in = {"m", "=6"}},
    {"y", "Mul", .in = {"m", "=0.16666666666666667"}, .order = SB_PAT_ANY},
    {"y", "Mul", .in = {"xs", "c"}, .order = SB_PAT_ANY},
    {"s", "HardSigmoid", .in = {"x"}, .check = sixth_and_half},
    {"s", "Div", .in = {"c", "=6"}},
    {"s", "Mul", .in = {"c", "=0.16666666666666667"}, .order = SB_PAT_ANY},
    {"m", "Mul", .in = {"x", "c"}, .order = SB_PAT_ANY},
    {"xs", "Div", .in = {"x", "=6"}},
    {"xs", "Mul", .in = {"x", "=0.16666666666666667"}, .order = SB_PAT_ANY},
    {"c", "Clip", .in = {"a", "=0", "=6"}},
    {"c", "Min", .in = {"r", "=6"}, .order = SB_PAT_ANY},
    {"r", "Relu", .in = {"a"}},
    {"a", "Add", .in = {"x", "=3"}, .order = SB_PAT_ANY},
    {0},
};
/* clang-format on */

static sb_status hardswish_rewrite(sb_match *m, bool *done)
{
    sb_node_id node;

    return sb_recognize_as(m, "HardSwish", &node, done);
}

static const sb_rule rules[] = {
    {pattern, sb_recognize_check_f32, hardswish_rewrite},
};

static sb_status recognize_hardswish_run(sb_graph *graph, size_t *changes)
{
    return sb_rules_run(graph, rules, SB_COUNT(rules), changes);
}

const sb_pass_def sb_pass_recognize_hardswish = {
    .name = "recognize_hardswish",
    .summary = "recognize HardSwish, x * clip(x + 3, 0, 6) / 6",
    .run = recognize_hardswish_run,
};
