/* quant_view.h - a quantized model as a graph for people.
 *
 * Not a graph that runs: it has nodes of the domain `sparsebit` that stand for
 * what is not in the network.
 *
 *     Quantizer  on the edges it serves, with the attributes bits, scheme,
 *                observer, scale and zero_point if there is one and it is
 *                known; `fused` 1 on those that are never on
 *     Module     a module of SKIP_TRACE_MODULES, as one node */
#ifndef SB_QUANT_MODEL_QUANT_VIEW_H
#define SB_QUANT_MODEL_QUANT_VIEW_H

#include "quant/model/quant_model.h"

#define SB_VIEW_QUANTIZER "Quantizer"
#define SB_VIEW_MODULE    "Module"

/* sb_graph_free() it. */
SB_MUST_USE sb_status sb_quant_view(const sb_quant_model *qm, sb_graph **out);

#endif
