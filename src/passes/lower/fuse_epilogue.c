/* Activations and sums that can go into the operator before them. */
#include "passes/lower/fuse_epilogue.h"

#include <float.h>

#include "passes/rewrite.h"

/* Constant bound of Clip; `absent` if the input is not there. */
static bool clip_bound(const sb_graph *g, const sb_node *node, uint32_t i,
                       float absent, float *out)
{
    double v = (double)absent;
    sb_value_id id = sb_node_in(node, i);

    if (id != SB_NONE && !sb_const_scalar(g, id, &v))
        return false;
    *out = (float)v;
    return true;
}

bool sb_fused_act_of(const sb_graph *g, const sb_node *node, sb_fused_act *out)
{
    static const char *const plain[] = {"Relu", "Sigmoid", "Tanh", "HardSwish"};

    *out = (sb_fused_act){0};
    for (size_t i = 0; i < SB_COUNT(plain); i++)
        if (sb_node_is(node, plain[i]))
            out->name = plain[i];
    if (sb_node_is(node, "Gelu"))
        out->name = sb_node_string_is(node, "approximate", "tanh", false)
                        ? "FastGelu"
                        : "Gelu";
    if (sb_node_is(node, "LeakyRelu") || sb_node_is(node, "Swish")) {
        bool leaky = sb_node_is(node, "LeakyRelu");
        out->name = leaky ? "LeakyRelu" : "Swish";
        out->params[0] = sb_node_float(node, "alpha", leaky ? 0.01f : 1.0f);
        out->n_params = 1;
    }
    if (sb_node_is(node, "Clip")) {
        if (!clip_bound(g, node, 1, -FLT_MAX, &out->params[0]) ||
            !clip_bound(g, node, 2, FLT_MAX, &out->params[1]))
            return false;
        out->name = "Clip";
        out->n_params = 2;
    }
    return out->name != NULL;
}

sb_status sb_fused_act_set(sb_graph *g, sb_node_id node,
                           const sb_fused_act *act)
{
    float *params = sb_arena_copy(g->arena, act->params, sizeof act->params);
    sb_attr attr = {.name = "activation_params",
                    .type = SB_ATTR_FLOATS,
                    .n = act->n_params,
                    .floats = params};

    if (!params)
        return SB_NO_MEMORY;
    SB_TRY(sb_rewrite_set_string(g, node, "activation", act->name));
    return act->n_params ? sb_graph_set_attr(g, node, &attr) : SB_OK;
}

sb_status sb_fused_replace(sb_graph *g, sb_node_id node, sb_node_id next,
                           const char *op, const sb_value_id *in, size_t n_in,
                           sb_node_id *out)
{
    const sb_node *old = sb_graph_node(g, node);
    sb_value_id result = sb_graph_node(g, next)->outputs[0];
    sb_node_spec spec = {.op = op,
                         .domain = SB_FUSED_DOMAIN,
                         .name = old->name,
                         .module = old->module,
                         .inputs = in,
                         .n_in = n_in,
                         .outputs = &result,
                         .n_out = 1,
                         .position = sb_graph_node(g, next)->position};

    sb_graph_remove_node(g, next);
    return sb_graph_add_node(g, &spec, out);
}

sb_value_id sb_fused_addend(const sb_graph *g, const sb_node *node,
                            sb_value_id y)
{
    if (!sb_node_is(node, "Add") || sb_graph_value(g, y)->type.shape.rank < 1)
        return SB_NONE;
    sb_value_id z = node->inputs[node->inputs[0] == y ? 1 : 0];
    if (z == y || sb_is_const(g, z) ||
        sb_graph_value(g, z)->type.dtype != SB_DTYPE_F32 ||
        !sb_value_same_shape(g, y, z))
        return SB_NONE;
    return z;
}

sb_node_id sb_fused_next(const sb_graph *g, const sb_node *node)
{
    const sb_value *y = sb_graph_value(g, node->outputs[0]);

    if (node->n_out != 1 || y->n_uses != 1 || y->is_output ||
        y->type.dtype != SB_DTYPE_F32 ||
        sb_graph_node(g, y->uses[0].node)->n_implicit > 0)
        return SB_NONE;
    return y->uses[0].node;
}
