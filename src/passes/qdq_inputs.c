/* Runtimes that look at inputs only (TensorRT, OpenVINO): an operator runs in
 * int8 if what it reads was quantized, directly or before operators that only
 * carry it on.  TensorRT's parser has rules for the Q and DQ nodes themselves.
 *
 * Rule numbers T1 ... (TensorRT) and O4 ... (OpenVINO) are explained in
 * docs/targets.md. */
#include <string.h>

#include "passes/qdq_sim.h"
#include "passes/rewrite.h"

#define REASON(id, rule, why, remedy) \
    static const sb_qdq_reason id = {rule, why, remedy}

/* clang-format off */
REASON(t_uint8, "T1-uint8", "TensorRT refuses uint8", "use int8 with zero point 0");
REASON(t_type, "T1-type", "TensorRT knows int8, int4 and float8 only", "use int8");
REASON(t_zero, "T1-zero-point", "TensorRT wants every zero point to be 0", "use symmetric ranges");
REASON(t_scale, "T2-scale", "the scale is not a constant, or not positive everywhere", "store positive scales as constants");
REASON(t_volume, "T2-zero-point-shape", "zero point and scale have different numbers of elements", "give them the same shape");
REASON(t_axis, "T3-axis", "there are not as many scales as the axis has indices", "set axis to the axis of the scales");
REASON(t_act, "T3-activation", "an activation has a scale a channel", "use one scale for activations");
REASON(t_block, "T4-block", "blocked scales do not cover exactly one axis in whole blocks", "block one axis, with a size that divides it");
REASON(t_int4, "T5-int4", "int4 is for weights only, with an even last dimension", "use int8 here");
REASON(t_dtype, "T7-output-dtype", "output_dtype and zero point have different types", "leave output_dtype out");
REASON(i_input, "T8-inputs", "not every input is quantized", "put Q/DQ on all of its inputs but the bias");
REASON(i_bias, "T10-bias", "the bias has Q/DQ", "leave the bias in float");
REASON(i_between, "T11-between", "Q/DQ stand between it and the activation or sum that it would be fused with", "move them behind the activation");
REASON(i_skip, "T12-residual", "neither branch of the sum is quantized", "quantize the branch that does not come from the convolution");
REASON(i_both, "T15-both", "int8 in needs int8 out, but its result is not quantized", "quantize its result as well");
REASON(i_concat, "T16-concat", "the branches have different scales, so they are rescaled", "share one scale among all inputs");
REASON(i_gemv, "T17-vector", "a product with a vector does not pay in int8", "leave it in float");
REASON(i_small, "T17-channels", "convolutions with fewer than 16 channels run faster in half precision", "leave it in float");
REASON(o_input, "O5-inputs", "not every input is quantized", "put Q/DQ on all of its inputs but the bias");
REASON(o_between, "O5-between", "Q/DQ stand between it and the layer that it would be fused with", "move them behind the activation");
REASON(o_skip, "O5-residual", "neither branch of the sum is quantized", "quantize the branch that does not come from the convolution");
REASON(o_concat, "O4-concat", "the branches have different scales, so they are rescaled, or a convolution that reads them runs in float", "share one scale among all inputs");
REASON(o_joined, "O4-concat", "it reads a Concat whose branches have different scales", "share one scale among all inputs of the Concat");
/* clang-format on */

static bool is_trt(const sb_qdq_sim *sim)
{
    return (sim->rules->flags & SB_QDQ_TRT_PARSER) != 0;
}

/* ---- TensorRT's parser -------------------------------------------------- */

static const sb_qdq_reason *check_scales(const sb_graph *g, const sb_node *node,
                                         const sb_qdq *p, const sb_tensor *s)
{
    const sb_shape *x = &sb_graph_value(g, node->inputs[0])->type.shape;
    int64_t block = sb_node_int(node, "block_size", 0);
    int64_t axis = sb_node_int(node, "axis", 1);
    bool weight = sb_qdq_from_const(g, node->inputs[0]);

    if (p->is_scalar)
        return NULL;
    if (s->rank == 1) {
        if (axis < 0)
            axis += x->rank;
        if (x->rank >= 0 &&
            (axis < 0 || axis >= x->rank || x->dim[axis] != s->dims[0]))
            return &t_axis;
        return weight ? NULL : &t_act;
    }
    int n_blocked = 0;
    if (block <= 0 || s->rank != x->rank)
        return &t_block;
    for (int i = 0; i < s->rank; i++) {
        if (x->dim[i] == s->dims[i])
            continue;
        n_blocked++;
        if (s->dims[i] <= 0 || x->dim[i] % s->dims[i] != 0)
            return &t_block;
    }
    return n_blocked == 1 ? NULL : &t_block;
}

const sb_qdq_reason *sb_trt_check(const sb_graph *g, const sb_node *node)
{
    sb_qdq p;

    sb_qdq_read(g, node, &p);
    if (p.type == SB_DTYPE_U8)
        return &t_uint8;
    if (p.type != SB_DTYPE_I8 && p.type != SB_DTYPE_I4 &&
        p.type != SB_DTYPE_F8E4M3FN && p.type != SB_DTYPE_F4E2M1)
        return &t_type;
    if (p.zero != SB_NONE && !sb_const_all(g, p.zero, 0))
        return &t_zero;
    if (!sb_is_const(g, p.scale))
        return &t_scale;
    const sb_tensor *s = &sb_graph_value(g, p.scale)->constant;
    int64_t n = sb_tensor_count(s);
    for (int64_t i = 0; i < n; i++)
        if (!(sb_tensor_get_f64(s, i) > 0))
            return &t_scale;
    if (p.zero != SB_NONE &&
        sb_tensor_count(&sb_graph_value(g, p.zero)->constant) != n)
        return &t_volume;
    const sb_qdq_reason *r = check_scales(g, node, &p, s);
    if (r)
        return r;
    if (p.type == SB_DTYPE_I4) {
        const sb_shape *x = &sb_graph_value(g, node->inputs[0])->type.shape;
        if (!sb_qdq_from_const(g, node->inputs[0]) || x->rank < 1 ||
            (sb_dim_known(x->dim[x->rank - 1]) && x->dim[x->rank - 1] % 2))
            return &t_int4;
    }
    int64_t asked = sb_is_q(node) ? sb_node_int(node, "output_dtype", 0) : 0;
    return asked > 0 && asked != (int64_t)p.type ? &t_dtype : NULL;
}

/* ---- inputs ------------------------------------------------------------- */

static bool passes(const sb_qdq_sim *sim, const sb_node *node)
{
    const sb_qdq_rule *rule = sb_qdq_rule_find(sim->rules, node);

    return rule && rule->kind == SB_QDQ_THROUGH;
}

/* The DQ that a value comes from, over operators that carry it on. */
static const sb_node *source_dq(const sb_qdq_sim *sim, sb_value_id value)
{
    for (int depth = 0; depth < 64 && value != SB_NONE; depth++) {
        const sb_node *from = sb_graph_producer(sim->g, value);
        if (!from)
            return NULL;
        if (sb_is_dq(from))
            return from;
        if (!passes(sim, from) || sb_node_is(from, "Relu") ||
            sb_node_is(from, "Clip"))
            return NULL;
        value = sb_node_in(from, 0);
    }
    return NULL;
}

/* Does a value come straight from a layer with weights, perhaps over an
 * activation, so that a sum can be fused with it? */
static bool from_layer(const sb_qdq_sim *sim, sb_value_id value)
{
    const sb_node *from = sb_graph_producer(sim->g, value);

    if (from && (sb_node_is(from, "Relu") || sb_node_is(from, "Clip")))
        from = sb_graph_producer(sim->g, sb_node_in(from, 0));
    const sb_qdq_rule *rule = from ? sb_qdq_rule_find(sim->rules, from) : NULL;
    return rule && (rule->flags & SB_QDQ_WEIGHTED);
}

/* Are all readers Q, over operators that carry it on? */
static bool goes_to_q(const sb_qdq_sim *sim, sb_value_id value, int depth)
{
    const sb_value *v = sb_graph_value(sim->g, value);

    if (v->n_uses == 0 || v->is_output || depth > 32)
        return false;
    for (uint32_t i = 0; i < v->n_uses; i++) {
        const sb_node *reader = sb_graph_node(sim->g, v->uses[i].node);
        if (sb_is_q(reader))
            continue;
        if (!passes(sim, reader) ||
            !goes_to_q(sim, reader->outputs[0], depth + 1))
            return false;
    }
    return true;
}

/* TensorRT has int8 kernels for few channels only in some shapes. */
static bool too_small(const sb_graph *g, const sb_node *node)
{
    const sb_shape *w = &sb_graph_value(g, node->inputs[1])->type.shape;
    int64_t group = sb_node_int(node, "group", 1);

    if (!sb_node_is(node, "Conv") || !sb_shape_known(w) || w->rank < 3)
        return false;
    int64_t c_in = w->dim[1] * group, c_out = w->dim[0];
    if (c_in >= 16 && c_out >= 16)
        return false;
    if (group == 1)
        return !((c_in % 8 == 0 || c_out % 8 == 0) &&
                 (c_in >= 16 || c_out >= 16 || c_in <= 4));
    bool wide = true;
    for (int i = 2; i < w->rank; i++)
        wide = wide && w->dim[i] >= 3;
    return !(c_out % 8 == 0 && wide);
}

static bool is_vector_product(const sb_graph *g, const sb_node *node)
{
    const sb_shape *b = &sb_graph_value(g, node->inputs[1])->type.shape;

    if ((!sb_node_is(node, "MatMul") && !sb_node_is(node, "Gemm")) ||
        b->rank < 1)
        return false;
    bool rows = sb_node_int(node, "transB", 0) != 0;
    return b->rank == 1 || b->dim[b->rank - (rows ? 2 : 1)] == 1;
}

/* Have the inputs of a Concat different scales?  OpenVINO does not mind
 * different zero points. */
static bool scales_differ(const sb_qdq_sim *sim, const sb_node *node)
{
    sb_qdq first, p;
    bool seen = false;

    for (uint32_t i = 0; i < node->n_in; i++) {
        const sb_node *dq = source_dq(sim, node->inputs[i]);
        if (!dq)
            continue;
        sb_qdq_read(sim->g, dq, &p);
        if (seen && !(p.is_scalar && first.is_scalar && p.s == first.s &&
                      (p.z == first.z || !is_trt(sim))))
            return true;
        first = p;
        seen = true;
    }
    return false;
}

/* Does a value come from a Concat of different scales, over operators that
 * carry it on?  OpenVINO then has a scale a channel, with which it computes
 * convolutions of groups only. */
static bool from_many_scales(const sb_qdq_sim *sim, sb_value_id value)
{
    for (int depth = 0; depth < 64 && value != SB_NONE; depth++) {
        const sb_node *from = sb_graph_producer(sim->g, value);

        if (!from || !passes(sim, from))
            return false;
        if (sb_node_is(from, "Concat") && scales_differ(sim, from))
            return true;
        value = sb_node_in(from, 0);
    }
    return false;
}

static const sb_qdq_reason *check_layer(const sb_qdq_sim *sim,
                                        const sb_node *node)
{
    for (uint32_t i = 0; i < 2 && i < node->n_in; i++)
        if (!source_dq(sim, node->inputs[i]))
            return is_trt(sim) ? &i_input : &o_input;
    if (!is_trt(sim))
        return sb_node_is(node, "Conv") && sb_node_int(node, "group", 1) == 1 &&
                       from_many_scales(sim, node->inputs[0])
                   ? &o_joined
                   : NULL;
    if (sb_node_in(node, 2) != SB_NONE && sb_dq_of(sim->g, node, 2))
        return &i_bias;
    if (too_small(sim->g, node))
        return &i_small;
    return is_vector_product(sim->g, node) ? &i_gemv : NULL;
}

static const sb_qdq_reason *check_sum(const sb_qdq_sim *sim,
                                      const sb_node *node)
{
    size_t n_dq = 0, n_other = 0;

    for (uint32_t i = 0; i < node->n_in; i++) {
        if (source_dq(sim, node->inputs[i]))
            n_dq++;
        else if (!from_layer(sim, node->inputs[i]))
            n_other++;
    }
    if (n_other > 0)
        return is_trt(sim) ? &i_input : &o_input;
    return n_dq > 0 ? NULL : is_trt(sim) ? &i_skip : &o_skip;
}

/* An activation whose input was quantized after a layer: the pair between
 * stands against their fusion. */
static bool pair_before(const sb_qdq_sim *sim, const sb_node *node)
{
    const sb_node *dq = sb_dq_of(sim->g, node, 0);
    const sb_node *q = dq ? sb_graph_producer(sim->g, sb_node_in(dq, 0)) : NULL;

    return q && sb_is_q(q) && from_layer(sim, sb_node_in(q, 0));
}

static const sb_qdq_reason *check_through(const sb_qdq_sim *sim,
                                          const sb_node *node)
{
    if ((sb_node_is(node, "Relu") || sb_node_is(node, "Clip")) &&
        pair_before(sim, node))
        return is_trt(sim) ? &i_between : &o_between;
    if (sb_node_is(node, "Concat") && scales_differ(sim, node))
        return is_trt(sim) ? &i_concat : &o_concat;
    return NULL;
}

static void note_inputs(sb_qdq_sim *sim, sb_node_id id, const sb_qdq_rule *rule,
                        const sb_qdq_reason *reason)
{
    const sb_node *node = sb_graph_node(sim->g, id);
    sb_qdq_verdict *v = &sim->verdicts[id];
    bool near = sb_qdq_touches(sim->g, node);

    v->reason = NULL;
    if (rule && rule->kind == SB_QDQ_THROUGH) {
        v->fate = source_dq(sim, sb_node_in(node, 0)) ||
                          (near && goes_to_q(sim, node->outputs[0], 0))
                      ? SB_QDQ_MOVES
                      : SB_QDQ_FLOAT;
        v->reason = reason;
        v->overhead = reason != NULL;
    } else if (!reason) {
        v->fate = SB_QDQ_INTEGER;
        v->kernel = rule->kernel;
        v->kernel_domain = rule->kernel_domain;
    } else {
        v->fate = SB_QDQ_FLOAT;
        v->overhead = near;
        v->reason = near ? reason : NULL;
    }
}

static sb_status judge(sb_qdq_sim *sim, sb_node_id id)
{
    const sb_node *node = sb_graph_node(sim->g, id);
    const sb_qdq_rule *rule = sb_qdq_rule_find(sim->rules, node);
    const sb_qdq_reason *r = NULL;

    if (sb_is_qdq(node))
        return SB_OK;
    if (!rule)
        r = &sb_reason_no_kernel;
    else if (rule->kind == SB_QDQ_THROUGH)
        r = check_through(sim, node);
    else if (rule->flags & SB_QDQ_WEIGHTED)
        r = check_layer(sim, node);
    else if (node->n_in > 1 && rule->kind == SB_QDQ_INPUTS &&
             sb_node_is(node, "Add"))
        r = check_sum(sim, node);
    else
        for (uint32_t i = 0; i < node->n_in && !r; i++)
            if (i == 0 || sb_node_is(node, "Mul"))
                r = source_dq(sim, node->inputs[i]) ? NULL
                    : is_trt(sim)                   ? &i_input
                                                    : &o_input;
    if (!r && rule->kind == SB_QDQ_BOTH && !goes_to_q(sim, node->outputs[0], 0))
        r = &i_both;
    note_inputs(sim, id, rule, r);
    return SB_OK;
}

sb_status sb_sim_inputs(sb_qdq_sim *sim)
{
    return sb_sim_each(sim, judge);
}
