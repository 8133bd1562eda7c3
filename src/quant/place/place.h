/* place.h - which edges get a quantizer. */
#ifndef SB_QUANT_PLACE_PLACE_H
#define SB_QUANT_PLACE_PLACE_H

#include "quant/model/quant_model.h"

/* Decides for the whole graph: by the rows of the target, by what a quantized
 * file has, or by the configuration alone.  SB_BAD_MODEL if there is nothing
 * to quantize. */
SB_MUST_USE sb_status sb_quant_place(sb_quant_model *qm);

/* ---- the four ways ------------------------------------------------------ */

/* As the configuration and the rows of operators say; no runtime in
 * particular. */
SB_MUST_USE sb_status sb_quant_place_config(sb_quant_model *qm);
/* Where a quantized file has them. */
SB_MUST_USE sb_status sb_quant_place_imported(sb_quant_model *qm);
/* Where the target fuses them. */
SB_MUST_USE sb_status sb_quant_place_target(sb_quant_model *qm);
/* Weights, and activations that are quantized at each run: for configurations
 * that calibrate nothing. */
SB_MUST_USE sb_status sb_quant_place_weights(sb_quant_model *qm);

/* ---- what they share ---------------------------------------------------- */

/* Walks from a value through operators that only move elements stop after so
 * many: they branch at every consumer, and between two layers exporters put far
 * fewer of them. */
enum { SB_WALK_MOST = 16 };

/* A quantizer to be: on the edges `uses`, all of which read `value`.  `axis`
 * and `block` as in sb_quantizer. */
typedef struct sb_quantizer_spec {
    const char *name; /* copied */
    const sb_quant_spec *settings;
    sb_value_id value;
    const sb_use *uses; /* copied */
    size_t n_uses;
    int axis;
    int64_t block;
    bool alone; /* a point of its own, whatever others there are */
} sb_quantizer_spec;

/* Named `base` + `suffix`; *out is valid until the next call. */
SB_MUST_USE sb_status sb_place_add_named(sb_quant_model *qm,
                                         sb_quantizer_spec *spec,
                                         const char *base, const char *suffix,
                                         sb_quantizer **out);
/* Axis and block of the quantizer on an input of a node, as its settings and
 * the row of the operator say. */
SB_MUST_USE sb_status sb_place_axis(const sb_quant_model *qm,
                                    const sb_quant_spec *settings, sb_use use,
                                    int *axis, int64_t *block);
/* The start of the names of a node's quantizers: its module, if no other node
 * that may be quantized shares it, else the node's own name. */
const char *sb_quant_base_name(const sb_graph *g, const sb_node *node);
/* Do all neighbors of a node of one input have an integer kernel in the
 * target, so that integers could pass through it? */
bool sb_quant_between_kernels(const sb_quant_model *qm, const sb_graph *g,
                              const sb_node *node);
/* A convolution with one channel of its input for each group; `weight` is the
 * number of that input. */
bool sb_is_depthwise(const sb_graph *g, const sb_node *node, uint32_t weight);
/* A quantizer for the table of a Gather that runs in float, if the target can
 * take rows of integers. */
SB_MUST_USE sb_status sb_place_table(sb_quant_model *qm, sb_node_id id);
/* Inputs of `node` that have no other consumer take the scale of its result;
 * `point_of` by value. */
void sb_share_concat_scale(sb_quant_model *qm, const sb_node *node,
                           sb_value_id result, const uint32_t *point_of);

/* The integer operator for a node with a constant weight and an activation
 * that is quantized at each run: "MatMulInteger", "ConvInteger", or NULL if
 * there is none. */
const char *sb_dynamic_kernel(const sb_graph *g, const sb_node *node);
/* The quantizer on an input of a node, NULL if there is none or it is off. */
const sb_quantizer *sb_quantizer_on(const sb_quant_model *qm, sb_node_id node,
                                    uint32_t input);
/* Does it belong to a layer with such an activation? */
bool sb_quantizer_is_dynamic(const sb_quant_model *qm, const sb_quantizer *q);

#endif
