/* Weights of 7 bits for processors that add pairs of products in 16 bits.
 *
 * AVX2 multiplies uint8 by int8 and adds neighbours with saturation: two
 * products of up to 255 * 127 exceed 32767 and are cut off there, which shows
 * in results.  Within [-64, 64] that cannot happen: 255 * (64 + 64) = 32640.
 * Processors with VNNI, and ARM's, add in 32 bits and need no such thing. */
#include "quant/export.h"

enum { REDUCED = 64 };

static bool applies(const sb_quant_model *qm, const sb_quantizer *q)
{
    return qm->reduce_range != SB_REDUCE_OFF && qm->target->pairs_saturate &&
           q->spec.kind == SB_QUANT_WEIGHT && q->spec.bits == 8 &&
           q->spec.symmetric && q->block == 0 && q->n_uses > 0 &&
           q->qmax != REDUCED;
}

static void reduce(sb_quantizer *q)
{
    q->qmin = -REDUCED;
    q->qmax = REDUCED;
}

void sb_reduce_all(const sb_quant_model *qm, sb_quantizer *q)
{
    if (qm->reduce_range == SB_REDUCE_ALL && applies(qm, q))
        reduce(q);
}

sb_status sb_reduce_auto(const sb_quant_model *qm, sb_quantizer *q, bool *again)
{
    sb_tensor w;

    *again = false;
    if (qm->reduce_range != SB_REDUCE_AUTO || !applies(qm, q))
        return SB_OK;
    SB_TRY(sb_export_integers(qm, q, &w));
    *again =
        sb_integers_saturate(sb_graph_node(qm->graph, q->uses[0].node), &w);
    sb_tensor_drop(&w);
    if (*again)
        reduce(q);
    return SB_OK;
}

sb_status sb_reduce_known(const sb_quant_model *qm, sb_quantizer *q,
                          bool *again)
{
    if (qm->reduce_range != SB_REDUCE_ALL)
        return sb_reduce_auto(qm, q, again);
    *again = applies(qm, q) && q->qmax > REDUCED;
    return SB_OK;
}
