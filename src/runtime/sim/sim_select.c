/* Groups: the conditions under which a runtime takes `DQ... -> node -> Q...`,
 * in the order in which it asks, each with the reason that people read when it
 * fails. */
#include <math.h>
#include <string.h>

#include "passes/rewrite.h"
#include "runtime/sim/sim_internal.h"

/* clang-format off */
SB_SIM_REASON(r_no_dq, "inputs", "not every input comes from a DequantizeLinear",
       "quantize all of its inputs; store constants as integers with a DequantizeLinear");
SB_SIM_REASON(r_no_q, "no-q", "its result does not go to a QuantizeLinear",
       "quantize its result");
SB_SIM_REASON(r_consumers, "consumers", "its result is also read without QuantizeLinear",
       "let every consumer take the quantized result");
SB_SIM_REASON(r_output, "graph-output", "its result is an output of the graph",
       "quantize the result and make the DequantizeLinear's result the output");
SB_SIM_REASON(r_dq_shared, "dq-shared", "a DequantizeLinear before it is read by others or is an output",
       "give it a DequantizeLinear of its own");
SB_SIM_REASON(r_relu, "relu", "the QuantizeLinear does not make the Relu redundant, since its zero point is not the lowest integer",
       "use an affine range that starts at 0, so that the zero point is the lowest integer");
SB_SIM_REASON(r_clip, "clip", "the QuantizeLinear does not make the Clip redundant, since its range goes beyond the limits",
       "let the quantized range lie within the limits of the Clip");
SB_SIM_REASON(r_no_zero, "zero-point", "a DequantizeLinear has no zero point",
       "write the zero point even if it is 0");
SB_SIM_REASON(r_scalar, "per-tensor", "a scale or zero point is not one constant number",
       "use one constant scale and zero point for the whole tensor");
SB_SIM_REASON(r_params, "same-scale", "it only moves elements, but scale or zero point before and behind it differ",
       "share scale and zero point on both sides");
SB_SIM_REASON(r_positive, "negative-scale", "its scale is not positive", "use a positive scale");
SB_SIM_REASON(r_types, "types", "integers before and behind it are of different types",
       "use one integer type for inputs and result");
SB_SIM_REASON(r_int8, "int8", "activations are int8, which have no kernel here, and cannot be rewritten to uint8 because several nodes read them",
       "use uint8 activations");
SB_SIM_REASON(r_int8_weight, "int8-weight", "int8 activations need int8 weights", "use int8 weights");
SB_SIM_REASON(r_16, "16-bit", "there is no kernel for 16-bit integers", "use 8 bits");
SB_SIM_REASON(r_4, "4-bit", "there is no kernel for 4-bit integers here", "use 8 bits, or quantize only the weights");
SB_SIM_REASON(r_bias_type, "bias-type", "the bias is not int32", "store the bias as int32");
SB_SIM_REASON(r_bias_scale, "bias-scale", "the scale of the bias is not input scale times weight scale",
       "store the bias as int32 with exactly that scale");
SB_SIM_REASON(r_bias_zero, "bias-zero-point", "the bias has a zero point other than 0", "use zero point 0 for the bias");
SB_SIM_REASON(r_alpha, "alpha-beta", "with a bias alpha and beta must be 1", "multiply them into weight and bias");
SB_SIM_REASON(r_b_params, "weight-scale", "the weight's scale or zero point has another shape than one number or one per column",
       "use one scale for the weight, or one per column");
SB_SIM_REASON(r_resize, "resize-mode", "only nearest Resize copies elements", "leave out the Q/DQ around it");
SB_SIM_REASON(r_old, "opset", "MaxPool before opset 12 has no integer form", "write opset 13 or newer");
SB_SIM_REASON(r_weight_q, "weight-only", "only the weight is quantized, but the result is too",
       "quantize the input as well, or leave out the Q behind it");
SB_SIM_REASON(r_weight_const, "weight-constant", "the weight or its scale is not a constant of its own",
       "store weight, scale and zero point as constants that nothing else reads");
SB_SIM_REASON(r_weight_shape, "weight-blocks", "the weight is not a matrix with one scale, one per column, or blocks of 16 to 256 rows",
       "use axis 0 with a block size that is a power of two in [16, 256]");
SB_SIM_REASON(r_gemm_form, "gemm-form", "only a Gemm that is a plain product with one bias per column is taken",
       "use alpha 1, beta 1, transA 0 and transB 0");
SB_SIM_REASON(r_wide, "inputs-many", "it has too many inputs", "split it");
/* clang-format on */

const sb_sim_reason sb_reason_no_kernel = {
    "no-kernel", "there is no integer kernel for this operator",
    "none if layers beside it need these Q/DQ; else leave them out"};

/* ---- types -------------------------------------------------------------- */

static int bits_of(sb_dtype type)
{
    return sb_dtype_get(type)->bits;
}

static const sb_sim_reason *check_width(const sb_fusion *rule, sb_dtype type)
{
    if (bits_of(type) == 16 && !(rule->flags & SB_FUSE_16BIT))
        return &r_16;
    if (bits_of(type) < 8 && !(rule->flags & SB_FUSE_4BIT))
        return &r_4;
    return NULL;
}

static void read_dq(const sb_sim *sim, const sb_sim_group *grp, size_t i,
                    sb_qdq *out)
{
    sb_qdq_read(sim->g, sb_graph_node(sim->g, grp->dq[i]), out);
}

static void read_q(const sb_sim *sim, const sb_sim_group *grp, size_t i,
                   sb_qdq *out)
{
    sb_qdq_read(sim->g, sb_graph_node(sim->g, grp->q[i]), out);
}

/* ---- gathering what stands around --------------------------------------- */

static const sb_sim_reason *gather_inputs(const sb_sim *sim, sb_sim_group *grp)
{
    const sb_node *node = sb_graph_node(sim->g, grp->node);

    if (node->n_in > SB_SIM_MAX_IN || node->n_out > SB_SIM_MAX_IN)
        return &r_wide;
    for (uint32_t i = 0; i < node->n_in; i++) {
        const sb_node *dq = sb_dq_of(sim->g, node, i);
        if (!dq)
            continue;
        grp->dq[grp->n_dq] = sb_graph_value(sim->g, node->inputs[i])->producer;
        grp->dq_input[grp->n_dq++] = i;
    }
    return NULL;
}

static void gather_q(const sb_graph *g, const sb_node *node, sb_sim_group *grp)
{
    for (uint32_t k = 0; k < node->n_out; k++) {
        if (node->outputs[k] == SB_NONE)
            continue;
        const sb_value *y = sb_graph_value(g, node->outputs[k]);
        for (uint32_t i = 0; i < y->n_uses; i++)
            if (y->uses[i].input == 0 && grp->n_q < SB_SIM_MAX_IN &&
                sb_is_q(sb_graph_node(g, y->uses[i].node)))
                grp->q[grp->n_q++] = y->uses[i].node;
    }
}

/* Finds Q nodes, looking over a Relu or Clip that only they read. */
static const sb_sim_reason *gather_outputs(const sb_sim *sim, sb_sim_group *grp)
{
    const sb_graph *g = sim->g;
    const sb_node *node = sb_graph_node(g, grp->node);
    const sb_node *behind = node;

    grp->clip = SB_NONE;
    if (sb_node_edges(g, node) == 1 && node->outputs[0] != SB_NONE &&
        sb_graph_value(g, node->outputs[0])->n_uses == 1) {
        sb_node_id next = sb_graph_value(g, node->outputs[0])->uses[0].node;
        const sb_node *n = sb_graph_node(g, next);
        if ((sb_node_is(n, "Relu") || sb_node_is(n, "Clip")) &&
            sb_node_edges(g, n) == 1 && !sb_node_makes_output(g, n)) {
            grp->clip = next;
            behind = n;
        }
    }
    gather_q(g, behind, grp);
    if (grp->clip == SB_NONE)
        return NULL;
    if (grp->n_q != 1)
        return &r_no_q;
    if (!sb_clip_redundant(g, behind, sb_graph_node(g, grp->q[0])))
        return sb_node_is(behind, "Relu") ? &r_relu : &r_clip;
    return NULL;
}

/* ---- conditions of every group ------------------------------------------ */

static size_t real_inputs(const sb_node *node)
{
    size_t n = 0;

    for (uint32_t i = 0; i < node->n_in; i++)
        n += node->inputs[i] != SB_NONE;
    return n;
}

static size_t real_outputs(const sb_node *node)
{
    size_t n = 0;

    for (uint32_t i = 0; i < node->n_out; i++)
        n += node->outputs[i] != SB_NONE;
    return n;
}

static bool dq_shared(const sb_sim *sim, const sb_sim_group *grp)
{
    for (size_t i = 0; i < grp->n_dq; i++) {
        const sb_node *dq = sb_graph_node(sim->g, grp->dq[i]);
        if (sb_node_edges(sim->g, dq) != 1 || sb_node_makes_output(sim->g, dq))
            return true;
    }
    return false;
}

enum { EVERY_INPUT = -1 };

/* `n_dq` DQ nodes, a Q on each result and nothing else. */
static const sb_sim_reason *check_around(const sb_sim *sim,
                                         const sb_sim_group *grp, int n_dq,
                                         bool q_optional)
{
    const sb_graph *g = sim->g;
    const sb_node *node = sb_graph_node(g, grp->node);
    size_t want = n_dq == EVERY_INPUT ? real_inputs(node) : (size_t)n_dq;

    if (grp->n_dq != want)
        return &r_no_dq;
    if (dq_shared(sim, grp))
        return &r_dq_shared;
    if (grp->n_q == 0) {
        if (q_optional)
            return NULL;
        return sb_node_makes_output(g, node) ? &r_output : &r_no_q;
    }
    if (sb_node_makes_output(g, node))
        return &r_output;
    if (grp->n_q != real_outputs(node) || grp->n_q != sb_node_edges(g, node))
        return &r_consumers;
    return NULL;
}

/* All integers of the group are of one type. */
static const sb_sim_reason *check_one_type(const sb_sim *sim,
                                           const sb_sim_group *grp)
{
    sb_qdq first, p;

    read_dq(sim, grp, 0, &first);
    for (size_t i = 1; i < grp->n_dq; i++) {
        read_dq(sim, grp, i, &p);
        if (p.type != first.type)
            return &r_types;
    }
    for (size_t i = 0; i < grp->n_q; i++) {
        read_q(sim, grp, i, &p);
        if (p.type != first.type)
            return &r_types;
    }
    return check_width(grp->rule, first.type);
}

/* ---- Conv --------------------------------------------------------------- */

static const sb_tensor *f32_const(const sb_graph *g, sb_value_id value)
{
    if (!sb_is_const(g, value))
        return NULL;
    const sb_tensor *t = &sb_graph_value(g, value)->constant;
    return t->dtype == SB_DTYPE_F32 && sb_tensor_count(t) > 0 ? t : NULL;
}

static bool bias_scale_fits(const sb_sim *sim, const sb_sim_group *grp)
{
    const sb_graph *g = sim->g;
    sb_qdq x, w, b;

    read_dq(sim, grp, 0, &x);
    read_dq(sim, grp, 1, &w);
    read_dq(sim, grp, 2, &b);
    const sb_tensor *sx = f32_const(g, x.scale), *sw = f32_const(g, w.scale),
                    *sb = f32_const(g, b.scale);
    if (!sx || !sw || !sb || sb_tensor_count(sx) != 1 || sx->rank > 1)
        return false;
    int64_t n_w = sb_tensor_count(sw), n_b = sb_tensor_count(sb);
    int64_t n = n_w > n_b ? n_w : n_b;
    if (n_w != 1 && n_b != 1 && n_w != n_b)
        return false;
    for (int64_t i = 0; i < n; i++) {
        float ws = ((const float *)sw->data)[n_w == 1 ? 0 : i];
        float bs = ((const float *)sb->data)[n_b == 1 ? 0 : i];
        float want = ((const float *)sx->data)[0] * ws;
        if (!isfinite(want) || !isfinite(bs) ||
            fabsf(bs - want) > 1e-6f + 1e-2f * fabsf(want))
            return false;
    }
    return true;
}

static const sb_sim_reason *check_bias(const sb_sim *sim,
                                       const sb_sim_group *grp)
{
    sb_qdq b;

    if (grp->n_dq < 3)
        return NULL;
    read_dq(sim, grp, 2, &b);
    if (b.type != SB_DTYPE_I32)
        return &r_bias_type;
    if (!bias_scale_fits(sim, grp))
        return &r_bias_scale;
    if (b.zero != SB_NONE && !sb_const_all(sim->g, b.zero, 0))
        return &r_bias_zero;
    return NULL;
}

/* int8 activations: only where there are kernels, and with int8 weights. */
static const sb_sim_reason *
check_signed(const sb_sim *sim, const sb_fusion *rule, sb_dtype x, sb_dtype w)
{
    if (x != SB_DTYPE_I8)
        return NULL;
    if (!(sim->target->sim_flags & SB_SIM_INT8) &&
        !(rule->flags & SB_FUSE_ANY_INT8))
        return &r_int8;
    return w != SB_DTYPE_I8 ? &r_int8_weight : NULL;
}

static const sb_sim_reason *check_conv(const sb_sim *sim, sb_sim_group *grp)
{
    const sb_sim_reason *r = check_around(sim, grp, EVERY_INPUT, false);
    sb_qdq x, w, y;

    if (r)
        return r;
    if (grp->n_dq < 2)
        return &r_no_dq;
    read_dq(sim, grp, 0, &x);
    read_dq(sim, grp, 1, &w);
    read_q(sim, grp, 0, &y);
    if (x.type != y.type)
        return &r_types;
    if ((r = check_width(grp->rule, w.type)) ||
        (r = check_signed(sim, grp->rule, x.type, w.type)) ||
        (r = check_bias(sim, grp)))
        return r;
    return check_width(grp->rule, x.type);
}

/* ---- MatMul and Gemm ---------------------------------------------------- */

static const sb_sim_reason *check_matmul(const sb_sim *sim, sb_sim_group *grp)
{
    const sb_sim_reason *r;
    sb_qdq a, b, y;

    if (grp->n_dq != 2)
        return &r_no_dq;
    read_dq(sim, grp, 0, &a);
    read_dq(sim, grp, 1, &b);
    if ((r = check_signed(sim, grp->rule, a.type, b.type)) ||
        (r = check_width(grp->rule, a.type)) ||
        (r = check_width(grp->rule, b.type)))
        return r;
    if (grp->n_q == 0)
        return NULL;
    if ((r = check_around(sim, grp, EVERY_INPUT, true)))
        return r;
    read_q(sim, grp, 0, &y);
    return a.type == y.type ? NULL : &r_types;
}

/* One number, or `n` of them in a vector. */
static bool one_or_n(const sb_graph *g, sb_value_id value, int64_t n)
{
    if (value == SB_NONE)
        return true;
    const sb_value *v = sb_graph_value(g, value);
    int rank = v->is_constant ? v->constant.rank : v->type.shape.rank;
    if (rank == 0)
        return true;
    int64_t d = v->is_constant ? v->constant.dims[0] : v->type.shape.dim[0];
    return rank == 1 && (d == 1 || (n > 0 && d == n));
}

static int64_t select_elements(const sb_graph *g, sb_value_id value)
{
    const sb_value *v = sb_graph_value(g, value);

    if (v->is_constant)
        return v->constant.rank == 0 ? -1 : sb_tensor_count(&v->constant);
    return v->type.shape.rank == 0 ? -1 : v->type.shape.dim[0];
}

static const sb_sim_reason *check_gemm_params(const sb_sim *sim,
                                              const sb_sim_group *grp)
{
    const sb_graph *g = sim->g;
    const sb_node *node = sb_graph_node(g, grp->node);
    sb_qdq a, b, y;
    int64_t n = -1;

    read_dq(sim, grp, 0, &a);
    read_dq(sim, grp, 1, &b);
    if (a.zero == SB_NONE || b.zero == SB_NONE)
        return &r_no_zero;
    if (!one_or_n(g, a.scale, -1) || !one_or_n(g, a.zero, -1))
        return &r_scalar;
    const sb_shape *w =
        &sb_graph_value(g, sb_graph_node(g, grp->dq[1])->inputs[0])->type.shape;
    if (w->rank == 2 && sb_dim_known(w->dim[0]) && sb_dim_known(w->dim[1]))
        n = w->dim[sb_op_weight_axis(node, 2)];
    if (!one_or_n(g, b.scale, n) || !one_or_n(g, b.zero, n) ||
        select_elements(g, b.scale) != select_elements(g, b.zero))
        return &r_b_params;
    const sb_sim_reason *r = check_signed(sim, grp->rule, a.type, b.type);
    if (r)
        return r;
    if (grp->n_q > 0) {
        read_q(sim, grp, 0, &y);
        if (a.type != y.type)
            return &r_types;
        if (!one_or_n(g, y.scale, -1) || !one_or_n(g, y.zero, -1))
            return &r_scalar;
    }
    r = check_width(grp->rule, a.type);
    return r ? r : check_width(grp->rule, b.type);
}

static const sb_sim_reason *check_gemm(const sb_sim *sim, sb_sim_group *grp)
{
    const sb_sim_reason *r = check_around(sim, grp, EVERY_INPUT, true);
    const sb_node *node = sb_graph_node(sim->g, grp->node);
    sb_qdq b;

    if (r)
        return r;
    if (grp->n_dq < 2)
        return &r_no_dq;
    if ((r = check_gemm_params(sim, grp)))
        return r;
    if (grp->n_dq < 3)
        return NULL;
    if (sb_node_float(node, "alpha", 1) != 1 ||
        sb_node_float(node, "beta", 1) != 1)
        return &r_alpha;
    read_dq(sim, grp, 2, &b);
    return b.type == SB_DTYPE_I32 ? NULL : &r_bias_type;
}

/* ---- weight-only -------------------------------------------------------- */

static bool gemm_is_plain(const sb_graph *g, const sb_node *node,
                          const sb_tensor *w)
{
    sb_value_id bias = sb_node_in(node, 2);

    if (fabsf(sb_node_float(node, "alpha", 1) - 1) > 1e-6f ||
        sb_node_int(node, "transA", 0) || sb_node_int(node, "transB", 0))
        return false;
    if (bias == SB_NONE)
        return true;
    const sb_shape *s = &sb_graph_value(g, bias)->type.shape;
    return fabsf(sb_node_float(node, "beta", 1) - 1) <= 1e-6f && s->rank == 1 &&
           w->rank == 2 && s->dim[0] == w->dims[1];
}

static const sb_sim_reason *check_weight(const sb_sim *sim, sb_sim_group *grp)
{
    const sb_graph *g = sim->g;
    const sb_node *node = sb_graph_node(g, grp->node);
    bool gemm = sb_node_is(node, "Gemm");
    const sb_node *dq = sb_dq_of(g, node, 1);

    if (!dq || grp->n_dq > (gemm ? 2u : 1u) || sb_dq_of(g, node, 0))
        return &r_no_dq;
    if (grp->clip != SB_NONE || grp->n_q > 0)
        return &r_weight_q;
    if (sb_node_edges(g, dq) != 1 || sb_node_makes_output(g, dq))
        return &r_dq_shared;
    sb_qdq p;
    sb_qdq_read(g, dq, &p);
    if (!p.is_constant || !sb_is_const(g, dq->inputs[0]) ||
        sb_const_elsewhere(g, dq->inputs[0]) || sb_const_elsewhere(g, p.scale))
        return &r_weight_const;
    sb_dtype s = sb_graph_value(g, p.scale)->constant.dtype;
    const sb_tensor *w = &sb_graph_value(g, dq->inputs[0])->constant;
    if (bits_of(w->dtype) > 8 || (s != SB_DTYPE_F32 && s != SB_DTYPE_F16) ||
        !sb_weight_blocks_fit(g, dq))
        return &r_weight_shape;
    if (gemm && !gemm_is_plain(g, node, w))
        return &r_gemm_form;
    return NULL;
}

/* ---- operators that move elements --------------------------------------- */

static const sb_sim_reason *check_drop(const sb_sim *sim, sb_sim_group *grp)
{
    const sb_graph *g = sim->g;
    const sb_node *node = sb_graph_node(g, grp->node);
    uint32_t flags = grp->rule->flags;
    const sb_sim_reason *r =
        grp->clip != SB_NONE ? &r_consumers : check_around(sim, grp, 1, false);
    sb_qdq x, y;

    if (r)
        return r;
    read_dq(sim, grp, 0, &x);
    for (size_t i = 0; i < grp->n_q; i++) {
        read_q(sim, grp, i, &y);
        if (x.type != y.type)
            return &r_types;
        if ((r = check_width(grp->rule, x.type)))
            return r;
        if ((flags & SB_FUSE_NEAREST) &&
            (!sb_node_string_is(node, "mode", "nearest", true) ||
             sb_node_string_is(node, "coordinate_transformation_mode",
                               "tf_crop_and_resize", false)))
            return &r_resize;
        if (x.zero == SB_NONE || y.zero == SB_NONE)
            return &r_no_zero;
        if (!x.is_constant || !y.is_constant || !x.is_scalar || !y.is_scalar)
            return &r_scalar;
        if ((flags & SB_FUSE_POSITIVE) && !(y.s > 0))
            return &r_positive;
        if (!sb_qdq_same(&x, &y))
            return &r_params;
    }
    if (sb_node_is(node, "MaxPool") && g->file_opset > 0 && g->file_opset < 12)
        return &r_old;
    return NULL;
}

static const sb_sim_reason *check_drop_dq(const sb_sim *sim, sb_sim_group *grp)
{
    sb_qdq x;

    if (grp->clip != SB_NONE || grp->n_dq != 1)
        return &r_no_dq;
    if (dq_shared(sim, grp))
        return &r_dq_shared;
    read_dq(sim, grp, 0, &x);
    const sb_sim_reason *r = check_width(grp->rule, x.type);
    if (r)
        return r;
    if (x.zero == SB_NONE)
        return &r_no_zero;
    return x.is_constant && x.is_scalar ? NULL : &r_scalar;
}

/* ---- the rest ----------------------------------------------------------- */

static const sb_sim_reason *check_all(const sb_sim *sim, sb_sim_group *grp)
{
    const sb_sim_reason *r = check_around(sim, grp, EVERY_INPUT, false);

    return r ? r : check_one_type(sim, grp);
}

static const sb_sim_reason *check_first(const sb_sim *sim, sb_sim_group *grp)
{
    const sb_sim_reason *r = check_around(sim, grp, 1, false);

    return r ? r : check_one_type(sim, grp);
}

static const sb_sim_reason *check_where(const sb_sim *sim, sb_sim_group *grp)
{
    const sb_sim_reason *r = check_around(sim, grp, 2, false);

    return r ? r : check_one_type(sim, grp);
}

static const sb_sim_reason *check_norm(const sb_sim *sim, sb_sim_group *grp)
{
    const sb_sim_reason *r = check_around(sim, grp, EVERY_INPUT, false);
    sb_qdq x, y;

    if (r)
        return r;
    read_dq(sim, grp, 0, &x);
    read_q(sim, grp, 0, &y);
    if (x.type != y.type)
        return &r_types;
    if (grp->n_dq > 2) {
        read_dq(sim, grp, 2, &x);
        if (x.type != SB_DTYPE_I32)
            return &r_bias_type;
    }
    return NULL;
}

static const sb_sim_reason *(*const checks[])(const sb_sim *,
                                              sb_sim_group *) = {
    [SB_FUSE_CONV] = check_conv,       [SB_FUSE_MATMUL] = check_matmul,
    [SB_FUSE_GEMM] = check_gemm,       [SB_FUSE_ALL] = check_all,
    [SB_FUSE_FIRST] = check_first,     [SB_FUSE_WHERE] = check_where,
    [SB_FUSE_SPLIT] = check_drop,      [SB_FUSE_DROP] = check_drop,
    [SB_FUSE_DROP_DQ] = check_drop_dq, [SB_FUSE_WEIGHT] = check_weight,
    [SB_FUSE_NORM] = check_norm,
};

const sb_sim_reason *sb_group_find(const sb_sim *sim, sb_node_id node,
                                   const sb_fusion *rule, sb_sim_group *out)
{
    *out = (sb_sim_group){.node = node, .rule = rule, .clip = SB_NONE};
    const sb_sim_reason *r = gather_inputs(sim, out);
    if (!r)
        r = gather_outputs(sim, out);
    return r ? r : checks[rule->kind](sim, out);
}
