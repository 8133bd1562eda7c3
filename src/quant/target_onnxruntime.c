/* Targets "onnxruntime-x86" and "onnxruntime-arm": its CPU provider, which
 * replaces `DQ... -> operator -> Q` by one integer kernel where every input
 * comes from a DQ of its own and the result goes to one Q.
 *
 * On x86 the fast kernels multiply uint8 by int8, and int8 activations fuse
 * only where they can be rewritten to uint8; on ARM both signs run.  Both want
 * a Relu to be redundant: zero point = lowest number, which affine ranges that
 * start at 0 give by themselves. */
#include "quant/target.h"

/* clang-format off */
static const sb_target_op ops[] = {
    {"Conv",    .place = SB_PLACE_BOTH, .weight = 1, .bias = 2, .axis = SB_AXIS_0,
     .dynamic = true},
    {"Gemm",    .place = SB_PLACE_BOTH, .weight = 1, .bias = 2, .axis = SB_AXIS_GEMM,
     .result_optional = true, .weight_only = true, .dynamic = true},
    {"MatMul",  .place = SB_PLACE_BOTH, .weight = 1, .axis = SB_AXIS_LAST,
     .bias_behind = true, .result_optional = true, .weight_only = true,
     .dynamic = true},
    {"Add",     .place = SB_PLACE_BOTH},
    {"Mul",     .place = SB_PLACE_BOTH},
    {"Concat",  .place = SB_PLACE_BOTH, .join = true},
    {"Where",   .place = SB_PLACE_BOTH, .data = 6},
    {"AveragePool",       .place = SB_PLACE_BOTH},
    {"GlobalAveragePool", .place = SB_PLACE_BOTH},
    {"LeakyRelu", .place = SB_PLACE_BOTH},
    {"Sigmoid", .place = SB_PLACE_BOTH, .range = SB_RANGE_UNIT},
    {"Softmax", .place = SB_PLACE_BOTH, .range = SB_RANGE_UNIT},
    {"Relu",    .place = SB_PLACE_FOLD},
    {"Clip",    .place = SB_PLACE_FOLD, .data = 1},
    {"DepthToSpace",   .place = SB_PLACE_SHARE, .data = 1},
    {"Expand",         .place = SB_PLACE_SHARE, .data = 1},
    {"Flatten",        .place = SB_PLACE_SHARE, .data = 1},
    {"Gather",         .place = SB_PLACE_SHARE, .data = 1, .weight_only = true},
    {"GatherElements", .place = SB_PLACE_SHARE, .data = 1},
    {"MaxPool",        .place = SB_PLACE_SHARE, .data = 1},
    {"ReduceMax",      .place = SB_PLACE_SHARE, .data = 1},
    {"ReduceMin",      .place = SB_PLACE_SHARE, .data = 1},
    {"Reshape",        .place = SB_PLACE_SHARE, .data = 1},
    {"Resize",         .place = SB_PLACE_SHARE, .data = 1},
    {"Slice",          .place = SB_PLACE_SHARE, .data = 1},
    {"Split",          .place = SB_PLACE_SHARE, .data = 1},
    {"Squeeze",        .place = SB_PLACE_SHARE, .data = 1},
    {"Tile",           .place = SB_PLACE_SHARE, .data = 1},
    {"Transpose",      .place = SB_PLACE_SHARE, .data = 1},
    {"Unsqueeze",      .place = SB_PLACE_SHARE, .data = 1},
};
/* clang-format on */

#define ONNXRUNTIME                                                         \
    .weight = SB_DTYPE_I8, .weight_schemes = SB_SCHEME_SYMMETRIC,           \
    .weight_types = SB_TYPE(I8) | SB_TYPE(U8) | SB_TYPE(I4) | SB_TYPE(U4) | \
                    SB_TYPE(I2) | SB_TYPE(U2),                              \
    .only_schemes = SB_SCHEME_SYMMETRIC | SB_SCHEME_AFFINE,                 \
    .weight_narrow = true, .weight_form = SB_WEIGHT_INT,                    \
    .bias = SB_BIAS_INT32, .residual = SB_RESIDUAL_BOTH,                    \
    .quantize_outputs = false, .one_dq_per_use = true, .opset = 13,         \
    .opset_wide = 21, .ops = ops, .n_ops = SB_COUNT(ops)

const sb_target_def sb_target_onnxruntime_x86 = {
    .name = "onnxruntime-x86",
    .alias = "onnxruntime",
    .summary = "ONNX Runtime on x86: uint8 activations, int8 weights",
    .act = SB_DTYPE_U8,
    .act_types = SB_TYPE(U8),
    .act_schemes = SB_SCHEME_AFFINE,
    .pairs_saturate = true,
    .channels_last = true,
    .rules = &sb_qdq_rules_ort_x86,
    ONNXRUNTIME,
};

const sb_target_def sb_target_onnxruntime_arm = {
    .name = "onnxruntime-arm",
    .summary = "ONNX Runtime on ARM: 8-bit activations, int8 weights",
    .act = SB_DTYPE_U8,
    .act_types = SB_TYPE(U8) | SB_TYPE(I8),
    .act_schemes = SB_SCHEME_AFFINE,
    .rules = &sb_qdq_rules_ort_arm,
    ONNXRUNTIME,
};
