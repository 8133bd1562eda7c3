/* Reading Q/DQ nodes back.
 *
 *     x -> [Clip ->] Q -> DQ            becomes x, and its scales are kept
 *     x -> DynamicQuantizeLinear -> DQ  becomes x, which is marked
 *     constants                         see import_constant.c
 */
#include "quant/import/import.h"

#include <math.h>
#include <string.h>

#include "ops/op_registry.h"
#include "passes/rewrite.h"
#include "quant/import/import_linear.h"

/* ---- activations -------------------------------------------------------- */

/* Are [first, last] all the numbers of a width below that of the type? */
static bool is_width(double first, double last, sb_dtype dtype, bool is_signed)
{
    int most = (int)sb_dtype_get(dtype)->bits;
    double middle = is_signed ? 0 : ldexp(1, most - 1);

    for (int bits = 1; bits < most; bits++) {
        double half = ldexp(1, bits - 1);
        if (!is_signed && first == 0 && last == 2 * half - 1)
            return true;
        if (first == middle - half && last == middle + half - 1)
            return true;
    }
    return false;
}

/* A Clip to the numbers of a smaller width than the type has says the width;
 * it was put there for that, so it goes away with the Q. */
static sb_value_id behind_clip(const sb_graph *g, sb_value_id x,
                               const sb_linear *l, sb_bounds *b)
{
    const sb_node *clip = sb_graph_producer(g, x);
    double from, to;

    if (!clip || l->axis >= 0 || sb_graph_value(g, x)->n_uses != 1 ||
        sb_graph_value(g, x)->is_output)
        return x;
    const sb_result_range *range = sb_node_range(g, clip, &from, &to);
    if (!range || !range->clips)
        return x;
    double scale = sb_tensor_get_f64(&l->scale, 0);
    double zero = l->zero.data ? sb_tensor_get_f64(&l->zero, 0) : 0;
    double first = rint(from / scale) + zero, last = rint(to / scale) + zero;
    /* NaN is within nothing, and the bounds must hold a number and zero. */
    if (!(first >= b->lo && last <= b->hi && first <= zero && last >= zero &&
          first < last) ||
        !is_width(first, last, l->dtype, b->lo < 0) ||
        fabs((first - zero) * scale - from) > 1e-5 * scale ||
        fabs((last - zero) * scale - to) > 1e-5 * scale)
        return x;
    b->lo = (int32_t)first;
    b->hi = (int32_t)last;
    return sb_node_in(clip, 0);
}

/* Do only DQ nodes with the same scales read the integers? */
static bool only_dequantized(const sb_graph *g, sb_value_id q,
                             const sb_linear *l)
{
    const sb_value *v = sb_graph_value(g, q);
    sb_linear other;

    for (uint32_t i = 0; i < v->n_uses; i++) {
        const sb_node *consumer = sb_graph_node(g, v->uses[i].node);
        if (sb_node_role(consumer) != SB_ROLE_DEQUANTIZE ||
            v->uses[i].input != 0 || !sb_linear_read(g, consumer, &other) ||
            !sb_linear_same(l, &other))
            return false;
    }
    return !v->is_output && v->n_uses > 0;
}

/* Is it only for joining that the integers are there?  What a Concat reads is
 * often quantized a second time, with the scale of the whole. */
static bool only_joined(const sb_graph *g, sb_value_id q)
{
    const sb_value *v = sb_graph_value(g, q);

    for (uint32_t i = 0; i < v->n_uses; i++) {
        const sb_node *dq = sb_graph_node(g, v->uses[i].node);
        const sb_value *y = sb_graph_value(g, dq->outputs[0]);
        for (uint32_t k = 0; k < y->n_uses; k++)
            if (!sb_node_flag(sb_graph_node(g, y->uses[k].node), SB_OP_JOINS))
                return false;
    }
    return true;
}

/* ---- Relus that were left out ------------------------------------------- */

/* Other tools take away a Relu that a zero point at the lowest number makes
 * needless, behind these operators.  It is needed again where a target does not
 * quantize at this place; files of ours keep theirs. */
static bool lacks_relu(const sb_graph *g, sb_value_id x, const sb_linear *l,
                       int32_t lo)
{
    static const char *const ops[] = {"Conv",   "ConvTranspose", "Gemm",
                                      "MatMul", "Add",           "Sub"};
    const sb_node *node = sb_graph_producer(g, x);

    if (!node || !l->zero.data || sb_tensor_count(&l->zero) != 1 ||
        sb_tensor_get_f64(&l->zero, 0) != (double)lo ||
        sb_graph_value(g, x)->is_output)
        return false;
    for (uint32_t i = 0; i < sb_graph_value(g, x)->n_uses; i++) {
        sb_use use = sb_graph_value(g, x)->uses[i];
        sb_linear other;
        if (use.input != 0 || !sb_node_lives(g, use.node, SB_ROLE_QUANTIZE) ||
            !sb_linear_read(g, sb_graph_node(g, use.node), &other) ||
            !sb_linear_same(l, &other))
            return false;
    }
    for (size_t i = 0; i < g->n_model_props; i++)
        if (strcmp(g->model_props[i].key, "sparsebit.target") == 0)
            return false;
    for (size_t i = 0; i < SB_COUNT(ops); i++)
        if (sb_node_is(node, ops[i]))
            return true;
    return false;
}

/* *x becomes the result of a Relu before all Q that read it. */
static sb_status put_relu(sb_graph *g, sb_value_id *x)
{
    sb_type type = sb_graph_value(g, *x)->type;
    sb_node_id producer = sb_graph_value(g, *x)->producer, relu = SB_NONE;

    SB_TRY(sb_rewrite_add(g, producer, "Relu", x, 1, &type, &relu));
    sb_value_id y = sb_graph_node(g, relu)->outputs[0];
    for (uint32_t i = 0; i < sb_graph_value(g, *x)->n_uses;) {
        sb_use use = sb_graph_value(g, *x)->uses[i];
        if (use.node == relu) {
            i++;
            continue;
        }
        SB_TRY(sb_graph_set_input(g, use.node, use.input, y));
        i = 0; /* the list is shorter now */
    }
    *x = y;
    return SB_OK;
}

/* The consumers of all DQ nodes behind a Q read x.  *done is false if a graph
 * output stands against it. */
static sb_status import_bypass(sb_graph *g, sb_imported_list *known,
                               sb_imported_qparams *k, sb_value_id q,
                               sb_value_id x, bool *done)
{
    *done = true;
    while (*done && sb_graph_value(g, q)->n_uses > 0) {
        sb_node_id dq = sb_graph_value(g, q)->uses[0].node;
        SB_TRY(sb_imported_consumers(g, known, k,
                                     sb_graph_node(g, dq)->outputs[0]));
        SB_TRY(sb_rewrite_forward(g, dq, x, done));
    }
    return SB_OK;
}

static sb_imported_qparams *import_entry(sb_imported_list *known,
                                         const sb_graph *g, sb_value_id x)
{
    uint32_t origin = sb_graph_value(g, x)->origin;

    return origin != 0 ? &known->v[origin - 1] : NULL;
}

/* x -> Q -> DQ... : consumers of every DQ read x. */
static sb_status import_pair(sb_graph *g, sb_imported_list *known,
                             sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    sb_value_id q = node->outputs[0];
    bool done = false;
    sb_bounds b;
    sb_linear l;

    if (sb_node_role(node) != SB_ROLE_QUANTIZE ||
        !sb_linear_read(g, node, &l) || !sb_type_bounds(l.dtype, &b) ||
        !sb_linear_usable(&l) || !only_dequantized(g, q, &l))
        return SB_OK;
    sb_value_id x = node->inputs[0];
    if (lacks_relu(g, x, &l, b.lo))
        SB_TRY(put_relu(g, &x));
    else
        x = behind_clip(g, x, &l, &b);
    sb_imported_qparams *k = import_entry(known, g, x);
    if (k && sb_imported_contradicts(k, &l) &&
        (known->apart || !only_joined(g, q)))
        return SB_OK;
    if (!k) {
        SB_TRY(sb_imported_add(g, known, x, &l, b, &k));
        k->all = sb_graph_value(g, x)->n_uses == 1;
    }
    SB_TRY(import_bypass(g, known, k, q, x, &done));
    return done ? sb_rewrite_prune(g, id) : SB_OK;
}

/* ---- scales that are found at each run ---------------------------------- */

/* Do only DQ nodes with its own scales read what a DynamicQuantizeLinear
 * makes? */
static bool only_for_itself(const sb_graph *g, const sb_node *node)
{
    if (node->n_out != 3 || node->n_in != 1 || node->inputs[0] == SB_NONE)
        return false;
    for (uint32_t k = 0; k < 3; k++) {
        if (node->outputs[k] == SB_NONE)
            return false;
        const sb_value *v = sb_graph_value(g, node->outputs[k]);
        if (v->is_output || v->n_uses == 0)
            return false;
        for (uint32_t i = 0; i < v->n_uses; i++) {
            const sb_node *dq = sb_graph_node(g, v->uses[i].node);
            if (sb_node_role(dq) != SB_ROLE_DEQUANTIZE || dq->n_in != 3 ||
                memcmp(dq->inputs, node->outputs, 3 * sizeof *dq->inputs) != 0)
                return false;
        }
    }
    return true;
}

/* x -> DynamicQuantizeLinear -> DQ... : consumers of every DQ read x.  Where
 * the same value has scales elsewhere in the file, these are kept. */
static sb_status import_dynamic(sb_graph *g, sb_imported_list *known,
                                sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    bool done = true;

    if (!only_for_itself(g, node))
        return SB_OK;
    sb_value_id x = node->inputs[0], q = node->outputs[0];
    sb_imported_qparams *k = import_entry(known, g, x);
    if (!k) {
        SB_TRY(sb_imported_new(g->ctx, known, &k));
        k->dynamic = true;
        k->all = sb_graph_value(g, x)->n_uses == 1;
        sb_graph_value(g, x)->origin = (uint32_t)known->n;
    }
    if (k->dynamic)
        return import_bypass(g, known, k, q, x, &done);
    while (done && sb_graph_value(g, q)->n_uses > 0)
        SB_TRY(sb_rewrite_forward(g, sb_graph_value(g, q)->uses[0].node, x,
                                  &done));
    return SB_OK;
}

/* ---- what passes do afterwards ------------------------------------------ */

static sb_status import_follow(void *user, sb_graph *g, const sb_rescale *r)
{
    return sb_imported_rescale(user, g, r, r->axis);
}

sb_status sb_quant_import(sb_graph *g, sb_imported_list *known)
{
    SB_TRY(sb_quant_import_tables(g));
    SB_TRY(sb_quant_import_check(g));
    /* Constants first; nodes are only removed, so the numbers stay. */
    for (sb_node_id id = 0; id < g->n_nodes; id++)
        if (sb_node_lives(g, id, SB_ROLE_DEQUANTIZE))
            SB_TRY(sb_import_constant(g, known, id));
    for (sb_node_id id = 0; id < g->n_nodes; id++)
        if (sb_node_lives(g, id, SB_ROLE_QUANTIZE) &&
            !sb_is_const(g, sb_node_in(sb_graph_node(g, id), 0)))
            SB_TRY(import_pair(g, known, id));
    for (sb_node_id id = 0; id < g->n_nodes; id++)
        /* By name: no other operator finds scales at each run. */
        if (!sb_graph_node(g, id)->dead &&
            sb_node_is(sb_graph_node(g, id), "DynamicQuantizeLinear"))
            SB_TRY(import_dynamic(g, known, id));
    g->on_rescale = import_follow;
    g->on_rescale_user = known;
    return sb_imported_read_bits(g, known);
}
