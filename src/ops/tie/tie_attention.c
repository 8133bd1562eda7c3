/* Rules of attention: heads go as a whole.
 *
 * The elements of a head are fixed, since queries and keys are multiplied and
 * summed over them; query heads that share a key head go with it. */
#include "ops/tie/tie.h"
#include "ops/tie/tie_rules.h"

enum { Q = 0, K = 1, V = 2, Y = SB_OUT_BASE };

static const char *const in_head = "elements of a head";

/* Axis `ax` of x is [key heads, queries for each, elements of a head]. */
static void tie_heads(sb_ties *t, int x, int ax, int heads, int64_t repeat)
{
    sb_dim size = sb_tie_dim(t, x, ax);
    int64_t n = sb_tie_dim(t, heads, 0) * repeat;

    if (n < 1 || size < n || size % n != 0) {
        sb_tie_fixed(t, heads, 0, "heads that do not fit");
        return;
    }
    int rest = sb_tie_part(t, size / n * repeat);
    sb_tie_fixed(t, rest, 0, in_head);
    sb_tie_digits(t, x, ax, (const int[]){heads, rest}, 2);
}

/* An operand whose heads are an axis of their own, or in its last. */
static void tie_operand(sb_ties *t, int x, int heads, int64_t repeat)
{
    if (sb_tie_has(t, x))
        tie_heads(t, x, sb_tie_rank(t, x) == 4 ? 1 : 2, heads, repeat);
}

sb_status sb_tie_attention(sb_ties *t)
{
    enum { MASK = 3, PAST_K, PAST_V };
    bool flat = sb_tie_rank(t, Q) == 3;
    int64_t q = flat ? sb_tie_attr(t, "q_num_heads") : sb_tie_dim(t, Q, 1);
    int64_t kv = flat ? sb_tie_attr(t, "kv_num_heads") : sb_tie_dim(t, K, 1);

    if (kv < 1 || q < kv || q % kv != 0 || sb_tie_has(t, SB_OUT(3)))
        return SB_OK;
    int heads = sb_tie_part(t, kv);
    tie_operand(t, Q, heads, q / kv);
    tie_operand(t, K, heads, 1);
    tie_operand(t, V, heads, 1);
    tie_operand(t, Y, heads, q / kv);
    tie_operand(t, PAST_K, heads, 1);
    tie_operand(t, PAST_V, heads, 1);
    tie_operand(t, SB_OUT(1), heads, 1);
    tie_operand(t, SB_OUT(2), heads, 1);
    if (sb_tie_has(t, MASK)) {
        int rank = sb_tie_rank(t, MASK);
        if (rank >= 3 && sb_tie_dim(t, MASK, rank - 3) == q && q > 1)
            tie_heads(t, MASK, rank - 3, heads, q / kv);
    }
    return SB_OK;
}

/* The weight [C, 3 H D] makes queries, keys and values at once. */
sb_status sb_tie_ms_attention(sb_ties *t)
{
    enum { X = 0, W = 1, BIAS = 2 };
    int64_t h = sb_tie_attr(t, "num_heads"), n = sb_tie_dim(t, W, 1);

    if (sb_node_attr(t->node, "qkv_hidden_sizes") || t->node->n_out > 1 ||
        h < 1 || n < 3 * h || n % (3 * h) != 0)
        return SB_OK;
    for (uint32_t i = 4; i < t->node->n_in; i++)
        if (sb_tie_has(t, (int)i))
            return SB_OK;
    int three = sb_tie_part(t, 3), heads = sb_tie_part(t, h);
    int size = sb_tie_part(t, n / (3 * h));
    const int parts[] = {three, heads, size};
    sb_tie_fixed(t, three, 0, "queries, keys and values");
    sb_tie_fixed(t, size, 0, in_head);
    sb_tie_sum(t, X, 2, W, 0);
    sb_tie_digits(t, W, 1, parts, 3);
    if (sb_tie_has(t, BIAS))
        sb_tie_digits(t, BIAS, 0, parts, 3);
    sb_tie_digits(t, Y, 2, parts + 1, 2);
    return SB_OK;
}

sb_status sb_tie_multi_head(sb_ties *t)
{
    int64_t h = sb_tie_attr(t, "num_heads");

    if (h < 1 || t->node->n_out > 1)
        return SB_OK;
    for (uint32_t i = 0; i < t->node->n_in; i++)
        if (sb_tie_has(t, (int)i) != (i < 3) ||
            (i < 3 && sb_tie_rank(t, (int)i) != 3))
            return SB_OK;
    int heads = sb_tie_part(t, h);
    for (int i = Q; i <= V; i++)
        tie_operand(t, i, heads, 1);
    tie_operand(t, Y, heads, 1);
    return SB_OK;
}

/* Halves or neighbors within a head turn together, so a head is a unit here
 * as well. */
sb_status sb_tie_rotary(sb_ties *t)
{
    int64_t h = sb_tie_attr(t, "num_heads");

    if (sb_tie_rank(t, Q) == 4)
        h = sb_tie_dim(t, Q, 1);
    if (h < 1)
        return SB_OK;
    int heads = sb_tie_part(t, h);
    tie_operand(t, Q, heads, 1);
    tie_operand(t, Y, heads, 1);
    return SB_OK;
}
