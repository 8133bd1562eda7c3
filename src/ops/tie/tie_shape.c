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
        sb_tie_target(t, 1, 0);
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
    sb_dim n = sb_tie_rank(t, 1) == 1 ? sb_tie_dim(t, 1, 0) : -1;

    if (!sb_tie_is_const(t, 1) && !sb_dim_known(n))
        return SB_OK;
    if (!sb_tie_is_const(t, 1))
        sb_tie_target(t, 1, sb_tie_rank(t, Y) - (int)n);
    sb_tie_broadcast(t, X, Y);
    return SB_OK;
}

/* ---- Shape ---------------------------------------------------------------- */

/* Some sizes of the axes, in their order: elements of a value. */
typedef struct sizes {
    int first, n;
    bool *used; /* by axis: something is computed with its size */
    sb_value_id of;
} sizes;

static void sizes_use(const sizes *s, int64_t from, int64_t to)
{
    for (int64_t i = from < 0 ? 0 : from; i < to && i < s->n; i++)
        s->used[s->first + i] = true;
}

/* The bounds of a Slice of them, as indices; false: they are not known. */
static bool sizes_slice(const sb_graph *g, const sb_node *n, sizes *s)
{
    int64_t bound[2];

    for (uint32_t i = 0; i < 2; i++) {
        const sb_tensor *t = sb_const_of(g, sb_node_in(n, i + 1));
        if (!t || sb_tensor_count(t) != 1)
            return false;
        int64_t at = sb_tensor_get_i64(t, 0);
        at += at < 0 ? s->n : 0;
        bound[i] = at < 0 ? 0 : at > s->n ? s->n : at;
    }
    const sb_tensor *step = sb_const_of(g, sb_node_in(n, 4));
    if (sb_node_in(n, 4) != SB_NONE && (!step || sb_tensor_count(step) != 1 ||
                                        sb_tensor_get_i64(step, 0) != 1))
        return false;
    s->first += (int)bound[0];
    s->n = bound[1] > bound[0] ? (int)(bound[1] - bound[0]) : 0;
    return true;
}

/* Are they, as that input of a Concat, each in the place of its axis? */
static bool sizes_in_place(const sb_graph *g, const sb_node *concat,
                           uint32_t input, const sizes *s)
{
    int64_t at = 0;

    for (uint32_t i = 0; i < input; i++) {
        const sb_shape *x = &sb_graph_value(g, concat->inputs[i])->type.shape;
        if (x->rank != 1 || !sb_dim_known(x->dim[0]))
            return false;
        at += x->dim[0];
    }
    return at == s->first;
}

/* Do they only say how the value is resized that has them? */
static bool sizes_return(const sb_graph *g, const sb_node *n, uint32_t input,
                         const sizes *s)
{
    enum { SIZES = 3 };

    if (sb_node_is(n, "Resize") && input == SIZES && n->inputs[0] == s->of)
        return true;
    if (sb_target_concat(g, n->outputs[0]) != n ||
        !sizes_in_place(g, n, input, s))
        return false;
    const sb_value *joined = sb_graph_value(g, n->outputs[0]);
    bool all = !joined->is_output && joined->n_uses > 0;
    for (uint32_t i = 0; i < joined->n_uses && all; i++) {
        const sb_node *r = sb_graph_node(g, joined->uses[i].node);
        all = sb_node_is(r, "Resize") && joined->uses[i].input == SIZES &&
              r->inputs[0] == s->of;
    }
    return all;
}

enum { STEPS_MOST = 8 };

/* Follows value `v`, which holds the sizes, to where some are picked. */
static void sizes_follow(const sb_graph *g, sb_value_id v, sizes s, int steps)
{
    const sb_value *value = sb_graph_value(g, v);

    if (value->is_output || steps > STEPS_MOST)
        sizes_use(&s, 0, s.n);
    for (size_t i = 0; i < value->n_uses; i++) {
        const sb_node *n = sb_graph_node(g, value->uses[i].node);
        const sb_tensor *index = sb_const_of(g, sb_node_in(n, 1));
        bool data = value->uses[i].input == 0;
        sizes part = s;

        if (data && sb_node_is(n, "Gather") && index) {
            for (int64_t k = 0; k < sb_tensor_count(index); k++) {
                int64_t at = sb_tensor_get_i64(index, k);
                at += at < 0 ? s.n : 0;
                sizes_use(&s, at, at + 1);
            }
        } else if (sizes_return(g, n, value->uses[i].input, &s)) {
            continue;
        } else if (data && steps < STEPS_MOST &&
                   (sb_node_is(n, "Cast") ||
                    (sb_node_is(n, "Slice") && sizes_slice(g, n, &part)))) {
            sizes_follow(g, n->outputs[0], part, steps + 1);
        } else {
            sizes_use(&s, 0, s.n);
        }
    }
}

/* Where a bound that Shape states is; it may lie outside. */
static int shape_bound(const sb_ties *t, const char *name, int64_t none)
{
    int rank = sb_tie_rank(t, X);
    int64_t at = sb_node_int(t->node, name, none);

    at += at < 0 ? rank : 0;
    return at < 0 ? 0 : at > rank ? rank : (int)at;
}

/* What is computed from a size may be anything, so the size stays. */
sb_status sb_tie_shape(sb_ties *t)
{
    int rank = sb_tie_rank(t, X), first = shape_bound(t, "start", 0);
    int end = shape_bound(t, "end", rank);
    bool used[SB_MAX_RANK] = {false};

    sizes_follow(
        t->graph, sb_tie_value(t, Y),
        (sizes){first, end > first ? end - first : 0, used, sb_tie_value(t, X)},
        0);
    for (int a = 0; a < rank; a++) {
        if (used[a])
            sb_tie_fixed(t, X, a, "its size is computed with");
        else
            sb_tie_same(t, X, a, X, a);
    }
    return SB_OK;
}
