/* weight.h - the constant of a quantizer: as floats in the quantizer's domain,
 * and as the integers that stand for it. */
#ifndef SB_QUANT_MODEL_WEIGHT_H
#define SB_QUANT_MODEL_WEIGHT_H

#include "quant/model/quant_model.h"

/* The elements of a weight in the quantizer's domain. */
void sb_quantizer_map_weight(const sb_quantizer *q, const sb_tensor *w,
                             float *to);
/* The weight of a quantizer in its domain, as float32, only to be read: it may
 * be that of the graph; sb_tensor_drop() it. */
SB_MUST_USE sb_status sb_quantizer_weight(const sb_quant_model *qm,
                                          const sb_quantizer *q,
                                          sb_tensor *out);

/* Which of the quantizer's scales element `i` of the weight has. */
int64_t sb_quantizer_scale_at(const sb_quantizer *q, const sb_tensor *w,
                              int64_t i);
/* The weight as the quantized network has it, in the quantizer's domain;
 * sb_tensor_drop() it. */
SB_MUST_USE sb_status sb_quantizer_rounded(const sb_quant_model *qm,
                                           const sb_quantizer *q,
                                           sb_tensor *out);

/* How the target holds the integers of a quantizer. */
typedef struct sb_integer_type {
    sb_dtype dtype;
    int32_t offset; /* added to zero points: symmetric in an unsigned type */
    bool clip;      /* the type holds more than the bit width: clip before Q */
} sb_integer_type;

sb_integer_type sb_quantizer_type(const sb_quant_model *qm,
                                  const sb_quantizer *q);
/* The integers of a constant, in the type of sb_quantizer_type();
 * sb_tensor_drop() it. */
SB_MUST_USE sb_status sb_quantizer_integers(const sb_quant_model *qm,
                                            const sb_quantizer *q,
                                            sb_tensor *out);

#endif
