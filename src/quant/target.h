/* target.h - what each runtime wants of a quantized file, as rows of data.
 *
 * A target row says which element types and ranges are allowed, and for each
 * operator where Q/DQ pairs belong (`place`), which input is the weight and
 * along which axis it may have scales.  The exporter places Q/DQ by these rows
 * and knows no operator names; the linter asks `rules` (qdq_groups.h) what the
 * runtime will make of the nodes that a file has.
 *
 * An operator that a target does not list stays in float there: Q/DQ around it
 * would cost time and accuracy and gain nothing.
 *
 * To add a target: src/quant/target_<name>.c with its row, a line in
 * targets.def, a test. */
#ifndef SB_QUANT_TARGET_H
#define SB_QUANT_TARGET_H

#include "passes/qdq_groups.h"

/* Where Q/DQ pairs go around an operator. */
typedef enum sb_place {
    SB_PLACE_FLOAT, /* nowhere; the row says so only to explain why */
    /* On every data input and on the result: one kernel replaces the group
     * (DQ, DQ -> Conv -> Q). */
    SB_PLACE_BOTH,
    /* On every data input; the result is quantized by its consumers, where
     * they want it. */
    SB_PLACE_INPUTS,
    /* On input 0 and the result, both with the same scale and zero point: the
     * operator only moves elements, and then runs on integers. */
    SB_PLACE_SHARE,
    /* The same, with one scale and zero point for all data inputs and the
     * result (Concat). */
    SB_PLACE_SHARE_ALL,
    /* Nowhere, but the runtime carries quantization through: what stands
     * before and after it counts as one tensor. */
    SB_PLACE_THROUGH,
    /* On no side, and the range of its result is given to whatever produces
     * its input: a following Q makes it redundant (Relu, Clip). */
    SB_PLACE_FOLD,
} sb_place;

/* The axis along which a weight may have one scale an output channel. */
typedef enum sb_weight_axis {
    SB_AXIS_TENSOR, /* one scale for the whole tensor */
    SB_AXIS_0,      /* Conv */
    SB_AXIS_1,      /* ConvTranspose; per tensor if group > 1 */
    SB_AXIS_GEMM,   /* transB ? 0 : 1 */
    SB_AXIS_LAST,   /* MatMul */
} sb_weight_axis;

/* A range that a result has by nature, whatever calibration saw. */
typedef enum sb_natural_range {
    SB_RANGE_NONE,
    SB_RANGE_UNIT,   /* [0, 1]: scale 1/2^bits, zero point qmin */
    SB_RANGE_SIGNED, /* [-1, 1]: scale 2/2^bits, zero point in the middle */
} sb_natural_range;

typedef struct sb_target_op {
    const char *op; /* of the main domain */
    sb_place place;
    /* Bit i: input i is data that is quantized (weights included, biases
     * not); the others are shapes, indices, conditions.  0 means all. */
    uint32_t data;
    /* Inputs that may be a constant weight, and that is added to the int32
     * sums; 0: none, since input 0 is always the activation. */
    uint8_t weight, bias;
    sb_weight_axis axis;
    sb_natural_range range;
    /* A Q/DQ pair on the result may be left out, and the operator then gives
     * float from integers (MatMul without Q in ONNX Runtime). */
    bool result_optional;
    /* Where shapes are fixed, the runtime takes the Add of a constant behind
     * it for its bias, and then wants it as integers. */
    bool bias_behind;
    /* Inputs that nobody else reads take the scale of the result
     * (place_join.c). */
    bool join;
    /* `A: none`: the weight (of a table input 0) may be integers behind a DQ
     * while the rest stays float, and that is worth it. */
    bool weight_only;
    bool dynamic;    /* `A: dynamic`: has an integer kernel for that */
    const char *why; /* for FLOAT: the reason, for people */
} sb_target_op;

typedef enum sb_scheme {
    SB_SCHEME_SYMMETRIC = 1,
    SB_SCHEME_AFFINE = 2,
} sb_scheme;

typedef enum sb_bias_policy {
    SB_BIAS_FLOAT, /* stays a float constant */
    SB_BIAS_INT32, /* int32 constant + DQ, scale s_x * s_w, zero point 0 */
} sb_bias_policy;

/* Which inputs of an Add that joins two branches get a Q/DQ pair. */
typedef enum sb_residual_policy {
    SB_RESIDUAL_BOTH,
    SB_RESIDUAL_SKIP, /* only the one that does not come from the convolution
                         into which the Add is fused */
} sb_residual_policy;

typedef enum sb_weight_form {
    SB_WEIGHT_INT, /* integer constant + DQ */
    SB_WEIGHT_QDQ, /* float constant + Q + DQ */
} sb_weight_form;

typedef struct sb_target_def {
    const char *name;  /* "onnxruntime-x86" */
    const char *alias; /* (optional) another name: "onnxruntime" */
    const char *summary;
    /* Activations: the type to write by default, every type that is allowed
     * (bit 1 << sb_dtype), and the schemes (bits of sb_scheme). */
    sb_dtype act;
    uint32_t act_types;
    uint32_t act_schemes;
    bool act_per_channel;
    /* Weights: the same; `weight_narrow` leaves out the lowest number, so that
     * the range is [-127, 127]. */
    sb_dtype weight;
    uint32_t weight_types;
    uint32_t weight_schemes;
    bool weight_narrow;
    uint32_t only_schemes; /* of weights with `A: none` */
    sb_weight_form weight_form;
    /* May pairs of uint8 x int8 products overflow int16 on some processors of
     * this target, so that `--reduce-range auto` has work to do? */
    bool pairs_saturate;
    sb_bias_policy bias;
    sb_residual_policy residual;
    bool quantize_outputs;   /* Q/DQ before the outputs of the graph */
    bool one_dq_per_use;     /* each consumer has a DQ of its own */
    bool zero_point_is_zero; /* zero points other than 0 are refused */
    /* Integer kernels run channels last and want channels in fours: first
     * layers and Resize are rewritten for that (passes/fold_columns.h,
     * passes/tile_resize.h). */
    bool channels_last;
    int opset;      /* of the file for 8-bit types */
    int opset_wide; /* when 4- or 16-bit types appear in it */
    /* NULL: the configuration alone decides (the target "virtual"). */
    const sb_target_op *ops;
    size_t n_ops;
    const sb_qdq_rules *rules; /* NULL: nothing is known of fusion */
} sb_target_def;

/* By name or alias; NULL if there is none such. */
const sb_target_def *sb_target_find(const char *name);
const sb_target_def *const *sb_target_all(size_t *n);
/* Fails with SB_BAD_ARG, and names the target that may be meant. */
SB_MUST_USE sb_status sb_target_unknown(sb_ctx *ctx, const char *name);
/* The row of an operator; NULL: it stays float, or the target has no rows. */
const sb_target_op *sb_target_op_find(const sb_target_def *target,
                                      const sb_node *node);
/* The axis along which the weight of `node`, of this rank, has scales; -1 if
 * it may have only one. */
int sb_target_weight_axis(const sb_target_op *op, const sb_node *node,
                          int rank);
/* Is input `i` of the node quantized by this row (bias not counted)? */
bool sb_target_is_data(const sb_target_op *op, uint32_t i);

static inline bool sb_target_has_type(uint32_t types, sb_dtype dtype)
{
    return (types >> (unsigned)dtype & 1u) != 0;
}

#define SB_TYPE(name) (1u << SB_DTYPE_##name)

#endif
