/* simulate.h - quantization in float: nodes that round as the integers of a
 * runtime would. */
#ifndef SB_QUANT_MODEL_SIMULATE_H
#define SB_QUANT_MODEL_SIMULATE_H

#include "quant/model/quant_model.h"

/* A FakeQuant node for a point whose scales are known. */
SB_MUST_USE sb_status sb_quant_put_fake(const sb_quant_model *qm, sb_graph *g,
                                        uint32_t point, sb_node_id beside,
                                        sb_value_id x, sb_value_id *y);
/* DynamicQuantizeLinear: integers, scale and zero point of `x`, a value called
 * `name`, by the range that it has in this run. */
SB_MUST_USE sb_status sb_quant_put_dynamic(sb_graph *g, sb_node_id beside,
                                           sb_value_id x, const char *name,
                                           sb_value_id out[3]);
/* What simulation has for a point whose quantizer is on: such a node, or those
 * of a range that is known only in a run; SB_BAD_ARG if there is no scale. */
SB_MUST_USE sb_status sb_quant_put_simulated(const sb_quant_model *qm,
                                             sb_graph *g, uint32_t point,
                                             sb_node_id beside, sb_value_id x,
                                             sb_value_id *y);
/* The graph with nodes for the quantizers that are on; SB_BAD_ARG if their
 * scales are not known yet. */
SB_MUST_USE sb_status sb_quant_simulated(const sb_quant_model *qm,
                                         sb_graph **out);

#endif
