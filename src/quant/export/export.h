/* export.h - a calibrated model as an ONNX graph with Q/DQ nodes. */
#ifndef SB_QUANT_EXPORT_EXPORT_H
#define SB_QUANT_EXPORT_EXPORT_H

#include "quant/model/quant_model.h"

/* SB_BAD_ARG unless the scale is finite and above 0: anything else makes a file
 * that loads and computes nonsense. */
SB_MUST_USE sb_status sb_export_check_scale(sb_ctx *ctx, const char *value,
                                            int64_t i, float scale);
/* Scale and zero point of a quantizer as constants of `g`. */
SB_MUST_USE sb_status sb_export_params(sb_graph *g, const sb_quant_model *qm,
                                       const sb_quantizer *q,
                                       sb_value_id *scale, sb_value_id *zero);

/* ---- names (export_names.c) --------------------------------------------- */

/* A constant, a constant of the type and shape of `like`, named `base` +
 * `suffix`. */
SB_MUST_USE sb_status sb_export_constant(sb_graph *g, const char *base,
                                         const char *suffix, const sb_tensor *t,
                                         sb_value_id *out);
SB_MUST_USE sb_status sb_export_array(sb_graph *g, const char *base,
                                      const char *suffix, const sb_tensor *like,
                                      const void *elements, sb_value_id *out);
/* As sb_quant_add_node(), with a name of that kind. */
SB_MUST_USE sb_status sb_export_node(sb_graph *g, sb_node_id beside,
                                     const sb_node_spec *spec, sb_value_id x,
                                     const char *base, const char *suffix,
                                     sb_value_id *y);

/* export_bias.c: int32 biases behind a DequantizeLinear, with the scale of the
 * products, where the target wants them. */
SB_MUST_USE sb_status sb_export_biases(const sb_quant_model *qm, sb_graph *g);
/* Where activations are not quantized: takes biases of zeros away, which
 * layers may have got to be corrected. */
SB_MUST_USE sb_status sb_export_drop_biases(const sb_quant_model *qm,
                                            sb_graph *g);
/* export_float.c: what keeps a runtime from making integers of layers that are
 * to stay in float. */
SB_MUST_USE sb_status sb_export_floats(const sb_quant_model *qm, sb_graph *g);
/* export_dynamic.c: integer operators in place of layers whose activations are
 * quantized by the range of each run:
 *
 *     x_q, s_x, z_x = DynamicQuantizeLinear(x)
 *     y = float(MatMulInteger(x_q, w_q, z_x, z_w)) * (s_x * s_w) [+ bias]
 *
 * and ConvInteger likewise. */
SB_MUST_USE sb_status sb_export_dynamic(const sb_quant_model *qm, sb_graph *g);
/* export_recurrent.c: the LSTM that reads the weights W and R of these two. */
SB_MUST_USE sb_status sb_export_recurrent(const sb_quant_model *qm, sb_graph *g,
                                          const sb_quantizer *w,
                                          const sb_quantizer *r);
/* export_table.c: rows of embeddings are taken before they are dequantized. */
SB_MUST_USE sb_status sb_export_tables(const sb_quant_model *qm, sb_graph *g,
                                       int64_t *min_opset);
/* export_nbits.c: MatMulNBits for weights that were quantized alone.
 * SB_BAD_ARG or SB_BAD_MODEL if there are none. */
SB_MUST_USE sb_status sb_export_nbits(const sb_quant_model *qm, sb_graph *g,
                                      int accuracy_level);

/* export_deploy.c: the model with the rewrites of its target, and the scales
 * that it has; *out is NULL if nothing is to be rewritten.  It borrows from
 * `qm`. */
SB_MUST_USE sb_status sb_export_deploy(const sb_quant_model *qm,
                                       sb_quant_model **out);
void sb_export_deployed_free(sb_quant_model *deployed); /* NULL is allowed */

typedef struct sb_export_choice {
    bool float_weights; /* float constant + Q + DQ */
    bool extra_info;    /* attribute `bits` on Q and DQ */
    sb_export_format format;
    int64_t opset;      /* of the file; 0: any that holds the graph */
    int accuracy_level; /* of MatMulNBits; 0: the default */
} sb_export_choice;

/* SB_BAD_ARG unless the choice fits the target and the mode. */
SB_MUST_USE sb_status sb_export_check(const sb_quant_model *qm,
                                      const sb_export_choice *choice);
/* The graph to be written; sb_graph_free() it.  SB_BAD_ARG if scales are not
 * known yet.  *min_opset is the lowest that holds it. */
SB_MUST_USE sb_status sb_export_graph(const sb_quant_model *qm,
                                      const sb_export_choice *choice,
                                      sb_graph **out, int64_t *min_opset);
/* The graph as the target computes it, to be run: with its integer kernels
 * (runtime/sim/sim.h), of any batch, without the rewrites.  SB_BAD_ARG if
 * scales are not known yet, or no file holds them. */
SB_MUST_USE sb_status sb_export_integers(const sb_quant_model *qm,
                                         sb_graph **out);

#endif
