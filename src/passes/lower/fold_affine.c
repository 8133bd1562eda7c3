/* Pass "fold_affine": products and sums with constants go into the convolution
 * beside them.
 *
 *     Conv -> Mul by a -> Add of b       a, b: one number, or one per channel
 *     Mul by a -> Add of b -> Conv       one number
 *
 * Networks of PaddleOCR (PP-LCNet) have such a pair before and behind every
 * activation.  Between quantized layers each of them is a pass over the tensor
 * in float.  A sum before a convolution that pads cannot go into its bias,
 * since pads are zeros behind the sum; the product still can:
 *
 *     a x + b = a (x + b / a)
 *
 * Not where what is in between has another consumer. */
#include <math.h>
#include <string.h>

#include "passes/pass.h"
#include "passes/rewrite.h"

/* x * c or x + c */
typedef struct affine {
    sb_node_id node;
    sb_value_id x;
    const sb_tensor *c;
    bool product;
} affine;

static const sb_tensor *fold_affine_f32(const sb_graph *g, sb_value_id v)
{
    const sb_tensor *t = v == SB_NONE ? NULL : sb_const_of(g, v);

    return t && t->dtype == SB_DTYPE_F32 ? t : NULL;
}

static bool fold_affine_read(const sb_graph *g, sb_node_id id, affine *out)
{
    const sb_node *node = id == SB_NONE ? NULL : sb_graph_node(g, id);

    if (!node || node->dead || node->n_in != 2)
        return false;
    *out = (affine){.node = id, .product = sb_node_is(node, "Mul")};
    if (!out->product && !sb_node_is(node, "Add"))
        return false;
    for (uint32_t i = 0; i < 2 && !out->c; i++) {
        out->x = node->inputs[1 - i];
        out->c = fold_affine_f32(g, node->inputs[i]);
    }
    return out->c && !sb_is_const(g, out->x);
}

/* One number for the whole of a value of that rank. */
static bool fold_affine_scalar(const sb_graph *g, const affine *a, int rank)
{
    return sb_tensor_count(a->c) == 1 && a->c->rank <= rank &&
           sb_graph_value(g, a->x)->type.shape.rank == rank;
}

/* One number for each of its `n` channels. */
static bool fold_affine_channels(const affine *a, int rank, int64_t n)
{
    int at = a->c->rank - (rank - 1);

    return a->c->rank <= rank && at >= 0 && a->c->rank > at &&
           a->c->dims[at] == n && sb_tensor_count(a->c) == n;
}

/* A convolution whose weight and bias are constants; NULL if it is none. */
static const sb_tensor *fold_affine_conv(const sb_graph *g, sb_node_id id)
{
    const sb_node *node = id == SB_NONE ? NULL : sb_graph_node(g, id);
    const sb_tensor *w = NULL, *b = NULL;

    if (!node || node->dead || !sb_node_is(node, "Conv"))
        return NULL;
    w = fold_affine_f32(g, sb_node_in(node, 1));
    if (!w || w->rank < 3)
        return NULL;
    if (sb_node_in(node, 2) == SB_NONE)
        return w;
    b = fold_affine_f32(g, node->inputs[2]);
    return b && b->rank == 1 && b->dims[0] == w->dims[0] ? w : NULL;
}

static bool read_once(const sb_graph *g, sb_value_id v)
{
    const sb_value *value = sb_graph_value(g, v);

    return value->n_uses == 1 && !value->is_output;
}

/* What becomes of a convolution, by output channel:
 * w' = w * factor,  b' = b * bias_factor + shift */
typedef struct fold_change {
    float *factor, *bias_factor, *shift;
} fold_change;

static sb_status fold_change_init(const sb_graph *g, int64_t m, fold_change *c)
{
    c->factor = sb_alloc(g->ctx, 3 * (size_t)m, sizeof *c->factor);
    if (!c->factor)
        return SB_NO_MEMORY;
    c->bias_factor = c->factor + m;
    c->shift = c->bias_factor + m;
    for (int64_t i = 0; i < m; i++)
        c->factor[i] = c->bias_factor[i] = 1;
    return SB_OK;
}

static sb_status fold_affine_weights(sb_graph *g, const sb_node *conv,
                                     const fold_change *c, sb_value_id *w_out,
                                     sb_value_id *b_out)
{
    const char *stem = sb_graph_value(g, conv->inputs[1])->name;
    const sb_tensor w = sb_graph_value(g, conv->inputs[1])->constant;
    const sb_tensor *b = fold_affine_f32(g, sb_node_in(conv, 2));
    int64_t m = w.dims[0], inner = sb_dims_product(w.dims, 1, w.rank);
    const float *from = w.data, *was = b ? b->data : NULL;
    float *to = sb_alloc(g->ctx, (size_t)(m * inner), sizeof *to);
    float *bias = sb_alloc(g->ctx, (size_t)m, sizeof *bias);
    sb_status status = to && bias ? SB_OK : SB_NO_MEMORY;

    for (int64_t i = 0; status == SB_OK && i < m; i++) {
        for (int64_t k = i * inner; k < (i + 1) * inner; k++)
            to[k] = from[k] * c->factor[i];
        bias[i] = (was ? was[i] * c->bias_factor[i] : 0) + c->shift[i];
    }
    if (status == SB_OK)
        status = sb_graph_add_constant(g, stem, SB_DTYPE_F32, w.rank, w.dims,
                                       to, w_out);
    if (status == SB_OK)
        status =
            sb_graph_add_constant(g, stem, SB_DTYPE_F32, 1, &m, bias, b_out);
    sb_free(g->ctx, to);
    sb_free(g->ctx, bias);
    return status;
}

/* A convolution like `conv`, of x, takes the place of node `at`. */
static sb_status fold_affine_replace(sb_graph *g, sb_node_id conv,
                                     sb_node_id at, sb_value_id x,
                                     const fold_change *c)
{
    const sb_node old = *sb_graph_node(g, conv);
    sb_value_id in[3] = {x, SB_NONE, SB_NONE};

    SB_TRY(fold_affine_weights(g, &old, c, &in[1], &in[2]));
    return sb_rewrite_as(g, at, conv, in, 3);
}

/* ---- behind a convolution ------------------------------------------------ */

static sb_status fold_affine_behind(sb_graph *g, const affine *a,
                                    size_t *changes)
{
    sb_node_id conv = sb_graph_value(g, a->x)->producer;
    const sb_tensor *w = fold_affine_conv(g, conv);

    if (!w || !read_once(g, a->x))
        return SB_OK;
    int64_t m = w->dims[0];
    bool scalar = fold_affine_scalar(g, a, w->rank);
    if (!scalar && !fold_affine_channels(a, w->rank, m))
        return SB_OK;
    fold_change c = {0};
    SB_TRY(fold_change_init(g, m, &c));
    for (int64_t i = 0; i < m; i++) {
        float v = ((const float *)a->c->data)[scalar ? 0 : i];
        if (a->product)
            c.factor[i] = c.bias_factor[i] = v;
        else
            c.shift[i] = v;
    }
    sb_value_id x = sb_graph_node(g, conv)->inputs[0];
    sb_status status = fold_affine_replace(g, conv, a->node, x, &c);
    sb_free(g->ctx, c.factor);
    if (status == SB_OK)
        status = sb_rewrite_prune(g, conv);
    *changes += status == SB_OK;
    return status;
}

/* ---- before a convolution ------------------------------------------------ */

static bool fold_affine_pads(const sb_node *conv)
{
    const sb_attr *pads = sb_node_attr(conv, "pads");

    if (!sb_node_string_is(conv, "auto_pad", "NOTSET", true) &&
        !sb_node_string_is(conv, "auto_pad", "VALID", false))
        return true;
    for (size_t i = 0; pads && pads->type == SB_ATTR_INTS && i < pads->n; i++)
        if (pads->ints[i] != 0)
            return true;
    return false;
}

/* Shifts of the results of a convolution whose inputs grow by `c`. */
static void fold_affine_sums(const sb_tensor *w, float c, float *shift)
{
    int64_t inner = sb_dims_product(w->dims, 1, w->rank);

    for (int64_t m = 0; m < w->dims[0]; m++) {
        double sum = 0;
        for (int64_t k = 0; k < inner; k++)
            sum += (double)((const float *)w->data)[m * inner + k];
        shift[m] = (float)(sum * (double)c);
    }
}

/* a x + b before a convolution that pads: x + b / a, and a goes on.  *x becomes
 * that sum, *factor what is left. */
static sb_status fold_affine_reorder(sb_graph *g, const affine *sum, int rank,
                                     sb_value_id *x, float *factor)
{
    affine product;
    sb_value_id in[2] = {SB_NONE, SB_NONE};
    sb_node_id fresh = SB_NONE;

    *factor = 1;
    if (!fold_affine_read(g, sb_graph_value(g, sum->x)->producer, &product) ||
        !product.product || !read_once(g, sum->x) ||
        !fold_affine_scalar(g, &product, rank))
        return SB_OK;
    float a = *(const float *)product.c->data;
    float c = *(const float *)sum->c->data / a;
    if (!isfinite(c) || a == 0)
        return SB_OK;
    *x = sb_graph_node(g, sum->node)->outputs[0];
    in[0] = product.x;
    SB_TRY(sb_graph_add_constant(g, sb_graph_value(g, *x)->name, SB_DTYPE_F32,
                                 0, NULL, &c, &in[1]));
    SB_TRY(sb_rewrite_node(g, sum->node, "Add", in, 2, &fresh));
    *x = sb_graph_node(g, fresh)->outputs[0];
    *factor = a;
    return sb_rewrite_prune(g, product.node);
}

static sb_status fold_affine_change(sb_graph *g, sb_node_id conv,
                                    const affine *a, fold_change *c,
                                    size_t *changes)
{
    const sb_tensor *w = fold_affine_conv(g, conv);
    int64_t m = w->dims[0];
    float number = *(const float *)a->c->data, factor = a->product ? number : 1;
    bool pads = fold_affine_pads(sb_graph_node(g, conv));
    sb_value_id x = a->x;

    if (!a->product && !pads)
        fold_affine_sums(w, number, c->shift);
    if (!a->product && pads) {
        SB_TRY(fold_affine_reorder(g, a, w->rank, &x, &factor));
        if (x == a->x)
            return SB_OK;
    }
    for (int64_t i = 0; i < m; i++)
        c->factor[i] = factor;
    SB_TRY(fold_affine_replace(g, conv, conv, x, c));
    (*changes)++;
    return x == a->x ? sb_rewrite_prune(g, a->node) : SB_OK;
}

static sb_status fold_affine_before(sb_graph *g, sb_node_id conv,
                                    size_t *changes)
{
    const sb_tensor *w = fold_affine_conv(g, conv);
    sb_value_id x = w ? sb_graph_node(g, conv)->inputs[0] : SB_NONE;
    fold_change c = {0};
    affine a;

    if (!w || !fold_affine_read(g, sb_graph_value(g, x)->producer, &a) ||
        !read_once(g, x) || !fold_affine_scalar(g, &a, w->rank))
        return SB_OK;
    SB_TRY(fold_change_init(g, w->dims[0], &c));
    sb_status status = fold_affine_change(g, conv, &a, &c, changes);
    sb_free(g->ctx, c.factor);
    return status;
}

static sb_status fold_affine_run(sb_graph *g, size_t *changes)
{
    size_t n_nodes = g->n_nodes;
    affine a;

    for (sb_node_id id = 0; id < n_nodes; id++) {
        if (fold_affine_read(g, id, &a))
            SB_TRY(fold_affine_behind(g, &a, changes));
        if (!sb_graph_node(g, id)->dead)
            SB_TRY(fold_affine_before(g, id, changes));
    }
    return SB_OK;
}

const sb_pass_def sb_pass_fold_affine = {
    .name = "fold_affine",
    .summary = "products, sums with constants into convolutions beside",
    .run = fold_affine_run,
};
