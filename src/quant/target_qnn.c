/* Target "qnn": Qualcomm's accelerator through ONNX Runtime's QNN provider.
 *
 * The whole graph runs quantized there, so every operator that the provider
 * knows has Q/DQ on all data inputs and on its results.  Weights are uint8 by
 * default; only convolutions may have a scale a channel. */
#include "quant/target.h"

/* clang-format off */
static const sb_target_op ops[] = {
    {"Conv",          .place = SB_PLACE_BOTH, .weight = 1, .bias = 2, .axis = SB_AXIS_0},
    {"ConvTranspose", .place = SB_PLACE_BOTH, .weight = 1, .bias = 2, .axis = SB_AXIS_1},
    {"Gemm",          .place = SB_PLACE_BOTH, .weight = 1, .bias = 2},
    {"MatMul",        .place = SB_PLACE_BOTH, .weight = 1},
    {"LayerNormalization",    .place = SB_PLACE_BOTH, .weight = 1, .bias = 2},
    {"InstanceNormalization", .place = SB_PLACE_BOTH, .weight = 1, .bias = 2},
    {"Sigmoid",       .place = SB_PLACE_BOTH, .range = SB_RANGE_UNIT},
    {"Softmax",       .place = SB_PLACE_BOTH, .range = SB_RANGE_UNIT},
    {"Tanh",          .place = SB_PLACE_BOTH, .range = SB_RANGE_SIGNED},
    {"Abs",               .place = SB_PLACE_BOTH}, {"Add",         .place = SB_PLACE_BOTH},
    {"AveragePool",       .place = SB_PLACE_BOTH}, {"Concat",      .place = SB_PLACE_BOTH},
    {"Div",               .place = SB_PLACE_BOTH}, {"Elu",         .place = SB_PLACE_BOTH},
    {"Exp",               .place = SB_PLACE_BOTH}, {"Gelu",        .place = SB_PLACE_BOTH},
    {"GlobalAveragePool", .place = SB_PLACE_BOTH}, {"HardSigmoid", .place = SB_PLACE_BOTH},
    {"HardSwish",         .place = SB_PLACE_BOTH}, {"LeakyRelu",   .place = SB_PLACE_BOTH},
    {"Max",               .place = SB_PLACE_BOTH}, {"Min",         .place = SB_PLACE_BOTH},
    {"Mul",               .place = SB_PLACE_BOTH}, {"Neg",         .place = SB_PLACE_BOTH},
    {"PRelu",             .place = SB_PLACE_BOTH}, {"Pow",         .place = SB_PLACE_BOTH},
    {"Sqrt",              .place = SB_PLACE_BOTH}, {"Sub",         .place = SB_PLACE_BOTH},
    {"ReduceMean",     .place = SB_PLACE_BOTH, .data = 1},
    {"ReduceSum",      .place = SB_PLACE_BOTH, .data = 1},
    {"Where",          .place = SB_PLACE_BOTH, .data = 6},
    {"Relu",           .place = SB_PLACE_FOLD},
    {"Clip",           .place = SB_PLACE_FOLD,  .data = 1},
    {"DepthToSpace",   .place = SB_PLACE_SHARE, .data = 1},
    {"Expand",         .place = SB_PLACE_SHARE, .data = 1},
    {"Flatten",        .place = SB_PLACE_SHARE, .data = 1},
    {"Gather",         .place = SB_PLACE_SHARE, .data = 1},
    {"GatherElements", .place = SB_PLACE_SHARE, .data = 1},
    {"MaxPool",        .place = SB_PLACE_SHARE, .data = 1},
    {"Pad",            .place = SB_PLACE_SHARE, .data = 1},
    {"ReduceMax",      .place = SB_PLACE_SHARE, .data = 1},
    {"ReduceMin",      .place = SB_PLACE_SHARE, .data = 1},
    {"Reshape",        .place = SB_PLACE_SHARE, .data = 1},
    {"Resize",         .place = SB_PLACE_SHARE, .data = 1},
    {"Slice",          .place = SB_PLACE_SHARE, .data = 1},
    {"SpaceToDepth",   .place = SB_PLACE_SHARE, .data = 1},
    {"Split",          .place = SB_PLACE_SHARE, .data = 1},
    {"Squeeze",        .place = SB_PLACE_SHARE, .data = 1},
    {"Tile",           .place = SB_PLACE_SHARE, .data = 1},
    {"Transpose",      .place = SB_PLACE_SHARE, .data = 1},
    {"Unsqueeze",      .place = SB_PLACE_SHARE, .data = 1},
};
/* clang-format on */

const sb_target_def sb_target_qnn = {
    .name = "qnn",
    .summary = "ONNX Runtime's QNN provider: the whole graph quantized",
    .act = SB_DTYPE_U8,
    .act_types = SB_TYPE(U8) | SB_TYPE(U16),
    .act_schemes = SB_SCHEME_SYMMETRIC | SB_SCHEME_AFFINE,
    .weight = SB_DTYPE_U8,
    .weight_types = SB_TYPE(U8) | SB_TYPE(I8) | SB_TYPE(I4),
    .weight_schemes = SB_SCHEME_SYMMETRIC | SB_SCHEME_AFFINE,
    .weight_form = SB_WEIGHT_INT,
    .bias = SB_BIAS_INT32,
    .residual = SB_RESIDUAL_BOTH,
    .quantize_outputs = true,
    .one_dq_per_use = true,
    .opset = 13,
    .opset_wide = 21,
    .ops = ops,
    .n_ops = SB_COUNT(ops),
    .rules = &sb_qdq_rules_qnn,
};
