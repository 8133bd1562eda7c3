/* Pass "widen_io": inputs and outputs in float16 or bfloat16 that stand before
 * or behind a Cast become float32 themselves.
 *
 *     x: f16, y = Relu(Cast(x))   =>   x: f32, y = Relu(x)
 *
 * It changes what callers give and get, so it runs only where a user asks for
 * it: behind widen_half it makes a file that knows no small float at all. */
#include "passes/pass.h"
#include "passes/rewrite.h"

static bool widen_io_is_half(const sb_value *v)
{
    return v->type.dtype == SB_DTYPE_F16 || v->type.dtype == SB_DTYPE_BF16;
}

/* Is it read by Casts to float32 alone? */
static bool widen_io_is_cast_only(const sb_graph *g, const sb_value *v)
{
    for (uint32_t i = 0; i < v->n_uses; i++) {
        const sb_node *node = sb_graph_node(g, v->uses[i].node);
        if (!sb_node_is(node, "Cast") ||
            sb_node_int(node, "to", 0) != SB_DTYPE_F32)
            return false;
    }
    return !v->is_output && !v->is_constant;
}

/* Is it made by a Cast of a float32? */
static bool widen_io_is_cast_of(const sb_graph *g, sb_value_id id)
{
    const sb_node *node = sb_graph_producer(g, id);

    return node && sb_node_is(node, "Cast") && node->inputs[0] != SB_NONE &&
           sb_graph_value(g, id)->n_uses == 0 &&
           sb_graph_value(g, node->inputs[0])->type.dtype == SB_DTYPE_F32;
}

static void widen_io_set(sb_value *v, size_t *changes)
{
    v->type.dtype = SB_DTYPE_F32;
    v->denoted_type = (sb_bytes){0};
    (*changes)++;
}

static sb_status widen_io_run(sb_graph *g, size_t *changes)
{
    if (g->parent)
        return SB_OK;
    for (size_t i = 0; i < g->n_inputs; i++) {
        sb_value *v = sb_graph_value(g, g->inputs[i]);
        if (widen_io_is_half(v) && widen_io_is_cast_only(g, v))
            widen_io_set(v, changes);
    }
    for (size_t i = 0; i < g->n_outputs; i++) {
        sb_value *v = sb_graph_value(g, g->outputs[i]);
        if (!widen_io_is_half(v) || !widen_io_is_cast_of(g, g->outputs[i]))
            continue;
        SB_TRY(sb_graph_set_attr_int(g, v->producer, "to", SB_DTYPE_F32));
        widen_io_set(v, changes);
    }
    return SB_OK;
}

const sb_pass_def sb_pass_widen_io = {
    .name = "widen_io",
    .summary = "inputs, outputs as float32 where a Cast makes them small",
    .run = widen_io_run,
};
