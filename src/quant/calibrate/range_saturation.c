/* Ranges without what the function behind them flattens.
 *
 * SiLU, GELU and HardSwish are almost 0 far below it, a sigmoid almost 0 or 1
 * far away on both sides.  A convolution before one of them often gives
 * numbers down to -50, and all of them become the same 0; a range that reaches
 * there wastes most of its 256 steps.  So it ends where the function is within
 * a quarter of a step of its limit, a step being that of the function's own
 * result: numbers beyond are clamped to the end, and still become that 0. */
#include <math.h>

#include "ops/op_registry.h"
#include "quant/calibrate/calibrate.h"

/* The lowest number of [lo, hi] that the function tells from 0. */
static double bend_low(const sb_result_range *range, sb_range r, int bits)
{
    double (*f)(double) = range->curve;
    double lo = (double)r.lo, hi = fmin(range->turn, (double)r.hi);

    if (lo >= hi)
        return lo;
    double top = fmax(f(lo), f((double)r.hi));
    double near = (top - f(hi)) / ((1 << bits) - 1) / 4;
    for (int i = 0; i < 60 && -f(lo) < near; i++) {
        double middle = (lo + hi) / 2;
        if (-f(middle) > near)
            hi = middle;
        else
            lo = middle;
    }
    return lo;
}

/* By name: x * sigmoid(x) is a pattern of these two operators, Swish as older
 * files have it. */
static bool is_sigmoid(const sb_node *node)
{
    return sb_node_is(node, "Sigmoid");
}

/* The node that multiplies `value` with its own sigmoid, the result of
 * `sigmoid`, which has no other consumer; SB_NONE if it is not that. */
static sb_node_id gated_by(const sb_graph *g, sb_value_id value,
                           const sb_node *sigmoid)
{
    const sb_value *gate = sb_graph_value(g, sigmoid->outputs[0]);

    if (gate->n_uses != 1 || gate->is_output)
        return SB_NONE;
    const sb_node *mul = sb_graph_node(g, gate->uses[0].node);
    if (!sb_node_is(mul, "Mul") ||
        (mul->inputs[0] != value && mul->inputs[1] != value))
        return SB_NONE;
    return gate->uses[0].node;
}

/* Is the value stored in steps of a range that it has by nature? */
static bool is_natural(const sb_quant_model *qm, sb_value_id value)
{
    uint32_t point = qm->place.of_value[value].first;

    return point != SB_NONE && qm->place.points[point].natural;
}

/* Is the node the product with a sigmoid of the same value? */
static bool is_silu_product(const sb_graph *g, sb_value_id value,
                            sb_node_id mul)
{
    const sb_node *node = sb_graph_node(g, mul);

    for (uint32_t i = 0; i < node->n_in; i++) {
        const sb_node *other = node->inputs[i] == SB_NONE
                                   ? NULL
                                   : sb_graph_producer(g, node->inputs[i]);
        if (other && is_sigmoid(other) && other->inputs[0] == value &&
            gated_by(g, value, other) == mul)
            return true;
    }
    return false;
}

/* Widens `need` by what one consumer tells apart; false if that is all. */
static bool add_need(const sb_quant_model *qm, sb_value_id value, sb_use use,
                     sb_range seen, int bits, sb_range *need)
{
    const sb_graph *g = qm->graph;
    const sb_node *node = sb_graph_node(g, use.node);
    const sb_op_def *op = sb_op_of(node);
    const sb_result_range *range = op ? op->range : NULL;
    sb_range r = seen;

    if (range && range->curve && sb_node_float(node, "alpha", 1) == 1.0f) {
        r.lo = (float)bend_low(range, seen, bits);
    } else if (is_silu_product(g, value, use.node)) {
        r.lo = (float)bend_low(sb_op_find("", "Swish")->range, seen, bits);
    } else if (!is_sigmoid(node)) {
        return false;
    } else if (gated_by(g, value, node) != SB_NONE) {
        return true; /* the product says what is needed */
    } else if (is_natural(qm, node->outputs[0])) {
        /* A quarter of a step from 0, and from the greatest number. */
        double steps = (double)(1 << bits);
        r.lo = (float)fmax((double)seen.lo, -log(4 * steps - 1));
        r.hi = (float)fmin((double)seen.hi, log((4 * steps - 3) / 3));
    } else {
        return false;
    }
    need->lo = fminf(need->lo, r.lo);
    need->hi = fmaxf(need->hi, r.hi);
    return true;
}

void sb_range_clip_to_saturation(const sb_quant_model *qm,
                                 const sb_quant_point *point, int bits,
                                 sb_range *range)
{
    const sb_value *v = sb_graph_value(qm->graph, point->value);
    sb_range need = {0, 0};

    if (!qm->target->ops || v->is_output || v->n_uses == 0)
        return;
    for (uint32_t i = 0; i < v->n_uses; i++)
        if (!add_need(qm, point->value, v->uses[i], *range, bits, &need))
            return;
    range->lo = fmaxf(range->lo, need.lo);
    range->hi = fminf(range->hi, need.hi);
}
