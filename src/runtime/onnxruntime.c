/* Targets "onnxruntime-x86" and "onnxruntime-arm": its CPU provider, which
 * replaces `DQ... -> operator -> Q` by one integer kernel where every input
 * comes from a DQ of its own and the result goes to one Q.
 *
 * On x86 the fast kernels multiply uint8 by int8, and int8 activations fuse
 * only where they can be rewritten to uint8; on ARM both signs run.  Both want
 * a Relu to be redundant: zero point = lowest number, which affine ranges that
 * start at 0 give by themselves.
 *
 * Fusion was tried on version 1.31 by tests/ort/test_targets_table.py and
 * tests/ort/test_lint_vs_ort.py. */
#include "runtime/target.h"

#define MS "com.microsoft"

/* clang-format off */
#define INTO(kind, kernel) .fuse = {SB_FUSE_##kind, kernel, MS, 0}
#define MOVES(kind, flags) .place = SB_PLACE_SHARE, .data = 1, \
                           .fuse = {SB_FUSE_##kind, NULL, "", flags}

enum {
    MOVES16 = SB_FUSE_16BIT,
    MOVABLE = SB_FUSE_16BIT | SB_FUSE_MOVABLE,
    EXTREME = SB_FUSE_POSITIVE | SB_FUSE_4BIT,
};

static const sb_target_op ort_ops[] = {
    {"Conv",    .place = SB_PLACE_BOTH, .weight = 1, .bias = 2, .dynamic = true,
     .fuse = {SB_FUSE_CONV, "QLinearConv", "", SB_FUSE_QUANT_BIAS}},
    {"Gemm",    .place = SB_PLACE_BOTH, .weight = 1, .bias = 2,
     .result_optional = true, .weight_only = true, .dynamic = true,
     .fuse = {SB_FUSE_GEMM, "QGemm", MS, SB_FUSE_QUANT_BIAS | SB_FUSE_ANY_INT8},
     .fuse_weight = {SB_FUSE_WEIGHT, "MatMulNBits", MS, 0}},
    {"MatMul",  .place = SB_PLACE_BOTH, .weight = 1, .bias_behind = true,
     .result_optional = true, .weight_only = true, .dynamic = true,
     .fuse = {SB_FUSE_MATMUL, "QLinearMatMul", "", 0},
     .fuse_weight = {SB_FUSE_WEIGHT, "MatMulNBits", MS, 0}},
    {"Add",     .place = SB_PLACE_BOTH, INTO(ALL, "QLinearAdd")},
    {"Mul",     .place = SB_PLACE_BOTH, INTO(ALL, "QLinearMul")},
    {"Concat",  .place = SB_PLACE_BOTH, .join = true, INTO(ALL, "QLinearConcat")},
    {"Where",   .place = SB_PLACE_BOTH, .data = 6, INTO(WHERE, "QLinearWhere")},
    {"AveragePool",       .place = SB_PLACE_BOTH, INTO(FIRST, "QLinearAveragePool")},
    {"GlobalAveragePool", .place = SB_PLACE_BOTH, INTO(FIRST, "QLinearGlobalAveragePool")},
    {"LeakyRelu", .place = SB_PLACE_BOTH, INTO(FIRST, "QLinearLeakyRelu")},
    {"Sigmoid", .place = SB_PLACE_BOTH, .range = SB_RANGE_UNIT, INTO(FIRST, "QLinearSigmoid")},
    {"Softmax", .place = SB_PLACE_BOTH, .range = SB_RANGE_UNIT, INTO(FIRST, "QLinearSoftmax")},
    {"Relu",    .place = SB_PLACE_FOLD},
    {"Clip",    .place = SB_PLACE_FOLD, .data = 1},
    {"DepthToSpace",   MOVES(DROP, 0)},
    {"Expand",         MOVES(DROP, MOVES16)},
    {"Flatten",        MOVES(DROP, MOVES16)},
    {"Gather",         MOVES(DROP, MOVES16), .weight_only = true},
    {"GatherElements", MOVES(DROP, MOVES16)},
    {"MaxPool",        MOVES(DROP, EXTREME | SB_FUSE_MOVABLE)},
    {"ReduceMax",      MOVES(DROP, EXTREME)},
    {"ReduceMin",      MOVES(DROP, EXTREME)},
    {"Reshape",        MOVES(DROP, MOVABLE)},
    {"Resize",         MOVES(DROP, SB_FUSE_NEAREST)},
    {"Slice",          MOVES(DROP, MOVABLE)},
    {"Split",          MOVES(SPLIT, MOVES16)},
    {"Squeeze",        MOVES(DROP, MOVABLE)},
    {"Tile",           MOVES(DROP, MOVES16)},
    {"Transpose",      MOVES(DROP, MOVABLE)},
    {"Unsqueeze",      MOVES(DROP, MOVABLE)},
    {"GRU",  .weight_only = true},
    {"LSTM", .weight_only = true, .dynamic = true},
    {"RNN",  .weight_only = true},
    {"ConvTranspose", .fuse = {SB_FUSE_NONE, NULL, "", SB_FUSE_QUANT_BIAS}},
    {"ArgMax", .fuse = {SB_FUSE_DROP_DQ, NULL, "", 0}},
};
/* clang-format on */

#define WHY_BITS "onnxruntime has no kernels for other widths"
#define WHY_SCHEMES                                        \
    "onnxruntime wants affine activations with one scale," \
    " symmetric weights beside them, and groups only with A: none"

#define ONNXRUNTIME                                                            \
    .limits =                                                                  \
        {                                                                      \
            [SB_USE_ACT] = {SB_BITS(8), SB_SCHEME_TENSOR_AFFINE,               \
                            .why_bits = WHY_BITS, .why_schemes = WHY_SCHEMES}, \
            [SB_USE_WEIGHT] = {SB_BITS_UP_TO(8),                               \
                               SB_SCHEME_TENSOR_SYMMETRIC |                    \
                                   SB_SCHEME_CHANNEL_SYMMETRIC,                \
                               .named_bits = SB_BITS(8) | SB_BITS(4),          \
                               .why_bits = WHY_BITS,                           \
                               .why_schemes = WHY_SCHEMES},                    \
            [SB_USE_WEIGHT_ONLY] = {SB_BITS(8) | SB_BITS(4) | SB_BITS(2),      \
                                    SB_SCHEMES_ALL, .why_bits = WHY_BITS},     \
            [SB_USE_WEIGHT_DYNAMIC] = {SB_BITS_UP_TO(8),                       \
                                       SB_SCHEMES_PER_TENSOR |                 \
                                           SB_SCHEMES_PER_CHANNEL,             \
                                       .named_bits = SB_BITS(8),               \
                                       .why_bits =                             \
                                           "A: dynamic multiplies 8-bit "      \
                                           "numbers",                          \
                                       .why_schemes = WHY_SCHEMES},            \
    },                                                                         \
    .weight_types = SB_TYPE(I8) | SB_TYPE(U8) | SB_TYPE(I4) | SB_TYPE(U4) |    \
                    SB_TYPE(I2) | SB_TYPE(U2),                                 \
    .weight_narrow = true, .bias = SB_BIAS_INT32,                              \
    .residual = SB_RESIDUAL_BOTH, .one_dq_per_use = true, .qoperator = true,   \
    .integer_truth = true, .opset = 13, .passes = "close_clip",                \
    .ops = ort_ops, .n_ops = SB_COUNT(ort_ops), .steps = SB_SIM_ORT

/* Its integer kernels run channels last and want channels in fours, and its
 * Resize is slow there. */
static const sb_rewrite_def *const x86_rewrites[] = {
    &sb_rewrite_focus_to_conv, &sb_rewrite_chain_pools,
    &sb_rewrite_fold_columns, &sb_rewrite_tile_resize, NULL};

const sb_target_def sb_target_onnxruntime_x86 = {
    .name = "onnxruntime-x86",
    .summary = "ONNX Runtime on x86: uint8 activations, int8 weights",
    .act_types = SB_TYPE(U8),
    .pairs_saturate = true,
    .rewrites = x86_rewrites,
    .norm_as_conv = true,
    .fast_float = true,
    .min_group = 8, /* it multiplies group by group: 2 to 9 times as long */
    .sim_flags = SB_SIM_S8_TO_U8,
    ONNXRUNTIME,
};

const sb_target_def sb_target_onnxruntime_arm = {
    .name = "onnxruntime-arm",
    .summary = "ONNX Runtime on ARM: 8-bit activations, int8 weights",
    .act_types = SB_TYPE(U8) | SB_TYPE(I8),
    .rewrites = sb_rewrites_common,
    .sim_flags = SB_SIM_INT8,
    ONNXRUNTIME,
};
