/* Target "tensorrt": int8 both ways, zero points 0, activations per tensor.
 *
 * TensorRT wants Q/DQ on the inputs of what shall run in int8; it moves Q and
 * DQ across layers that only move data, and fuses a convolution with the
 * activation and the sum behind it if nothing stands between.  Of a residual
 * sum only the skip input is quantized: the other one is the convolution's
 * own result. */
#include "quant/target.h"

/* clang-format off */
static const sb_target_op ops[] = {
    {"Conv",          .place = SB_PLACE_INPUTS, .weight = 1, .bias = 2, .axis = SB_AXIS_0},
    {"ConvTranspose", .place = SB_PLACE_INPUTS, .weight = 1, .bias = 2, .axis = SB_AXIS_1},
    {"Gemm",          .place = SB_PLACE_INPUTS, .weight = 1, .bias = 2, .axis = SB_AXIS_GEMM,
     .weight_only = true},
    {"MatMul",        .place = SB_PLACE_INPUTS, .weight = 1, .axis = SB_AXIS_LAST,
     .weight_only = true},
    {"Add",           .place = SB_PLACE_INPUTS},
    /* int8 in needs int8 out. */
    {"Mul",               .place = SB_PLACE_BOTH},
    {"AveragePool",       .place = SB_PLACE_BOTH},
    {"GlobalAveragePool", .place = SB_PLACE_BOTH},
    {"Relu",      .place = SB_PLACE_FOLD},
    {"Clip",      .place = SB_PLACE_FOLD, .data = 1},
    {"Concat",    .place = SB_PLACE_SHARE_ALL},
    {"Flatten",   .place = SB_PLACE_THROUGH, .data = 1},
    {"Gather",    .place = SB_PLACE_THROUGH, .data = 1},
    {"MaxPool",   .place = SB_PLACE_THROUGH, .data = 1},
    {"Pad",       .place = SB_PLACE_THROUGH, .data = 1},
    {"Reshape",   .place = SB_PLACE_THROUGH, .data = 1},
    {"Slice",     .place = SB_PLACE_THROUGH, .data = 1},
    {"Split",     .place = SB_PLACE_THROUGH, .data = 1},
    {"Squeeze",   .place = SB_PLACE_THROUGH, .data = 1},
    {"Transpose", .place = SB_PLACE_THROUGH, .data = 1},
    {"Unsqueeze", .place = SB_PLACE_THROUGH, .data = 1},
    {"Softmax",   .place = SB_PLACE_FLOAT,
     .why = "TensorRT runs it in half precision"},
    {"LayerNormalization", .place = SB_PLACE_FLOAT,
     .why = "TensorRT runs it in half precision"},
};
/* clang-format on */

const sb_target_def sb_target_tensorrt = {
    .name = "tensorrt",
    .summary = "TensorRT, explicit quantization: symmetric int8",
    .act = SB_DTYPE_I8,
    .act_types = SB_TYPE(I8),
    .act_schemes = SB_SCHEME_SYMMETRIC,
    .weight = SB_DTYPE_I8,
    .weight_types = SB_TYPE(I8) | SB_TYPE(I4),
    .weight_schemes = SB_SCHEME_SYMMETRIC,
    .weight_narrow = true,
    .only_schemes = SB_SCHEME_SYMMETRIC,
    .weight_form = SB_WEIGHT_INT,
    .bias = SB_BIAS_FLOAT,
    .residual = SB_RESIDUAL_SKIP,
    .zero_point_is_zero = true,
    .opset = 13,
    .opset_wide = 21,
    .ops = ops,
    .n_ops = SB_COUNT(ops),
    .rules = &sb_qdq_rules_tensorrt,
};
