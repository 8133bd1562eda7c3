/* Which memory layout each step works in.
 *
 * Decided forwards, once: an operator with a preference states it, one without
 * takes plain order, and an elementwise one follows its inputs, so that a
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

/* Results of the graph are handed out in plain order.  So a step that makes
 * nothing else, and more than it reads (the last Resize of a segmentation
 * net), had better have its input reordered.  Not a convolution: its work
 * counts for more. */
static bool grows_into_result(const step *st)
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

void plan_layouts(const step *st, sb_layout *in, sb_layout *out)
{
    const sb_kernel *k = &st->k;
    bool movable = true;

    if (grows_into_result(st))
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
