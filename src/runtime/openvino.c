/* Target "openvino": its CPU plugin, which reads Q/DQ as FakeQuantize.
 *
 * Quantizers stand on the inputs of what computes and are moved upwards
 * through what only moves data; results of the graph stay float.  All inputs
 * of a Concat share one scale.  MaxPool has Q/DQ on both sides: without those
 * behind it, OpenVINO lets it run in float and quantizes after it.
 *
 * Rule numbers O4 ... are explained in docs/targets.md. */
#include "passes/rewrite.h"
#include "runtime/sim/sim_internal.h"

/* clang-format off */
#define INT8(kernel) .fuse = {SB_FUSE_INPUTS, "int8 " kernel, "", 0}
#define THROUGH .fuse = {SB_FUSE_THROUGH, NULL, "", 0}

static const sb_target_op openvino_ops[] = {
    {"Conv",          .place = SB_PLACE_INPUTS, .weight = 1, .bias = 2, INT8("convolution")},
    {"ConvTranspose", .place = SB_PLACE_INPUTS, .weight = 1, .bias = 2, INT8("deconvolution")},
    {"Gemm",          .place = SB_PLACE_INPUTS, .weight = 1, .bias = 2, .weight_only = true,
     INT8("matrix product")},
    {"MatMul",        .place = SB_PLACE_INPUTS, .weight = 1, .weight_only = true,
     INT8("matrix product")},
    {"Add",           .place = SB_PLACE_INPUTS, INT8("sum")},
    {"Mul",           .place = SB_PLACE_INPUTS, INT8("product")},
    {"AveragePool",       .place = SB_PLACE_INPUTS, INT8("pooling")},
    {"GlobalAveragePool", .place = SB_PLACE_INPUTS, INT8("pooling")},
    {"Resize",    .place = SB_PLACE_INPUTS, .data = 1, INT8("resize")},
    {"Relu",      .place = SB_PLACE_FOLD, THROUGH},
    {"Clip",      .place = SB_PLACE_FOLD, .data = 1, THROUGH},
    {"Concat",    .place = SB_PLACE_SHARE_ALL, THROUGH},
    {"Expand",    .place = SB_PLACE_THROUGH, .data = 1, THROUGH},
    {"Flatten",   .place = SB_PLACE_THROUGH, .data = 1, THROUGH},
    {"MaxPool",   .place = SB_PLACE_SHARE, .data = 1, THROUGH},
    {"Pad",       .place = SB_PLACE_THROUGH, .data = 1, THROUGH},
    {"ReduceMax", .place = SB_PLACE_THROUGH, .data = 1, THROUGH},
    {"Reshape",   .place = SB_PLACE_THROUGH, .data = 1, THROUGH},
    {"Slice",     .place = SB_PLACE_THROUGH, .data = 1, THROUGH},
    {"Split",     .place = SB_PLACE_THROUGH, .data = 1, THROUGH},
    {"Squeeze",   .place = SB_PLACE_THROUGH, .data = 1, THROUGH},
    {"Tile",      .place = SB_PLACE_THROUGH, .data = 1, THROUGH},
    {"Transpose", .place = SB_PLACE_THROUGH, .data = 1, THROUGH},
    {"Unsqueeze", .place = SB_PLACE_THROUGH, .data = 1, THROUGH},
};

SB_SIM_REASON(o_input, "O5-inputs", "not every input is quantized", "put Q/DQ on all of its inputs but the bias");
SB_SIM_REASON(o_between, "O5-between", "Q/DQ stand between it and the layer that it would be fused with", "move them behind the activation");
SB_SIM_REASON(o_skip, "O5-residual", "neither branch of the sum is quantized", "quantize the branch that does not come from the convolution");
SB_SIM_REASON(o_concat, "O4-concat", "the branches have different scales, so they are rescaled, or a convolution that reads them runs in float", "share one scale among all inputs");
SB_SIM_REASON(o_joined, "O4-concat", "it reads a Concat whose branches have different scales", "share one scale among all inputs of the Concat");
/* clang-format on */

/* Behind a Concat of different scales there is one scale per channel, with
 * which only convolutions of groups are computed. */
static const sb_sim_reason *openvino_layer(const sb_sim *sim,
                                           const sb_node *node)
{
    return sb_node_is(node, "Conv") && sb_node_int(node, "group", 1) == 1 &&
                   sb_sim_from_many_scales(sim, node->inputs[0])
               ? &o_joined
               : NULL;
}

static const sb_sim_inputs_rules openvino_inputs = {
    .input = &o_input,
    .skip = &o_skip,
    .between = &o_between,
    .concat = &o_concat,
    .layer = openvino_layer,
};

#define WHY_BITS "openvino runs 8 bit, and 4 for weights with A: none"
#define WHY_SCHEMES                                                         \
    "openvino wants one scale for an activation, symmetric weights beside " \
    "it, and groups only with A: none"

const sb_target_def sb_target_openvino = {
    .name = "openvino",
    .summary = "OpenVINO on CPU: 8-bit activations, int8 weights",
    .limits =
        {[SB_USE_ACT] = {SB_BITS(8), SB_SCHEMES_PER_TENSOR,
                         .why_bits = WHY_BITS, .why_schemes = WHY_SCHEMES},
         [SB_USE_WEIGHT] = {SB_BITS_UP_TO(8),
                            SB_SCHEME_TENSOR_SYMMETRIC |
                                SB_SCHEME_CHANNEL_SYMMETRIC,
                            .named_bits = SB_BITS(8), .why_bits = WHY_BITS,
                            .why_schemes = WHY_SCHEMES},
         [SB_USE_WEIGHT_ONLY] = {SB_BITS(8) | SB_BITS(4),
                                 SB_SCHEMES_PER_TENSOR |
                                     SB_SCHEMES_PER_CHANNEL |
                                     SB_SCHEMES_PER_GROUP,
                                 .why_bits = WHY_BITS},
         [SB_USE_WEIGHT_DYNAMIC] =
             {.why_bits = "openvino wants ranges that are known beforehand"}},
    .act_types = SB_TYPE(U8) | SB_TYPE(I8),
    .weight_types = SB_TYPE(I8) | SB_TYPE(U8) | SB_TYPE(I4) | SB_TYPE(U4),
    .weight_narrow = true,
    .pairs_saturate = true,
    .depthwise_channels = true,
    .bias = SB_BIAS_FLOAT,
    .residual = SB_RESIDUAL_BOTH,
    .opset = 13,
    .rewrites = sb_rewrites_common,
    .passes = "keep_axes",
    .ops = openvino_ops,
    .n_ops = SB_COUNT(openvino_ops),
    .steps = SB_SIM_INPUTS,
    .sim_flags = SB_SIM_INT8,
    .inputs = &openvino_inputs,
};
