/* epilogue.h - what follows the main work of a fused operator: an activation,
 * a residual sum, in either order. */
#ifndef SB_OPS_CONV_EPILOGUE_H
#define SB_OPS_CONV_EPILOGUE_H

#include "dnn/dnn.h"
#include "ops/infer_util.h"

/* The attributes of fused operators; `activation` names an ONNX operator, its
 * parameters come in alpha and beta (slope; lower and upper bound ...). */
typedef struct sb_epilogue_op_attrs {
    const char *activation; /* NULL: none */
    sb_floats params;
    int64_t sum_last; /* add the residual after the activation */
} sb_epilogue_op_attrs;

#define SB_POST_ATTRS(type, field)                                            \
    {"activation", SB_ATTR_STRING, offsetof(type, field.activation), .i = 0}, \
        {"activation_params", SB_ATTR_FLOATS, offsetof(type, field.params),   \
         .i = 0},                                                             \
    {                                                                         \
        "sum_last", SB_ATTR_INT, offsetof(type, field.sum_last), .i = 0       \
    }

typedef struct sb_epilogue {
    size_t n;
    sb_dnn_post post[3]; /* HardSigmoid takes two */
} sb_epilogue;

/* The list of steps; fails if the activation is not one of those known. */
SB_MUST_USE sb_status sb_epilogue_make(const sb_kernel *k,
                                       const sb_epilogue_op_attrs *a,
                                       bool has_sum, sb_epilogue *out);
/* "Conv+Add+Relu": the steps in their order behind `main`. */
void sb_epilogue_label(const char *main, const sb_epilogue_op_attrs *a,
                       bool has_sum, char *out, size_t size);
/* Applies one of them to a row; `z` is what SUM adds. */
void sb_epilogue_op_row(const sb_dnn_post *post, float *y, const float *z,
                        size_t n);
/* Applies them to `n` elements in place; `z` is what SUM adds, in the order of
 * y, NULL if y holds nothing to add. */
void sb_epilogue_apply(sb_ctx *ctx, const sb_epilogue *posts, float *y,
                       const float *z, size_t n);

#endif
