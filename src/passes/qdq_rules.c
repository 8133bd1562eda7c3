/* The rows of qdq_groups.h: operators and the groups that each runtime
 * replaces.
 *
 * ONNX Runtime's are those of its CPU provider, tried on version 1.31 by
 * tests/ort/targets_table.py and lint_vs_ort.py.  What stands in no row stays
 * in float there, and Q/DQ around it are overhead. */
#include <string.h>

#include "passes/qdq_groups.h"

#define MS "com.microsoft"

enum {
    WEIGHTED = SB_QDQ_WEIGHTED,
    MOVES16 = SB_QDQ_16BIT,
    MOVABLE = SB_QDQ_MOVABLE,
};

/* clang-format off */
static const sb_qdq_rule ort_rows[] = {
    {"Conv",   SB_QDQ_CONV,   "QLinearConv", "", WEIGHTED | SB_QDQ_QUANT_BIAS},
    {"MatMul", SB_QDQ_MATMUL, "QLinearMatMul", "", WEIGHTED},
    {"Gemm",   SB_QDQ_GEMM,   "QGemm", MS, WEIGHTED | SB_QDQ_QUANT_BIAS | SB_QDQ_ANY_INT8},
    {"MatMul", SB_QDQ_WEIGHT, "MatMulNBits", MS, WEIGHTED},
    {"Gemm",   SB_QDQ_WEIGHT, "MatMulNBits", MS, WEIGHTED},
    {"Add",    SB_QDQ_ALL,    "QLinearAdd", MS, 0},
    {"Mul",    SB_QDQ_ALL,    "QLinearMul", MS, 0},
    {"Concat", SB_QDQ_ALL,    "QLinearConcat", MS, 0},
    {"AveragePool",       SB_QDQ_FIRST, "QLinearAveragePool", MS, 0},
    {"GlobalAveragePool", SB_QDQ_FIRST, "QLinearGlobalAveragePool", MS, 0},
    {"LeakyRelu", SB_QDQ_FIRST, "QLinearLeakyRelu", MS, 0},
    {"Sigmoid",   SB_QDQ_FIRST, "QLinearSigmoid", MS, 0},
    {"Softmax",   SB_QDQ_FIRST, "QLinearSoftmax", MS, 0},
    {"Where",     SB_QDQ_WHERE, "QLinearWhere", MS, 0},
    {"Split",     SB_QDQ_SPLIT, NULL, "", MOVES16},
    {"MaxPool",   SB_QDQ_DROP,  NULL, "", MOVABLE | SB_QDQ_POSITIVE | SB_QDQ_4BIT},
    {"ReduceMax", SB_QDQ_DROP,  NULL, "", SB_QDQ_POSITIVE | SB_QDQ_4BIT},
    {"ReduceMin", SB_QDQ_DROP,  NULL, "", SB_QDQ_POSITIVE | SB_QDQ_4BIT},
    {"Resize",    SB_QDQ_DROP,  NULL, "", SB_QDQ_NEAREST},
    {"DepthToSpace",   SB_QDQ_DROP, NULL, "", 0},
    {"Expand",         SB_QDQ_DROP, NULL, "", MOVES16},
    {"Flatten",        SB_QDQ_DROP, NULL, "", MOVES16},
    {"Gather",         SB_QDQ_DROP, NULL, "", MOVES16},
    {"GatherElements", SB_QDQ_DROP, NULL, "", MOVES16},
    {"Reshape",        SB_QDQ_DROP, NULL, "", MOVES16 | MOVABLE},
    {"Slice",          SB_QDQ_DROP, NULL, "", MOVES16 | MOVABLE},
    {"Squeeze",        SB_QDQ_DROP, NULL, "", MOVES16 | MOVABLE},
    {"Tile",           SB_QDQ_DROP, NULL, "", MOVES16},
    {"Transpose",      SB_QDQ_DROP, NULL, "", MOVES16 | MOVABLE},
    {"Unsqueeze",      SB_QDQ_DROP, NULL, "", MOVES16 | MOVABLE},
    {"ArgMax",         SB_QDQ_DROP_DQ, NULL, "", 0},
};

static const sb_qdq_rule tensorrt_rows[] = {
    {"Conv",          SB_QDQ_INPUTS, "int8 convolution", "", WEIGHTED},
    {"ConvTranspose", SB_QDQ_INPUTS, "int8 deconvolution", "", WEIGHTED},
    {"Gemm",          SB_QDQ_INPUTS, "int8 matrix product", "", WEIGHTED},
    {"MatMul",        SB_QDQ_INPUTS, "int8 matrix product", "", WEIGHTED},
    {"Add",           SB_QDQ_INPUTS, "int8 sum", "", 0},
    {"Mul",               SB_QDQ_BOTH, "int8 product", "", 0},
    {"AveragePool",       SB_QDQ_BOTH, "int8 pooling", "", 0},
    {"GlobalAveragePool", SB_QDQ_BOTH, "int8 pooling", "", 0},
    {"Relu",      SB_QDQ_THROUGH, NULL, "", 0},
    {"Clip",      SB_QDQ_THROUGH, NULL, "", 0},
    {"Concat",    SB_QDQ_THROUGH, NULL, "", 0},
    {"Flatten",   SB_QDQ_THROUGH, NULL, "", 0},
    {"Gather",    SB_QDQ_THROUGH, NULL, "", 0},
    {"MaxPool",   SB_QDQ_THROUGH, NULL, "", 0},
    {"Pad",       SB_QDQ_THROUGH, NULL, "", 0},
    {"Reshape",   SB_QDQ_THROUGH, NULL, "", 0},
    {"Slice",     SB_QDQ_THROUGH, NULL, "", 0},
    {"Split",     SB_QDQ_THROUGH, NULL, "", 0},
    {"Squeeze",   SB_QDQ_THROUGH, NULL, "", 0},
    {"Transpose", SB_QDQ_THROUGH, NULL, "", 0},
    {"Unsqueeze", SB_QDQ_THROUGH, NULL, "", 0},
};

static const sb_qdq_rule openvino_rows[] = {
    {"Conv",          SB_QDQ_INPUTS, "int8 convolution", "", WEIGHTED},
    {"ConvTranspose", SB_QDQ_INPUTS, "int8 deconvolution", "", WEIGHTED},
    {"Gemm",          SB_QDQ_INPUTS, "int8 matrix product", "", WEIGHTED},
    {"MatMul",        SB_QDQ_INPUTS, "int8 matrix product", "", WEIGHTED},
    {"Add",           SB_QDQ_INPUTS, "int8 sum", "", 0},
    {"Mul",           SB_QDQ_INPUTS, "int8 product", "", 0},
    {"AveragePool",       SB_QDQ_INPUTS, "int8 pooling", "", 0},
    {"GlobalAveragePool", SB_QDQ_INPUTS, "int8 pooling", "", 0},
    {"Resize",        SB_QDQ_INPUTS, "int8 resize", "", 0},
    {"Relu",      SB_QDQ_THROUGH, NULL, "", 0},
    {"Clip",      SB_QDQ_THROUGH, NULL, "", 0},
    {"Concat",    SB_QDQ_THROUGH, NULL, "", 0},
    {"Expand",    SB_QDQ_THROUGH, NULL, "", 0},
    {"Flatten",   SB_QDQ_THROUGH, NULL, "", 0},
    {"MaxPool",   SB_QDQ_THROUGH, NULL, "", 0},
    {"Pad",       SB_QDQ_THROUGH, NULL, "", 0},
    {"ReduceMax", SB_QDQ_THROUGH, NULL, "", 0},
    {"Reshape",   SB_QDQ_THROUGH, NULL, "", 0},
    {"Slice",     SB_QDQ_THROUGH, NULL, "", 0},
    {"Split",     SB_QDQ_THROUGH, NULL, "", 0},
    {"Squeeze",   SB_QDQ_THROUGH, NULL, "", 0},
    {"Tile",      SB_QDQ_THROUGH, NULL, "", 0},
    {"Transpose", SB_QDQ_THROUGH, NULL, "", 0},
    {"Unsqueeze", SB_QDQ_THROUGH, NULL, "", 0},
};

#define WIDE (SB_QDQ_16BIT | SB_QDQ_4BIT)
#define UNIT(op, kind) {op, kind, "QNN " op, "", WIDE}

static const sb_qdq_rule qnn_rows[] = {
    {"Conv",          SB_QDQ_CONV,   "QNN Conv", "", WIDE | WEIGHTED | SB_QDQ_ANY_INT8},
    {"ConvTranspose", SB_QDQ_CONV,   "QNN ConvTranspose", "", WIDE | WEIGHTED | SB_QDQ_ANY_INT8},
    {"MatMul",        SB_QDQ_MATMUL, "QNN MatMul", "", WIDE | WEIGHTED | SB_QDQ_ANY_INT8},
    {"Gemm",          SB_QDQ_GEMM,   "QNN Gemm", "", WIDE | WEIGHTED | SB_QDQ_ANY_INT8},
    UNIT("InstanceNormalization", SB_QDQ_NORM), UNIT("LayerNormalization", SB_QDQ_NORM),
    UNIT("Abs", SB_QDQ_FIRST), UNIT("AveragePool", SB_QDQ_FIRST), UNIT("Clip", SB_QDQ_FIRST),
    UNIT("DepthToSpace", SB_QDQ_FIRST), UNIT("Elu", SB_QDQ_FIRST), UNIT("Exp", SB_QDQ_FIRST),
    UNIT("Gelu", SB_QDQ_FIRST), UNIT("GlobalAveragePool", SB_QDQ_FIRST),
    UNIT("GlobalMaxPool", SB_QDQ_FIRST), UNIT("HardSigmoid", SB_QDQ_FIRST),
    UNIT("HardSwish", SB_QDQ_FIRST), UNIT("LeakyRelu", SB_QDQ_FIRST), UNIT("Log", SB_QDQ_FIRST),
    UNIT("Neg", SB_QDQ_FIRST), UNIT("Pad", SB_QDQ_FIRST), UNIT("ReduceMax", SB_QDQ_FIRST),
    UNIT("ReduceMean", SB_QDQ_FIRST), UNIT("ReduceMin", SB_QDQ_FIRST), UNIT("ReduceSum", SB_QDQ_FIRST),
    UNIT("Relu", SB_QDQ_FIRST), UNIT("Sigmoid", SB_QDQ_FIRST), UNIT("Slice", SB_QDQ_FIRST),
    UNIT("Softmax", SB_QDQ_FIRST), UNIT("SpaceToDepth", SB_QDQ_FIRST), UNIT("Sqrt", SB_QDQ_FIRST),
    UNIT("Tanh", SB_QDQ_FIRST),
    UNIT("Add", SB_QDQ_ALL), UNIT("Concat", SB_QDQ_ALL), UNIT("Div", SB_QDQ_ALL), UNIT("Max", SB_QDQ_ALL),
    UNIT("Min", SB_QDQ_ALL), UNIT("Mul", SB_QDQ_ALL), UNIT("PRelu", SB_QDQ_ALL), UNIT("Pow", SB_QDQ_ALL),
    UNIT("Sub", SB_QDQ_ALL),
    UNIT("Where", SB_QDQ_WHERE), UNIT("Split", SB_QDQ_SPLIT),
    UNIT("Expand", SB_QDQ_DROP), UNIT("Flatten", SB_QDQ_DROP), UNIT("Gather", SB_QDQ_DROP),
    UNIT("GatherElements", SB_QDQ_DROP), UNIT("MaxPool", SB_QDQ_DROP), UNIT("Reshape", SB_QDQ_DROP),
    UNIT("Resize", SB_QDQ_DROP), UNIT("Squeeze", SB_QDQ_DROP), UNIT("Tile", SB_QDQ_DROP),
    UNIT("Transpose", SB_QDQ_DROP), UNIT("Unsqueeze", SB_QDQ_DROP), UNIT("ArgMax", SB_QDQ_DROP_DQ),
};
/* clang-format on */

#define ROWS(table) .rows = table, .n_rows = SB_COUNT(table)

const sb_qdq_rules sb_qdq_rules_ort_x86 = {
    .name = "ONNX Runtime on x86",
    .flags = SB_QDQ_STEPS_ORT | SB_QDQ_S8_TO_U8,
    ROWS(ort_rows),
};

const sb_qdq_rules sb_qdq_rules_ort_arm = {
    .name = "ONNX Runtime on ARM",
    .flags = SB_QDQ_STEPS_ORT | SB_QDQ_INT8,
    ROWS(ort_rows),
};

const sb_qdq_rules sb_qdq_rules_tensorrt = {
    .name = "TensorRT",
    .flags = SB_QDQ_INT8 | SB_QDQ_TRT_PARSER,
    ROWS(tensorrt_rows),
};

const sb_qdq_rules sb_qdq_rules_openvino = {
    .name = "OpenVINO",
    .flags = SB_QDQ_INT8,
    ROWS(openvino_rows),
};

const sb_qdq_rules sb_qdq_rules_qnn = {
    .name = "ONNX Runtime's QNN provider",
    .flags = SB_QDQ_INT8,
    ROWS(qnn_rows),
};

const sb_qdq_rule *sb_qdq_rule_find(const sb_qdq_rules *rules,
                                    const sb_node *node)
{
    if (*node->domain)
        return NULL;
    for (size_t i = 0; i < rules->n_rows; i++)
        if (strcmp(rules->rows[i].op, node->op) == 0)
            return &rules->rows[i];
    return NULL;
}
