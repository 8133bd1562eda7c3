/* Pass "dynamic_to_qdq": layers whose activations are quantized at each run
 * become float ones behind DequantizeLinear.
 *
 *     before:  q, s, z = DynamicQuantizeLinear(x)
 *              y = Mul(Cast(MatMulInteger(q, w, z, w_zero)), Mul(s, w_scale))
 *     after:   y = MatMul(DQ(q, s, z), DQ(w, w_scale, w_zero))
 *
 * and ConvInteger likewise; DynamicQuantizeMatMul and DynamicQuantizeLSTM are
 * taken apart.  What is computed stays the same but for the last bits of the
 * sums (and the rounding of an LSTM's hidden state), and whatever reads Q/DQ
 * files reads such files, too.  Anything that is not exactly of this form
 * stays as it is. */
#include <assert.h>
#include <string.h>

#include "ops/op_registry.h"
#include "passes/pass.h"
#include "passes/readback/integer_util.h"
#include "passes/rewrite.h"

typedef struct layer {
    sb_node_id product, cast, scaled; /* integer operator, Cast, last Mul */
    sb_value_id x[3];                 /* integers, scale, zero point */
    sb_value_id w[3];
    bool conv;
} layer;

/* ---- the pattern -------------------------------------------------------- */

/* The node that alone reads a value, through one input; SB_NONE if there are
 * others. */
static sb_node_id only_consumer(const sb_graph *g, sb_value_id value)
{
    const sb_value *v = sb_graph_value(g, value);

    return v->n_uses == 1 && !v->is_output ? v->uses[0].node : SB_NONE;
}

static const sb_node *dynamic_to_qdq_producer(const sb_graph *g, sb_value_id v,
                                              const char *op)
{
    const sb_node *node = v == SB_NONE ? NULL : sb_graph_producer(g, v);

    return node && sb_node_is(node, op) ? node : NULL;
}

/* Scale and zero point of what a DynamicQuantizeLinear made, next to its
 * integers in from[0]. */
static bool find_dynamic(const sb_graph *g, sb_value_id zero, sb_value_id *from)
{
    const sb_node *node =
        dynamic_to_qdq_producer(g, from[0], "DynamicQuantizeLinear");

    if (!node || node->n_out != 3 || node->outputs[0] != from[0] ||
        node->outputs[1] == SB_NONE || zero == SB_NONE ||
        node->outputs[2] != zero)
        return false;
    from[1] = node->outputs[1];
    from[2] = zero;
    return true;
}

/* What is multiplied beside `one` by a Mul of two. */
static sb_value_id other_factor(const sb_node *mul, sb_value_id one)
{
    if (!sb_node_is(mul, "Mul") || mul->n_in != 2 || mul->n_out != 1)
        return SB_NONE;
    return mul->inputs[0] == one   ? mul->inputs[1]
           : mul->inputs[1] == one ? mul->inputs[0]
                                   : SB_NONE;
}

/* cast * (s * w_scale), or (cast * s) * w_scale in any order: the scale of the
 * weight, and the Mul that ends it. */
static bool find_scale(const sb_graph *g, layer *l, sb_value_id cast,
                       sb_value_id *scale)
{
    sb_node_id id = only_consumer(g, cast);
    sb_value_id by =
        id == SB_NONE ? SB_NONE : other_factor(sb_graph_node(g, id), cast);

    if (by == SB_NONE || by == cast)
        return false;
    l->scaled = id;
    const sb_node *both = dynamic_to_qdq_producer(g, by, "Mul");
    if (both) {
        *scale = other_factor(both, l->x[1]);
        return *scale != SB_NONE;
    }
    sb_value_id once = sb_graph_node(g, id)->outputs[0];
    sb_node_id again = only_consumer(g, once);
    sb_value_id rest = again == SB_NONE
                           ? SB_NONE
                           : other_factor(sb_graph_node(g, again), once);
    if (rest == SB_NONE || rest == once || (by != l->x[1] && rest != l->x[1]))
        return false;
    l->scaled = again;
    *scale = by == l->x[1] ? rest : by;
    return true;
}

/* ---- the weight --------------------------------------------------------- */

/* Has the constant one element, or n of them along the dimension that has
 * `tail` others behind it?  More dimensions than that would be added to the
 * result. */
static bool is_along(const sb_tensor *t, int64_t n, int tail)
{
    if (t->rank > tail + 1 + (tail > 0))
        return false;
    if (sb_tensor_count(t) == 1)
        return true;
    for (int d = 0; d < t->rank; d++)
        if (t->dims[d] != (d == t->rank - 1 - tail ? n : 1))
            return false;
    return t->rank > tail;
}

static bool is_weight(const sb_graph *g, const layer *l, sb_value_id scale,
                      sb_value_id zero)
{
    const sb_tensor *w = sb_const_of(g, l->w[0]);
    const sb_tensor *s = sb_const_of(g, scale), *z = sb_const_of(g, zero);
    int axis =
        w ? sb_op_weight_axis(sb_graph_node(g, l->product), w->rank) : -1;

    if (axis < 0 || (l->conv && w->rank < 3) ||
        (w->dtype != SB_DTYPE_I8 && w->dtype != SB_DTYPE_U8) || !s ||
        s->dtype != SB_DTYPE_F32 || (zero != SB_NONE && !z) ||
        sb_tensor_count(w) == 0)
        return false;
    if (z && (z->dtype != w->dtype || !is_along(z, w->dims[axis], 0)))
        return false;
    return is_along(s, w->dims[axis], l->conv ? w->rank - 2 : 0);
}

/* A scale that was laid out for the result, [C, 1, 1], as [C]. */
static sb_status dynamic_to_qdq_flatten(sb_graph *g, sb_value_id *v)
{
    const sb_value *old = sb_graph_value(g, *v);
    sb_tensor t = old->constant;

    if (t.rank <= 1)
        return SB_OK;
    t.dims[0] = sb_tensor_count(&t);
    t.rank = t.dims[0] == 1 ? 0 : 1;
    SB_TRY(sb_graph_add_value_like(g, old->name, v));
    return sb_graph_set_constant(g, *v, &t);
}

static bool find_layer(const sb_graph *g, sb_node_id id, layer *l)
{
    const sb_node *node = sb_graph_node(g, id);
    sb_value_id scale = SB_NONE, zero = sb_node_in(node, 3);

    *l = (layer){.product = id, .conv = sb_node_is(node, "ConvInteger")};
    if ((!l->conv && !sb_node_is(node, "MatMulInteger")) || node->n_out != 1)
        return false;
    l->x[0] = sb_node_in(node, 0);
    l->w[0] = sb_node_in(node, 1);
    if (l->x[0] == SB_NONE || l->w[0] == SB_NONE ||
        !find_dynamic(g, sb_node_in(node, 2), l->x))
        return false;
    l->cast = only_consumer(g, node->outputs[0]);
    if (l->cast == SB_NONE || !sb_node_is(sb_graph_node(g, l->cast), "Cast") ||
        sb_node_int(sb_graph_node(g, l->cast), "to", 0) != SB_DTYPE_F32 ||
        !find_scale(g, l, sb_graph_node(g, l->cast)->outputs[0], &scale))
        return false;
    if (!l->conv && find_dynamic(g, zero, l->w)) /* two activations */
        return l->w[1] == scale;
    l->w[1] = scale;
    l->w[2] = zero;
    return is_weight(g, l, scale, zero);
}

/* ---- rewriting ---------------------------------------------------------- */

/* The name of the layer, without what ONNX Runtime's tool puts behind it. */
static const char *layer_name(sb_graph *g, const char *name)
{
    static const char tail[] = "_quant_output_scale_mul";
    size_t len = strlen(name), n = sizeof tail - 1;

    if (len <= n || strcmp(name + len - n, tail) != 0)
        return name;
    return sb_arena_strn(g->arena, name, len - n);
}

static sb_status dynamic_to_qdq_rewrite(sb_graph *g, layer *l)
{
    const sb_node product = *sb_graph_node(g, l->product);
    const sb_node last = *sb_graph_node(g, l->scaled);
    sb_value_id in[2] = {SB_NONE, SB_NONE}, y = last.outputs[0];
    const sb_tensor *w = sb_const_of(g, l->w[0]);
    int axis = w ? sb_op_weight_axis(&product, w->rank) : 0;
    sb_node_id op;

    if (w) {
        SB_TRY(dynamic_to_qdq_flatten(g, &l->w[1]));
        if (l->w[2] != SB_NONE)
            SB_TRY(dynamic_to_qdq_flatten(g, &l->w[2]));
    }
    SB_TRY(sb_put_dequantize(g, &last, l->x, 0, &in[0]));
    SB_TRY(sb_put_dequantize(g, &last, l->w, axis, &in[1]));
    sb_graph_remove_node(g, l->scaled);
    SB_TRY(sb_put_node(g, &last, l->conv ? "Conv" : "MatMul", in, 2, y, &op));
    sb_graph_node(g, op)->name = layer_name(g, last.name);
    if (!sb_graph_node(g, op)->name)
        return SB_NO_MEMORY;
    for (uint32_t i = 0; l->conv && i < product.n_attrs; i++)
        SB_TRY(sb_graph_set_attr(g, op, &product.attrs[i]));
    for (uint32_t i = 0; i < 2; i++) {
        sb_node_id before = sb_graph_value(g, last.inputs[i])->producer;
        if (before != SB_NONE)
            SB_TRY(sb_rewrite_prune(g, before));
    }
    return SB_OK;
}

/* ---- DynamicQuantizeMatMul ---------------------------------------------- */

/* (A, B, b_scale, b_zero_point, bias) */
static bool is_fused(const sb_graph *g, sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    layer l = {.product = id, .w = {sb_node_in(node, 1), SB_NONE, SB_NONE}};
    sb_value_id x = sb_node_in(node, 0);

    return strcmp(node->op, "DynamicQuantizeMatMul") == 0 &&
           strcmp(node->domain, "com.microsoft") == 0 && node->n_out == 1 &&
           x != SB_NONE &&
           is_weight(g, &l, sb_node_in(node, 2), sb_node_in(node, 3));
}

static sb_status dynamic_to_qdq_quantize(sb_graph *g, const sb_node *like,
                                         sb_value_id x, sb_value_id *out)
{
    const sb_node_spec spec = {.op = "DynamicQuantizeLinear",
                               .module = like->module,
                               .inputs = &x,
                               .n_in = 1,
                               .outputs = out,
                               .n_out = 3,
                               .position = like->position};
    sb_node_id node;

    SB_TRY(sb_put_value(g, x, SB_DTYPE_U8, &out[0]));
    for (int i = 1; i < 3; i++) {
        SB_TRY(
            sb_put_value(g, x, i == 1 ? SB_DTYPE_F32 : SB_DTYPE_U8, &out[i]));
        sb_graph_value(g, out[i])->type.shape.rank = 0;
    }
    return sb_graph_add_node(g, &spec, &node);
}

static sb_status take_apart(sb_graph *g, sb_node_id id)
{
    const sb_node node = *sb_graph_node(g, id);
    sb_value_id x[3],
        w[3] = {node.inputs[1], node.inputs[2], sb_node_in(&node, 3)};
    sb_value_id in[2], bias = sb_node_in(&node, 4), y = node.outputs[0];
    sb_value_id product = y;
    int axis = sb_const_of(g, w[0])->rank - 1;
    sb_node_id op;

    SB_TRY(dynamic_to_qdq_quantize(g, &node, node.inputs[0], x));
    SB_TRY(sb_put_dequantize(g, &node, x, 0, &in[0]));
    SB_TRY(sb_put_dequantize(g, &node, w, axis, &in[1]));
    sb_graph_remove_node(g, id);
    if (bias != SB_NONE) {
        SB_TRY(sb_put_value(g, y, SB_DTYPE_F32, &product));
        SB_TRY(sb_put_node(g, &node, "Add", (sb_value_id[]){product, bias}, 2,
                           y, &op));
    }
    SB_TRY(sb_put_node(g, &node, "MatMul", in, 2, product, &op));
    sb_graph_node(g, op)->name = node.name;
    return SB_OK;
}

/* ---- DynamicQuantizeLSTM ------------------------------------------------ */

/* A weight [D, n, rows] with scales [D] or [D, rows]: does one axis of
 * DequantizeLinear say as much?  *count is how many scales remain. */
static bool lstm_axis(const sb_tensor *w, const sb_tensor *s,
                      const sb_tensor *z, int *axis, int64_t *count)
{
    int64_t n = sb_tensor_count(s), half = n / 2;
    bool columns = n == w->dims[0] * w->dims[2] && w->dims[2] > 1;

    if (s->dtype != SB_DTYPE_F32 || z->dtype != w->dtype ||
        sb_tensor_count(z) != n || (!columns && n != w->dims[0]))
        return false;
    bool alike = w->dims[0] == 1;
    if (w->dims[0] == 2)
        alike =
            memcmp(s->data, (const float *)s->data + half,
                   (size_t)half * sizeof(float)) == 0 &&
            memcmp(z->data, (const uint8_t *)z->data + half, (size_t)half) == 0;
    *axis = columns ? 1 : alike ? -1 : 0;
    *count = columns ? w->dims[2] : alike ? 1 : n;
    return alike || !columns;
}

/* W, its scale and its zero point, or R, behind a DequantizeLinear and with
 * the axes as LSTM has them. */
static sb_status lstm_weight(sb_graph *g, const sb_node *like, sb_value_id w,
                             const sb_value_id *params, sb_value_id *out)
{
    const sb_tensor from = *sb_const_of(g, w);
    const sb_tensor s = *sb_const_of(g, params[0]),
                    z = *sb_const_of(g, params[1]);
    const int64_t dims[] = {from.dims[0], from.dims[2], from.dims[1]};
    sb_tensor t = sb_tensor_make(from.dtype, 3, dims);
    sb_value_id in[3] = {SB_NONE, SB_NONE, SB_NONE};
    int axis = -1;
    int64_t n = 0;

    bool fits = lstm_axis(&from, &s, &z, &axis, &n);
    assert(fits); /* as is_lstm() has seen */
    (void)fits;
    SB_TRY(sb_tensor_alloc(g->ctx, &t));
    for (int64_t i = 0; i < sb_tensor_count(&t); i++) {
        int64_t d = i / (dims[1] * dims[2]), r = i / dims[2] % dims[1];
        ((uint8_t *)t.data)[i] =
            ((const uint8_t *)
                 from.data)[(d * dims[2] + i % dims[2]) * dims[1] + r];
    }
    sb_status status = SB_OK;
    in[0] = w; /* which keeps its name if no other node reads it */
    if (sb_graph_value(g, w)->n_uses > 1)
        status = sb_graph_add_value_like(g, sb_graph_value(g, w)->name, &in[0]);
    if (status == SB_OK)
        status = sb_graph_set_constant(g, in[0], &t);
    sb_tensor_drop(&t);
    if (status == SB_OK)
        status =
            sb_graph_add_constant(g, sb_graph_value(g, params[0])->name,
                                  SB_DTYPE_F32, axis >= 0, &n, s.data, &in[1]);
    if (status == SB_OK)
        status = sb_graph_add_constant(g, sb_graph_value(g, params[1])->name,
                                       z.dtype, axis >= 0, &n, z.data, &in[2]);
    return status == SB_OK
               ? sb_put_dequantize(g, like, in, axis < 0 ? 1 : axis, out)
               : status;
}

static bool is_lstm(const sb_graph *g, sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);

    if (strcmp(node->op, "DynamicQuantizeLSTM") != 0 ||
        strcmp(node->domain, "com.microsoft") != 0 || node->n_in != 12 ||
        node->inputs[0] == SB_NONE)
        return false;
    for (uint32_t i = 1; i <= 2; i++) {
        const sb_tensor *w = sb_const_of(g, node->inputs[i]);
        const sb_tensor *s = sb_const_of(g, node->inputs[6 + 2 * i]);
        const sb_tensor *z = sb_const_of(g, node->inputs[7 + 2 * i]);
        int axis;
        int64_t n;

        if (!w || !s || !z || w->rank != 3 || w->dims[0] < 1 ||
            w->dims[0] > 2 || sb_dtype_bits(w->dtype) != 8 ||
            !lstm_axis(w, s, z, &axis, &n))
            return false;
    }
    return true;
}

static sb_status take_lstm_apart(sb_graph *g, sb_node_id id)
{
    const sb_node node = *sb_graph_node(g, id);
    sb_value_id x[3], in[8];
    sb_node_spec spec = {.op = "LSTM",
                         .name = node.name,
                         .module = node.module,
                         .inputs = in,
                         .n_in = 8,
                         .outputs = node.outputs,
                         .n_out = node.n_out,
                         .attrs = node.attrs,
                         .n_attrs = node.n_attrs,
                         .position = node.position};

    for (uint32_t i = 3; i < 8; i++)
        in[i] = node.inputs[i];
    while (in[spec.n_in - 1] == SB_NONE && spec.n_in > 4)
        spec.n_in--;
    SB_TRY(dynamic_to_qdq_quantize(g, &node, node.inputs[0], x));
    SB_TRY(sb_put_dequantize(g, &node, x, 0, &in[0]));
    SB_TRY(lstm_weight(g, &node, node.inputs[1], node.inputs + 8, &in[1]));
    SB_TRY(lstm_weight(g, &node, node.inputs[2], node.inputs + 10, &in[2]));
    sb_graph_remove_node(g, id);
    return sb_graph_add_node(g, &spec, &id);
}

/* ---- all of them -------------------------------------------------------- */

static sb_status dynamic_to_qdq_run(sb_graph *g, size_t *changes)
{
    for (sb_node_id id = 0, n = (sb_node_id)g->n_nodes; id < n; id++) {
        const sb_node *node = sb_graph_node(g, id);
        layer l;

        if (node->dead)
            continue;
        if (is_fused(g, id))
            SB_TRY(take_apart(g, id));
        else if (is_lstm(g, id))
            SB_TRY(take_lstm_apart(g, id));
        else if (find_layer(g, id, &l))
            SB_TRY(dynamic_to_qdq_rewrite(g, &l));
        else
            continue;
        ++*changes;
    }
    return SB_OK;
}

const sb_pass_def sb_pass_dynamic_to_qdq = {
    .name = "dynamic_to_qdq",
    .summary = "layers quantized at each run, as float behind Q and DQ",
    .run = dynamic_to_qdq_run,
    .once = true,
};
