/* Concat without arithmetic: what is joined is stored at the scale of the
 * result from the start.
 *
 * An integer Concat brings every input to the scale of its result, element by
 * element through a table, and only copies where the scales are equal.  An
 * input without another consumer gains nothing from a scale of its own, since
 * the finer numbers are rounded again at once; so it takes the one of the
 * result. That is faster, and rounds once instead of twice. */
#include "ops/op_registry.h"
#include "quant/place/place.h"

/* Is the value never below 0, as far as a look at its producers tells? */
static bool not_negative(const sb_quant_model *qm, sb_value_id v, int depth)
{
    const sb_graph *g = qm->graph;
    const sb_node *node = sb_graph_producer(g, v);
    double lo, hi;

    if (!node || depth == 0)
        return false;
    (void)sb_node_range(g, node, &lo, &hi);
    if (lo >= 0)
        return true;
    if (sb_node_flag(node, SB_OP_JOINS)) {
        for (uint32_t i = 0; i < node->n_in; i++)
            if (!not_negative(qm, node->inputs[i], depth - 1))
                return false;
        return true;
    }
    const sb_target_op *row = sb_target_op_find(qm->target, node);
    return row && row->place == SB_PLACE_SHARE &&
           not_negative(qm, node->inputs[0], depth - 1);
}

static bool same_settings(const sb_quant_model *qm, uint32_t a, uint32_t b)
{
    const sb_quant_spec *s =
        &qm->place.quantizers[qm->place.points[a].first].spec;
    const sb_quant_spec *r =
        &qm->place.quantizers[qm->place.points[b].first].spec;

    return s->bits == r->bits && s->symmetric == r->symmetric;
}

/* May the value, whose quantizer is at `point`, take the scale of what it is
 * joined into?  A Clip wants a range within its limits, and a Relu one that
 * starts at 0, to be redundant. */
static bool may_join(const sb_quant_model *qm, sb_value_id value,
                     uint32_t point, uint32_t into, bool from_zero)
{
    const sb_value *v = sb_graph_value(qm->graph, value);
    const sb_node *node = sb_graph_producer(qm->graph, value);
    double lo, hi;

    if (!node || v->n_uses != 1 || v->is_output ||
        sb_imported_calibrated(&qm->known) ||
        qm->place.points[point].same_as != point ||
        qm->place.points[point].natural || !same_settings(qm, point, into))
        return false;
    const sb_target_op *row = sb_target_op_find(qm->target, node);
    if (!row || row->place != SB_PLACE_FOLD)
        return true;
    const sb_result_range *range = sb_node_range(qm->graph, node, &lo, &hi);
    /* The limits of a Clip are inputs. */
    return range && range->lo_in == 0 && lo == 0 && from_zero;
}

void sb_share_concat_scale(sb_quant_model *qm, const sb_node *node,
                           sb_value_id result, const uint32_t *point_of)
{
    uint32_t into = point_of[result];
    bool from_zero = not_negative(qm, result, SB_WALK_MOST);

    if (into == SB_NONE)
        return;
    for (uint32_t i = 0; i < node->n_in; i++) {
        sb_value_id v = node->inputs[i];
        uint32_t point = v == SB_NONE ? SB_NONE : point_of[v];

        if (point != SB_NONE && may_join(qm, v, point, into, from_zero))
            qm->place.points[point].same_as = qm->place.points[into].same_as;
    }
}
