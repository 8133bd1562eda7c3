/* Biases of layers: where they are, and making sure that there is one.
 *
 *     Conv(x, w, b), ConvTranspose(x, w, b), Gemm(x, w, b)
 *     Add(MatMul(x, w), b) */
#include "ops/op_registry.h"
#include "passes/rewrite.h"
#include "quant/correct/correct.h"

enum { BIAS_INPUT = 2 };

static bool bias_is_layer(const sb_graph *g, const sb_node *node)
{
    return !node->dead && node->n_out == 1 &&
           sb_node_role(node) == SB_ROLE_WEIGHTED &&
           sb_is_const(g, sb_node_in(node, 1));
}

/* Can it have a bias as an input of its own? */
static bool bias_is_input(const sb_node *node)
{
    const sb_op_def *op = sb_op_of(node);

    return op && op->in_max > BIAS_INPUT;
}

/* Output channels of a layer; 0 if they are not known. */
static int64_t bias_channels(const sb_graph *g, const sb_node *node, int *axis)
{
    const sb_shape *y = &sb_graph_value(g, node->outputs[0])->type.shape;

    if (y->rank < 2)
        return 0;
    *axis = sb_node_flag(node, SB_OP_CONV) ? 1 : y->rank - 1;
    return sb_dim_known(y->dim[*axis]) ? y->dim[*axis] : 0;
}

static bool bias_fits(const sb_graph *g, sb_value_id v, int64_t channels)
{
    const sb_tensor *b = sb_const_of(g, v);

    return b && b->dtype == SB_DTYPE_F32 && b->rank == 1 &&
           b->dims[0] == channels;
}

/* The edge of a constant that is added to the result of `node`, and to nothing
 * else. */
static bool bias_behind(const sb_graph *g, const sb_node *node, sb_use *out)
{
    const sb_value *y = sb_graph_value(g, node->outputs[0]);

    if (y->n_uses != 1 || y->is_output)
        return false;
    const sb_node *add = sb_graph_node(g, y->uses[0].node);
    if (!sb_node_adds(add) || add->n_in != 2)
        return false;
    *out = (sb_use){y->uses[0].node, 1 - y->uses[0].input};
    return true;
}

bool sb_bias_layer_find(const sb_graph *g, sb_node_id id, sb_bias_layer *out)
{
    const sb_node *node = sb_graph_node(g, id);
    sb_use use = {id, BIAS_INPUT};

    if (!bias_is_layer(g, node) ||
        (!bias_is_input(node) && !bias_behind(g, node, &use)))
        return false;
    const sb_node *adds = sb_graph_node(g, use.node);
    *out = (sb_bias_layer){.node = id,
                           .bias = sb_node_in(adds, use.input),
                           .result = adds->outputs[0]};
    out->channels = bias_channels(g, node, &out->axis);
    return out->channels > 0 && bias_fits(g, out->bias, out->channels) &&
           sb_graph_value(g, out->bias)->n_uses == 1 &&
           !sb_graph_value(g, out->bias)->is_output &&
           sb_node_float(node, "beta", 1) == 1;
}

/* A constant of n numbers: those of `like`, or zeros. */
static sb_status bias_make(sb_graph *g, const sb_node *node, sb_value_id like,
                           int64_t n, sb_value_id *out)
{
    const sb_shape shape = {.rank = 1, .dim = {n}};

    if (like == SB_NONE) {
        sb_str name;

        sb_str_init(&name, g->ctx);
        sb_str_addf(&name, "%s_bias", sb_node_label(g, node));
        sb_status status = sb_str_status(&name);
        if (status == SB_OK)
            status = sb_rewrite_fill(g, sb_str_text(&name), SB_DTYPE_F32,
                                     &shape, 0, out);
        sb_str_free(&name);
        return status;
    }
    const sb_tensor t = sb_graph_value(g, like)->constant;
    SB_TRY(sb_graph_add_value_like(g, sb_graph_value(g, like)->name, out));
    return sb_graph_set_constant(g, *out, &t);
}

/* The same node with one more input. */
static sb_status bias_add_input(sb_graph *g, sb_node_id id, sb_value_id bias)
{
    const sb_node was = *sb_graph_node(g, id);
    const sb_value_id in[] = {was.inputs[0], was.inputs[1], bias};
    const sb_node_spec spec = {
        .op = was.op,
        .domain = was.domain,
        .name = was.name,
        .module = was.module,
        .inputs = in,
        .n_in = SB_COUNT(in),
        .outputs = was.outputs,
        .n_out = was.n_out,
        .attrs = was.attrs,
        .n_attrs = was.n_attrs,
        .position = was.position,
    };
    sb_node_id made = SB_NONE;

    sb_graph_remove_node(g, id);
    SB_TRY(sb_graph_add_node(g, &spec, &made));
    sb_graph_node(g, made)->origin = was.origin;
    return SB_OK;
}

static sb_status bias_complete(sb_graph *g, sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    sb_value_id bias = sb_node_in(node, BIAS_INPUT), own = SB_NONE;
    int axis;
    int64_t n = bias_channels(g, node, &axis);

    if (n == 0)
        return SB_OK;
    if (bias == SB_NONE) {
        SB_TRY(bias_make(g, node, SB_NONE, n, &own));
        if (node->n_in > BIAS_INPUT)
            return sb_graph_set_input(g, id, BIAS_INPUT, own);
        return bias_add_input(g, id, own);
    }
    if (!bias_fits(g, bias, n) || sb_graph_value(g, bias)->n_uses == 1)
        return SB_OK;
    SB_TRY(bias_make(g, node, bias, n, &own));
    return sb_graph_set_input(g, id, BIAS_INPUT, own);
}

sb_status sb_bias_layers_complete(sb_graph *g)
{
    for (sb_node_id id = 0, n = (sb_node_id)g->n_nodes; id < n; id++) {
        const sb_node *node = sb_graph_node(g, id);

        if (bias_is_layer(g, node) && bias_is_input(node))
            SB_TRY(bias_complete(g, id));
    }
    return SB_OK;
}
