/* Pass "fuse_conv": convolution, residual sum and activation become one node
 * of the executor's own domain, computed in one pass over the output.
 *
 *     y = act(Conv(x, w, b) + z)        sum, then activation
 *     y = act(Conv(x, w, b)) + z        with sum_last
 *
 * For running only: the node means nothing to other programs. */
#include <string.h>

#include "graph/op.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

typedef struct fusion {
    sb_graph *g;
    sb_node_id conv; /* Conv or FusedConv */
    sb_node_id next; /* the only consumer of its result */
    sb_value_id z;   /* what to add, or SB_NONE */
    const char *activation;
    float params[2];
    size_t n_params;
} fusion;

static bool is_fused(const sb_node *node)
{
    return strcmp(node->op, "FusedConv") == 0 &&
           strcmp(node->domain, SB_FUSED_DOMAIN) == 0;
}

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

/* Is the consumer an activation that the kernel knows? */
static bool take_activation(fusion *f, const sb_node *node)
{
    static const char *const plain[] = {"Relu", "Sigmoid", "Tanh", "HardSwish"};

    for (size_t i = 0; i < SB_COUNT(plain); i++) {
        if (sb_node_is(node, plain[i])) {
            f->activation = plain[i];
            return true;
        }
    }
    if (sb_node_is(node, "LeakyRelu") || sb_node_is(node, "Swish")) {
        bool leaky = sb_node_is(node, "LeakyRelu");
        f->activation = leaky ? "LeakyRelu" : "Swish";
        f->params[0] = sb_node_float(node, "alpha", leaky ? 0.01f : 1.0f);
        f->n_params = 1;
        return true;
    }
    if (sb_node_is(node, "Clip")) {
        f->activation = "Clip";
        f->n_params = 2;
        return clip_bound(f->g, node, 1, -3.402823466e38f, &f->params[0]) &&
               clip_bound(f->g, node, 2, 3.402823466e38f, &f->params[1]);
    }
    return false;
}

/* Is the consumer a sum with another tensor of exactly this shape? */
static bool take_sum(fusion *f, const sb_node *node, sb_value_id y)
{
    const sb_shape *shape = &sb_graph_value(f->g, y)->type.shape;

    if (!sb_node_is(node, "Add") || shape->rank < 3)
        return false;
    f->z = node->inputs[0] == y ? node->inputs[1] : node->inputs[0];
    if (f->z == y || sb_is_const(f->g, f->z) ||
        sb_graph_value(f->g, f->z)->type.dtype != SB_DTYPE_F32)
        return false;
    return sb_value_same_shape(f->g, y, f->z);
}

static bool find_fusion(sb_graph *g, sb_node_id id, fusion *f)
{
    const sb_node *conv = sb_graph_node(g, id);

    if (conv->dead || !(sb_node_is(conv, "Conv") || is_fused(conv)))
        return false;
    const sb_value *y = sb_graph_value(g, conv->outputs[0]);
    if (y->n_uses != 1 || y->is_output || y->type.dtype != SB_DTYPE_F32)
        return false;
    *f = (fusion){.g = g, .conv = id, .next = y->uses[0].node, .z = SB_NONE};
    bool has_act = sb_node_attr(conv, "activation") != NULL;
    bool has_sum = sb_node_in(conv, 3) != SB_NONE;
    const sb_node *next = sb_graph_node(g, f->next);
    if (next->n_implicit > 0)
        return false;
    if (!has_act && take_activation(f, next))
        return true;
    f->activation = NULL;
    f->n_params = 0;
    return !has_sum && take_sum(f, next, conv->outputs[0]);
}

static sb_status set_activation(fusion *f, sb_node_id fresh)
{
    float *params = sb_arena_copy(f->g->arena, f->params, sizeof f->params);
    sb_attr attr = {.name = "activation_params",
                    .type = SB_ATTR_FLOATS,
                    .n = f->n_params,
                    .floats = params};

    if (!params)
        return SB_NO_MEMORY;
    SB_TRY(sb_rewrite_set_string(f->g, fresh, "activation", f->activation));
    return f->n_params ? sb_graph_set_attr(f->g, fresh, &attr) : SB_OK;
}

static sb_status apply(fusion *f)
{
    const sb_node conv = *sb_graph_node(f->g, f->conv);
    const sb_node next = *sb_graph_node(f->g, f->next);
    sb_value_id in[4], result = next.outputs[0];
    sb_node_id fresh = SB_NONE;
    bool had_act = sb_node_attr(&conv, "activation") != NULL;

    for (uint32_t i = 0; i < 4; i++)
        in[i] = sb_node_in(&conv, i);
    if (f->z != SB_NONE)
        in[3] = f->z;
    sb_node_spec spec = {.op = "FusedConv",
                         .domain = SB_FUSED_DOMAIN,
                         .name = conv.name,
                         .module = conv.module,
                         .inputs = in,
                         .n_in = in[3] != SB_NONE ? 4 : 3,
                         .outputs = &result,
                         .n_out = 1,
                         .attrs = conv.attrs,
                         .n_attrs = conv.n_attrs,
                         .position = next.position};
    sb_graph_remove_node(f->g, f->next);
    SB_TRY(sb_graph_add_node(f->g, &spec, &fresh));
    if (f->activation)
        SB_TRY(set_activation(f, fresh));
    else if (had_act)
        SB_TRY(sb_graph_set_attr_int(f->g, fresh, "sum_last", 1));
    return sb_rewrite_prune(f->g, f->conv);
}

/* New nodes come last, so one walk sees what it made and fuses on. */
static sb_status fuse_conv_run(sb_graph *g, size_t *changes)
{
    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        fusion f;
        if (!find_fusion(g, id, &f))
            continue;
        SB_TRY(apply(&f));
        (*changes)++;
    }
    return SB_OK;
}

const sb_pass_def sb_pass_fuse_conv = {
    .name = "fuse_conv",
    .summary = "convolution, sum and activation in one (for running)",
    .run = fuse_conv_run,
};
