/* Gradients of RNN, GRU and LSTM.  The kernel of ops/rnn/rnn_grad.c goes back
 * through time and leaves the gradients of the gates, [D, S*B, G*H]; of all
 * steps together these make
 *
 *     dX = gates W,  dW = gates' X,  dR = gates' h,  dB = sums of gates */
#include "ops/grad/grad.h"
#include "ops/grad/grad_rules.h"
#include "ops/rnn/rnn_grad.h"

static sb_value_id rnn_turned(sb_grad *g, sb_value_id v)
{
    static const int64_t perm[] = {0, 2, 1};

    return sb_emit_with(g, "Transpose", v, SB_NONE,
                        SB_EMIT_INTS("perm", perm, 3));
}

/* The gates from `begin` to `end`, counted in sizes of h. */
static sb_value_id rnn_gates(sb_grad *g, sb_value_id gates, int64_t begin,
                             int64_t end)
{
    const int64_t last = 2;
    sb_value_id hidden = sb_grad_dim(g, sb_grad_in(g, SB_RNN_R), 2);

    return sb_emit(
        g, &(sb_emit_spec){
               .op = "Slice",
               .in = {gates,
                      sb_emit2(g, "Mul", hidden, sb_grad_ints(g, &begin, 1)),
                      sb_emit2(g, "Mul", hidden, sb_grad_ints(g, &end, 1)),
                      sb_grad_ints(g, &last, 1)},
               .n_in = 4});
}

static sb_value_id rnn_dx(sb_grad *g, sb_value_id gates)
{
    const int64_t first = 0;
    sb_value_id by_dir = sb_emit2(g, "MatMul", gates, sb_grad_in(g, SB_RNN_W));

    return sb_grad_reshape(g,
                           sb_emit_with(g, "ReduceSum", by_dir,
                                        sb_grad_ints(g, &first, 1),
                                        SB_EMIT_INT("keepdims", 0)),
                           sb_grad_in(g, SB_RNN_X));
}

static sb_value_id rnn_dw(sb_grad *g, sb_value_id gates)
{
    sb_value_id x = sb_emit_with(g, "Flatten", sb_grad_in(g, SB_RNN_X), SB_NONE,
                                 SB_EMIT_INT("axis", 2));

    return sb_emit2(g, "MatMul", rnn_turned(g, gates), x);
}

/* `second` as in rnn_grad.h, SB_NONE for others than GRU. */
static sb_value_id rnn_dr(sb_grad *g, const sb_value_id *out, bool before)
{
    sb_value_id gates = out[SB_RNN_OUT_GATES], h = out[SB_RNN_OUT_H];

    if (!sb_node_is(g->node, "GRU"))
        return sb_emit2(g, "MatMul", rnn_turned(g, gates), h);
    sb_value_id second = out[SB_RNN_OUT_SECOND];
    if (!before)
        return sb_emit2(g, "MatMul", rnn_turned(g, second), h);
    return sb_emit_with(
        g, "Concat",
        sb_emit2(g, "MatMul", rnn_turned(g, rnn_gates(g, gates, 0, 2)), h),
        sb_emit2(g, "MatMul", rnn_turned(g, rnn_gates(g, gates, 2, 3)), second),
        SB_EMIT_INT("axis", 1));
}

static sb_value_id rnn_db(sb_grad *g, sb_value_id by_w, sb_value_id by_r)
{
    const int64_t rows = 1;
    const sb_attr gone = SB_EMIT_INT("keepdims", 0);
    sb_value_id w =
        sb_emit_with(g, "ReduceSum", by_w, sb_grad_ints(g, &rows, 1), gone);
    sb_value_id r = by_r == by_w
                        ? w
                        : sb_emit_with(g, "ReduceSum", by_r,
                                       sb_grad_ints(g, &rows, 1), gone);

    return sb_emit_with(g, "Concat", w, r, SB_EMIT_INT("axis", 1));
}

sb_status sb_grad_rnn(sb_grad *g)
{
    const sb_rnn_attrs *a = g->attrs;
    bool lstm = sb_node_is(g->node, "LSTM"), gru = sb_node_is(g->node, "GRU");
    sb_value_id out[SB_RNN_GRAD_OUTPUTS], in[SB_RNN_GRAD_INPUTS];

    if (a->clip > 0)
        return sb_grad_refuse(g, "clip");
    for (size_t i = 0; i < a->activation_alpha.n; i++)
        if (a->activation_alpha.v[i] < 0) /* a result has two sources */
            return sb_grad_refuse(g, "a negative activation_alpha");
    for (uint32_t i = 0; i < SB_RNN_DY; i++)
        in[i] = sb_grad_in(g, i);
    for (uint32_t i = 0; i < 3; i++)
        in[SB_RNN_DY + i] = i < g->node->n_out ? g->dy[i] : SB_NONE;
    (void)sb_emit(g, &(sb_emit_spec){.op = lstm  ? "LstmGrad"
                                           : gru ? "GruGrad"
                                                 : "RnnGrad",
                                     .more_in = in,
                                     .n_in = SB_RNN_GRAD_INPUTS,
                                     .attrs = g->node->attrs,
                                     .n_attrs = g->node->n_attrs,
                                     .n_out = lstm  ? SB_RNN_GRAD_OUTPUTS
                                              : gru ? SB_RNN_OUT_DP
                                                    : SB_RNN_OUT_SECOND,
                                     .more_out = out});
    if (g->status != SB_OK)
        return SB_OK;
    sb_value_id gates = out[SB_RNN_OUT_GATES];
    bool before = gru && !a->linear_before_reset;
    if (sb_grad_wants(g, SB_RNN_X))
        g->dx[SB_RNN_X] = rnn_dx(g, gates);
    if (sb_grad_wants(g, SB_RNN_W))
        g->dx[SB_RNN_W] = rnn_dw(g, gates);
    if (sb_grad_wants(g, SB_RNN_R))
        g->dx[SB_RNN_R] = rnn_dr(g, out, before);
    if (sb_grad_wants(g, SB_RNN_B))
        g->dx[SB_RNN_B] =
            rnn_db(g, gates, gru && !before ? out[SB_RNN_OUT_SECOND] : gates);
    if (sb_grad_wants(g, SB_RNN_H))
        g->dx[SB_RNN_H] = out[SB_RNN_OUT_DH];
    if (sb_grad_wants(g, SB_RNN_C))
        g->dx[SB_RNN_C] = out[SB_RNN_OUT_DC];
    if (sb_grad_wants(g, SB_RNN_P))
        g->dx[SB_RNN_P] = out[SB_RNN_OUT_DP];
    return SB_OK;
}
