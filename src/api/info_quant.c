/* What is quantized in a model, as its nodes say:
 *
 *     constant -> DequantizeLinear                    a weight (int32: a bias)
 *     constant -> Gather -> DequantizeLinear          a table
 *     constant -> QuantizeLinear                      a weight, still in float
 *     value -> QuantizeLinear, DynamicQuantize...     an activation
 *     QLinearConv and similar                         its result and weights
 *
 * A constant with several consumers counts once. */
#include "api/info_quant.h"

#include <string.h>

#include "ops/op_registry.h"
#include "passes/rewrite.h"

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* Does it compute with integers, or make them, or read tables of them? */
static bool has_integers(const sb_node *node)
{
    static const char *const ops[] = {"DynamicQuantizeLinear",
                                      "QEmbedLayerNormalization",
                                      "GatherBlockQuantized"};

    for (size_t i = 0; i < SB_COUNT(ops); i++)
        if (strcmp(node->op, ops[i]) == 0)
            return true;
    return sb_op_is_integer(node, NULL);
}

static bool is_integer(sb_dtype dtype)
{
    const sb_dtype_info *info = sb_dtype_get(dtype);

    return info->cls == SB_CLASS_INT || info->cls == SB_CLASS_UINT;
}

static const sb_value *value_in(const sb_graph *g, const sb_node *node,
                                uint32_t i)
{
    sb_value_id v = sb_node_in(node, i);

    return v == SB_NONE ? NULL : sb_graph_value(g, v);
}

/* Is this edge the first that reads the constant? */
static bool is_first(const sb_value *v, sb_node_id id, uint32_t input)
{
    return v->n_uses > 0 && v->uses[0].node == id && v->uses[0].input == input;
}

/* How many elements share a scale; "" if that cannot be seen. */
static const char *info_quant_granularity(const sb_value *scale, bool blocks)
{
    if (blocks)
        return "per group";
    if (!scale)
        return "";
    if (!scale->is_constant)
        return scale->type.shape.rank == 0 ? "per tensor" : "per channel";
    return sb_tensor_count(&scale->constant) > 1 ? "per channel" : "per tensor";
}

enum { WEIGHTS, ACTIVATIONS };

/* What is counted: a value that a node quantizes, or whose integers it has. */
typedef struct counted {
    const sb_graph *g;
    const sb_node *node;
    const sb_value *value;
    sb_dtype dtype;
    const char *granularity;
} counted;

static sb_status info_quant_add(sb_info_quant *q, int kind, const counted *c,
                                int64_t elements)
{
    sb_quant_count *rows = q->rows[kind];
    const char *granularity_of = c->granularity;
    sb_dtype dtype = c->dtype;
    size_t i = 0;
    int bits = 0;

    SB_TRY(sb_info_width(c->g, c->node, c->value->name, dtype, &bits));
    while (i < q->n[kind] && (rows[i].dtype != dtype || rows[i].bits != bits ||
                              strcmp(rows[i].granularity, granularity_of) != 0))
        i++;
    if (i == q->n[kind]) {
        SB_TRY(sb_grow(q->ctx, &q->rows[kind], &q->cap[kind], i + 1,
                       sizeof *rows));
        rows = q->rows[kind];
        rows[i] = (sb_quant_count){
            .dtype = dtype, .bits = bits, .granularity = granularity_of};
        q->n[kind]++;
    }
    rows[i].values++;
    rows[i].elements += elements;
    return SB_OK;
}

/* ---- nodes -------------------------------------------------------------- */

static sb_status count_quantize(sb_info_quant *q, const sb_graph *g,
                                sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    const sb_value *x = value_in(g, node, 0), *zero = value_in(g, node, 2);
    const char *per = info_quant_granularity(
        value_in(g, node, 1), sb_node_int(node, "block_size", 0) > 0);
    sb_dtype dtype = zero ? zero->type.dtype
                     : node->n_out > 0 && node->outputs[0] != SB_NONE
                         ? sb_graph_value(g, node->outputs[0])->type.dtype
                         : SB_DTYPE_U8;

    q->n_quantize++;
    if (!x)
        return SB_OK;
    const counted c = {g, node, x, dtype, per};
    if (!x->is_constant)
        return info_quant_add(q, ACTIVATIONS, &c, 0);
    if (!is_first(x, id, 0))
        return SB_OK;
    return info_quant_add(q, WEIGHTS, &c, sb_tensor_count(&x->constant));
}

static sb_status count_dequantize(sb_info_quant *q, const sb_graph *g,
                                  sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    const sb_value *x = value_in(g, node, 0), *scale = value_in(g, node, 1);
    bool blocks = sb_node_int(node, "block_size", 0) > 0, table = false;
    sb_node_id consumer = id;

    q->n_dequantize++;
    if (x && !x->is_constant && x->producer != SB_NONE) {
        const sb_node *rows = sb_graph_node(g, x->producer);
        table = sb_node_is(rows, "Gather");
        consumer = x->producer;
        x = table ? value_in(g, rows, 0) : NULL;
    }
    if (!x || !x->is_constant || !is_integer(x->constant.dtype) ||
        !is_first(x, consumer, 0))
        return SB_OK;
    /* A row is one block of its own. */
    if (table && scale && !scale->is_constant)
        blocks =
            sb_node_int(node, "block_size", 0) <
            x->constant.dims[x->constant.rank > 0 ? x->constant.rank - 1 : 0];
    const counted c = {g, node, x, x->constant.dtype,
                       info_quant_granularity(scale, blocks)};
    return info_quant_add(q, WEIGHTS, &c, sb_tensor_count(&x->constant));
}

/* Packed integers: the attribute says how wide they are. */
static sb_status count_packed(sb_info_quant *q, const sb_graph *g,
                              const sb_node *node)
{
    int64_t bits = sb_node_int(node, "bits", 4);
    int64_t k = sb_node_int(node, "K", 0), n = sb_node_int(node, "N", 0);
    sb_dtype dtype = bits == 2   ? SB_DTYPE_U2
                     : bits <= 4 ? SB_DTYPE_U4
                                 : SB_DTYPE_U8;
    const sb_value *w = value_in(g, node, 1);

    if (!w || !w->is_constant || k <= 0 || n <= 0 || n > INT64_MAX / k)
        return SB_OK;
    const counted c = {g, node, w, dtype, "per group"};
    return info_quant_add(q, WEIGHTS, &c, k * n);
}

static sb_status count_integer(sb_info_quant *q, const sb_graph *g,
                               sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    bool dynamic = starts_with(node->op, "DynamicQuantize");
    /* These multiply by their scales later. */
    bool raw = starts_with(node->op, "ConvInteger") ||
               starts_with(node->op, "MatMulInteger");

    q->n_integer++;
    if (strcmp(node->op, "MatMulNBits") == 0)
        return count_packed(q, g, node);
    for (uint32_t i = 0; i < node->n_in; i++) {
        const sb_value *v = value_in(g, node, i);
        const sb_value *scale = raw ? NULL : value_in(g, node, i + 1);

        if (!v || !v->is_constant || v->constant.rank < 2 ||
            !is_integer(v->constant.dtype) || !is_first(v, id, i))
            continue;
        const counted c = {g, node, v, v->constant.dtype,
                           info_quant_granularity(scale, false)};
        SB_TRY(info_quant_add(q, WEIGHTS, &c, sb_tensor_count(&v->constant)));
    }
    const counted x = {g, node, value_in(g, node, 0), SB_DTYPE_U8,
                       "at run time"};
    if (dynamic)
        return x.value ? info_quant_add(q, ACTIVATIONS, &x, 0) : SB_OK;
    if (raw || node->n_out == 0 || node->outputs[0] == SB_NONE)
        return SB_OK;
    const sb_value *y = sb_graph_value(g, node->outputs[0]);
    const counted c = {g, node, y, y->type.dtype, "per tensor"};
    return is_integer(y->type.dtype) ? info_quant_add(q, ACTIVATIONS, &c, 0)
                                     : SB_OK;
}

sb_status sb_info_quant_node(sb_info_quant *q, const sb_graph *g, sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);

    if (*node->domain && strcmp(node->domain, "com.microsoft") != 0)
        return SB_OK;
    if (strcmp(node->op, "QuantizeLinear") == 0)
        return count_quantize(q, g, id);
    if (strcmp(node->op, "DequantizeLinear") == 0)
        return count_dequantize(q, g, id);
    return has_integers(node) ? count_integer(q, g, id) : SB_OK;
}

/* ---- the result --------------------------------------------------------- */

static sb_status info_quant_keep(const sb_info_quant *q, int kind,
                                 sb_arena *arena,
                                 const sb_quant_count *const **out, size_t *n)
{
    size_t count = q->n[kind];
    sb_quant_count *rows = sb_arena_alloc(arena, count, sizeof *rows);
    const sb_quant_count **list = sb_arena_alloc(arena, count, sizeof(*list));

    if (!rows || !list)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        rows[i] = q->rows[kind][i];
        list[i] = &rows[i];
    }
    *out = list;
    *n = count;
    return SB_OK;
}

sb_status sb_info_quant_keep(const sb_info_quant *q, const sb_graph *g,
                             sb_arena *arena, sb_model_info *out)
{
    out->quantize_nodes = q->n_quantize;
    out->dequantize_nodes = q->n_dequantize;
    out->integer_nodes = q->n_integer;
    const char *target = sb_graph_prop(g, "sparsebit.target");
    out->target = target ? target : "";
    SB_TRY(info_quant_keep(q, WEIGHTS, arena, &out->quant_weights,
                           &out->n_quant_weights));
    return info_quant_keep(q, ACTIVATIONS, arena, &out->quant_activations,
                           &out->n_quant_activations);
}

void sb_info_quant_free(sb_info_quant *q)
{
    sb_free(q->ctx, q->rows[WEIGHTS]);
    sb_free(q->ctx, q->rows[ACTIVATIONS]);
}
