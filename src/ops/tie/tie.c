/* Collecting what the rules say (tie.h). */
#include "ops/tie/tie.h"

#include <assert.h>
#include <string.h>

#include "ops/op_registry.h"
#include "ops/tie/tie_rules.h"

/* ---- reading ------------------------------------------------------------ */

sb_value_id sb_tie_value(const sb_ties *t, int operand)
{
    const sb_node *n = t->node;

    if (operand >= SB_OUT_BASE)
        return operand - SB_OUT_BASE < (int)n->n_out
                   ? n->outputs[operand - SB_OUT_BASE]
                   : SB_NONE;
    return operand < (int)n->n_in ? n->inputs[operand] : SB_NONE;
}

bool sb_tie_has(const sb_ties *t, int operand)
{
    return sb_tie_value(t, operand) != SB_NONE;
}

int sb_tie_rank(const sb_ties *t, int operand)
{
    return sb_graph_value(t->graph, sb_tie_value(t, operand))->type.shape.rank;
}

sb_dim sb_tie_dim(const sb_ties *t, int operand, int axis)
{
    if (operand >= SB_PART_BASE)
        return t->part_size[operand - SB_PART_BASE];
    const sb_shape *s =
        &sb_graph_value(t->graph, sb_tie_value(t, operand))->type.shape;
    return axis >= 0 && axis < s->rank ? s->dim[axis] : SB_DIM_UNKNOWN;
}

int64_t sb_tie_attr(const sb_ties *t, const char *name)
{
    return sb_op_int(t->op, t->node, name);
}

int sb_tie_axis(const sb_ties *t, const char *name, int rank)
{
    int64_t axis = sb_tie_attr(t, name);

    return (int)(axis < 0 ? axis + rank : axis);
}

int64_t sb_tie_ints(const sb_ties *t, uint32_t input, int64_t *v, int64_t max)
{
    const sb_tensor *c = sb_const_of(t->graph, sb_tie_value(t, (int)input));

    if (!c || !sb_dtype_is_integral(c->dtype) || c->rank > 1 ||
        sb_tensor_count(c) > max)
        return -1;
    int64_t n = sb_tensor_count(c);
    for (int64_t i = 0; i < n; i++)
        v[i] = sb_tensor_get_i64(c, i);
    return n;
}

bool sb_tie_quantizes(const sb_node *n)
{
    const sb_op_def *op = sb_op_of(n);

    return op && op->tie == sb_tie_quantize;
}

/* The constant behind an operand: itself, or what is dequantized there. */
static sb_value_id tie_weight(const sb_ties *t, int operand)
{
    sb_value_id v = sb_tie_value(t, operand);

    while (v != SB_NONE && !sb_is_const(t->graph, v)) {
        sb_node_id from = sb_graph_value(t->graph, v)->producer;
        const sb_node *n =
            from == SB_NONE ? NULL : sb_graph_node(t->graph, from);

        v = n && sb_tie_quantizes(n) ? sb_node_in(n, 0) : SB_NONE;
    }
    return v;
}

bool sb_tie_is_const(const sb_ties *t, int operand)
{
    return tie_weight(t, operand) != SB_NONE;
}

/* ---- saying ------------------------------------------------------------- */

static void tie_add(sb_ties *t, const sb_tie *tie)
{
    if (t->status == SB_OK)
        t->status = sb_grow(t->graph->ctx, (void **)&t->ties, &t->cap, t->n + 1,
                            sizeof *t->ties);
    if (t->status == SB_OK)
        t->ties[t->n++] = *tie;
}

static sb_axis_ref tie_ref(const sb_ties *t, int operand, int axis)
{
    if (operand >= SB_PART_BASE)
        return (sb_axis_ref){SB_NONE, operand - SB_PART_BASE};
    return (sb_axis_ref){sb_tie_value(t, operand), axis};
}

static void tie_flag(sb_ties *t, sb_tie_kind kind, int x, int ax,
                     const char *why)
{
    tie_add(t, &(sb_tie){.kind = kind, .x = tie_ref(t, x, ax), .why = why});
}

void sb_tie_fixed(sb_ties *t, int x, int ax, const char *why)
{
    if (x >= SB_PART_BASE || sb_tie_has(t, x))
        tie_flag(t, SB_TIE_FIXED, x, ax, why);
}

void sb_tie_stats(sb_ties *t, int x, int ax, const char *why)
{
    tie_flag(t, SB_TIE_STATS, x, ax, why);
}

static void tie_span(sb_ties *t, int x, int ax, int64_t x0, int y, int ay,
                     int64_t y0, int64_t n)
{
    tie_add(t, &(sb_tie){.kind = SB_TIE_SPAN,
                         .x = tie_ref(t, x, ax),
                         .y = tie_ref(t, y, ay),
                         .x0 = x0,
                         .y0 = y0,
                         .n = n});
}

void sb_tie_same(sb_ties *t, int x, int ax, int y, int ay)
{
    sb_dim a = sb_tie_dim(t, x, ax), b = sb_tie_dim(t, y, ay);

    if (sb_dim_known(a) && a == b) {
        tie_span(t, x, ax, 0, y, ay, 0, a);
        return;
    }
    sb_tie_fixed(t, x, ax, "sizes that are not known");
    sb_tie_fixed(t, y, ay, "sizes that are not known");
}

void sb_tie_same_all(sb_ties *t, int x, int y)
{
    for (int i = 0; i < sb_tie_rank(t, x) && i < sb_tie_rank(t, y); i++)
        sb_tie_same(t, x, i, y, i);
}

void sb_tie_from(sb_ties *t, int x, int ax, int64_t x0, int y, int ay)
{
    sb_dim a = sb_tie_dim(t, x, ax), b = sb_tie_dim(t, y, ay);
    int64_t y0 = x0 < 0 ? -x0 : 0;

    if (!sb_dim_known(a) || !sb_dim_known(b)) {
        sb_tie_fixed(t, x, ax, "sizes that are not known");
        sb_tie_fixed(t, y, ay, "sizes that are not known");
        return;
    }
    x0 = x0 < 0 ? 0 : x0;
    int64_t n = a - x0 < b - y0 ? a - x0 : b - y0;
    tie_span(t, x, ax, x0, y, ay, y0, n > 0 ? n : 0);
}

void sb_tie_list(sb_ties *t, int x, int ax, int y, int ay, const int64_t *of,
                 int64_t n)
{
    sb_dim a = sb_tie_dim(t, x, ax);
    int64_t *copy = NULL;

    for (int64_t i = 0; i < n; i++)
        if (!sb_dim_known(a) || of[i] < 0 || of[i] >= a) {
            sb_tie_fixed(t, x, ax, "indices that do not fit");
            sb_tie_fixed(t, y, ay, "indices that do not fit");
            return;
        }
    if (t->status == SB_OK) {
        copy = sb_arena_alloc(t->graph->arena, (size_t)n, sizeof *copy);
        t->status = copy ? SB_OK : SB_NO_MEMORY;
    }
    if (t->status != SB_OK)
        return;
    memcpy(copy, of, (size_t)n * sizeof *copy);
    tie_add(t, &(sb_tie){.kind = SB_TIE_LIST,
                         .x = tie_ref(t, x, ax),
                         .y = tie_ref(t, y, ay),
                         .n = n,
                         .of = copy});
}

void sb_tie_sum(sb_ties *t, int x, int ax, int w, int aw)
{
    static const char pairs[] = "a sum over products of activations";

    sb_tie_same(t, x, ax, w, aw);
    if (!sb_tie_is_const(t, w)) {
        tie_flag(t, SB_TIE_PAIRS, x, ax, pairs);
        tie_flag(t, SB_TIE_PAIRS, w, aw, pairs);
        return;
    }
    tie_add(t, &(sb_tie){.kind = SB_TIE_SUM,
                         .x = {tie_weight(t, w), aw},
                         .y = tie_ref(t, x, ax)});
}

void sb_tie_make(sb_ties *t, int w, int aw, int y, int ay)
{
    sb_tie_same(t, w, aw, y, ay);
    if (sb_tie_is_const(t, w))
        tie_add(t, &(sb_tie){.kind = SB_TIE_MAKE, .x = {tie_weight(t, w), aw}});
}

void sb_tie_scale(sb_ties *t, int w, int aw, int y, int ay)
{
    sb_tie_same(t, w, aw, y, ay);
    if (sb_tie_is_const(t, w))
        tie_flag(t, SB_TIE_SCALE, w, aw, NULL);
}

void sb_tie_broadcast(sb_ties *t, int x, int y)
{
    int rx = sb_tie_rank(t, x), ry = sb_tie_rank(t, y);

    for (int ax = 0; ax < rx; ax++) {
        int ay = ax + ry - rx;
        sb_dim d = sb_tie_dim(t, x, ax);

        if (ay < 0)
            sb_tie_fixed(t, x, ax, "broadcasting from a higher rank");
        else if (d != 1 || sb_tie_dim(t, y, ay) == 1)
            sb_tie_same(t, x, ax, y, ay);
        else /* repeated: y's indices do without it */
            tie_span(t, x, ax, 0, y, ay, 0, 0);
    }
}

int sb_tie_part(sb_ties *t, int64_t size)
{
    assert(t->n_parts < (int)SB_COUNT(t->part_size));
    t->part_size[t->n_parts] = size;
    return SB_PART_BASE + t->n_parts++;
}

void sb_tie_digits(sb_ties *t, int x, int ax, const int *parts, int n)
{
    sb_tie tie = {.kind = SB_TIE_DIGITS, .x = tie_ref(t, x, ax)};
    sb_dim size = sb_tie_dim(t, x, ax);
    int64_t product = 1;

    assert(n > 0 && n <= SB_TIE_PARTS);
    for (int i = 0; i < n; i++)
        product *= sb_tie_dim(t, parts[i], 0);
    if (!sb_dim_known(size) || size != product) {
        sb_tie_fixed(t, x, ax, "sizes that are not known");
        for (int i = 0; i < n; i++)
            sb_tie_fixed(t, parts[i], 0, "sizes that are not known");
        return;
    }
    for (int i = 0; i < n; i++)
        if (sb_tie_dim(t, parts[i], 0) != 1)
            tie.part[tie.n_parts++] = tie_ref(t, parts[i], 0);
    tie_add(t, &tie);
}

/* ---- asking ------------------------------------------------------------- */

static bool tie_mentions(const sb_ties *t, sb_axis_ref ref)
{
    for (size_t i = 0; i < t->n; i++) {
        const sb_tie *tie = &t->ties[i];
        if ((tie->x.value == ref.value && tie->x.axis == ref.axis) ||
            (tie->kind <= SB_TIE_LIST && tie->y.value == ref.value &&
             tie->y.axis == ref.axis))
            return true;
    }
    return false;
}

/* Fixes the axes that the rule did not mention, all of them without a rule. */
static void tie_fix_rest(sb_ties *t, int operand, const char *why)
{
    if (!sb_tie_has(t, operand))
        return;
    for (int a = 0; a < sb_tie_rank(t, operand); a++)
        if (!tie_mentions(t, tie_ref(t, operand, a)))
            sb_tie_fixed(t, operand, a, why);
}

static bool tie_ranks_known(const sb_ties *t)
{
    const sb_node *n = t->node;

    for (uint32_t i = 0; i < n->n_in; i++)
        if (sb_tie_has(t, (int)i) && sb_tie_rank(t, (int)i) < 0)
            return false;
    for (uint32_t i = 0; i < n->n_out; i++)
        if (sb_tie_has(t, SB_OUT(i)) && sb_tie_rank(t, SB_OUT(i)) < 0)
            return false;
    return true;
}

sb_status sb_node_ties(sb_ties *t)
{
    const sb_node *n = t->node;
    const char *why = "its rule leaves this axis alone";

    t->op = sb_op_of(n);
    if (!t->op)
        why = "the operator is not known";
    else if (!tie_ranks_known(t))
        why = "ranks that are not known";
    else if (t->op->tie)
        SB_TRY(t->op->tie(t));
    else if (t->op->flags & SB_OP_ELEMENTWISE)
        SB_TRY(sb_tie_elementwise(t));
    else
        why = "the operator has no rule for pruning";
    for (uint32_t i = 0; i < n->n_in; i++)
        tie_fix_rest(t, (int)i, why);
    for (uint32_t i = 0; i < n->n_out; i++)
        tie_fix_rest(t, SB_OUT(i), why);
    return t->status;
}
