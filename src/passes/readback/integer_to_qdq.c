/* Pass "integer_to_qdq": integer operators become float ones between Q and DQ.
 *
 *     before:  y = QLinearConv(x, ...)
 *     after:   y = QuantizeLinear(Conv(DequantizeLinear(x), ...))
 *
 * The other way round of what a runtime does (runtime/sim), so that whatever
 * reads Q/DQ files reads files with QLinearConv, too.  A zero point at
 * the lowest number cuts off what is negative; a Relu says so, and nothing else
 * changes. */
#include <string.h>

#include "ops/op_registry.h"
#include "passes/pass.h"
#include "passes/readback/integer_util.h"
#include "passes/rewrite.h"

#define MS "com.microsoft"

enum { NONE = 255, MAX_IN = 64 };

/* Where the inputs of an integer operator are. */
typedef struct integer_row {
    const char *op, *domain, *to;
    uint8_t first;  /* the first triple: integers, scale, zero point */
    uint8_t n;      /* triples; NONE: up to the last input */
    uint8_t plain;  /* input that is handed on as it is; NONE */
    uint8_t bias;   /* int32, scale s_x * s_w; NONE */
    uint8_t result; /* scale of the result, its zero point behind; NONE */
    bool relu;      /* may hold a Relu */
} integer_row;

/* clang-format off */
static const integer_row rows[] = {
    {"QLinearConv",       "", "Conv",   0, 2, NONE, 8,    6,    true},
    {"QLinearMatMul",     "", "MatMul", 0, 2, NONE, NONE, 6,    true},
    {"QGemm",             MS, "Gemm",   0, 2, NONE, 6,    7,    true},
    {"QLinearAdd",        MS, "Add",    0, 2, NONE, NONE, 6,    true},
    {"QLinearMul",        MS, "Mul",    0, 2, NONE, NONE, 6,    true},
    {"QLinearConcat",     MS, "Concat", 2, NONE, NONE, NONE, 0, false},
    {"QLinearWhere",      MS, "Where",  1, 2, 0,    NONE, 7,    false},
    {"QLinearSigmoid",    MS, "Sigmoid",   0, 1, NONE, NONE, 3, false},
    {"QLinearLeakyRelu",  MS, "LeakyRelu", 0, 1, NONE, NONE, 3, false},
    {"QLinearSoftmax",    MS, "Softmax",   0, 1, NONE, NONE, 3, false},
    {"QLinearAveragePool",       MS, "AveragePool",       0, 1, NONE, NONE, 3, false},
    {"QLinearGlobalAveragePool", MS, "GlobalAveragePool", 0, 1, NONE, NONE, 3, false},
};

/* What only moves elements runs on integers as it is. */
static const char *const movers[] = {
    "MaxPool", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze",
    "Slice", "Split", "Gather", "Expand", "Tile", "DepthToSpace", "Resize",
    "ReduceMax", "ReduceMin", "GatherElements", "SpaceToDepth",
};
/* clang-format on */

/* ---- nodes -------------------------------------------------------------- */

/* y = Q(x) */
static sb_status integer_to_qdq_quantize(sb_graph *g, const sb_node *like,
                                         sb_value_id x, sb_value_id scale,
                                         sb_value_id zero, sb_value_id y)
{
    const sb_value_id in[] = {x, scale, zero};
    sb_node_id q;

    SB_TRY(sb_put_node(g, like, "QuantizeLinear", in, zero == SB_NONE ? 2 : 3,
                       y, &q));
    return sb_graph_set_attr_int(g, q, "axis", 0);
}

/* The float value before the integers `y`, named as they were named after
 * it. */
static sb_status float_of(sb_graph *g, sb_value_id y, sb_value_id *out)
{
    static const char tail[] = "_quantized";
    const char *name = sb_graph_value(g, y)->name;
    size_t len = strlen(name), n = sizeof tail - 1;

    SB_TRY(sb_put_value(g, y, SB_DTYPE_F32, out));
    if (len <= n || strcmp(name + len - n, tail) != 0)
        return SB_OK;
    char *base = sb_arena_strn(g->arena, name, len - n);
    return base ? sb_graph_claim_name(g, *out, base) : SB_NO_MEMORY;
}

/* ---- integer operators -------------------------------------------------- */

static const integer_row *row_of(const sb_node *node)
{
    for (size_t i = 0; i < SB_COUNT(rows); i++)
        if (strcmp(node->op, rows[i].op) == 0 &&
            strcmp(node->domain, rows[i].domain) == 0)
            return &rows[i];
    return NULL;
}

static size_t triples_of(const integer_row *row, const sb_node *node)
{
    if (row->n != NONE)
        return row->n;
    return node->n_in > row->first ? (node->n_in - row->first) / 3 : 0;
}

static bool all_there(const sb_node *node, size_t first, size_t n)
{
    for (size_t i = first; i < first + n; i++)
        if (i >= node->n_in || node->inputs[i] == SB_NONE)
            return false;
    return true;
}

/* Are integers and scale of all triples there? */
static bool has_triples(const integer_row *row, const sb_node *node, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!all_there(node, row->first + 3 * i, 2))
            return false;
    return row->plain == NONE || all_there(node, row->plain, 1);
}

/* Can it be written in float?  Biases need scales that are known. */
static bool is_plain(const sb_graph *g, const integer_row *row,
                     const sb_node *node)
{
    size_t n = triples_of(row, node);

    if (node->n_out != 1 || n == 0 || n + 1 > MAX_IN ||
        node->n_in < row->first + 3 * n || !has_triples(row, node, n) ||
        sb_node_int(node, "channels_last", 0) != 0 ||
        sb_node_int(node, "opset", 13) < 13)
        return false;
    if (row->bias == NONE || sb_node_in(node, row->bias) == SB_NONE)
        return true;
    const sb_tensor *sx = sb_const_of(g, sb_node_in(node, 1));
    const sb_tensor *sw = sb_const_of(g, sb_node_in(node, 4));
    return sx && sw && sx->dtype == SB_DTYPE_F32 && sw->dtype == SB_DTYPE_F32 &&
           sb_tensor_count(sx) == 1 && sw->rank <= 1;
}

/* Along which axis the weight may have several scales. */
static int scales_axis(const sb_graph *g, const sb_node *node, sb_value_id w)
{
    int axis = sb_op_weight_axis(node, sb_graph_value(g, w)->type.shape.rank);

    return axis < 0 ? 0 : axis;
}

static sb_status put_bias(sb_graph *g, const sb_node *node, sb_value_id bias,
                          sb_value_id *out)
{
    const sb_tensor *sx = sb_const_of(g, node->inputs[1]);
    const sb_tensor *sw = sb_const_of(g, node->inputs[4]);
    size_t n = (size_t)sb_tensor_count(sw);
    float *s = sb_alloc(g->ctx, n, sizeof *s);
    int32_t *z = sb_alloc(g->ctx, n, sizeof *z);
    sb_value_id in[3] = {bias, SB_NONE, SB_NONE};
    sb_status status = s && z ? SB_OK : SB_NO_MEMORY;

    for (size_t i = 0; status == SB_OK && i < n; i++)
        s[i] = ((const float *)sx->data)[0] * ((const float *)sw->data)[i];
    int64_t dims[1] = {(int64_t)n};
    int rank = sw->rank;
    if (status == SB_OK)
        status = sb_graph_add_constant(g, "bias_scale", SB_DTYPE_F32, rank,
                                       dims, s, &in[1]);
    if (status == SB_OK)
        status = sb_graph_add_constant(g, "bias_zero_point", SB_DTYPE_I32, rank,
                                       dims, z, &in[2]);
    if (status == SB_OK)
        status = sb_put_dequantize(g, node, in, 0, out);
    sb_free(g->ctx, s);
    sb_free(g->ctx, z);
    return status;
}

/* Does the zero point stand at the lowest number of its type? */
static bool cuts_negative(const sb_graph *g, sb_value_id zero)
{
    const sb_tensor *z = sb_const_of(g, zero);

    if (!z || sb_tensor_count(z) != 1)
        return false;
    return sb_tensor_get_f64(z, 0) == (z->dtype == SB_DTYPE_I8 ? -128 : 0);
}

static sb_status copy_attrs(sb_graph *g, const sb_node *from, sb_node_id to)
{
    for (uint32_t i = 0; i < from->n_attrs; i++)
        if (strcmp(from->attrs[i].name, "opset") != 0 &&
            strcmp(from->attrs[i].name, "channels_last") != 0)
            SB_TRY(sb_graph_set_attr(g, to, &from->attrs[i]));
    return SB_OK;
}

/* The float operator with its inputs; its result is *y. */
static sb_status put_operator(sb_graph *g, const integer_row *row,
                              const sb_node *node, sb_value_id y)
{
    size_t n = triples_of(row, node), k = 0;
    sb_value_id in[MAX_IN + 2];
    sb_node_id op;

    if (row->plain != NONE)
        in[k++] = node->inputs[row->plain];
    for (size_t i = 0; i < n; i++) {
        const sb_value_id *triple = &node->inputs[row->first + 3 * i];
        SB_TRY(sb_put_dequantize(g, node, triple,
                                 i == 1 ? scales_axis(g, node, triple[0]) : 0,
                                 &in[k++]));
    }
    if (row->bias != NONE && sb_node_in(node, row->bias) != SB_NONE)
        SB_TRY(put_bias(g, node, node->inputs[row->bias], &in[k++]));
    SB_TRY(sb_put_node(g, node, row->to, in, k, y, &op));
    sb_node *fresh = sb_graph_node(g, op);
    fresh->name = node->name;
    return copy_attrs(g, node, op);
}

static sb_status integer_to_qdq_rewrite(sb_graph *g, const integer_row *row,
                                        sb_node_id id)
{
    const sb_node node = *sb_graph_node(g, id);
    sb_value_id y = node.outputs[0], x = y, made = SB_NONE;
    sb_value_id scale = sb_node_in(&node, row->result);
    sb_value_id zero = sb_node_in(&node, row->result + 1u);

    sb_graph_remove_node(g, id); /* its inputs stay in the copy */
    if (scale != SB_NONE)
        SB_TRY(float_of(g, y, &x));
    made = x;
    if (scale != SB_NONE && row->relu && cuts_negative(g, zero)) {
        sb_node_id relu;
        SB_TRY(sb_put_value(g, x, SB_DTYPE_F32, &made));
        SB_TRY(sb_put_node(g, &node, "Relu", &made, 1, x, &relu));
    }
    SB_TRY(put_operator(g, row, &node, made));
    return scale == SB_NONE
               ? SB_OK
               : integer_to_qdq_quantize(g, &node, x, scale, zero, y);
}

/* MatMulIntegerToFloat(a, b, s_a, s_b, z_a, z_b[, bias]) */
static sb_status rewrite_product(sb_graph *g, sb_node_id id)
{
    const sb_node node = *sb_graph_node(g, id);
    sb_value_id in[2], bias = sb_node_in(&node, 6), y = node.outputs[0];
    sb_value_id product = y;
    sb_node_id op;

    sb_graph_remove_node(g, id);
    for (uint32_t i = 0; i < 2; i++) {
        const sb_value_id triple[] = {node.inputs[i], node.inputs[2 + i],
                                      sb_node_in(&node, 4 + i)};
        SB_TRY(sb_put_dequantize(g, &node, triple,
                                 i == 1 ? scales_axis(g, &node, triple[0]) : 0,
                                 &in[i]));
    }
    if (bias != SB_NONE) {
        sb_node_id add;
        SB_TRY(sb_put_value(g, y, SB_DTYPE_F32, &product));
        SB_TRY(sb_put_node(g, &node, "Add", (sb_value_id[]){product, bias}, 2,
                           y, &add));
    }
    SB_TRY(sb_put_node(g, &node, "MatMul", in, 2, product, &op));
    sb_graph_node(g, op)->name = node.name;
    return SB_OK;
}

/* ---- what moves integers ------------------------------------------------ */

static bool is_mover(const sb_node *node)
{
    for (size_t i = 0; i < SB_COUNT(movers); i++)
        if (sb_node_is(node, movers[i]))
            return true;
    return false;
}

/* Q -> mover: DQ and Q with the same scale around it. */
static sb_status integer_to_qdq_surround(sb_graph *g, sb_node_id id,
                                         size_t *changes)
{
    const sb_node node = *sb_graph_node(g, id);
    const sb_node *before = sb_graph_producer(g, sb_node_in(&node, 0));
    sb_value_id x = SB_NONE;

    if (!is_mover(&node) || !before || !sb_node_is(before, "QuantizeLinear") ||
        before->n_in < 3 || !sb_const_of(g, before->inputs[1]) ||
        sb_tensor_count(sb_const_of(g, before->inputs[1])) != 1)
        return SB_OK;
    const sb_value_id in[] = {node.inputs[0], before->inputs[1],
                              before->inputs[2]};
    SB_TRY(sb_put_dequantize(g, &node, in, 0, &x));
    SB_TRY(sb_graph_set_input(g, id, 0, x));
    for (uint32_t k = 0; k < node.n_out; k++) {
        sb_value_id y = node.outputs[k], made = SB_NONE;
        if (y == SB_NONE || (k > 0 && sb_node_is(&node, "MaxPool")))
            continue;
        SB_TRY(float_of(g, y, &made));
        sb_value *old = sb_graph_value(g, y), *new = sb_graph_value(g, made);
        sb_graph_node(g, id)->outputs[k] = made;
        new->producer = id;
        new->output = k;
        old->producer = SB_NONE;
        SB_TRY(integer_to_qdq_quantize(g, &node, made, in[1], in[2], y));
    }
    ++*changes;
    return SB_OK;
}

static sb_status integer_to_qdq_run(sb_graph *g, size_t *changes)
{
    sb_node_id *order = NULL;
    size_t n = 0, before = *changes;
    sb_status status = sb_graph_order(g, &order, &n);

    for (size_t i = 0; i < n && status == SB_OK; i++) {
        const sb_node *node = sb_graph_node(g, order[i]);
        const integer_row *row = row_of(node);
        bool product = strcmp(node->op, "MatMulIntegerToFloat") == 0 &&
                       all_there(node, 0, 4) && node->n_out == 1;
        if (!product && (!row || !is_plain(g, row, node)))
            continue;
        status = product ? rewrite_product(g, order[i])
                         : integer_to_qdq_rewrite(g, row, order[i]);
        ++*changes;
    }
    sb_free(g->ctx, order);
    if (status != SB_OK || *changes == before)
        return status;
    order = NULL;
    status = sb_graph_order(g, &order, &n);
    for (size_t i = 0; i < n && status == SB_OK; i++)
        status = integer_to_qdq_surround(g, order[i], changes);
    sb_free(g->ctx, order);
    return status;
}

const sb_pass_def sb_pass_integer_to_qdq = {
    .name = "integer_to_qdq",
    .summary = "QLinearConv and the like as float between Q and DQ",
    .run = integer_to_qdq_run,
    .once = true,
};
