/* Gradients of matrix products, by matrix products:
 *
 *     y = a b:   da = dy b',  db = a' dy
 *
 * One matrix b that serves a whole batch sees the batch as more rows: a single
 * product of long columns instead of many that are summed up. */
#include "ops/grad/grad.h"
#include "ops/grad/grad_rules.h"

static int product_rank(const sb_grad *g, sb_value_id v)
{
    return v == SB_NONE ? -1 : sb_grad_type(g, v)->shape.rank;
}

/* alpha a b, each transposed or not. */
static sb_value_id product_gemm(sb_grad *g, sb_value_id a, bool ta,
                                sb_value_id b, bool tb, float alpha)
{
    const sb_attr attrs[] = {SB_EMIT_FLOAT("alpha", alpha),
                             SB_EMIT_INT("transA", ta),
                             SB_EMIT_INT("transB", tb)};

    return sb_emit(g, &(sb_emit_spec){.op = "Gemm",
                                      .in = {a, b},
                                      .n_in = 2,
                                      .attrs = attrs,
                                      .n_attrs = 3});
}

/* ---- Gemm --------------------------------------------------------------- */

sb_status sb_grad_gemm(sb_grad *g)
{
    sb_value_id a = sb_grad_in(g, 0), b = sb_grad_in(g, 1), dy = g->dy[0];
    bool ta = sb_node_int(g->node, "transA", 0) != 0;
    bool tb = sb_node_int(g->node, "transB", 0) != 0;
    float alpha = sb_node_float(g->node, "alpha", 1);
    float beta = sb_node_float(g->node, "beta", 1);

    if (g->wanted[0])
        g->dx[0] = ta ? product_gemm(g, b, tb, dy, true, alpha)
                      : product_gemm(g, dy, false, b, !tb, alpha);
    if (g->wanted[1])
        g->dx[1] = tb ? product_gemm(g, dy, true, a, ta, alpha)
                      : product_gemm(g, a, !ta, dy, false, alpha);
    if (!sb_grad_wants(g, 2))
        return SB_OK;
    g->dx[2] = sb_grad_sum_to(g, dy, sb_grad_in(g, 2));
    if (beta < 1 || beta > 1)
        g->dx[2] =
            sb_emit2(g, "Mul", g->dx[2], sb_grad_scalar(g, dy, (double)beta));
    return SB_OK;
}

/* ---- MatMul ------------------------------------------------------------- */

static sb_value_id product_unsqueeze(sb_grad *g, sb_value_id v, int64_t axis)
{
    return sb_emit2(g, "Unsqueeze", v, sb_grad_ints(g, &axis, 1));
}

/* Products of a batch, in which one operand is read with its last two
 * dimensions in each other's place: in memory nothing is transposed. */
static sb_value_id product_batch(sb_grad *g, sb_value_id a, bool ta,
                                 sb_value_id b, bool tb)
{
    const sb_attr attrs[] = {SB_EMIT_INT("transA", ta),
                             SB_EMIT_INT("transB", tb)};

    return sb_emit(g, &(sb_emit_spec){.op = "FusedMatMul",
                                      .domain = "com.microsoft",
                                      .in = {a, b},
                                      .n_in = 2,
                                      .attrs = attrs,
                                      .n_attrs = 2});
}

/* All dimensions but the last as one. */
static sb_value_id product_rows(sb_grad *g, sb_value_id v)
{
    int rank = product_rank(g, v);

    if (g->status != SB_OK || rank == 2)
        return v;
    return sb_emit_with(g, "Flatten", v, SB_NONE,
                        SB_EMIT_INT("axis", rank - 1));
}

sb_status sb_grad_matmul(sb_grad *g)
{
    sb_value_id a = sb_grad_in(g, 0), b = sb_grad_in(g, 1), dy = g->dy[0];
    int rank_a = product_rank(g, a), rank_b = product_rank(g, b);

    if (rank_a < 1 || rank_b < 1)
        return sb_grad_refuse(g, "ranks are not known");
    /* Vectors are matrices of one row, or of one column. */
    if (rank_b == 1) {
        b = product_unsqueeze(g, b, 1);
        dy = product_unsqueeze(g, dy, -1);
    }
    if (rank_a == 1) {
        a = product_unsqueeze(g, a, 0);
        dy = product_unsqueeze(g, dy, -2);
    }
    if (g->status != SB_OK)
        return SB_OK;
    bool one = product_rank(g, b) == 2;
    if (g->wanted[0]) {
        sb_value_id da =
            one ? product_gemm(g, product_rows(g, dy), false, b, true, 1)
                : sb_grad_sum_to(g, product_batch(g, dy, false, b, true), a);
        g->dx[0] = sb_grad_reshape(g, da, sb_grad_in(g, 0));
    }
    if (g->wanted[1]) {
        sb_value_id db =
            one ? product_gemm(g, product_rows(g, a), true, product_rows(g, dy),
                               false, 1)
                : sb_grad_sum_to(g, product_batch(g, a, true, dy, false), b);
        g->dx[1] = sb_grad_reshape(g, db, sb_grad_in(g, 1));
    }
    return SB_OK;
}
