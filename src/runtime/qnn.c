/* Target "qnn": Qualcomm's accelerator through ONNX Runtime's QNN provider.
 *
 * The whole graph runs quantized there, so every operator that the provider
 * knows has Q/DQ on all data inputs and on its results.  Weights are uint8 by
 * default; only convolutions may have per-channel scales. */
#include "runtime/target.h"

/* clang-format off */
#define WIDE (SB_FUSE_16BIT | SB_FUSE_4BIT)
#define LAYER(kind, op) op, .place = SB_PLACE_BOTH, .weight = 1, \
                        .fuse = {SB_FUSE_##kind, "QNN " op, "", WIDE | SB_FUSE_ANY_INT8}
#define UNIT(kind, op)  op, .place = SB_PLACE_BOTH, .fuse = {SB_FUSE_##kind, "QNN " op, "", WIDE}
#define FOLD(op)        op, .place = SB_PLACE_FOLD, .fuse = {SB_FUSE_FIRST, "QNN " op, "", WIDE}
#define MOVE(kind, op)  op, .place = SB_PLACE_SHARE, .data = 1, \
                        .fuse = {SB_FUSE_##kind, "QNN " op, "", WIDE}
#define TAKEN(kind, op) op, .fuse = {SB_FUSE_##kind, "QNN " op, "", WIDE}

static const sb_target_op qnn_ops[] = {
    {LAYER(CONV, "Conv"),          .bias = 2},
    {LAYER(CONV, "ConvTranspose"), .bias = 2},
    {LAYER(GEMM, "Gemm"),          .bias = 2, .per_tensor = true},
    {LAYER(MATMUL, "MatMul"),      .per_tensor = true},
    {UNIT(NORM, "LayerNormalization"),    .weight = 1, .bias = 2, .per_tensor = true},
    {UNIT(NORM, "InstanceNormalization"), .weight = 1, .bias = 2, .per_tensor = true},
    {UNIT(FIRST, "Sigmoid"), .range = SB_RANGE_UNIT},
    {UNIT(FIRST, "Softmax"), .range = SB_RANGE_UNIT},
    {UNIT(FIRST, "Tanh"),    .range = SB_RANGE_SIGNED},
    {UNIT(FIRST, "Abs")},         {UNIT(ALL, "Add")},
    {UNIT(FIRST, "AveragePool")}, {UNIT(ALL, "Concat")},
    {UNIT(ALL, "Div")},           {UNIT(FIRST, "Elu")},
    {UNIT(FIRST, "Exp")},         {UNIT(FIRST, "Gelu")},
    {UNIT(FIRST, "GlobalAveragePool")}, {UNIT(FIRST, "HardSigmoid")},
    {UNIT(FIRST, "HardSwish")},   {UNIT(FIRST, "LeakyRelu")},
    {UNIT(ALL, "Max")},           {UNIT(ALL, "Min")},
    {UNIT(ALL, "Mul")},           {UNIT(FIRST, "Neg")},
    {UNIT(ALL, "PRelu")},         {UNIT(ALL, "Pow")},
    {UNIT(FIRST, "Sqrt")},        {UNIT(ALL, "Sub")},
    {UNIT(FIRST, "ReduceMean"), .data = 1},
    {UNIT(FIRST, "ReduceSum"),  .data = 1},
    {UNIT(WHERE, "Where"),      .data = 6},
    {FOLD("Relu")},
    {FOLD("Clip"), .data = 1},
    {MOVE(FIRST, "DepthToSpace")},
    {MOVE(DROP, "Expand")},
    {MOVE(DROP, "Flatten")},
    {MOVE(DROP, "Gather")},
    {MOVE(DROP, "GatherElements")},
    {MOVE(DROP, "MaxPool")},
    {MOVE(FIRST, "Pad")},
    {MOVE(FIRST, "ReduceMax")},
    {MOVE(FIRST, "ReduceMin")},
    {MOVE(DROP, "Reshape")},
    {MOVE(DROP, "Resize")},
    {MOVE(FIRST, "Slice")},
    {MOVE(FIRST, "SpaceToDepth")},
    {MOVE(SPLIT, "Split")},
    {MOVE(DROP, "Squeeze")},
    {MOVE(DROP, "Tile")},
    {MOVE(DROP, "Transpose")},
    {MOVE(DROP, "Unsqueeze")},
    {TAKEN(FIRST, "GlobalMaxPool")},
    {TAKEN(FIRST, "Log")},
    {TAKEN(DROP_DQ, "ArgMax")},
};
/* clang-format on */

#define WHY_BITS    "qnn has weights of 8 and 4 bit, activations of 8 and 16"
#define WHY_SCHEMES "qnn wants one scale for an activation, and has no groups"

const sb_target_def sb_target_qnn = {
    .name = "qnn",
    .summary = "ONNX Runtime's QNN provider: the whole graph quantized",
    .limits =
        {[SB_USE_ACT] = {SB_BITS(8) | SB_BITS(16), SB_SCHEMES_PER_TENSOR,
                         .why_bits = WHY_BITS, .why_schemes = WHY_SCHEMES},
         [SB_USE_WEIGHT] = {SB_BITS_UP_TO(8),
                            SB_SCHEMES_PER_TENSOR | SB_SCHEMES_PER_CHANNEL,
                            .named_bits = SB_BITS(8) | SB_BITS(4),
                            .why_bits = WHY_BITS, .why_schemes = WHY_SCHEMES},
         [SB_USE_WEIGHT_ONLY] = {.why_bits = "qnn runs the whole graph "
                                             "quantized"},
         [SB_USE_WEIGHT_DYNAMIC] =
             {.why_bits = "qnn wants ranges that are known beforehand"}},
    .act_types = SB_TYPE(U8) | SB_TYPE(U16),
    .weight_types = SB_TYPE(U8) | SB_TYPE(I8) | SB_TYPE(I4),
    .bias = SB_BIAS_INT32,
    .residual = SB_RESIDUAL_BOTH,
    .one_dq_per_use = true,
    .opset = 13,
    .rewrites = sb_rewrites_common,
    .ops = qnn_ops,
    .n_ops = SB_COUNT(qnn_ops),
    .steps = SB_SIM_UNITS,
    .sim_flags = SB_SIM_INT8,
};
