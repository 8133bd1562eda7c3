/* Target "tensorrt": int8 both ways, zero points 0, activations per tensor.
 *
 * TensorRT wants Q/DQ on the inputs of what shall run in int8; it moves Q and
 * DQ across layers that only move data, and fuses a convolution with the
 * activation and the sum behind it if nothing stands between.  Of a residual
 * sum only the skip input is quantized: the other one is the convolution's
 * own result.  Its parser has rules for the Q and DQ nodes themselves.
 *
 * Rule numbers T1 ... are explained in docs/targets.md. */
#include "passes/rewrite.h"
#include "runtime/sim/sim_internal.h"

/* clang-format off */
#define INT8(kind, kernel) .fuse = {SB_FUSE_##kind, "int8 " kernel, "", 0}
#define THROUGH .fuse = {SB_FUSE_THROUGH, NULL, "", 0}

static const sb_target_op tensorrt_ops[] = {
    {"Conv",          .place = SB_PLACE_INPUTS, .weight = 1, .bias = 2, INT8(INPUTS, "convolution")},
    {"ConvTranspose", .place = SB_PLACE_INPUTS, .weight = 1, .bias = 2, INT8(INPUTS, "deconvolution")},
    {"Gemm",          .place = SB_PLACE_INPUTS, .weight = 1, .bias = 2, .weight_only = true,
     INT8(INPUTS, "matrix product")},
    {"MatMul",        .place = SB_PLACE_INPUTS, .weight = 1, .weight_only = true,
     INT8(INPUTS, "matrix product")},
    {"Add",           .place = SB_PLACE_INPUTS, INT8(INPUTS, "sum")},
    /* int8 in needs int8 out. */
    {"Mul",               .place = SB_PLACE_BOTH, INT8(BOTH, "product")},
    {"AveragePool",       .place = SB_PLACE_BOTH, INT8(BOTH, "pooling")},
    {"GlobalAveragePool", .place = SB_PLACE_BOTH, INT8(BOTH, "pooling")},
    {"Relu",      .place = SB_PLACE_FOLD, THROUGH},
    {"Clip",      .place = SB_PLACE_FOLD, .data = 1, THROUGH},
    {"Concat",    .place = SB_PLACE_SHARE_ALL, THROUGH},
    {"Flatten",   .place = SB_PLACE_THROUGH, .data = 1, THROUGH},
    {"Gather",    .place = SB_PLACE_THROUGH, .data = 1, THROUGH},
    {"MaxPool",   .place = SB_PLACE_THROUGH, .data = 1, THROUGH},
    {"Pad",       .place = SB_PLACE_THROUGH, .data = 1, THROUGH},
    {"Reshape",   .place = SB_PLACE_THROUGH, .data = 1, THROUGH},
    {"Slice",     .place = SB_PLACE_THROUGH, .data = 1, THROUGH},
    {"Split",     .place = SB_PLACE_THROUGH, .data = 1, THROUGH},
    {"Squeeze",   .place = SB_PLACE_THROUGH, .data = 1, THROUGH},
    {"Transpose", .place = SB_PLACE_THROUGH, .data = 1, THROUGH},
    {"Unsqueeze", .place = SB_PLACE_THROUGH, .data = 1, THROUGH},
    /* Softmax and LayerNormalization run in half precision. */
};

SB_SIM_REASON(t_uint8, "T1-uint8", "TensorRT refuses uint8", "use int8 with zero point 0");
SB_SIM_REASON(t_type, "T1-type", "TensorRT knows int8, int4 and float8 only", "use int8");
SB_SIM_REASON(t_zero, "T1-zero-point", "TensorRT wants every zero point to be 0", "use symmetric ranges");
SB_SIM_REASON(t_scale, "T2-scale", "the scale is not a constant, or not positive everywhere", "store positive scales as constants");
SB_SIM_REASON(t_volume, "T2-zero-point-shape", "zero point and scale have different numbers of elements", "give them the same shape");
SB_SIM_REASON(t_axis, "T3-axis", "there are not as many scales as the axis has indices", "set axis to the axis of the scales");
SB_SIM_REASON(t_act, "T3-activation", "an activation has per-channel scales", "use one scale for activations");
SB_SIM_REASON(t_block, "T4-block", "blocked scales do not cover exactly one axis in whole blocks", "block one axis, with a size that divides it");
SB_SIM_REASON(t_int4, "T5-int4", "int4 is for weights only, with an even last dimension", "use int8 here");
SB_SIM_REASON(t_dtype, "T7-output-dtype", "output_dtype and zero point have different types", "leave output_dtype out");
SB_SIM_REASON(t_input, "T8-inputs", "not every input is quantized", "put Q/DQ on all of its inputs but the bias");
SB_SIM_REASON(t_bias, "T10-bias", "the bias has Q/DQ", "leave the bias in float");
SB_SIM_REASON(t_between, "T11-between", "Q/DQ stand between it and the activation or sum that it would be fused with", "move them behind the activation");
SB_SIM_REASON(t_skip, "T12-residual", "neither branch of the sum is quantized", "quantize the branch that does not come from the convolution");
SB_SIM_REASON(t_both, "T15-both", "int8 in needs int8 out, but its result is not quantized", "quantize its result as well");
SB_SIM_REASON(t_concat, "T16-concat", "the branches have different scales, so they are rescaled", "share one scale among all inputs");
SB_SIM_REASON(t_gemv, "T17-vector", "a product with a vector does not pay in int8", "leave it in float");
SB_SIM_REASON(t_small, "T17-channels", "convolutions with fewer than 16 channels run faster in half precision", "leave it in float");
/* clang-format on */

/* ---- the parser --------------------------------------------------------- */

static const sb_sim_reason *check_scales(const sb_graph *g, const sb_node *node,
                                         const sb_qdq *p, const sb_tensor *s)
{
    const sb_shape *x = &sb_graph_value(g, node->inputs[0])->type.shape;
    int64_t block = sb_node_int(node, "block_size", 0);
    int64_t axis = sb_node_int(node, "axis", 1);
    bool weight = sb_qdq_from_const(g, node->inputs[0]);

    if (p->is_scalar)
        return NULL;
    if (s->rank == 1) {
        if (axis < 0)
            axis += x->rank;
        if (x->rank >= 0 &&
            (axis < 0 || axis >= x->rank || x->dim[axis] != s->dims[0]))
            return &t_axis;
        return weight ? NULL : &t_act;
    }
    int n_blocked = 0;
    if (block <= 0 || s->rank != x->rank)
        return &t_block;
    for (int i = 0; i < s->rank; i++) {
        if (x->dim[i] == s->dims[i])
            continue;
        n_blocked++;
        if (s->dims[i] <= 0 || x->dim[i] % s->dims[i] != 0)
            return &t_block;
    }
    return n_blocked == 1 ? NULL : &t_block;
}

static const sb_sim_reason *tensorrt_broken(const sb_graph *g,
                                            const sb_node *node)
{
    sb_qdq p;

    sb_qdq_read(g, node, &p);
    if (p.type == SB_DTYPE_U8)
        return &t_uint8;
    if (p.type != SB_DTYPE_I8 && p.type != SB_DTYPE_I4 &&
        p.type != SB_DTYPE_F8E4M3FN && p.type != SB_DTYPE_F4E2M1)
        return &t_type;
    if (p.zero != SB_NONE && !sb_const_all(g, p.zero, 0))
        return &t_zero;
    if (!sb_is_const(g, p.scale))
        return &t_scale;
    const sb_tensor *s = &sb_graph_value(g, p.scale)->constant;
    int64_t n = sb_tensor_count(s);
    for (int64_t i = 0; i < n; i++)
        if (!(sb_tensor_get_f64(s, i) > 0))
            return &t_scale;
    if (p.zero != SB_NONE &&
        sb_tensor_count(&sb_graph_value(g, p.zero)->constant) != n)
        return &t_volume;
    const sb_sim_reason *r = check_scales(g, node, &p, s);
    if (r)
        return r;
    if (p.type == SB_DTYPE_I4) {
        const sb_shape *x = &sb_graph_value(g, node->inputs[0])->type.shape;
        if (!sb_qdq_from_const(g, node->inputs[0]) || x->rank < 1 ||
            (sb_dim_known(x->dim[x->rank - 1]) && x->dim[x->rank - 1] % 2))
            return &t_int4;
    }
    int64_t asked = sb_is_q(node) ? sb_node_int(node, "output_dtype", 0) : 0;
    return asked > 0 && asked != (int64_t)p.type ? &t_dtype : NULL;
}

/* ---- layers ------------------------------------------------------------- */

/* There are int8 kernels for few channels only in some shapes. */
static bool too_small(const sb_graph *g, const sb_node *node)
{
    const sb_shape *w = &sb_graph_value(g, node->inputs[1])->type.shape;
    int64_t group = sb_node_int(node, "group", 1);

    if (!sb_node_is(node, "Conv") || !sb_shape_known(w) || w->rank < 3)
        return false;
    int64_t c_in = w->dim[1] * group, c_out = w->dim[0];
    if (c_in >= 16 && c_out >= 16)
        return false;
    if (group == 1)
        return !((c_in % 8 == 0 || c_out % 8 == 0) &&
                 (c_in >= 16 || c_out >= 16 || c_in <= 4));
    bool wide = true;
    for (int i = 2; i < w->rank; i++)
        wide = wide && w->dim[i] >= 3;
    return !(c_out % 8 == 0 && wide);
}

static bool is_vector_product(const sb_graph *g, const sb_node *node)
{
    const sb_shape *b = &sb_graph_value(g, node->inputs[1])->type.shape;

    if ((!sb_node_is(node, "MatMul") && !sb_node_is(node, "Gemm")) ||
        b->rank < 1)
        return false;
    return b->rank == 1 || b->dim[sb_op_weight_axis(node, b->rank)] == 1;
}

static const sb_sim_reason *tensorrt_layer(const sb_sim *sim,
                                           const sb_node *node)
{
    if (sb_node_in(node, 2) != SB_NONE && sb_dq_of(sim->g, node, 2))
        return &t_bias;
    if (too_small(sim->g, node))
        return &t_small;
    return is_vector_product(sim->g, node) ? &t_gemv : NULL;
}

static const sb_sim_inputs_rules tensorrt_inputs = {
    .input = &t_input,
    .skip = &t_skip,
    .between = &t_between,
    .both = &t_both,
    .concat = &t_concat,
    .concat_zero_points = true,
    .layer = tensorrt_layer,
};

#define WHY_BITS "tensorrt runs int8 only"
#define WHY_SCHEMES                                                       \
    "tensorrt wants zero points 0, weights per channel, activations per " \
    "tensor"

const sb_target_def sb_target_tensorrt = {
    .name = "tensorrt",
    .summary = "TensorRT, explicit quantization: symmetric int8",
    .limits =
        {[SB_USE_ACT] = {SB_BITS(8), SB_SCHEME_TENSOR_SYMMETRIC,
                         .why_bits = WHY_BITS, .why_schemes = WHY_SCHEMES},
         [SB_USE_WEIGHT] = {SB_BITS_UP_TO(8),
                            SB_SCHEME_TENSOR_SYMMETRIC |
                                SB_SCHEME_CHANNEL_SYMMETRIC,
                            .named_bits = SB_BITS(8),
                            .named_schemes = SB_SCHEME_CHANNEL_SYMMETRIC,
                            .why_bits = WHY_BITS, .why_schemes = WHY_SCHEMES},
         [SB_USE_WEIGHT_ONLY] = {SB_BITS(8) | SB_BITS(4), SB_SCHEMES_SYMMETRIC,
                                 .named_schemes = SB_SCHEME_CHANNEL_SYMMETRIC |
                                                  SB_SCHEME_GROUP_SYMMETRIC,
                                 .why_bits = WHY_BITS,
                                 .why_schemes = WHY_SCHEMES},
         [SB_USE_WEIGHT_DYNAMIC] =
             {.why_bits = "tensorrt wants ranges that are known beforehand"}},
    .act_types = SB_TYPE(I8),
    .weight_types = SB_TYPE(I8) | SB_TYPE(I4),
    .weight_narrow = true,
    .bias = SB_BIAS_FLOAT,
    .residual = SB_RESIDUAL_SKIP,
    .opset = 13,
    .rewrites = sb_rewrites_common,
    .ops = tensorrt_ops,
    .n_ops = SB_COUNT(tensorrt_ops),
    .steps = SB_SIM_INPUTS,
    .sim_flags = SB_SIM_INT8,
    .inputs = &tensorrt_inputs,
    .broken = tensorrt_broken,
};
