/* Pass "recognize_layernorm": the arithmetic that exporters write for layer
 * normalization becomes one LayerNormalization node.
 *
 *     y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * scale + bias
 *
 * over the last axes.  TensorFlow multiplies out:
 *     y = x k + (bias - mean(x) k),   k = scale / sqrt(var + eps)
 */
#include "passes/pass.h"
#include "passes/recognize/recognize_norm.h"
#include "passes/rewrite.h"

/* clang-format off */
#define VARIANCE                                                               \
    {"sd", "Sqrt", .in = {"ve"}},                                              \
    {"sd", "Pow", .in = {"ve", "=0.5"}},                                       \
    {"ve", "Add", .in = {"var", "$eps"}, .order = SB_PAT_ANY},                 \
    {"var", "ReduceMean", .in = {"sq"}, .order = SB_PAT_SUBSET},               \
    {"sq", "Pow", .in = {"d", "=2"}},                                          \
    {"sq", "Mul", .in = {"d", "d"}},                                           \
    {"d", "Sub", .in = {"x", "mean"}},                                         \
    {"mean", "ReduceMean", .in = {"x"}, .order = SB_PAT_SUBSET}

#define INVERSE                                                                \
    {"r", "Reciprocal", .in = {"sd"}},                                         \
    {"r", "Div", .in = {"=1", "sd"}},                                          \
    {"r", "Pow", .in = {"ve", "=-0.5"}}

static const sb_pat core_pattern[] = {
    {"y", "Div", .in = {"d", "sd"}},
    {"y", "Mul", .in = {"d", "r"}, .order = SB_PAT_ANY},
    INVERSE,
    VARIANCE,
    {0},
};

static const sb_pat multiplied_pattern[] = {
    {"y", "Add", .in = {"xk", "c"}, .order = SB_PAT_ANY},
    {"xk", "Mul", .in = {"x", "k"}, .order = SB_PAT_ANY},
    {"c", "Sub", .in = {"$b", "mk"}},
    {"mk", "Mul", .in = {"mean", "k"}, .order = SB_PAT_ANY},
    {"k", "Mul", .in = {"r", "$g"}, .order = SB_PAT_ANY},
    INVERSE,
    VARIANCE,
    {0},
};

static const sb_pat scale_pattern[] = {
    {"y", "Mul", .in = {"n", "$g"}, .order = SB_PAT_ANY},
    {"n", "LayerNormalization", .in = {"x", "*"}},
    {0},
};

static const sb_pat bias_pattern[] = {
    {"y", "Add", .in = {"n", "$b"}, .order = SB_PAT_ANY},
    {"n", "LayerNormalization", .in = {"x", "s"}},
    {0},
};

static const sb_pat cast_pattern[] = {
    {"y", "Cast", .in = {"n"}},
    {"n", "LayerNormalization", .in = {"c", "*"}},
    {"c", "Cast", .in = {"x"}, .shared = true},
    {0},
};
/* clang-format on */

/* The last axes that mean and variance go over, or -1 if they differ. */
static int core_axes(const sb_match *m)
{
    const sb_graph *g = m->graph;
    int n = sb_norm_axes(g, sb_graph_node(g, sb_match_node(m, "mean")));

    return n == sb_norm_axes(g, sb_graph_node(g, sb_match_node(m, "var"))) ? n
                                                                           : -1;
}

static bool core_check(const sb_match *m)
{
    return sb_norm_core_ok(m, core_axes(m));
}

static sb_status core_rewrite(sb_match *m, bool *done)
{
    *done = true;
    return sb_norm_core(m, "LayerNormalization", core_axes(m), SB_NONE,
                        SB_NONE);
}

static bool multiplied_check(const sb_match *m)
{
    const sb_graph *g = m->graph;
    int n = core_axes(m);
    const sb_type *x = &sb_graph_value(g, sb_match_value(m, "x"))->type;
    const char *const names[] = {"g", "b"};

    if (!sb_norm_core_ok(m, n))
        return false;
    for (size_t i = 0; i < SB_COUNT(names); i++) {
        sb_value_id id = sb_match_value(m, names[i]);
        const sb_tensor *t = &sb_graph_value(g, id)->constant;
        if (t->rank != n || t->dtype != x->dtype)
            return false;
        for (int k = 0; k < n; k++)
            if (t->dims[k] != x->shape.dim[x->shape.rank - n + k])
                return false;
    }
    return true;
}

static sb_status multiplied_rewrite(sb_match *m, bool *done)
{
    *done = true;
    return sb_norm_core(m, "LayerNormalization", core_axes(m),
                        sb_match_value(m, "g"), sb_match_value(m, "b"));
}

static bool bias_check(const sb_match *m)
{
    const sb_graph *g = m->graph;
    const sb_node *norm = sb_graph_node(g, sb_match_node(m, "n"));

    return sb_norm_fits(g, norm, sb_match_value(m, "b"));
}

static sb_status bias_rewrite(sb_match *m, bool *done)
{
    sb_graph *g = m->graph;
    const sb_node *norm = sb_graph_node(g, sb_match_node(m, "n"));
    int n = sb_norm_node_axes(g, norm);
    sb_value_id in[3] = {sb_match_value(m, "x"), sb_match_value(m, "s"),
                         SB_NONE};

    SB_TRY(sb_norm_param(g, sb_match_value(m, "b"), n, &in[2]));
    *done = true;
    return sb_norm_again(m, in, 3);
}

static const sb_rule rules[] = {
    {core_pattern, core_check, core_rewrite},
    {multiplied_pattern, multiplied_check, multiplied_rewrite},
    {scale_pattern, sb_norm_scale_check, sb_norm_scale_rewrite},
    {bias_pattern, bias_check, bias_rewrite},
    {cast_pattern, sb_norm_cast_check, sb_norm_cast_rewrite},
};

static sb_status recognize_layernorm_run(sb_graph *graph, size_t *changes)
{
    return sb_rules_run(graph, rules, SB_COUNT(rules), changes);
}

const sb_pass_def sb_pass_recognize_layernorm = {
    .name = "recognize_layernorm",
    .summary = "recognize layer normalization written as arithmetic",
    .run = recognize_layernorm_run,
};
