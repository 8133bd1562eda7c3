/* Which memory layout each step works in.
 *
 * Decided forwards, once: an operator with a preference states it, one without
 * takes NCHW order, and an elementwise one follows its inputs, so that a
 * chain of convolutions keeps the layout of its first from end to end. */
#include "exec/plan.h"

/* Does an input of other dimensions than the output broadcast along channels
 * last?  It does if it lies the same way in both layouts. */
static bool broadcasts_either_way(const sb_tensor *x, const sb_tensor *y)
{
    int skip = y->rank - x->rank; /* leading dimensions that x lacks */
    int c = 1 - skip;             /* where x has its channels */

    if (c < 0 || x->dims[c] == 1)
        return true;
    return sb_dims_product(x->dims, c + 1, x->rank) == 1;
}

static bool same_dims(const sb_tensor *a, const sb_tensor *b)
{
    bool same = a->rank == b->rank;

    for (int i = 0; same && i < a->rank; i++)
        same = a->dims[i] == b->dims[i];
    return same;
}

/* Elements that a reorder can move: whole, and not too long. */
static bool can_move(const sb_tensor *t)
{
    size_t size = sb_dtype_size(t->dtype);

    return size > 0 && size <= 8;
}

/* Channels last if at least half of the inputs of full size that are computed
 * lie so and the others can. */
static void follow_inputs(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    const sb_tensor *y = k->out[0];
    int last = 0, plain = 0;

    if (!y || y->rank < 3)
        return;
    for (uint32_t i = 0; i < k->n_in; i++) {
        const sb_tensor *x = k->in[i];
        if (!x)
            continue;
        if (!same_dims(x, y)) {
            if (!broadcasts_either_way(x, y))
                return;
        } else if (x->layout == SB_LAYOUT_CHANNELS_LAST) {
            last++;
        } else if (!x->data) { /* a constant is brought into order once */
            plain++;
        }
    }
    /* No convolution of one dimension works so, and what is transposed there
     * belongs to products of matrices, which are plain. */
    if (last == 0 || last < plain || (last == plain && y->rank == 3))
        return;
    for (uint32_t i = 0; i < k->n_in; i++)
        if (k->in[i] && same_dims(k->in[i], y))
            in[i] = SB_LAYOUT_CHANNELS_LAST;
    for (uint32_t i = 0; i < k->n_out; i++)
        out[i] = SB_LAYOUT_CHANNELS_LAST;
}

/* Results of the graph are handed out in NCHW order.  So a step that makes
 * nothing else, and more than it reads (the last Resize of a segmentation
 * net), had better have its input reordered.  Not a convolution: its work
 * counts for more. */
static bool grows_into_result(const sb_step *st)
{
    const sb_kernel *k = &st->k;
    size_t reads = 0, makes = 0;

    for (uint32_t i = 0; i < k->n_in; i++)
        if (k->in[i] && k->in[i]->layout == SB_LAYOUT_CHANNELS_LAST)
            reads += sb_tensor_bytes(k->in[i]);
    for (uint32_t i = 0; i < k->n_out; i++) {
        if (!k->out[i])
            continue;
        const sb_value *v = sb_graph_value(k->graph, k->node->outputs[i]);
        if (v->n_uses > 0)
            return false;
        makes += sb_tensor_bytes(k->out[i]);
    }
    return !k->op->macs && makes > reads;
}

/* What the step wants of its inputs, and how its outputs come. */
static void plan_layout_choose(const sb_step *st, sb_layout *in, sb_layout *out)
{
    const sb_kernel *k = &st->k;
    bool movable = true;

    if (!st->exec->opt.as_made && grows_into_result(st))
        return;
    if (k->op->layout)
        k->op->layout(k, in, out);
    else if (k->op->flags & SB_OP_ELEMENTWISE)
        follow_inputs(k, in, out);
    for (uint32_t i = 0; i < k->n_out; i++)
        if (k->out[i] && out[i] != SB_LAYOUT_PLAIN)
            movable = movable && can_move(k->out[i]);
    for (uint32_t i = 0; i < k->n_in && !movable; i++)
        in[i] = SB_LAYOUT_PLAIN;
    for (uint32_t i = 0; i < k->n_out && !movable; i++)
        out[i] = SB_LAYOUT_PLAIN;
}

/* ---- the same value in another layout ----------------------------------- */

/* A constant in the other layout is made once, now, and kept by the plan. */
static sb_status reorder_constant(sb_plan_builder *b, const sb_slot *s,
                                  sb_slot *to)
{
    SB_TRY(sb_tensor_alloc(b->exec->ctx, &to->t));
    sb_tensor_reorder(b->exec->ctx, &s->t, &to->t);
    return SB_OK;
}

/* The value of `s` in another layout: made once, by the first step that wants
 * it (a conversion goes on its list, or on the plan's for outputs). */
sb_status sb_plan_in_layout(sb_plan_builder *b, sb_slot *s, sb_layout layout,
                            sb_conversion *list, size_t *n, sb_slot **out)
{
    sb_slot *to = s->other;

    *out = s;
    if (s->t.layout == layout)
        return SB_OK;
    if (to && to->version == to->root->writes) {
        to->root->last =
            to->root->last < b->position ? b->position : to->root->last;
        *out = to;
        return SB_OK;
    }
    sb_tensor like = s->t;
    like.layout = layout;
    SB_TRY(
        sb_plan_new_slot(b, SLOT_STATIC, &like, b->position, b->position, &to));
    if (sb_tensor_same_order(&like)) {
        sb_slot_alias(to, s);
    } else if (s->kind == SLOT_CONST) {
        to->kind = SLOT_CONST;
        SB_TRY(reorder_constant(b, s, to));
    } else {
        list[(*n)++] = (sb_conversion){s, to};
    }
    s->other = to;
    to->other = s;
    *out = to;
    return SB_OK;
}

/* Brings inputs into the layouts that the kernel wants and gives outputs
 * theirs.  Dynamic steps, and all steps of a run that dumps, stay plain. */
sb_status sb_plan_settle_layouts(sb_plan_builder *b, const sb_node *node,
                                 sb_step *st)
{
    uint32_t n = node->n_in + node->n_implicit;
    sb_layout *wish =
        sb_alloc(b->exec->ctx, (size_t)n + node->n_out + 1, sizeof *wish);
    sb_status status = SB_OK;

    if (!wish)
        return SB_NO_MEMORY;
    for (uint32_t i = 0; i < n; i++)
        st->k_in[i] = st->in[i] ? &st->in[i]->t : NULL;
    for (uint32_t i = 0; i < node->n_out; i++)
        st->k_out[i] = st->out[i] ? &st->out[i]->t : NULL;
    if (!st->dynamic && !b->exec->opt.dump)
        plan_layout_choose(st, wish, wish + n);
    for (uint32_t i = 0; i < n && status == SB_OK; i++) {
        bool shape_only = i == 0 && (st->k.op->flags & SB_OP_SHAPE_ONLY);
        if (!st->in[i] || st->in[i]->kind == SLOT_DYNAMIC || shape_only)
            continue;
        status = sb_plan_in_layout(b, st->in[i], wish[i], st->before,
                                   &st->n_before, &st->in[i]);
        st->k_in[i] = &st->in[i]->t;
    }
    for (uint32_t i = 0; i < node->n_out; i++)
        if (st->out[i])
            st->out[i]->t.layout = wish[n + i];
    sb_free(b->exec->ctx, wish);
    return status;
}
