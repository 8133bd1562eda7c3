/* Pass "fuse_attention": the products, scaling, mask and softmax of attention
 * become one node that reads q, k and v where their projections left them.
 *
 *     s = MatMul(q [B,H,S,D], k' [B,H,D,T])      q, k' maybe times a number
 *     s = s * c  or  s / c                       maybe
 *     s = s + mask                               maybe
 *     y = MatMul(Softmax(s), v [B,H,T,D])
 *
 * Transposes that split and join heads are read through, on either side.  For
 * running only: the node means nothing to other programs. */
#include <string.h>

#include "graph/op.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

enum { BHSD, BSHD, PACKED };

typedef struct operand {
    sb_value_id value;
    int64_t layout, part;
} operand;

typedef struct attention {
    sb_node_id last; /* whose output is replaced */
    operand q, k, v;
    int64_t y_layout;
    sb_value_id mask;
    double scale;
} attention;

static bool perm_is(const sb_node *node, const char *digits)
{
    const sb_attr *a = sb_node_attr(node, "perm");

    if (!sb_node_is(node, "Transpose") || !a || a->type != SB_ATTR_INTS ||
        a->n != strlen(digits))
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (a->ints[i] != digits[i] - '0')
            return false;
    return true;
}

/* The node behind a value that has no other consumer. */
static const sb_node *private_producer(const sb_graph *g, sb_value_id v)
{
    const sb_value *value = sb_graph_value(g, v);

    return value->n_uses == 1 && !value->is_output ? sb_graph_producer(g, v)
                                                   : NULL;
}

static int rank_of(const sb_graph *g, sb_value_id v)
{
    return sb_graph_value(g, v)->type.shape.rank;
}

/* If the value is another one times (or divided by) a number: that one. */
static sb_value_id strip_factor(const sb_graph *g, sb_value_id v, double *scale)
{
    const sb_node *node = sb_graph_producer(g, v);
    bool mul = node && sb_node_is(node, "Mul");
    double c = 0;

    if (!node || (!mul && !sb_node_is(node, "Div")))
        return v;
    for (uint32_t i = 0; i < 2; i++) {
        /* x / c, never c / x */
        uint32_t at = mul ? i : 1;
        if (!sb_const_scalar(g, node->inputs[at], &c) || c == 0)
            continue;
        sb_value_id x = node->inputs[1 - at];
        if (rank_of(g, x) != rank_of(g, v))
            continue;
        *scale = mul ? *scale * c : *scale / c;
        return x;
    }
    return v;
}

/* One of several tensors stacked in front: Gather of a number on axis 0 of a
 * transposed [B, S, parts, H, D]. */
static bool take_part(const sb_graph *g, const sb_node *node, operand *out)
{
    double part = 0;

    if (!node || !sb_node_is(node, "Gather") ||
        sb_node_int(node, "axis", 0) != 0 || rank_of(g, node->inputs[1]) != 0 ||
        !sb_const_scalar(g, node->inputs[1], &part) || part < 0)
        return false;
    const sb_node *t = sb_graph_producer(g, node->inputs[0]);
    if (!t || !perm_is(t, "20314"))
        return false;
    *out = (operand){t->inputs[0], PACKED, (int64_t)part};
    return true;
}

/* Where the heads of a [B, H, S, D] value really lie. */
static operand take_heads(const sb_graph *g, sb_value_id v)
{
    const sb_node *node = sb_graph_producer(g, v);
    operand out = {v, BHSD, 0};

    if (node && perm_is(node, "0213"))
        return (operand){node->inputs[0], BSHD, 0};
    (void)take_part(g, node, &out);
    return out;
}

/* The same for keys, which come as [B, H, D, S]. */
static bool take_keys(const sb_graph *g, sb_value_id v, double *scale,
                      operand *out)
{
    const sb_node *node = sb_graph_producer(g, v);

    if (node && perm_is(node, "0231")) {
        *out = (operand){node->inputs[0], BSHD, 0};
        return true;
    }
    if (!node || !perm_is(node, "0132"))
        return false;
    *out = take_heads(g, strip_factor(g, node->inputs[0], scale));
    return true;
}

/* May the value be added to scores without widening them? */
static bool is_mask(const sb_graph *g, sb_value_id v, sb_value_id scores)
{
    const sb_value *m = sb_graph_value(g, v);
    const sb_shape *s = &sb_graph_value(g, scores)->type.shape;

    if (m->type.dtype != SB_DTYPE_F32 || m->type.shape.rank < 1 ||
        m->type.shape.rank > 4)
        return false;
    for (int i = 0; i < m->type.shape.rank; i++) {
        sb_dim d = m->type.shape.dim[i];
        if (d != 1 && !sb_dim_same(d, s->dim[4 - m->type.shape.rank + i]))
            return false;
    }
    return true;
}

/* From the input of the softmax back to q and k. */
static bool take_scores(const sb_graph *g, sb_value_id s, attention *a)
{
    const sb_node *node = private_producer(g, s);

    a->mask = SB_NONE;
    a->scale = 1;
    if (!node)
        return false;
    if (sb_node_is(node, "Add")) {
        uint32_t at = is_mask(g, node->inputs[1], s) &&
                              private_producer(g, node->inputs[0])
                          ? 1
                          : 0;
        a->mask = node->inputs[at];
        s = node->inputs[1 - at];
        if (!is_mask(g, a->mask, s) || rank_of(g, s) != 4)
            return false;
        node = private_producer(g, s);
    }
    if (node && !sb_node_is(node, "MatMul")) {
        s = strip_factor(g, s, &a->scale);
        node = private_producer(g, s);
    }
    if (!node || !sb_node_is(node, "MatMul") || rank_of(g, s) != 4)
        return false;
    sb_value_id q = node->inputs[0], k = node->inputs[1];
    if (rank_of(g, q) != 4 || rank_of(g, k) != 4)
        return false;
    a->q = take_heads(g, strip_factor(g, q, &a->scale));
    return take_keys(g, strip_factor(g, k, &a->scale), &a->scale, &a->k);
}

static bool same_batch(const sb_graph *g, const attention *a)
{
    const sb_dim *q = sb_graph_value(g, a->q.value)->type.shape.dim;
    const sb_dim *k = sb_graph_value(g, a->k.value)->type.shape.dim;
    const sb_dim *v = sb_graph_value(g, a->v.value)->type.shape.dim;
    static const int heads_at[] = {1, 2, 3};
    sb_dim h = q[heads_at[a->q.layout]];

    /* Broadcasting over batch or heads is left to MatMul. */
    return sb_dim_same(q[0], k[0]) && sb_dim_same(q[0], v[0]) &&
           sb_dim_same(h, k[heads_at[a->k.layout]]) &&
           sb_dim_same(h, v[heads_at[a->v.layout]]);
}

static bool find_attention(const sb_graph *g, sb_node_id id, attention *a)
{
    const sb_node *softmax = sb_graph_node(g, id);

    if (softmax->dead || !sb_node_is(softmax, "Softmax"))
        return false;
    const sb_value *p = sb_graph_value(g, softmax->outputs[0]);
    int64_t axis = sb_node_int(softmax, "axis", -1);
    if (p->type.dtype != SB_DTYPE_F32 || p->type.shape.rank != 4 ||
        (axis != -1 && axis != 3) || p->n_uses != 1 || p->is_output)
        return false;
    const sb_node *pv = sb_graph_node(g, p->uses[0].node);
    if (!sb_node_is(pv, "MatMul") || p->uses[0].input != 0 ||
        rank_of(g, pv->inputs[1]) != 4 ||
        !take_scores(g, softmax->inputs[0], a))
        return false;
    a->v = take_heads(g, pv->inputs[1]);
    a->last = p->uses[0].node;
    a->y_layout = BHSD;
    const sb_value *y = sb_graph_value(g, pv->outputs[0]);
    if (y->n_uses == 1 && !y->is_output &&
        perm_is(sb_graph_node(g, y->uses[0].node), "0213")) {
        a->last = y->uses[0].node;
        a->y_layout = BSHD;
    }
    return same_batch(g, a);
}

static sb_status fuse_attention_apply(sb_graph *g, const attention *a)
{
    const sb_node last = *sb_graph_node(g, a->last);
    const int64_t layouts[] = {a->q.layout, a->k.layout, a->v.layout,
                               a->y_layout};
    const int64_t parts[] = {a->q.part, a->k.part, a->v.part};
    sb_value_id in[] = {a->q.value, a->k.value, a->v.value, a->mask};
    sb_value_id inner = last.inputs[0], result = last.outputs[0];
    sb_node_id fresh = SB_NONE;
    sb_node_spec spec = {.op = "FusedAttention",
                         .domain = SB_FUSED_DOMAIN,
                         .name = last.name,
                         .module = last.module,
                         .inputs = in,
                         .n_in = a->mask == SB_NONE ? 3 : 4,
                         .outputs = &result,
                         .n_out = 1,
                         .position = last.position};

    sb_graph_remove_node(g, a->last);
    SB_TRY(sb_graph_add_node(g, &spec, &fresh));
    SB_TRY(sb_graph_set_attr_ints(g, fresh, "layouts", layouts, 4));
    SB_TRY(sb_graph_set_attr_ints(g, fresh, "parts", parts, 3));
    SB_TRY(sb_rewrite_set_float(g, fresh, "scale", (float)a->scale));
    sb_node_id before = sb_graph_value(g, inner)->producer;
    return before == SB_NONE ? SB_OK : sb_rewrite_prune(g, before);
}

static sb_status fuse_attention_run(sb_graph *g, size_t *changes)
{
    size_t n = g->n_nodes;

    for (sb_node_id id = 0; id < n; id++) {
        attention a;
        if (!find_attention(g, id, &a))
            continue;
        SB_TRY(fuse_attention_apply(g, &a));
        (*changes)++;
    }
    return SB_OK;
}

const sb_pass_def sb_pass_fuse_attention = {
    .name = "fuse_attention",
    .summary = "attention without transposed heads (for running)",
    .run = fuse_attention_run,
};
