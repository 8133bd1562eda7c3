/* export.h - a calibrated model as an ONNX graph with Q/DQ nodes. */
#ifndef SB_QUANT_EXPORT_H
#define SB_QUANT_EXPORT_H

#include "quant/quant_model.h"

/* How the integers of a quantizer are written. */
typedef struct sb_export_type {
    sb_dtype dtype;
    int32_t offset; /* added to zero points: symmetric in an unsigned type */
    bool clip;      /* the type holds more than the width: clip before Q */
} sb_export_type;

sb_export_type sb_export_type_of(const sb_quant_model *qm,
                                 const sb_quantizer *q);

/* The integers of a constant, in the type of sb_export_type_of();
 * sb_tensor_drop() it. */
SB_MUST_USE sb_status sb_export_integers(const sb_quant_model *qm,
                                         const sb_quantizer *q, sb_tensor *out);

/* Scale and zero point of a quantizer as constants of `g`. */
SB_MUST_USE sb_status sb_export_params(sb_graph *g, const sb_quant_model *qm,
                                       const sb_quantizer *q,
                                       sb_value_id *scale, sb_value_id *zero);

/* ---- names (export_names.c) --------------------------------------------- */

/* A value, a constant, a constant of the type and shape of `like`, named
 * `base` + `suffix`. */
SB_MUST_USE sb_status sb_export_value(sb_graph *g, const char *base,
                                      const char *suffix, sb_value_id *out);
SB_MUST_USE sb_status sb_export_constant(sb_graph *g, const char *base,
                                         const char *suffix, const sb_tensor *t,
                                         sb_value_id *out);
SB_MUST_USE sb_status sb_export_array(sb_graph *g, const char *base,
                                      const char *suffix, const sb_tensor *like,
                                      const void *elements, sb_value_id *out);
/* As sb_quant_add_node(), with a name of that kind. */
SB_MUST_USE sb_status sb_export_node(sb_graph *g, sb_node_id like,
                                     const sb_node_spec *spec, sb_value_id x,
                                     const char *base, const char *suffix,
                                     sb_value_id *y);

/* export_bias.c: int32 biases behind a DequantizeLinear, with the scale of the
 * products, where the target wants them. */
SB_MUST_USE sb_status sb_export_biases(const sb_quant_model *qm, sb_graph *g);
/* Enlarges scales of weights whose bias would not fit into int32; called when
 * scales are computed, so that simulation has them too. */
void sb_quant_fit_biases(sb_quant_model *qm);

/* export_table.c: rows of embeddings are taken before they are dequantized. */
SB_MUST_USE sb_status sb_export_tables(const sb_quant_model *qm, sb_graph *g,
                                       int64_t *min_opset);
/* export_nbits.c: MatMulNBits for weights that were quantized alone.
 * SB_BAD_ARG or SB_BAD_MODEL if there are none. */
SB_MUST_USE sb_status sb_export_nbits(const sb_quant_model *qm, sb_graph *g);

typedef struct sb_export_choice {
    bool float_weights; /* float constant + Q + DQ */
    bool extra_info;    /* attribute `bits` on Q and DQ */
    sb_export_format format;
} sb_export_choice;

/* The graph to be written; sb_graph_free() it.  SB_BAD_ARG if scales are not
 * known yet.  *min_opset is the lowest that holds it. */
SB_MUST_USE sb_status sb_export_graph(const sb_quant_model *qm,
                                      const sb_export_choice *choice,
                                      sb_graph **out, int64_t *min_opset);

#endif
