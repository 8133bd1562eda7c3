/* Target "openvino": its CPU plugin, which reads Q/DQ as FakeQuantize.
 *
 * Quantizers stand on the inputs of what computes and are moved upwards
 * through what only moves data; results of the graph stay float.  All inputs
 * of a Concat share one scale.  MaxPool has Q/DQ on both sides: without those
 * behind it, OpenVINO lets it run in float and quantizes after it. */
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
    {"Mul",           .place = SB_PLACE_INPUTS},
    {"AveragePool",       .place = SB_PLACE_INPUTS},
    {"GlobalAveragePool", .place = SB_PLACE_INPUTS},
    {"Resize",    .place = SB_PLACE_INPUTS, .data = 1},
    {"Relu",      .place = SB_PLACE_FOLD},
    {"Clip",      .place = SB_PLACE_FOLD, .data = 1},
    {"Concat",    .place = SB_PLACE_SHARE_ALL},
    {"Expand",    .place = SB_PLACE_THROUGH, .data = 1},
    {"Flatten",   .place = SB_PLACE_THROUGH, .data = 1},
    {"MaxPool",   .place = SB_PLACE_SHARE, .data = 1},
    {"Pad",       .place = SB_PLACE_THROUGH, .data = 1},
    {"ReduceMax", .place = SB_PLACE_THROUGH, .data = 1},
    {"Reshape",   .place = SB_PLACE_THROUGH, .data = 1},
    {"Slice",     .place = SB_PLACE_THROUGH, .data = 1},
    {"Split",     .place = SB_PLACE_THROUGH, .data = 1},
    {"Squeeze",   .place = SB_PLACE_THROUGH, .data = 1},
    {"Tile",      .place = SB_PLACE_THROUGH, .data = 1},
    {"Transpose", .place = SB_PLACE_THROUGH, .data = 1},
    {"Unsqueeze", .place = SB_PLACE_THROUGH, .data = 1},
};
/* clang-format on */

const sb_target_def sb_target_openvino = {
    .name = "openvino",
    .summary = "OpenVINO on CPU: 8-bit activations, int8 weights",
    .act = SB_DTYPE_U8,
    .act_types = SB_TYPE(U8) | SB_TYPE(I8),
    .act_schemes = SB_SCHEME_SYMMETRIC | SB_SCHEME_AFFINE,
    .weight = SB_DTYPE_I8,
    .weight_types = SB_TYPE(I8) | SB_TYPE(U8) | SB_TYPE(I4) | SB_TYPE(U4),
    .weight_schemes = SB_SCHEME_SYMMETRIC,
    .weight_narrow = true,
    .only_schemes = SB_SCHEME_SYMMETRIC | SB_SCHEME_AFFINE,
    .weight_form = SB_WEIGHT_INT,
    .pairs_saturate = true,
    .bias = SB_BIAS_FLOAT,
    .residual = SB_RESIDUAL_BOTH,
    .opset = 13,
    .opset_wide = 21,
    .ops = ops,
    .n_ops = SB_COUNT(ops),
    .rules = &sb_qdq_rules_openvino,
};
