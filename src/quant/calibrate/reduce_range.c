/* Weights for processors that add pairs of products in 16 bits.
 *
 * AVX2 multiplies uint8 by int8 and adds neighbors with saturation: two
 * products of up to 255 * 127 exceed 32767 and are clipped there, which shows
 * in the results.  Two weights whose sum is at most 128 never exceed it.  So
 * with "auto" the scale of an output channel grows just so far that no pair of
 * its integers does (1.0 to 2 times, where both neighbors are the largest);
 * "all" gives every weight one bit less, whatever its numbers are.  Processors
 * with VNNI, and ARM's, add in 32 bits and need none of this. */
#include "quant/calibrate/calibrate.h"
#include "quant/model/weight.h"
#include "runtime/sim/sim.h"

enum { REDUCED = SB_PAIR_SUM_MOST / 2 };

/* Weights that are multiplied as integers and summed up, with one scale or
 * per-channel scales of the outputs.  Weight-only layers compute in float. */
static bool reduce_range_applies(const sb_quant_model *qm,
                                 const sb_quantizer *q)
{
    if (!qm->target->pairs_saturate ||
        sb_quant_config_mode(qm->config) == SB_QUANT_WEIGHTS_ONLY ||
        q->spec.kind != SB_QUANT_WEIGHT || q->spec.bits != 8 ||
        !q->spec.symmetric || q->block != 0 || q->n_uses == 0)
        return false;
    const sb_node *node = sb_graph_node(qm->graph, q->uses[0].node);
    const sb_op_def *op = sb_op_of(node);
    const sb_value *weight = sb_graph_value(qm->graph, q->value);

    return op && op->quant == SB_ROLE_WEIGHTED &&
           (q->axis < 0 ||
            q->axis == sb_op_weight_axis(node, weight->type.shape.rank));
}

void sb_reduce_all(const sb_quant_model *qm, const sb_quantizer *q)
{
    sb_quantizer_state *state = sb_quantizer_state_of(qm, q);

    if (qm->reduce_range != SB_REDUCE_RANGE_ALL || !reduce_range_applies(qm, q))
        return;
    state->qmin = -REDUCED;
    state->qmax = REDUCED;
}

/* Enlarges the scales of channels that have too large a pair; *again if one
 * grew.  Before rounding a pair is larger by less than 1. */
static sb_status reduce_range_enlarge(const sb_quant_model *qm,
                                      const sb_quantizer *q, int *sums,
                                      bool *again)
{
    sb_qparams *p = &sb_quantizer_state_of(qm, q)->qparams;
    sb_tensor w;

    *again = false;
    SB_TRY(sb_quantizer_integers(qm, q, &w));
    bool over = sb_integers_pair_sums(sb_graph_node(qm->graph, q->uses[0].node),
                                      &w, p->n > 1 ? q->axis : -1, sums);
    for (int64_t i = 0; over && i < p->n; i++) {
        float was = p->scale[i];
        if (sums[i] > SB_PAIR_SUM_MOST)
            p->scale[i] *= (float)(sums[i] + 1) / (SB_PAIR_SUM_MOST - 1);
        *again = *again || p->scale[i] > was;
    }
    sb_tensor_drop(&w);
    return SB_OK;
}

sb_status sb_reduce_auto(const sb_quant_model *qm, const sb_quantizer *q)
{
    int64_t n = sb_quantizer_qparams(qm, q)->n;
    sb_status status = SB_OK;
    bool again = true;

    if (qm->reduce_range != SB_REDUCE_RANGE_AUTO ||
        !reduce_range_applies(qm, q))
        return SB_OK;
    int *sums = sb_alloc(qm->ctx, (size_t)n, sizeof *sums);
    if (!sums)
        return SB_NO_MEMORY;
    /* Weights that were clipped may come up again. */
    while (status == SB_OK && again)
        status = reduce_range_enlarge(qm, q, sums, &again);
    sb_free(qm->ctx, sums);
    return status;
}

bool sb_reduce_known(const sb_quant_model *qm, const sb_quantizer *q)
{
    return qm->reduce_range == SB_REDUCE_RANGE_ALL &&
           reduce_range_applies(qm, q) &&
           sb_quantizer_state_of(qm, q)->qmax > REDUCED;
}
