/* Pass "remove_expand": an Expand whose result meets a tensor of the same
 * shape is not needed, since the operator broadcasts by itself.
 *
 *     e = Expand(g, shape)      as large as x
 *     y = Mul(x, e)             =>  y = Mul(x, g)
 *
 * PyTorch's expand_as() leaves it behind (channel attention). */
#include "passes/matcher.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

static const sb_pat pattern[] = {
    {"y",
     "Add|Sub|Mul|Div|Pow|Min|Max|And|Or|Xor|Equal|Less|Greater|LessOrEqual|"
     "GreaterOrEqual",
     .in = {"x", "e"}, .order = SB_PAT_ANY},
    {"e", "Expand", .in = {"g", "*"}, .shared = true},
    {0},
};

static bool expand_check(const sb_match *m)
{
    return sb_value_same_shape(m->graph, sb_match_value(m, "x"),
                               sb_match_value(m, "e"));
}

static sb_status expand_rewrite(sb_match *m, bool *done)
{
    const sb_node *root = sb_graph_node(m->graph, m->root);
    sb_value_id e = sb_match_value(m, "e");
    /* The second one if both are it: the first must stay. */
    uint32_t at = root->inputs[1] == e;

    *done = true;
    return sb_graph_set_input(m->graph, m->root, at, sb_match_value(m, "g"));
}

static const sb_rule rules[] = {
    {.rows = pattern, .check = expand_check, .rewrite = expand_rewrite},
};

static sb_status remove_expand_run(sb_graph *graph, size_t *changes)
{
    return sb_rules_run(graph, rules, SB_COUNT(rules), changes);
}

const sb_pass_def sb_pass_remove_expand = {
    .name = "remove_expand",
    .summary = "remove Expand where the consumer broadcasts by itself",
    .run = remove_expand_run,
};
