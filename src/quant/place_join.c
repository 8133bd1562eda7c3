/* Concat without arithmetic: what is joined is stored at the scale of the
 * result from the start.
 *
 * An integer Concat brings every input to the scale of its result, element by
 * element through a table, and only copies where the scales are equal.  An
 * input that nobody else reads gains nothing from a scale of its own, since the
 * finer numbers are rounded again at once; so it takes the one of the result.
 * That is faster, and rounds once instead of twice. */
#include "passes/rewrite.h"
#include "quant/quant_model.h"

/* Is the value never below 0, as far as a look at its producers tells? */
static bool not_negative(const sb_quant_model *qm, sb_value_id v, int depth)
{
    const sb_graph *g = qm->graph;
    const sb_node *node = sb_graph_producer(g, v);
    double low;

    if (!node || depth == 0)
        return false;
    if (sb_node_is(node, "Relu") || sb_node_is(node, "Sigmoid"))
        return true;
    if (sb_node_is(node, "Clip"))
        return sb_const_scalar(g, sb_node_in(node, 1), &low) && low >= 0;
    if (sb_node_is(node, "Concat")) {
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
    const sb_quant_spec *s = &qm->quantizers[qm->sites[a].first].spec;
    const sb_quant_spec *r = &qm->quantizers[qm->sites[b].first].spec;

    return s->bits == r->bits && s->symmetric == r->symmetric;
}

/* May the value, whose quantizer is at `site`, take the scale of what it is
 * joined into?  A Clip wants a range within its limits, and a Relu one that
 * starts at 0, to be redundant. */
static bool may_join(const sb_quant_model *qm, sb_value_id value, uint32_t site,
                     uint32_t into, bool from_zero)
{
    const sb_value *v = sb_graph_value(qm->graph, value);
    const sb_node *node = sb_graph_producer(qm->graph, value);

    if (!node || v->n_uses != 1 || v->is_output ||
        sb_known_calibrated(&qm->known) || qm->sites[site].same_as != site ||
        qm->sites[site].natural || !same_settings(qm, site, into))
        return false;
    const sb_target_op *row = sb_target_op_find(qm->target, node);
    if (row && row->place == SB_PLACE_FOLD)
        return sb_node_is(node, "Relu") && from_zero;
    return true;
}

void sb_quant_join_scales(sb_quant_model *qm, const sb_node *node,
                          sb_value_id result, const uint32_t *site_of)
{
    uint32_t into = site_of[result];
    bool from_zero = not_negative(qm, result, 16);

    if (into == SB_NONE)
        return;
    for (uint32_t i = 0; i < node->n_in; i++) {
        sb_value_id v = node->inputs[i];
        uint32_t site = v == SB_NONE ? SB_NONE : site_of[v];

        if (site != SB_NONE && may_join(qm, v, site, into, from_zero))
            qm->sites[site].same_as = qm->sites[into].same_as;
    }
}
