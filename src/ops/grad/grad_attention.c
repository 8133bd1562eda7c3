/* Gradients of attention and of rotary embeddings.
 *
 * The weights p = softmax(scale q k' + bias) are computed again, by Attention
 * itself, so that none of them has to be kept:
 *
 *     dv = p' dy,  ds = softmax'(dy v'),  dq = scale ds k,  dk = scale ds' q
 *
 * Heads of q that share a head of k and v get a dimension of their own, along
 * which k and v are broadcast: [B, heads of k, group, S, size]. */
#include <string.h>

#include "ops/grad/grad.h"
#include "ops/grad/grad_rules.h"

enum { IN_Q, IN_K, IN_V, IN_MASK, IN_PAST_K };
enum { OUT_WEIGHTS = 3, SHOW_WEIGHTS = 3 };

typedef struct attention_grad {
    sb_grad *g;
    int64_t q_heads, kv_heads; /* as the node says, if `flat` */
    bool flat;                 /* they lie side by side in the last dimension */
    bool grouped;              /* perhaps not as many of k as of q */
    sb_value_id kv;            /* heads of k, as a vector */
} attention_grad;

/* ---- heads -------------------------------------------------------------- */

/* Two dimensions change places. */
static sb_value_id attention_turned(sb_grad *g, sb_value_id v, int one,
                                    int other)
{
    int64_t perm[SB_MAX_RANK];

    if (g->status != SB_OK)
        return SB_NONE;
    int rank = sb_grad_type(g, v)->shape.rank;
    for (int i = 0; i < rank; i++)
        perm[i] = i;
    perm[one < 0 ? one + rank : one] = other < 0 ? other + rank : other;
    perm[other < 0 ? other + rank : other] = one < 0 ? one + rank : one;
    return sb_emit_with(g, "Transpose", v, SB_NONE,
                        SB_EMIT_INTS("perm", perm, rank));
}

/* The last two dimensions of a matrix change places. */
static sb_value_id attention_t(sb_grad *g, sb_value_id v)
{
    return attention_turned(g, v, -1, -2);
}

/* [B, S, heads * size] as [B, heads, S, size] */
static sb_value_id attention_apart(sb_grad *g, sb_value_id v, int64_t heads)
{
    const int64_t sizes[] = {0, 0, heads, -1};

    return attention_turned(
        g, sb_emit2(g, "Reshape", v, sb_grad_ints(g, sizes, 4)), 1, 2);
}

/* [B, heads, S, n] as [B, heads of k, group, S, n] */
static sb_value_id attention_grouped(const attention_grad *a, sb_value_id v)
{
    sb_grad *g = a->g;
    const sb_attr first = SB_EMIT_INT("axis", 0);

    if (!a->grouped)
        return v;
    sb_value_id group = sb_emit2(g, "Div", sb_grad_dim(g, v, 1), a->kv);
    sb_value_id sizes = sb_emit(
        g, &(sb_emit_spec){.op = "Concat",
                           .in = {sb_grad_dim(g, v, 0), a->kv, group,
                                  sb_grad_dim(g, v, 2), sb_grad_dim(g, v, 3)},
                           .n_in = 5,
                           .attrs = &first,
                           .n_attrs = 1});
    const sb_attr zero = SB_EMIT_INT("allowzero", 1);
    return sb_emit_with(g, "Reshape", v, sizes, zero);
}

/* An input of the node, or its gradient, with its heads to multiply by. */
static sb_value_id attention_split(const attention_grad *a, sb_value_id v,
                                   int64_t heads)
{
    return attention_grouped(a, a->flat ? attention_apart(a->g, v, heads) : v);
}

/* The way back: a gradient in the form of input `i`, summed over what shares
 * it; `split` is that input with its heads. */
static sb_value_id attention_join(const attention_grad *a, sb_value_id dv,
                                  sb_value_id split, uint32_t i)
{
    sb_grad *g = a->g;
    sb_value_id x = sb_grad_in(g, i);

    dv = sb_grad_sum_to(g, dv, split);
    if (!a->flat)
        return sb_grad_reshape(g, dv, x);
    int64_t heads = i == IN_Q ? a->q_heads : a->kv_heads;
    if (a->grouped)
        dv = sb_grad_reshape(
            g, dv, attention_apart(g, x, heads)); /* only its shape is read */
    return sb_grad_reshape(g, attention_turned(g, dv, 1, 2), x);
}

/* ---- weights ------------------------------------------------------------ */

static sb_value_id attention_weights(sb_grad *g)
{
    sb_attr attrs[16];
    sb_value_id out[4];
    size_t n = 0;

    for (size_t i = 0; i < g->node->n_attrs && n + 1 < SB_COUNT(attrs); i++)
        if (strcmp(g->node->attrs[i].name, "qk_matmul_output_mode") != 0)
            attrs[n++] = g->node->attrs[i];
    attrs[n++] = SB_EMIT_INT("qk_matmul_output_mode", SHOW_WEIGHTS);
    sb_emit(g, &(sb_emit_spec){.op = "Attention",
                               .more_in = g->node->inputs,
                               .n_in = g->node->n_in,
                               .attrs = attrs,
                               .n_attrs = n,
                               .n_out = 4,
                               .more_out = out});
    return g->status == SB_OK ? out[OUT_WEIGHTS] : SB_NONE;
}

static sb_value_id attention_scaled(sb_grad *g, sb_value_id a, sb_value_id b,
                                    sb_value_id scale)
{
    return sb_emit2(g, "Mul", sb_emit2(g, "MatMul", a, b), scale);
}

/* ---- the rules ---------------------------------------------------------- */

/* How many heads there are, or why that is not known. */
static sb_status attention_read(attention_grad *a)
{
    sb_grad *g = a->g;
    const sb_shape *q = &sb_grad_type(g, sb_grad_in(g, IN_Q))->shape;
    const sb_shape *k = &sb_grad_type(g, sb_grad_in(g, IN_K))->shape;

    if (q->rank < 3 || k->rank != q->rank)
        return sb_grad_refuse(g, "the ranks of its inputs are not known");
    a->flat = q->rank == 3;
    a->q_heads = a->flat ? sb_node_int(g->node, "q_num_heads", 0) : q->dim[1];
    a->kv_heads = a->flat ? sb_node_int(g->node, "kv_num_heads", 0) : k->dim[1];
    if (a->flat && (a->q_heads < 1 || a->kv_heads < 1))
        return sb_grad_refuse(g, "the number of its heads is not known");
    a->grouped = !sb_dim_same(a->q_heads, a->kv_heads);
    a->kv = a->flat ? sb_grad_ints(g, &a->kv_heads, 1)
                    : sb_grad_dim(g, sb_grad_in(g, IN_K), 1);
    if (sb_node_float(g->node, "softcap", 0) > 0)
        return sb_grad_refuse(g, "softcap");
    if (sb_grad_in(g, IN_PAST_K) != SB_NONE)
        return sb_grad_refuse(g, "with a past");
    for (uint32_t i = 1; i < g->node->n_out; i++)
        if (g->dy[i] != SB_NONE)
            return sb_grad_refuse(g, "output %u", i);
    return SB_OK;
}

/* The factor of the scores, as a number; `q` has its heads apart. */
static sb_value_id attention_scale(sb_grad *g, sb_value_id q)
{
    double scale = (double)sb_node_float(g->node, "scale", 0);

    if (scale > 0 || scale < 0)
        return sb_grad_scalar(g, sb_grad_in(g, IN_Q), scale);
    if (g->status != SB_OK)
        return SB_NONE;
    /* Adding nodes moves the values. */
    const sb_type t = *sb_grad_type(g, q);
    sb_value_id size =
        sb_emit_with(g, "Cast", sb_grad_dim(g, q, t.shape.rank - 1), SB_NONE,
                     SB_EMIT_INT("to", t.dtype));
    return sb_emit1(g, "Reciprocal", sb_emit1(g, "Sqrt", size));
}

sb_status sb_grad_attention(sb_grad *g)
{
    attention_grad a = {.g = g};

    SB_TRY(attention_read(&a));
    sb_value_id q = attention_split(&a, sb_grad_in(g, IN_Q), a.q_heads);
    sb_value_id k = attention_split(&a, sb_grad_in(g, IN_K), a.kv_heads);
    sb_value_id v = attention_split(&a, sb_grad_in(g, IN_V), a.kv_heads);
    sb_value_id dy = attention_split(&a, g->dy[0], a.q_heads);
    sb_value_id whole = attention_weights(g);
    sb_value_id scale = attention_scale(g, q);
    sb_value_id p = attention_grouped(&a, whole);

    if (g->wanted[IN_V])
        g->dx[IN_V] = attention_join(
            &a, sb_emit2(g, "MatMul", attention_t(g, p), dy), v, IN_V);
    if (!g->wanted[IN_Q] && !g->wanted[IN_K] && !sb_grad_wants(g, IN_MASK))
        return SB_OK;
    sb_value_id dp = sb_emit2(g, "MatMul", dy, attention_t(g, v));
    sb_value_id ds =
        sb_emit_with(g, "SoftmaxGrad", dp, p, SB_EMIT_INT("axis", -1));
    if (g->wanted[IN_Q])
        g->dx[IN_Q] =
            attention_join(&a, attention_scaled(g, ds, k, scale), q, IN_Q);
    if (g->wanted[IN_K])
        g->dx[IN_K] = attention_join(
            &a, attention_scaled(g, attention_t(g, ds), q, scale), k, IN_K);
    if (sb_grad_wants(g, IN_MASK))
        g->dx[IN_MASK] = sb_grad_sum_to(g, sb_grad_reshape(g, ds, whole),
                                        sb_grad_in(g, IN_MASK));
    return SB_OK;
}

/* A rotation back is one by the negative angle. */
sb_status sb_grad_rotary(sb_grad *g)
{
    if (sb_grad_wants(g, 1) || sb_grad_wants(g, 2))
        return sb_grad_refuse(g, "its tables");
    g->dx[0] =
        sb_emit(g, &(sb_emit_spec){.op = "RotaryEmbedding",
                                   .in = {g->dy[0], sb_grad_in(g, 1),
                                          sb_emit1(g, "Neg", sb_grad_in(g, 2)),
                                          sb_grad_in(g, 3)},
                                   .n_in = g->node->n_in,
                                   .attrs = g->node->attrs,
                                   .n_attrs = g->node->n_attrs});
    return SB_OK;
}
