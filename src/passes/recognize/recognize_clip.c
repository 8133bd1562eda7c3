/* Pass "recognize_clip": Max and Min with one number become Clip.
 *
 * Runtimes take a Clip into the QuantizeLinear behind it; Max and Min keep what
 * is in front of them in float. */
#include <math.h>

#include "passes/pass.h"
#include "passes/recognize/recognize.h"
#include "passes/rewrite.h"

/* clang-format off */
static const sb_pat pattern[] = {
    {"y", "Max|Min", .in = {"x", "$c"}, .order = SB_PAT_ANY},
    {0},
};
/* clang-format on */

static bool clip_check(const sb_match *m)
{
    const sb_graph *g = m->graph;
    const sb_value *c = sb_graph_value(g, sb_match_value(m, "c"));
    const sb_value *x = sb_graph_value(g, sb_match_value(m, "x"));
    double v;

    return sb_recognize_check_f32(m) && !x->is_constant &&
           sb_const_scalar(g, sb_match_value(m, "c"), &v) && isfinite(v) &&
           c->type.shape.rank <=
               (x->type.shape.rank < 0 ? 0 : x->type.shape.rank);
}

static sb_status clip_rewrite(sb_match *m, bool *done)
{
    sb_graph *g = m->graph;
    const sb_value_id c = sb_match_value(m, "c"), x = sb_match_value(m, "x");
    const bool upper = sb_node_is(sb_graph_node(g, m->root), "Min");
    const sb_shape scalar = {.rank = 0};
    sb_value_id in[3] = {x, SB_NONE, SB_NONE};
    sb_node_id node;
    double v = 0;

    (void)sb_const_scalar(g, c, &v);
    SB_TRY(sb_rewrite_fill(g, "limit", sb_graph_value(g, x)->type.dtype,
                           &scalar, v, &in[upper ? 2 : 1]));
    *done = true;
    return sb_rewrite_node(g, m->root, "Clip", in, upper ? 3 : 2, &node);
}

static const sb_rule rules[] = {
    {pattern, clip_check, clip_rewrite},
};

static sb_status recognize_clip_run(sb_graph *graph, size_t *changes)
{
    return sb_rules_run(graph, rules, SB_COUNT(rules), changes);
}

const sb_pass_def sb_pass_recognize_clip = {
    .name = "recognize_clip",
    .summary = "recognize Clip, Max or Min with a number",
    .run = recognize_clip_run,
};
