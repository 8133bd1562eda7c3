/* Pass "recognize_softmax": exp(x - max(x)) / sum(exp(x - max(x))) along one
 * axis becomes one Softmax node; so does exp(x) / sum(exp(x)), and a Softmax of
 * rows between Flatten and Reshape: what is read from files before opset 13,
 * whose softmax was one over a matrix, if a rank is known only later. */
#include "passes/pass.h"
#include "passes/recognize/recognize.h"
#include "passes/rewrite.h"

/* clang-format off */
static const sb_pat pattern[] = {
    {"y", "Div", .in = {"e", "s"}},
    {"s", "ReduceSum", .in = {"e"}, .order = SB_PAT_SUBSET},
    {"e", "Exp", .in = {"d"}},
    {"e", "Exp", .in = {"x"}},
    {"d", "Sub", .in = {"x", "m"}},
    {"m", "ReduceMax", .in = {"x"}, .order = SB_PAT_SUBSET},
    {0},
};
/* clang-format on */

/* The one axis that a reduction keeps as 1; false if it is anything else. */
static bool reduce_axis(const sb_graph *g, const sb_node *node, int64_t *axis)
{
    int rank = sb_graph_value(g, node->inputs[0])->type.shape.rank;

    if (sb_const_ints(g, sb_node_in(node, 1), axis, 1) != 1 ||
        sb_node_int(node, "keepdims", 1) != 1 || rank < 1)
        return false;
    *axis = *axis < 0 ? *axis + rank : *axis;
    return *axis >= 0 && *axis < rank;
}

static bool softmax_check(const sb_match *m)
{
    const sb_graph *g = m->graph;
    sb_node_id max = sb_match_node(m, "m");
    int64_t a, b;

    return sb_recognize_check(m) &&
           reduce_axis(g, sb_graph_node(g, sb_match_node(m, "s")), &a) &&
           (max == SB_NONE ||
            (reduce_axis(g, sb_graph_node(g, max), &b) && a == b));
}

static sb_status softmax_rewrite(sb_match *m, bool *done)
{
    sb_graph *g = m->graph;
    int64_t axis = -1;
    sb_node_id node;

    (void)reduce_axis(g, sb_graph_node(g, sb_match_node(m, "s")), &axis);
    SB_TRY(sb_recognize_as(m, "Softmax", &node, done));
    return sb_graph_set_attr_int(g, node, "axis", axis);
}

/* ---- rows of a matrix ------------------------------------------------------ */

/* clang-format off */
static const sb_pat rows_pattern[] = {
    {"y", "Reshape", .in = {"s", "h"}},
    {"s", "Softmax", .in = {"f"}},
    {"f", "Flatten", .in = {"x"}},
    {"h", "Shape", .in = {"x"}, .shared = true},
    {0},
};
/* clang-format on */

/* Rows are the last axis, and come back as the shape they had. */
static bool rows_check(const sb_match *m)
{
    const sb_graph *g = m->graph;
    const sb_node *flat = sb_graph_node(g, sb_match_node(m, "f"));
    const sb_node *soft = sb_graph_node(g, sb_match_node(m, "s"));
    const sb_node *shape = sb_graph_node(g, sb_match_node(m, "h"));
    int rank = sb_graph_value(g, sb_match_value(m, "x"))->type.shape.rank;
    int64_t at = sb_node_int(flat, "axis", 1);
    int64_t axis = sb_node_int(soft, "axis", -1);

    return sb_recognize_check(m) && rank >= 1 && (at == rank - 1 || at == -1) &&
           (axis == -1 || axis == 1) && !sb_node_attr(shape, "start") &&
           !sb_node_attr(shape, "end");
}

static sb_status rows_rewrite(sb_match *m, bool *done)
{
    sb_node_id node;

    SB_TRY(sb_recognize_as(m, "Softmax", &node, done));
    return sb_graph_set_attr_int(m->graph, node, "axis", -1);
}

static const sb_rule rules[] = {
    {pattern, softmax_check, softmax_rewrite},
    {rows_pattern, rows_check, rows_rewrite},
};

static sb_status recognize_softmax_run(sb_graph *graph, size_t *changes)
{
    return sb_rules_run(graph, rules, SB_COUNT(rules), changes);
}

const sb_pass_def sb_pass_recognize_softmax = {
    .name = "recognize_softmax",
    .summary = "recognize softmax, exp(x) / sum(exp(x))",
    .run = recognize_softmax_run,
};
