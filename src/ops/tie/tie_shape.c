/* Rules of operators that restate a shape.
 *
 * Reshape: both shapes are read from the last axis on as numbers with mixed
 * radix; where their digits can be made to match, each axis is a number whose
 * digits it shares with axes of the other side. */
#include "ops/tie/tie.h"
#include "ops/tie/tie_rules.h"

enum { X = 0, Y = SB_OUT_BASE };

/* ---- Reshape -------------------------------------------------------------- */

typedef struct side {
    int operand, first, axis;  /* axes [first, axis] are left */
    int64_t rest;              /* of the size of `axis` */
    int parts[SB_MAX_RANK], n; /* of it, the last digit first */
} side;

/* Is there an axis left?  Those of size 1 have no digits. */
static bool side_left(sb_ties *t, side *s)
{
    while (s->axis >= s->first && s->rest == 1) {
        int order[SB_MAX_RANK];
        for (int i = 0; i < s->n; i++)
            order[i] = s->parts[s->n - 1 - i];
        if (s->n > 0)
            sb_tie_digits(t, s->operand, s->axis, order, s->n);
        s->n = 0;
        s->axis--;
        s->rest = s->axis >= s->first ? sb_tie_dim(t, s->operand, s->axis) : 0;
    }
    return s->axis >= s->first;
}

static side side_make(const sb_ties *t, int operand, int first, int last)
{
    return (side){.operand = operand,
                  .first = first,
                  .axis = last,
                  .rest = last >= first ? sb_tie_dim(t, operand, last) : 0};
}

static void side_fix(sb_ties *t, const side *s)
{
    for (int i = 0; i < s->n; i++)
        sb_tie_fixed(t, s->parts[i], 0, "shapes that do not match");
}

/* The common digits of both sides from the last on; what is in front of digits
 * that do not match, or of a size that is not known, is not mentioned, so it
 * stays as it is. */
static void tie_digits_of(sb_ties *t, side *x, side *y)
{
    while (side_left(t, x) && side_left(t, y)) {
        int64_t digit = x->rest < y->rest ? x->rest : y->rest;

        if (digit < 1 || x->rest % digit != 0 || y->rest % digit != 0 ||
            x->n == SB_MAX_RANK || y->n == SB_MAX_RANK) {
            side_fix(t, x);
            side_fix(t, y);
            return;
        }
        int part = sb_tie_part(t, digit);
        x->parts[x->n++] = part;
        y->parts[y->n++] = part;
        x->rest /= digit;
        y->rest /= digit;
    }
    if (side_left(t, y))
        side_fix(t, y);
    if (side_left(t, x))
        side_fix(t, x);
}

/* The first axis behind the last one whose size is not known. */
static int known_from(const sb_ties *t, int operand, int first, int last)
{
    while (last >= first && sb_dim_known(sb_tie_dim(t, operand, last)))
        last--;
    return last + 1;
}

sb_status sb_tie_reshape(sb_ties *t)
{
    int first = 0, lx = sb_tie_rank(t, X) - 1, ly = sb_tie_rank(t, Y) - 1;

    if (sb_tie_has(t, 1) && !sb_tie_is_const(t, 1))
        return SB_OK; /* sizes in it could not be restated */

    while (first <= lx && first <= ly &&
           sb_dim_same(sb_tie_dim(t, X, first), sb_tie_dim(t, Y, first))) {
        sb_tie_same(t, X, first, Y, first);
        first++;
    }
    while (lx >= first && ly >= first &&
           sb_dim_same(sb_tie_dim(t, X, lx), sb_tie_dim(t, Y, ly)))
        sb_tie_same(t, X, lx--, Y, ly--);
    side x = side_make(t, X, known_from(t, X, first, lx), lx);
    side y = side_make(t, Y, known_from(t, Y, first, ly), ly);
    tie_digits_of(t, &x, &y);
    return SB_OK;
}

/* ---- axes of size 1 ------------------------------------------------------- */

/* Axes of the one side, in order, without those of size 1 that the other does
 * not have. */
static sb_status tie_without(sb_ties *t, int longer, int shorter)
{
    int64_t axes[SB_MAX_RANK];
    int rank = sb_tie_rank(t, longer);
    int64_t n = sb_tie_has(t, 1) ? sb_tie_ints(t, 1, axes, SB_MAX_RANK) : -1;
    bool left[SB_MAX_RANK] = {false};

    if (n < 0 && sb_tie_has(t, 1))
        return SB_OK;
    for (int a = 0; n < 0 && a < rank; a++)
        left[a] = sb_tie_dim(t, longer, a) == 1;
    for (int64_t i = 0; i < n; i++) {
        int64_t a = axes[i] < 0 ? axes[i] + rank : axes[i];
        if (a < 0 || a >= rank)
            return SB_OK;
        left[a] = true;
    }
    for (int a = 0, at = 0; a < rank; a++)
        if (!left[a])
            sb_tie_same(t, longer, a, shorter, at++);
    return SB_OK;
}

sb_status sb_tie_squeeze(sb_ties *t)
{
    return tie_without(t, X, Y);
}

sb_status sb_tie_unsqueeze(sb_ties *t)
{
    return tie_without(t, Y, X);
}

sb_status sb_tie_expand(sb_ties *t)
{
    if (sb_tie_is_const(t, 1))
        sb_tie_broadcast(t, X, Y);
    return SB_OK;
}

/* ---- Shape ---------------------------------------------------------------- */

/* Which axes a consumer of the shape picks; false: it cannot be told. */
static bool shape_picks(const sb_graph *g, const sb_node *consumer,
                        bool *picked, int rank)
{
    const sb_tensor *index = sb_const_of(g, sb_node_in(consumer, 1));

    if (!sb_node_is(consumer, "Gather") || !index)
        return false;
    for (int64_t i = 0; i < sb_tensor_count(index); i++) {
        int64_t a = sb_tensor_get_i64(index, i);
        a += a < 0 ? rank : 0;
        if (a >= 0 && a < rank)
            picked[a] = true;
    }
    return true;
}

/* What is computed from a size may be anything, so the size stays. */
sb_status sb_tie_shape(sb_ties *t)
{
    int rank = sb_tie_rank(t, X);
    const sb_value *y = sb_graph_value(t->graph, sb_tie_value(t, Y));
    bool picked[SB_MAX_RANK] = {false}, known = !y->is_output;
    bool whole = sb_node_attr(t->node, "start") || sb_node_attr(t->node, "end");

    for (uint32_t i = 0; known && !whole && i < y->n_uses; i++)
        known = shape_picks(t->graph, sb_graph_node(t->graph, y->uses[i].node),
                            picked, rank);
    for (int a = 0; a < rank; a++) {
        if (!known || whole || picked[a])
            sb_tie_fixed(t, X, a, "its size is computed with");
        else
            sb_tie_same(t, X, a, X, a);
    }
    return SB_OK;
}
