/* Pass "recognize_hardsigmoid": clip(x + 3, 0, 6) / 6 becomes one HardSigmoid
 * node with alpha 1/6, beta 1/2.
 *
 * x times that is HardSwish; its pass runs later and takes this node too. */
#include "passes/pass.h"
#include "passes/recognize/recognize.h"
#include "passes/rewrite.h"

/* clang-format off */
static const sb_pat pattern[] = {
    {"y", "Div", .in = {"c", "=6"}},
    {"y", "Mul", .in = {"c", "=0.16666666666666667"}, .order = SB_PAT_ANY},
    {"c", "Clip", .in = {"a", "=0", "=6"}},
    {"c", "Min", .in = {"r", "=6"}, .order = SB_PAT_ANY},
    {"r", "Relu", .in = {"a"}},
    {"a", "Add", .in = {"x", "=3"}, .order = SB_PAT_ANY},
    {0},
};
/* clang-format on */

static sb_status hardsigmoid_rewrite(sb_match *m, bool *done)
{
    sb_node_id node;

    SB_TRY(sb_recognize_as(m, "HardSigmoid", &node, done));
    SB_TRY(sb_rewrite_set_float(m->graph, node, "alpha", 1.0f / 6));
    return sb_rewrite_set_float(m->graph, node, "beta", 0.5f);
}

static const sb_rule rules[] = {
    {pattern, sb_recognize_check_f32, hardsigmoid_rewrite},
};

static sb_status recognize_hardsigmoid_run(sb_graph *graph, size_t *changes)
{
    return sb_rules_run(graph, rules, SB_COUNT(rules), changes);
}

const sb_pass_def sb_pass_recognize_hardsigmoid = {
    .name = "recognize_hardsigmoid",
    .summary = "recognize HardSigmoid, clip(x + 3, 0, 6) / 6",
    .run = recognize_hardsigmoid_run,
};
