/* The plain steps that ONNX Runtime takes before it looks for groups: folding,
 * double pairs, equal Q nodes, one DQ for each consumer, redundant Relu and
 * Clip, int8 to uint8. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "exec/exec.h"
#include "ops/quantized/quant_util.h"
#include "passes/pass.h"
#include "passes/rewrite.h"
#include "runtime/sim/sim_internal.h"

/* ---- folding ------------------------------------------------------------ */

/* A Q of constants becomes a constant: weights that a file stores as float. */
static sb_status fold_q(sb_sim *sim, sb_node_id id)
{
    sb_graph *g = sim->g;
    const sb_node *node = sb_graph_node(g, id);
    const sb_tensor *in[3] = {NULL};
    sb_tensor out = {0};

    if (!sb_is_q(node) || node->n_in > 3 || *node->domain ||
        sb_node_makes_output(g, node))
        return SB_OK;
    for (uint32_t i = 0; i < node->n_in; i++) {
        if (node->inputs[i] == SB_NONE)
            continue;
        if (!sb_is_const(g, node->inputs[i]))
            return SB_OK;
        in[i] = &sb_graph_value(g, node->inputs[i])->constant;
    }
    SB_TRY(sb_exec_eval(g->ctx, g, node, in, &out));
    sb_status status = sb_rewrite_constant(g, id, &out);
    sb_tensor_drop(&out);
    sim->changes++;
    return status;
}

static sb_status drop_identity(sb_sim *sim, sb_node_id id)
{
    sb_graph *g = sim->g;
    const sb_node *node = sb_graph_node(g, id);
    bool done = false;

    bool idle = sb_node_is(node, "Identity") ||
                (sb_node_is(node, "Dropout") && node->n_in < 3 &&
                 (node->n_out == 1 || node->outputs[1] == SB_NONE));
    if (!idle || sb_node_in(node, 0) == SB_NONE)
        return SB_OK;
    /* What makes an output goes only if it and its input have no other
     * consumer. */
    if (sb_node_makes_output(g, node) &&
        (sb_node_edges(g, node) > 0 ||
         sb_graph_value(g, node->inputs[0])->n_uses > 1))
        return SB_OK;
    SB_TRY(sb_rewrite_forward(g, id, node->inputs[0], &done));
    if (done)
        sim->changes++;
    return SB_OK;
}

/* Has the type bounds that Q keeps to, and at least a byte?  A file can name
 * any type. */
static bool has_bounds(sb_dtype type)
{
    const sb_dtype_info *info = sb_dtype_get(type);

    return info->bits >= 8 && info->bits <= 16 &&
           (info->cls == SB_CLASS_INT || info->cls == SB_CLASS_UINT);
}

/* ---- double pairs ------------------------------------------------------- */

/* The one node that reads a node's one result, which is no output. */
static sb_node *only_reader(const sb_graph *g, const sb_node *node)
{
    if (node->n_out != 1 || sb_node_makes_output(g, node) ||
        sb_node_edges(g, node) != 1)
        return NULL;
    return sb_graph_node(g, sb_graph_value(g, node->outputs[0])->uses[0].node);
}

/* The range that both pairs leave over, as one scale and zero point. */
static void joint_range(const sb_qdq *a, const sb_qdq *b, float *scale,
                        int64_t *zero)
{
    float lowest = (float)sb_quant_min(a->type);
    float highest = (float)sb_quant_max(a->type);
    float lo_a = (lowest - (float)a->z) * a->s;
    float hi_a = (highest - (float)a->z) * a->s;
    float lo_b = (lowest - (float)b->z) * b->s;
    float hi_b = (highest - (float)b->z) * b->s;
    float lo = lo_a > lo_b ? lo_a : lo_b, hi = hi_a < hi_b ? hi_a : hi_b;

    *scale = (hi - lo) / (highest - lowest);
    float z = roundf(lowest - lo / *scale);
    /* NaN, of scales that are 0, becomes the lowest number. */
    *zero = (int64_t)(!(z > lowest) ? lowest : z > highest ? highest : z);
}

static sb_status set_params(sb_sim *sim, sb_node_id id, float scale,
                            int64_t zero, sb_dtype type)
{
    sb_graph *g = sim->g;
    sb_value_id s = SB_NONE, z = SB_NONE;
    sb_shape shape = {.rank = 0};

    SB_TRY(sb_rewrite_fill(g, "joint_scale", SB_DTYPE_F32, &shape,
                           (double)scale, &s));
    SB_TRY(
        sb_rewrite_fill(g, "joint_zero_point", type, &shape, (double)zero, &z));
    SB_TRY(sb_graph_set_input(g, id, 1, s));
    return sb_graph_set_input(g, id, 2, z);
}

/* Does every consumer of the Q take its integers back with its parameters? */
static bool readers_undo(const sb_graph *g, const sb_node *q, const sb_qdq *p)
{
    const sb_value *v = sb_graph_value(g, q->outputs[0]);

    for (uint32_t i = 0; i < v->n_uses; i++) {
        const sb_node *dq = sb_graph_node(g, v->uses[i].node);
        sb_qdq d;
        if (!sb_is_dq(dq))
            return false;
        sb_qdq_read(g, dq, &d);
        if (!sb_qdq_same(p, &d))
            return false;
    }
    return v->n_uses > 0;
}

/* Q1 -> DQ1 -> Q2 -> DQ2... becomes Q1 -> DQ2... with the joint range. */
static sb_status drop_double(sb_sim *sim, sb_node_id q1)
{
    sb_graph *g = sim->g;
    const sb_node *q = sb_graph_node(g, q1);
    const sb_node *dq = sb_is_q(q) ? only_reader(g, q) : NULL;
    const sb_node *next = dq && sb_is_dq(dq) ? only_reader(g, dq) : NULL;
    sb_qdq a, b, c;

    if (!next || !sb_is_q(next) || sb_node_makes_output(g, next))
        return SB_OK;
    sb_qdq_read(g, q, &a);
    sb_qdq_read(g, dq, &b);
    sb_qdq_read(g, next, &c);
    if (!sb_qdq_same(&a, &b) || c.type != a.type || !has_bounds(a.type) ||
        !readers_undo(g, next, &c))
        return SB_OK;
    sb_node_id q2 = sb_graph_value(g, dq->outputs[0])->uses[0].node;
    sb_value_id from = next->outputs[0], to = q->outputs[0];
    bool done = false;
    if (!sb_qdq_same(&a, &c)) {
        float scale;
        int64_t zero;
        joint_range(&a, &c, &scale, &zero);
        SB_TRY(set_params(sim, q1, scale, zero, a.type));
        for (uint32_t i = 0; i < sb_graph_value(g, from)->n_uses; i++)
            SB_TRY(set_params(sim, sb_graph_value(g, from)->uses[i].node, scale,
                              zero, a.type));
    }
    SB_TRY(sb_graph_replace_value(g, from, to, &done));
    sim->changes++;
    return sb_rewrite_prune(g, q2);
}

/* ---- equal nodes, shared DQ nodes --------------------------------------- */

static bool same_attr(const sb_attr *a, const sb_attr *b)
{
    if (!b || a->type != b->type || a->n != b->n)
        return false;
    switch (a->type) {
    case SB_ATTR_INT:
        return a->i == b->i;
    case SB_ATTR_FLOAT:
        return a->f == b->f;
    case SB_ATTR_STRING:
        return a->s.len == b->s.len &&
               memcmp(a->s.data, b->s.data, a->s.len) == 0;
    case SB_ATTR_INTS:
        return memcmp(a->ints, b->ints, a->n * sizeof *a->ints) == 0;
    default:
        return false;
    }
}

/* Do two nodes with the same first input compute the same?  DQ nodes are never
 * taken together. */
static bool same_node(const sb_graph *g, const sb_node *a, const sb_node *b)
{
    if (strcmp(a->op, b->op) != 0 || strcmp(a->domain, b->domain) != 0 ||
        a->n_in != b->n_in || a->n_out != 1 || b->n_out != 1 ||
        a->n_attrs != b->n_attrs || a->n_implicit + b->n_implicit > 0 ||
        sb_is_dq(a))
        return false;
    for (uint32_t i = 0; i < a->n_in; i++)
        if (a->inputs[i] != b->inputs[i] &&
            !sb_shared_constant(g, a->inputs[i], b->inputs[i]))
            return false;
    for (uint32_t i = 0; i < a->n_attrs; i++)
        if (!same_attr(&a->attrs[i], sb_node_attr(b, a->attrs[i].name)))
            return false;
    return true;
}

/* Another consumer of the first input, made before, that computes the same
 * takes over. */
static sb_status merge_equal(sb_sim *sim, sb_node_id id)
{
    sb_graph *g = sim->g;
    const sb_node *node = sb_graph_node(g, id);

    if (sb_node_in(node, 0) == SB_NONE || sb_node_makes_output(g, node))
        return SB_OK;
    const sb_value *x = sb_graph_value(g, node->inputs[0]);
    for (uint32_t i = 0; i < x->n_uses; i++) {
        sb_node_id other = x->uses[i].node;
        bool done = false;
        if (other >= id || x->uses[i].input != 0 ||
            !same_node(g, sb_graph_node(g, other), node))
            continue;
        SB_TRY(sb_rewrite_forward(g, id, sb_graph_node(g, other)->outputs[0],
                                  &done));
        if (done) {
            sim->changes++;
            SB_TRY(sb_sim_merged(sim, id, other));
        }
        return SB_OK;
    }
    return SB_OK;
}

static sb_status copy_dq(sb_sim *sim, sb_node_id dq, sb_use use)
{
    sb_graph *g = sim->g;
    const sb_node old = *sb_graph_node(g, dq);
    const sb_type type = sb_graph_value(g, old.outputs[0])->type;
    sb_node_id fresh;

    SB_TRY(sb_rewrite_add(g, dq, old.op, old.inputs, old.n_in, &type, &fresh));
    for (uint32_t i = 0; i < old.n_attrs; i++)
        SB_TRY(sb_graph_set_attr(g, fresh, &old.attrs[i]));
    sim->changes++;
    return sb_graph_set_input(g, use.node, use.input,
                              sb_graph_node(g, fresh)->outputs[0]);
}

/* Each consumer gets a DQ of its own; one that is an output of the graph, or
 * that a sub-graph reads, keeps that alone. */
static sb_status split_dq(sb_sim *sim, sb_node_id id)
{
    sb_graph *g = sim->g;
    const sb_node *node = sb_graph_node(g, id);

    if (!sb_is_dq(node))
        return SB_OK;
    sb_value_id y = node->outputs[0];
    bool apart = sb_graph_value(g, y)->is_output;
    for (uint32_t i = 0; i < sb_graph_value(g, y)->n_uses; i++) {
        sb_use use = sb_graph_value(g, y)->uses[i];
        apart = apart || use.input >= sb_graph_node(g, use.node)->n_in;
    }
    uint32_t kept = apart ? 0 : 1;
    for (uint32_t i = 0; i < sb_graph_value(g, y)->n_uses;) {
        sb_use use = sb_graph_value(g, y)->uses[i];
        if (use.input >= sb_graph_node(g, use.node)->n_in) {
            i++;
        } else if (kept > 0) {
            kept--;
            i++;
        } else {
            SB_TRY(copy_dq(sim, id, use)); /* takes the use away */
        }
    }
    return SB_OK;
}

/* ---- what the Q behind makes redundant ---------------------------------- */

/* The limits of a Clip against what the Q can express. */
static bool clip_covered(const sb_graph *g, const sb_node *clip,
                         const sb_qdq *p)
{
    float lo, hi;

    if (p->zero == SB_NONE || !p->is_rank0 ||
        !sb_clip_limits(g, clip, &lo, &hi))
        return false;
    float lower = p->s * (float)(sb_quant_min(p->type) - p->z);
    float upper = p->s * (float)(sb_quant_max(p->type) - p->z);
    return !(FLT_EPSILON < lo - lower) && !(FLT_EPSILON < upper - hi);
}

static sb_status drop_clip(sb_sim *sim, sb_node_id id)
{
    sb_graph *g = sim->g;
    const sb_node *node = sb_graph_node(g, id);
    bool relu = sb_node_is(node, "Relu"), done = false;

    if (!relu && !sb_node_is(node, "Clip"))
        return SB_OK;
    const sb_node *q = only_reader(g, node);
    if (!q || !sb_is_q(q))
        return SB_OK;
    sb_qdq p;
    sb_qdq_read(g, q, &p);
    if (!p.is_constant || !p.is_scalar || p.zero == SB_NONE ||
        !has_bounds(p.type))
        return SB_OK;
    if (relu ? p.z != sb_quant_min(p.type) : !clip_covered(g, node, &p))
        return SB_OK;
    /* A Clip of an input of the graph stays. */
    if (!relu && !sb_graph_producer(g, node->inputs[0]))
        return SB_OK;
    SB_TRY(sb_rewrite_forward(g, id, node->inputs[0], &done));
    if (done) {
        sim->changes++;
        sb_sim_note(sim, id, SB_SIM_ABSORBED, NULL);
    }
    return SB_OK;
}

/* ---- int8 to uint8 ------------------------------------------------------ */

/* Gives a Q or DQ without zero point one. */
static sb_status add_zero(sb_graph *g, sb_node_id node, sb_value_id zero)
{
    const sb_node old = *sb_graph_node(g, node);
    const sb_value_id in[] = {old.inputs[0], old.inputs[1], zero};
    sb_node_id fresh;

    SB_TRY(sb_rewrite_node(g, node, old.op, in, SB_COUNT(in), &fresh));
    for (uint32_t i = 0; i < old.n_attrs; i++)
        SB_TRY(sb_graph_set_attr(g, fresh, &old.attrs[i]));
    return SB_OK;
}

/* A Q with one consumer, a DQ, both int8 with the same zero point. */
static sb_status to_unsigned(sb_sim *sim, sb_node_id id)
{
    sb_graph *g = sim->g;
    const sb_node *q = sb_graph_node(g, id);
    const sb_node *dq = sb_is_q(q) ? only_reader(g, q) : NULL;
    sb_qdq a, b;

    if (!dq || !sb_is_dq(dq))
        return SB_OK;
    sb_node_id dq_id = sb_graph_value(g, q->outputs[0])->uses[0].node;
    if (sb_graph_value(g, q->outputs[0])->uses[0].input != 0)
        return SB_OK;
    sb_qdq_read(g, q, &a);
    sb_qdq_read(g, dq, &b);
    if (a.zero == SB_NONE || a.type != SB_DTYPE_I8 || b.type != SB_DTYPE_I8)
        return SB_OK;
    double za, zb = 0;
    if (!sb_const_scalar(g, a.zero, &za) ||
        (b.zero != SB_NONE && !sb_const_scalar(g, b.zero, &zb)) || za != zb)
        return SB_OK;
    sb_value_id z = SB_NONE;
    sb_shape scalar = {.rank = 0};
    SB_TRY(sb_rewrite_fill(g, "zero_point_u8", SB_DTYPE_U8, &scalar, za + 128,
                           &z));
    sb_graph_value(g, q->outputs[0])->type.dtype = SB_DTYPE_U8;
    SB_TRY(sb_graph_set_input(g, id, 2, z));
    if (sb_graph_node(g, dq_id)->n_in > 2)
        SB_TRY(sb_graph_set_input(g, dq_id, 2, z));
    else
        SB_TRY(add_zero(g, dq_id, z));
    sim->changes++;
    return SB_OK;
}

/* ---- what is left between kernels --------------------------------------- */

/* Is every consumer a Q that gives back the same integers, for one consumer or
 * as an output? */
static bool readers_requantize(const sb_graph *g, const sb_node *dq)
{
    const sb_value *y = sb_graph_value(g, dq->outputs[0]);
    sb_qdq a, b;

    if (y->n_uses == 0 || y->is_output)
        return false;
    sb_qdq_read(g, dq, &a);
    for (uint32_t i = 0; i < y->n_uses; i++) {
        const sb_node *q = sb_graph_node(g, y->uses[i].node);
        if (!sb_is_q(q))
            return false;
        sb_qdq_read(g, q, &b);
        bool is_output = sb_node_makes_output(g, q);
        if (!sb_qdq_same(&a, &b) ||
            sb_node_edges(g, q) != (is_output ? 0u : 1u))
            return false;
    }
    return true;
}

/* DQ -> Q with the same parameters is nothing at all. */
static sb_status drop_requantize(sb_sim *sim, sb_node_id id)
{
    sb_graph *g = sim->g;
    const sb_node *dq = sb_graph_node(g, id);

    if (!sb_is_dq(dq) || !readers_requantize(g, dq))
        return SB_OK;
    sb_value_id ints = dq->inputs[0], y = dq->outputs[0];
    while (sb_graph_value(g, y)->n_uses > 0) {
        sb_node_id q = sb_graph_value(g, y)->uses[0].node;
        bool done = false;
        SB_TRY(sb_rewrite_forward(g, q, ints, &done));
        if (!done)
            return SB_OK;
        sim->changes++;
    }
    return SB_OK;
}

/* Do DQ and Q undo each other?  A missing zero point is 0. */
static bool clean_undone(const sb_graph *g, const sb_node *dq, const sb_node *q)
{
    sb_qdq a, b;

    sb_qdq_read(g, dq, &a);
    sb_qdq_read(g, q, &b);
    return a.type == b.type && a.is_constant && b.is_constant && a.is_scalar &&
           b.is_scalar && a.s == b.s && a.z == b.z;
}

/* The same, seen from a Q whose DQ has no other consumer. */
static sb_status drop_empty_pair(sb_sim *sim, sb_node_id id)
{
    sb_graph *g = sim->g;
    const sb_node *q = sb_graph_node(g, id);
    const sb_node *dq = sb_is_q(q) ? sb_dq_of(g, q, 0) : NULL;
    bool done = false;

    if (!dq || sb_node_edges(g, dq) != 1 || sb_node_makes_output(g, dq) ||
        !clean_undone(g, dq, q))
        return SB_OK;
    sb_value_id ints = dq->inputs[0];
    if (sb_node_makes_output(g, q)
            ? sb_node_edges(g, q) > 0 || sb_graph_value(g, ints)->n_uses != 1
            : sb_node_edges(g, q) != 1)
        return SB_OK;
    SB_TRY(sb_rewrite_forward(g, id, ints, &done));
    if (done)
        sim->changes++;
    return SB_OK;
}

/* ---- rounds ------------------------------------------------------------- */

sb_status sb_sim_each(sb_sim *sim, sb_sim_fn fn)
{
    sb_node_id *order = NULL;
    size_t n = 0;
    sb_status status = sb_graph_order(sim->g, &order, &n);

    for (size_t i = 0; i < n && status == SB_OK; i++)
        if (!sb_graph_node(sim->g, order[i])->dead)
            status = fn(sim, order[i]);
    sb_free(sim->g->ctx, order);
    return status;
}

sb_status sb_sim_clean(sb_sim *sim)
{
    size_t folded = 0;

    SB_TRY(sb_sim_each(sim, drop_identity));
    SB_TRY(sb_sim_each(sim, drop_double));
    SB_TRY(sb_pass_find(NULL, "fold_constants")->run(sim->g, &folded));
    sim->changes += folded;
    SB_TRY(sb_sim_each(sim, fold_q));
    return sb_sim_each(sim, merge_equal);
}

sb_status sb_sim_unique(sb_sim *sim)
{
    return sb_sim_each(sim, split_dq);
}

sb_status sb_sim_leftovers(sb_sim *sim)
{
    return sb_sim_each(sim, drop_requantize);
}

sb_status sb_sim_empty_pairs(sb_sim *sim)
{
    return sb_sim_each(sim, drop_empty_pair);
}

sb_status sb_sim_signs(sb_sim *sim)
{
    SB_TRY(sb_sim_each(sim, drop_clip));
    if (sim->round == 0)
        SB_TRY(sb_sim_empty_pairs(sim));
    if (sim->target->sim_flags & SB_SIM_S8_TO_U8)
        SB_TRY(sb_sim_each(sim, to_unsigned));
    return SB_OK;
}
