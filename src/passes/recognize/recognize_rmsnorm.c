/* Pass "recognize_rmsnorm": the arithmetic of root-mean-square normalization
 * becomes one RMSNormalization node.
 *
 *     y = x / sqrt(mean(x^2) + eps) * scale
 *
 * over the last axes.  Runs after recognize_layernorm, whose centered input
 * would look the same. */
#include "passes/pass.h"
#include "passes/recognize/recognize_norm.h"
#include "passes/rewrite.h"

/* clang-format off */
static const sb_pat core_pattern[] = {
    {"y", "Div", .in = {"x", "sd"}},
    {"y", "Mul", .in = {"x", "r"}, .order = SB_PAT_ANY},
    {"r", "Reciprocal", .in = {"sd"}},
    {"r", "Div", .in = {"=1", "sd"}},
    {"r", "Pow", .in = {"ve", "=-0.5"}},
    {"sd", "Sqrt", .in = {"ve"}},
    {"sd", "Pow", .in = {"ve", "=0.5"}},
    {"ve", "Add", .in = {"ms", "$eps"}, .order = SB_PAT_ANY},
    {"ms", "ReduceMean", .in = {"sq"}, .order = SB_PAT_SUBSET},
    {"sq", "Pow", .in = {"x", "=2"}},
    {"sq", "Mul", .in = {"x", "x"}},
    {0},
};

static const sb_pat scale_pattern[] = {
    {"y", "Mul", .in = {"n", "$g"}, .order = SB_PAT_ANY},
    {"n", "RMSNormalization", .in = {"x", "*"}},
    {0},
};

static const sb_pat cast_pattern[] = {
    {"y", "Cast", .in = {"n"}},
    {"n", "RMSNormalization", .in = {"c", "*"}},
    {"c", "Cast", .in = {"x"}, .shared = true},
    {0},
};
/* clang-format on */

static int core_axes(const sb_match *m)
{
    const sb_graph *g = m->graph;

    return sb_norm_axes(g, sb_graph_node(g, sb_match_node(m, "ms")));
}

static bool core_check(const sb_match *m)
{
    return sb_norm_core_ok(m, core_axes(m));
}

static sb_status core_rewrite(sb_match *m, bool *done)
{
    *done = true;
    return sb_norm_core(m, "RMSNormalization", core_axes(m), SB_NONE, SB_NONE);
}

static const sb_rule rules[] = {
    {core_pattern, core_check, core_rewrite},
    {scale_pattern, sb_norm_scale_check, sb_norm_scale_rewrite},
    {cast_pattern, sb_norm_cast_check, sb_norm_cast_rewrite},
};

static sb_status recognize_rmsnorm_run(sb_graph *graph, size_t *changes)
{
    return sb_rules_run(graph, rules, SB_COUNT(rules), changes);
}

const sb_pass_def sb_pass_recognize_rmsnorm = {
    .name = "recognize_rmsnorm",
    .summary = "recognize root-mean-square normalization",
    .run = recognize_rmsnorm_run,
};
