/* Rules of products: rows and columns stay what they are, the axis summed over
 * is tied to that of the weight. */
#include "ops/matmul/einsum.h"
#include "ops/tie/tie.h"
#include "ops/tie/tie_rules.h"

enum { A = 0, B = 1, Y = SB_OUT_BASE };

/* Axis `ax` of operand x becomes axis `ay` of the result. */
static void tie_free(sb_ties *t, int x, int ax, int ay)
{
    if (sb_tie_is_const(t, x))
        sb_tie_make(t, x, ax, Y, ay);
    else
        sb_tie_same(t, x, ax, Y, ay);
}

static void tie_inner(sb_ties *t, int ak, int bk)
{
    if (sb_tie_is_const(t, B))
        sb_tie_sum(t, A, ak, B, bk);
    else
        sb_tie_sum(t, B, bk, A, ak);
}

/* Axes before the matrices, with broadcasting. */
static void tie_matrices(sb_ties *t, int x)
{
    int rx = sb_tie_rank(t, x), ry = sb_tie_rank(t, Y);

    for (int a = 0; a < rx - 2; a++)
        if (sb_tie_dim(t, x, a) != 1 || sb_tie_dim(t, Y, a + ry - rx) == 1)
            sb_tie_same(t, x, a, Y, a + ry - rx);
}

sb_status sb_tie_matmul(sb_ties *t)
{
    int ra = sb_tie_rank(t, A), rb = sb_tie_rank(t, B), ry = sb_tie_rank(t, Y);
    int ta = sb_node_int(t->node, "transA", 0) != 0;
    int tb = sb_node_int(t->node, "transB", 0) != 0;

    if (ra < 2 || rb < 2 || sb_node_int(t->node, "transBatchA", 0) ||
        sb_node_int(t->node, "transBatchB", 0))
        return SB_OK;
    tie_inner(t, ra - 1 - ta, rb - 2 + tb);
    tie_free(t, A, ra - 2 + ta, ry - 2);
    tie_free(t, B, rb - 1 - tb, ry - 1);
    tie_matrices(t, A);
    tie_matrices(t, B);
    return SB_OK;
}

sb_status sb_tie_gemm(sb_ties *t)
{
    int ta = sb_tie_attr(t, "transA") != 0, tb = sb_tie_attr(t, "transB") != 0;

    tie_inner(t, 1 - ta, tb);
    tie_free(t, A, ta, 0);
    tie_free(t, B, 1 - tb, 1);
    if (sb_tie_has(t, 2))
        sb_tie_broadcast(t, 2, Y);
    return SB_OK;
}

/* ---- Einsum -------------------------------------------------------------- */

/* The axis of a term that has this label; -1: none, -2: several. */
static int term_axis(const sb_einsum_term *term, int label)
{
    int found = -1;

    for (int a = 0; a < term->n; a++)
        if (term->label[a] == label)
            found = found == -1 ? a : -2;
    return found;
}

/* What a label of the equation says. */
static void tie_label(sb_ties *t, const sb_einsum_terms *terms, int label)
{
    int out = term_axis(&terms->out, label), n = 0, who[SB_EINSUM_MAX_IN];
    int axis[SB_EINSUM_MAX_IN];

    for (uint32_t i = 0; i < t->node->n_in; i++) {
        int a = term_axis(&terms->in[i], label);
        if (a == -1)
            continue;
        if (a == -2 || out == -2 || sb_tie_dim(t, (int)i, a) == 1)
            return; /* diagonals, broadcasting: not mentioned, so fixed */
        who[n] = (int)i;
        axis[n++] = a;
    }
    if (out >= 0 && n == 1)
        tie_free(t, who[0], axis[0], out);
    else if (out >= 0)
        for (int i = 0; i < n; i++)
            sb_tie_same(t, who[i], axis[i], Y, out);
    else if (n == 2 && sb_tie_is_const(t, who[1]))
        sb_tie_sum(t, who[0], axis[0], who[1], axis[1]);
    else if (n == 2)
        sb_tie_sum(t, who[1], axis[1], who[0], axis[0]);
}

sb_status sb_tie_einsum(sb_ties *t)
{
    const sb_attr *equation = sb_node_attr(t->node, "equation");
    sb_shape shapes[SB_EINSUM_MAX_IN];
    sb_einsum_terms terms;
    const char *why = NULL;

    if (!equation || equation->type != SB_ATTR_STRING ||
        t->node->n_in > SB_EINSUM_MAX_IN)
        return SB_OK;
    for (uint32_t i = 0; i < t->node->n_in; i++) {
        if (!sb_tie_has(t, (int)i))
            return SB_OK;
        shapes[i] = sb_graph_value(t->graph, t->node->inputs[i])->type.shape;
    }
    if (!sb_einsum_parse(equation->s.data, t->node->n_in, shapes, &terms, &why))
        return SB_OK;
    for (int label = 0; label < SB_EINSUM_LABELS; label++)
        if (terms.used >> label & 1)
            tie_label(t, &terms, label);
    return SB_OK;
}

/* ---- recurrent networks: only what they read ----------------------------- */

sb_status sb_tie_rnn(sb_ties *t)
{
    sb_tie_sum(t, 0, 2, 1, 2);
    return SB_OK;
}
