/* Pass "NAME": what it does, in one line.
 *
 *     before:  y = Neg(Neg(x))
 *     after:   y = x
 *
 * Why it is right, and where it must not be applied.
 *
 * To make a pass of this: copy it to src/passes/<folder>/<name>.c, replace NAME
 * and `name`, add SB_PASS(name) to passes.def, name it in a pipeline of
 * pass_manager.c if it shall run by default, and write
 * tests/passes/test_<name>.c: text graph in, text graph out. */
#include "passes/matcher.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

static const sb_pat pattern[] = {
    {"y", "Neg", .in = {"n"}},
    {"n", "Neg", .in = {"x"}, .shared = true},
    {0},
};

static sb_status name_rewrite(sb_match *m, bool *done)
{
    return sb_rewrite_forward(m->graph, m->root, sb_match_value(m, "x"), done);
}

static const sb_rule rules[] = {
    {.rows = pattern, .rewrite = name_rewrite},
};

static sb_status name_run(sb_graph *graph, size_t *changes)
{
    return sb_rules_run(graph, rules, SB_COUNT(rules), changes);
}

const sb_pass_def sb_pass_name = {
    .name = "NAME",
    .summary = "remove double negation",
    .run = name_run,
};
