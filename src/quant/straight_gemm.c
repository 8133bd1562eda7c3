/* Gemm as kernels for integer weights want it: y = A B + C with B [K, N].
 *
 * Files often hold B transposed, and factors beside it.  Where B is a constant
 * it is turned and multiplied here, once, before quantizers are placed; so
 * groups of rows of K are groups along axis 0 everywhere after. */
#include "passes/rewrite.h"
#include "quant/quant_model.h"

/* to [K, N] = factor * from [N, K] or [K, N] */
static void turn(const float *from, bool transposed, float factor, int64_t k,
                 int64_t n, float *to)
{
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < n; j++)
            to[i * n + j] = factor * from[transposed ? j * k + i : i * n + j];
}

static sb_status set_input(sb_graph *g, sb_node_id id, uint32_t input,
                           const sb_tensor *t)
{
    sb_value_id old = sb_graph_node(g, id)->inputs[input], value = SB_NONE;

    SB_TRY(sb_graph_add_value_like(g, sb_graph_value(g, old)->name, &value));
    SB_TRY(sb_graph_set_constant(g, value, t));
    return sb_graph_set_input(g, id, input, value);
}

static bool is_f32(const sb_graph *g, sb_value_id v)
{
    return sb_is_const(g, v) &&
           sb_graph_value(g, v)->constant.dtype == SB_DTYPE_F32;
}

/* What is known of the weight `old`, of `name`, which was turned (or not) and
 * multiplied. */
static sb_status add_known(sb_quant_model *qm, const char *old,
                           const char *name, bool transposed, float factor)
{
    const sb_known *was = sb_known_find(&qm->known, old);
    const sb_factors f = {.one = factor};

    if (!was || was->block > 0)
        return SB_OK;
    int axis = was->qparams.axis;
    return sb_quant_known_scaled(qm, old, name,
                                 axis >= 0 && transposed ? 1 - axis : axis, &f);
}

static sb_status turn_weight(sb_quant_model *qm, sb_graph *g, sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    const sb_tensor *w = &sb_graph_value(g, node->inputs[1])->constant;
    bool transposed = sb_node_int(node, "transB", 0) != 0;
    float alpha = sb_node_float(node, "alpha", 1);
    int64_t n = w->dims[transposed ? 0 : 1], k = w->dims[transposed ? 1 : 0];
    int64_t dims[2] = {k, n};
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, 2, dims);

    if (!transposed && alpha == 1)
        return SB_OK;
    SB_TRY(sb_tensor_alloc(g->ctx, &t));
    turn(w->data, transposed, alpha, k, n, t.data);
    const char *old = sb_graph_value(g, node->inputs[1])->name;
    sb_status status = set_input(g, id, 1, &t);
    sb_tensor_drop(&t);
    if (status == SB_OK)
        status = add_known(
            qm, old, sb_graph_value(g, sb_graph_node(g, id)->inputs[1])->name,
            transposed, alpha);
    if (status != SB_OK)
        return status;
    sb_graph_remove_attr(g, id, "transB");
    sb_graph_remove_attr(g, id, "alpha");
    return SB_OK;
}

static sb_status scale_bias(sb_graph *g, sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    float beta = sb_node_float(node, "beta", 1);
    sb_value_id c = sb_node_in(node, 2);

    if (beta == 1 || !is_f32(g, c))
        return SB_OK;
    const sb_tensor *b = &sb_graph_value(g, c)->constant;
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, b->rank, b->dims);
    SB_TRY(sb_tensor_alloc(g->ctx, &t));
    turn(b->data, false, beta, 1, sb_tensor_count(b), t.data);
    sb_status status = set_input(g, id, 2, &t);
    sb_tensor_drop(&t);
    if (status == SB_OK)
        sb_graph_remove_attr(g, id, "beta");
    return status;
}

sb_status sb_quant_straighten(sb_quant_model *qm, sb_graph *g)
{
    for (size_t i = 0, n = g->n_nodes; i < n; i++) {
        sb_node_id id = (sb_node_id)i;
        const sb_node *node = sb_graph_node(g, id);

        if (node->dead || !sb_node_is(node, "Gemm") ||
            !is_f32(g, sb_node_in(node, 1)) ||
            sb_graph_value(g, node->inputs[1])->constant.rank != 2)
            continue;
        SB_TRY(turn_weight(qm, g, id));
        SB_TRY(scale_bias(g, id));
    }
    return SB_OK;
}
