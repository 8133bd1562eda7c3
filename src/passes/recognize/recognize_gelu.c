/* Pass "recognize_gelu": the arithmetic that exporters write for GELU becomes
 * one Gelu node.
 *
 *     erf:   0.5 x (1 + erf(x / sqrt 2))
 *     tanh:  0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
 *
 * The factors come in any order and grouping; the argument of tanh also as
 * sqrt(2/pi) x (1 + 0.044715 x^2). */
#include "passes/matcher.h"
#include "passes/pass.h"
#include "passes/recognize/recognize.h"
#include "passes/rewrite.h"

/* clang-format off */
/* 0.5 * x * a, in each grouping */
#define HALF_X_A                                                               \
    {"y", "Mul", .in = {"m", "=0.5"}, .order = SB_PAT_ANY},                    \
    {"y", "Mul", .in = {"x", "h"}, .order = SB_PAT_ANY},                       \
    {"y", "Mul", .in = {"half", "a"}, .order = SB_PAT_ANY},                    \
    {"y", "Div", .in = {"m", "=2"}},                                           \
    {"m", "Mul", .in = {"x", "a"}, .order = SB_PAT_ANY},                       \
    {"h", "Mul", .in = {"a", "=0.5"}, .order = SB_PAT_ANY},                    \
    {"h", "Div", .in = {"a", "=2"}},                                           \
    {"half", "Mul", .in = {"x", "=0.5"}, .order = SB_PAT_ANY},                 \
    {"half", "Div", .in = {"x", "=2"}}

static const sb_pat erf_pattern[] = {
    HALF_X_A,
    {"a", "Add", .in = {"e", "=1"}, .order = SB_PAT_ANY},
    {"e", "Erf", .in = {"s"}},
    {"s", "Div", .in = {"x", "=1.4142135623730951"}},
    {"s", "Mul", .in = {"x", "=0.7071067811865476"}, .order = SB_PAT_ANY},
    {0},
};

static const sb_pat tanh_pattern[] = {
    HALF_X_A,
    {"a", "Add", .in = {"t", "=1"}, .order = SB_PAT_ANY},
    {"t", "Tanh", .in = {"u"}},
    {"u", "Mul", .in = {"=0.7978845608028654", "sum"}, .order = SB_PAT_ANY},
    {"u", "Mul", .in = {"scaled", "poly"}, .order = SB_PAT_ANY},
    {"sum", "Add", .in = {"x", "cubic"}, .order = SB_PAT_ANY},
    {"cubic", "Mul", .in = {"=0.044715", "cube"}, .order = SB_PAT_ANY},
    {"cubic", "Mul", .in = {"x", "square_c"}, .order = SB_PAT_ANY},
    {"cube", "Pow", .in = {"x", "=3"}},
    {"cube", "Mul", .in = {"x", "square"}, .order = SB_PAT_ANY},
    {"scaled", "Mul", .in = {"x", "=0.7978845608028654"}, .order = SB_PAT_ANY},
    {"poly", "Add", .in = {"square_c", "=1"}, .order = SB_PAT_ANY},
    {"square_c", "Mul", .in = {"=0.044715", "square"}, .order = SB_PAT_ANY},
    {"square_c", "Mul", .in = {"x_c", "x"}, .order = SB_PAT_ANY},
    {"x_c", "Mul", .in = {"x", "=0.044715"}, .order = SB_PAT_ANY},
    {"square", "Mul", .in = {"x", "x"}},
    {"square", "Pow", .in = {"x", "=2"}},
    {0},
};
/* clang-format on */

static sb_status erf_rewrite(sb_match *m, bool *done)
{
    sb_node_id node;

    return sb_recognize_as(m, "Gelu", &node, done);
}

static sb_status tanh_rewrite(sb_match *m, bool *done)
{
    sb_node_id node;

    SB_TRY(sb_recognize_as(m, "Gelu", &node, done));
    return sb_rewrite_set_string(m->graph, node, "approximate", "tanh");
}

static const sb_rule rules[] = {
    {erf_pattern, sb_recognize_check, erf_rewrite},
    {tanh_pattern, sb_recognize_check, tanh_rewrite},
};

static sb_status recognize_gelu_run(sb_graph *graph, size_t *changes)
{
    return sb_rules_run(graph, rules, SB_COUNT(rules), changes);
}

const sb_pass_def sb_pass_recognize_gelu = {
    .name = "recognize_gelu",
    .summary = "recognize GELU, by erf or by tanh, written as arithmetic",
    .run = recognize_gelu_run,
};
