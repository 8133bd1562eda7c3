/* What ONNX Runtime does about float weights and biases inside groups.
 *
 * - MatMul + Add of a bias becomes Gemm, between two Reshapes if A has more
 *   than two dimensions.
 * - The float weight and bias of a Conv or Gemm whose input is dequantized and
 *   whose result is quantized become integers: weights int8 with one scale and
 *   zero point, biases int32 with scale s_x * s_w.
 * - A scalar branch of a Where gets a DQ. */
#include <math.h>
#include <string.h>

#include "passes/rewrite.h"
#include "runtime/sim/sim_internal.h"

/* ---- MatMul + Add ------------------------------------------------------- */

static bool dim_is(const sb_shape *s, int i, int64_t want)
{
    return s->dim[i] == want;
}

/* [N]; for matrices also [1, N], [M, 1] and [M, N]. */
static bool bias_fits(const sb_shape *bias, const sb_shape *a, sb_dim n)
{
    if (bias->rank == 1)
        return sb_dim_same(bias->dim[0], n);
    if (bias->rank != 2 || a->rank != 2)
        return false;
    if (dim_is(bias, 0, 1) && sb_dim_same(bias->dim[1], n))
        return true;
    return sb_dim_same(bias->dim[0], a->dim[0]) &&
           (dim_is(bias, 1, 1) || sb_dim_same(bias->dim[1], n));
}

/* A Reshape before `like` to a matrix or back. */
static sb_status add_reshape(sb_sim *sim, sb_node_id like, sb_value_id x,
                             sb_value_id y, const int64_t *dims, int rank)
{
    sb_graph *g = sim->g;
    sb_value_id in[] = {x, SB_NONE};
    sb_node_id fresh;

    SB_TRY(sb_rewrite_ints(g, "matrix_shape", dims, rank, &in[1]));
    sb_node_spec spec = {.op = "Reshape",
                         .inputs = in,
                         .n_in = 2,
                         .outputs = &y,
                         .n_out = 1,
                         .position = sb_graph_node(g, like)->position};
    return sb_graph_add_node(g, &spec, &fresh);
}

static sb_status float_matrix(sb_graph *g, sb_dtype dtype, int64_t rows,
                              int64_t cols, sb_value_id *out)
{
    SB_TRY(sb_graph_add_value_like(g, "matrix", out));
    sb_graph_value(g, *out)->type =
        (sb_type){dtype, {.rank = 2, .dim = {rows, cols}}};
    return SB_OK;
}

/* What was recognized. */
typedef struct mm_add {
    sb_node_id matmul, add;
    sb_value_id a, b, bias, y;
} mm_add;

/* Four products with bias behind one LayerNormalization are left for
 * attention to be recognized. */
static bool maybe_attention(const sb_graph *g, const mm_add *m)
{
    const sb_node *ln = sb_graph_producer(g, m->a);
    size_t n_add = 0, n_matmul = 0, n_shape = 0;

    if (!ln || !sb_node_is(ln, "LayerNormalization"))
        return false;
    const sb_value *y = sb_graph_value(g, ln->outputs[0]);
    for (uint32_t i = 0; i < y->n_uses; i++) {
        const sb_node *r = sb_graph_node(g, y->uses[i].node);
        n_add += sb_node_is(r, "Add");
        n_matmul += sb_node_is(r, "MatMul");
        n_shape += sb_node_is(r, "Shape");
    }
    return n_add == 1 && n_matmul == 3 && n_shape + 4 == y->n_uses;
}

static bool mm_add_match(const sb_graph *g, sb_node_id id, mm_add *m)
{
    const sb_node *node = sb_graph_node(g, id);

    if (!sb_node_is(node, "MatMul") || sb_node_edges(g, node) != 1 ||
        sb_node_makes_output(g, node))
        return false;
    sb_use use = sb_graph_value(g, node->outputs[0])->uses[0];
    const sb_node *add = sb_graph_node(g, use.node);
    if (!sb_node_is(add, "Add"))
        return false;
    *m = (mm_add){.matmul = id,
                  .add = use.node,
                  .a = node->inputs[0],
                  .b = node->inputs[1],
                  .bias = add->inputs[1 - use.input],
                  .y = add->outputs[0]};
    const sb_type *a = &sb_graph_value(g, m->a)->type;
    const sb_shape *b = &sb_graph_value(g, m->b)->type.shape;
    if (a->dtype != SB_DTYPE_F32 || a->shape.rank < 1 || b->rank != 2)
        return false;
    if (a->shape.rank != 2 && (!sb_shape_known(&a->shape) ||
                               !sb_shape_known(b) || maybe_attention(g, m)))
        return false;
    return bias_fits(&sb_graph_value(g, m->bias)->type.shape, &a->shape,
                     b->dim[1]);
}

bool sb_sim_takes_sum(const sb_target_def *target, const sb_graph *g,
                      sb_node_id id)
{
    mm_add m;

    return target->steps == SB_SIM_ORT && mm_add_match(g, id, &m);
}

static sb_status mm_add_fuse(sb_sim *sim, sb_node_id id)
{
    sb_graph *g = sim->g;
    mm_add m;

    if (!mm_add_match(g, id, &m))
        return SB_OK;
    const sb_shape a = sb_graph_value(g, m.a)->type.shape;
    const sb_shape b = sb_graph_value(g, m.b)->type.shape;
    sb_value_id in[] = {m.a, m.b, m.bias}, y = m.y;
    sb_node_id gemm;
    sb_node_spec spec = {.op = "Gemm",
                         .name = sb_graph_node(g, id)->name,
                         .module = sb_graph_node(g, id)->module,
                         .inputs = in,
                         .n_in = 3,
                         .outputs = &y,
                         .n_out = 1,
                         .position = sb_graph_node(g, id)->position};
    sb_graph_remove_node(g, m.add);
    if (a.rank != 2) {
        int64_t rows = sb_dims_product(a.dim, 0, a.rank - 1);
        int64_t flat[] = {rows, b.dim[0]};
        sb_shape whole = a;
        whole.dim[a.rank - 1] = b.dim[1];
        SB_TRY(float_matrix(g, SB_DTYPE_F32, rows, b.dim[0], &in[0]));
        SB_TRY(float_matrix(g, SB_DTYPE_F32, rows, b.dim[1], &y));
        SB_TRY(add_reshape(sim, id, m.a, in[0], flat, 2));
        SB_TRY(add_reshape(sim, id, y, m.y, whole.dim, whole.rank));
    }
    sb_graph_remove_node(g, id);
    SB_TRY(sb_graph_add_node(g, &spec, &gemm));
    SB_TRY(sb_sim_heir(sim, gemm, id));
    sb_sim_note(sim, m.add, SB_SIM_ABSORBED, NULL);
    sim->changes++;
    return SB_OK;
}

/* ---- float weights and biases ------------------------------------------- */

/* Does the result reach a Q over nothing but Relu and Clip, read by no one
 * else? */
static bool reaches_q(const sb_graph *g, const sb_node *node)
{
    for (;;) {
        if (node->n_out != 1 || sb_node_edges(g, node) != 1)
            return false;
        const sb_node *next =
            sb_graph_node(g, sb_graph_value(g, node->outputs[0])->uses[0].node);
        if (sb_is_q(next))
            return true;
        if (!sb_node_is(next, "Relu") && !sb_node_is(next, "Clip"))
            return false;
        node = next;
    }
}

/* Adds `constant -> DQ` and lets input `i` of the node read it. */
static sb_status weights_dequantized(sb_sim *sim, sb_node_id node, uint32_t i,
                                     const sb_value_id *in, size_t n_in,
                                     int axis)
{
    sb_graph *g = sim->g;
    sb_type type = sb_graph_value(g, sb_graph_node(g, node)->inputs[i])->type;
    sb_node_id dq;

    type.dtype = SB_DTYPE_F32;
    SB_TRY(sb_rewrite_add(g, node, "DequantizeLinear", in, n_in, &type, &dq));
    SB_TRY(sb_graph_set_attr_int(g, dq, "axis", axis));
    sim->changes++;
    return sb_graph_set_input(g, node, i, sb_graph_node(g, dq)->outputs[0]);
}

static sb_status add_tensor(sb_graph *g, const char *stem, sb_tensor *t,
                            sb_value_id *out)
{
    sb_status status = sb_graph_add_value_like(g, stem, out);

    if (status == SB_OK)
        status = sb_graph_set_constant(g, *out, t);
    sb_tensor_drop(t);
    return status;
}

static sb_status add_scalar(sb_graph *g, const char *stem, sb_dtype dtype,
                            double v, sb_value_id *out)
{
    sb_shape scalar = {.rank = 0};

    return sb_rewrite_fill(g, stem, dtype, &scalar, v, out);
}

/* int8 with one scale and zero point over the range of the weight. */
static sb_status quantize_weight(sb_sim *sim, sb_node_id node)
{
    sb_graph *g = sim->g;
    const sb_tensor *w =
        &sb_graph_value(g, sb_graph_node(g, node)->inputs[1])->constant;
    int64_t n = sb_tensor_count(w);
    const float *x = w->data;
    float lo = 0, hi = 0;
    sb_tensor t = sb_tensor_make(SB_DTYPE_I8, w->rank, w->dims);
    sb_value_id in[3] = {SB_NONE, SB_NONE, SB_NONE};

    for (int64_t i = 0; i < n; i++) {
        lo = fminf(lo, x[i]);
        hi = fmaxf(hi, x[i]);
    }
    float scale = lo == hi ? 1.0f : (hi - lo) / 255;
    float zero = nearbyintf(fmaxf(-128, fminf(127, -128 - lo / scale)));
    SB_TRY(sb_tensor_alloc(g->ctx, &t));
    for (int64_t i = 0; i < n; i++) {
        float q = nearbyintf(x[i] / scale) + zero;
        ((int8_t *)t.data)[i] = (int8_t)fmaxf(fminf(q, 127), -128);
    }
    SB_TRY(add_tensor(g, "weight_q", &t, &in[0]));
    SB_TRY(add_scalar(g, "weight_scale", SB_DTYPE_F32, (double)scale, &in[1]));
    SB_TRY(
        add_scalar(g, "weight_zero_point", SB_DTYPE_I8, (double)zero, &in[2]));
    return weights_dequantized(sim, node, 1, in, 3, 0);
}

/* round(b / (s_x * s_w)) as int32, no zero point. */
static sb_status quantize_bias(sb_sim *sim, sb_node_id node,
                               const sb_node *dq_x, const sb_node *dq_w)
{
    sb_graph *g = sim->g;
    const sb_tensor *b =
        &sb_graph_value(g, sb_graph_node(g, node)->inputs[2])->constant;
    const sb_tensor *sx = &sb_graph_value(g, dq_x->inputs[1])->constant;
    const sb_tensor *sw = &sb_graph_value(g, dq_w->inputs[1])->constant;
    int64_t n = sb_tensor_count(b), n_scale = sb_tensor_count(sw);
    sb_tensor s = sb_tensor_make(SB_DTYPE_F32, sw->rank, sw->dims);
    sb_tensor t = sb_tensor_make(SB_DTYPE_I32, b->rank, b->dims);
    sb_value_id in[2] = {SB_NONE, SB_NONE};

    SB_TRY(sb_tensor_alloc(g->ctx, &s));
    float *scale = s.data;
    for (int64_t i = 0; i < n_scale; i++)
        scale[i] = ((const float *)sx->data)[0] * ((const float *)sw->data)[i];
    sb_status status = sb_tensor_alloc(g->ctx, &t);
    for (int64_t i = 0; i < n && status == SB_OK; i++) {
        float q = nearbyintf(((const float *)b->data)[i] /
                             scale[n_scale == 1 ? 0 : i]);
        ((int32_t *)t.data)[i] = q >= 2147483648.0f    ? INT32_MAX
                                 : q <= -2147483648.0f ? INT32_MIN
                                 : isnan(q)            ? 0
                                                       : (int32_t)q;
    }
    if (status == SB_OK)
        status = add_tensor(g, "bias_q", &t, &in[0]);
    if (status != SB_OK) {
        sb_tensor_drop(&s);
        return status;
    }
    SB_TRY(add_tensor(g, "bias_scale", &s, &in[1]));
    return weights_dequantized(sim, node, 2, in, 2, 0);
}

static bool is_f32_const(const sb_graph *g, sb_value_id value)
{
    return sb_is_const(g, value) &&
           sb_graph_value(g, value)->constant.dtype == SB_DTYPE_F32;
}

static bool per_channel_fits(const sb_graph *g, const sb_node *node,
                             const sb_node *dq_w, int64_t n_bias)
{
    const sb_tensor *sw = &sb_graph_value(g, dq_w->inputs[1])->constant;
    const sb_tensor *w = &sb_graph_value(g, dq_w->inputs[0])->constant;
    int64_t axis = sb_node_int(dq_w, "axis", 1);

    if (axis < 0)
        axis += w->rank;
    return sw->rank == 1 && sw->dims[0] == n_bias &&
           sb_node_int(dq_w, "block_size", 0) == 0 &&
           axis == sb_op_weight_axis(node, w->rank);
}

static sb_status quantize_params(sb_sim *sim, sb_node_id id)
{
    sb_graph *g = sim->g;
    const sb_node *node = sb_graph_node(g, id);
    sb_qdq p;

    if (!sb_fusion_flag(sim->target, node, SB_FUSE_QUANT_BIAS) ||
        node->n_in < 2)
        return SB_OK;
    const sb_node *dq_x = sb_dq_of(g, node, 0), *dq_w = sb_dq_of(g, node, 1);
    if (!dq_x || !reaches_q(g, node) || !is_f32_const(g, dq_x->inputs[1]))
        return SB_OK;
    sb_qdq_read(g, dq_x, &p);
    if (!p.is_scalar || (!dq_w && !is_f32_const(g, node->inputs[1])))
        return SB_OK;
    sb_value_id bias = sb_node_in(node, 2);
    int64_t n_bias = -1;
    if (bias != SB_NONE) {
        if (!is_f32_const(g, bias) ||
            sb_graph_value(g, bias)->constant.rank != 1)
            return SB_OK;
        n_bias = sb_graph_value(g, bias)->constant.dims[0];
    }
    if (dq_w) {
        if (n_bias < 0 || !is_f32_const(g, dq_w->inputs[1]) ||
            !sb_is_const(g, dq_w->inputs[0]))
            return SB_OK;
        sb_qdq_read(g, dq_w, &p);
        bool one =
            sb_tensor_count(&sb_graph_value(g, dq_w->inputs[1])->constant) == 1;
        if (!one && !per_channel_fits(g, node, dq_w, n_bias))
            return SB_OK;
    } else {
        SB_TRY(quantize_weight(sim, id));
    }
    if (n_bias < 0)
        return SB_OK;
    node = sb_graph_node(g, id);
    return quantize_bias(sim, id, sb_dq_of(g, node, 0), sb_dq_of(g, node, 1));
}

/* ---- Where -------------------------------------------------------------- */

/* Numbers that give back `v` exactly, or nearly. */
static sb_status scalar_branch(sb_sim *sim, sb_node_id node, uint32_t i,
                               sb_dtype type, float v)
{
    sb_graph *g = sim->g;
    bool is_signed = sb_dtype_get(type)->cls == SB_CLASS_INT;
    int bits = sb_dtype_get(type)->bits;
    int zero = is_signed ? 0 : (1 << (bits - 1)) - 1;
    int most = is_signed ? (1 << (bits - 1)) - 1 : (1 << bits) - 1;
    int least = is_signed ? -(1 << (bits - 1)) : 0;
    int q = v > 0 ? most : v < 0 ? least : zero;
    float scale = v == 0 ? 1.0f : v / (float)(q - zero);
    sb_value_id in[3] = {SB_NONE, SB_NONE, SB_NONE};

    SB_TRY(add_scalar(g, "branch_q", type, q, &in[0]));
    SB_TRY(add_scalar(g, "branch_scale", SB_DTYPE_F32, (double)scale, &in[1]));
    SB_TRY(add_scalar(g, "branch_zero_point", type, zero, &in[2]));
    return weights_dequantized(sim, node, i, in, 3, 0);
}

static sb_status where_branch(sb_sim *sim, sb_node_id id)
{
    sb_graph *g = sim->g;
    const sb_node *node = sb_graph_node(g, id);

    if (!sb_node_is(node, "Where") || node->n_in != 3 ||
        sb_node_edges(g, node) != 1 ||
        !sb_is_q(sb_graph_node(
            g, sb_graph_value(g, node->outputs[0])->uses[0].node)))
        return SB_OK;
    const sb_node *q =
        sb_graph_node(g, sb_graph_value(g, node->outputs[0])->uses[0].node);
    for (uint32_t i = 1; i < 3; i++) {
        const sb_node *dq = sb_dq_of(g, node, 3 - i);
        sb_value_id other = node->inputs[i];
        sb_qdq a, b;
        if (!dq || !is_f32_const(g, other) ||
            sb_graph_value(g, other)->constant.rank != 0)
            continue;
        sb_qdq_read(g, dq, &a);
        sb_qdq_read(g, q, &b);
        int bits = sb_dtype_get(a.type)->bits;
        if (a.zero == SB_NONE || a.type != b.type || !a.is_constant ||
            (bits != 8 && bits != 16))
            return SB_OK;
        float v = ((const float *)sb_graph_value(g, other)->constant.data)[0];
        return scalar_branch(sim, id, i, a.type, v);
    }
    return SB_OK;
}

sb_status sb_sim_products(sb_sim *sim)
{
    return sb_sim_each(sim, mm_add_fuse);
}

sb_status sb_sim_weights(sb_sim *sim)
{
    return sb_sim_each(sim, quantize_params);
}

sb_status sb_sim_where(sb_sim *sim)
{
    return sb_sim_each(sim, where_branch);
}
