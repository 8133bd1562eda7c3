/* dynamic.h - activations quantized by the range of each run:
 *
 *     x_q, s_x, z_x = DynamicQuantizeLinear(x)
 *     y = float(MatMulInteger(x_q, w_q, z_x, z_w)) * (s_x * s_w) [+ bias]
 *
 * and ConvInteger likewise. */
#ifndef SB_QUANT_DYNAMIC_H
#define SB_QUANT_DYNAMIC_H

#include "quant/quant_model.h"

/* The integer operator for a node with a constant weight: "MatMulInteger",
 * "ConvInteger", or NULL if there is none. */
const char *sb_dynamic_kernel(const sb_graph *g, const sb_node *node);

/* Does it belong to a layer that sb_export_dynamic() writes? */
bool sb_quantizer_is_dynamic(const sb_quant_model *qm, const sb_quantizer *q);

/* Simulation: *y is `x`, read by `like`, as the integers of this run hold
 * it. */
SB_MUST_USE sb_status sb_dynamic_fake(sb_graph *g, sb_node_id like,
                                      sb_value_id x, sb_value_id *y);
/* Puts integer operators in place of the layers. */
SB_MUST_USE sb_status sb_export_dynamic(const sb_quant_model *qm, sb_graph *g);

#endif
