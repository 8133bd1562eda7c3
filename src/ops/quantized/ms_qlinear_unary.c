/* com.microsoft QLinearSigmoid and QLinearLeakyRelu: a byte has 256 values, so
 * the function is a table: dequantize, apply, quantize, as ONNX Runtime builds
 * it. */
#include <math.h>

#include "ops/quantized/quant_util.h"

enum { X, X_SCALE, X_ZERO, Y_SCALE, Y_ZERO };

typedef struct qunary_attrs {
    float alpha;
} qunary_attrs;

static const sb_attr_def leaky_attr_defs[] = {
    {.name = "alpha", SB_ATTR_FLOAT, offsetof(qunary_attrs, alpha), .f = 0.01f},
    {0},
};

typedef struct qunary_fn {
    float (*fn)(float x, float alpha);
} qunary_fn;

static float qlinear_unary_sigmoid(float x, float alpha)
{
    (void)alpha;
    return (float)(1 / (1 + exp(-(double)x)));
}

static float qlinear_unary_leaky(float x, float alpha)
{
    return x >= 0 ? x : x * alpha;
}

static void qunary_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    sb_qlayout_layout(k, 0, in, out);
}

static sb_status qunary_prepare(sb_kernel *k)
{
    SB_TRY(sb_byte_check(k, X));
    SB_TRY(sb_qparam_check(k, X_SCALE, X_ZERO, k->in[X]->dtype));
    return sb_qparam_check(k, Y_SCALE, Y_ZERO, k->in[X]->dtype);
}

static sb_status qunary_forward(sb_kernel *k)
{
    const qunary_fn *which = k->op->aux;
    const qunary_attrs *attrs = k->attrs;
    const sb_tensor *x = k->in[X];
    uint8_t table[256];

    sb_byte_table(x->dtype, sb_qparam_read(k, X_SCALE, X_ZERO), x->dtype,
                  sb_qparam_read(k, Y_SCALE, Y_ZERO), which->fn,
                  k->op->attrs_size ? attrs->alpha : 0, table);
    sb_byte_lookup(k->ctx, table, x->data, k->out[0]->data, sb_tensor_count(x));
    return SB_OK;
}

static const qunary_fn sigmoid_fn = {qlinear_unary_sigmoid},
                       leaky_fn = {qlinear_unary_leaky};

const sb_op_def sb_op_ms_qlinear_sigmoid = {
    .name = "QLinearSigmoid",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 4,
    .in_max = 5,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INPLACE | SB_OP_INTEGER,
    .aux = &sigmoid_fn,
    .infer = sb_infer_same,
    .layout = qunary_layout,
    .prepare = qunary_prepare,
    .forward = qunary_forward,
};

const sb_op_def sb_op_ms_qlinear_leaky_relu = {
    .name = "QLinearLeakyRelu",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 4,
    .in_max = 5,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INPLACE | SB_OP_INTEGER,
    .attrs_size = sizeof(qunary_attrs),
    .attrs = leaky_attr_defs,
    .aux = &leaky_fn,
    .infer = sb_infer_same,
    .layout = qunary_layout,
    .prepare = qunary_prepare,
    .forward = qunary_forward,
};
