/* overlay.h - constants that are others once the network is quantized.
 *
 * Corrected biases, and weights whose rounding was decided element by element,
 * lie over the constants of the float graph, which keeps its own.  A weight
 * here holds numbers that its scales represent exactly, so that rounding it
 * again changes nothing, or what training left of it; either in the domain of
 * its quantizer.  Simulation and every exporter take it as they take any
 * weight. */
#ifndef SB_QUANT_MODEL_OVERLAY_H
#define SB_QUANT_MODEL_OVERLAY_H

#include "graph/part.h"
#include "quant/model/quant_model.h"

/* Lays `t`, of the type and shape of the constant, over it; takes one more
 * reference to its buffer. */
void sb_overlay_set(sb_quant_model *qm, sb_value_id value, const sb_tensor *t);
/* The constant as it is again. */
void sb_overlay_drop(sb_quant_model *qm, sb_value_id value);
/* What a constant is in the quantized network. */
const sb_tensor *sb_overlay_constant(const sb_quant_model *qm,
                                     sb_value_id value);
/* Gives a copy of the float graph the constants of the quantized network. */
SB_MUST_USE sb_status sb_overlay_apply(const sb_quant_model *qm, sb_graph *g);
SB_MUST_USE sb_status sb_overlay_apply_part(const sb_quant_model *qm,
                                            const sb_graph_part *part,
                                            sb_graph *g);

#endif
