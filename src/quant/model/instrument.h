/* instrument.h - copies of the float graph with nodes on the edges of
 * quantizers. */
#ifndef SB_QUANT_MODEL_INSTRUMENT_H
#define SB_QUANT_MODEL_INSTRUMENT_H

#include "graph/part.h"
#include "quant/model/quant_model.h"

/* Puts something on the edges of a point: nodes that turn `x`, read by the node
 * `beside`, into *y.  *y = x leaves the edges alone. */
typedef sb_status (*sb_quant_point_fn)(void *user, sb_graph *g, uint32_t point,
                                       sb_node_id beside, sb_value_id x,
                                       sb_value_id *y);
/* A copy of the float graph with `fn` applied to every point; only edges of
 * quantizers that are not off are redirected. */
SB_MUST_USE sb_status sb_quant_derive(const sb_quant_model *qm,
                                      sb_quant_point_fn fn, void *user,
                                      sb_graph **out);
/* The same of a part (which it fills): `fn` is applied to points whose edges
 * are in it, with IDs of the part. */
SB_MUST_USE sb_status sb_quant_derive_part(const sb_quant_model *qm,
                                           const sb_graph_part *part,
                                           sb_quant_point_fn fn, void *user,
                                           sb_graph **out);
/* Adds a node with the one result `y`, of the type of `x`, in the module and
 * place of `beside`. */
SB_MUST_USE sb_status sb_quant_put_node(sb_graph *g, sb_node_id beside,
                                        const sb_node_spec *spec, sb_value_id x,
                                        sb_value_id y);
/* The same with a new value, named like `x`. */
SB_MUST_USE sb_status sb_quant_add_node(sb_graph *g, sb_node_id beside,
                                        const sb_node_spec *spec, sb_value_id x,
                                        sb_value_id *y);
/* A node that shows `x` to the tap of number `id`; `name` may be NULL. */
SB_MUST_USE sb_status sb_quant_add_observe(sb_graph *g, sb_node_id beside,
                                           uint32_t id, const char *name,
                                           sb_value_id x, sb_value_id *y);
/* A value named `base` + `suffix`. */
SB_MUST_USE sb_status sb_quant_add_value(sb_graph *g, const char *base,
                                         const char *suffix, sb_value_id *out);
/* A node beside which to put those of a quantizer. */
sb_node_id sb_quantizer_beside(const sb_graph *g, const sb_quantizer *q);
/* The output of the graph that was `x` is now `y`, under the same name; the
 * other one gives `x` the name of `spare`, which has no use. */
SB_MUST_USE sb_status sb_quant_move_output(sb_graph *g, sb_value_id x,
                                           sb_value_id y);
SB_MUST_USE sb_status sb_quant_move_output_as(sb_graph *g, sb_value_id x,
                                              sb_value_id y, sb_value_id spare);

#endif
