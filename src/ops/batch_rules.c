/* Rules for the samples of a batch (batch_rules.h). */
#include "ops/batch_rules.h"

#include "ops/op_registry.h"

/* ---- facts of the node -------------------------------------------------- */

static const sb_shape *batch_in_shape(const sb_batch_trace *t, uint32_t i)
{
    return &sb_graph_value(t->graph, t->node->inputs[i])->type.shape;
}

static const sb_shape *batch_out_shape(const sb_batch_trace *t, uint32_t i)
{
    return &sb_graph_value(t->graph, t->node->outputs[i])->type.shape;
}

static bool batch_has_in(const sb_batch_trace *t, uint32_t i)
{
    return i < t->node->n_in && t->node->inputs[i] != SB_NONE;
}

static bool batch_is_in(const sb_batch_trace *t, uint32_t i)
{
    return batch_has_in(t, i) && t->in[i].axis != SB_BATCH_NONE;
}

static int64_t batch_attr(const sb_batch_trace *t, const char *name)
{
    return sb_op_int(t->op, t->node, name);
}

/* The integers of a constant input; their number, -1 if it is none. */
static int batch_ints(const sb_batch_trace *t, uint32_t input, int64_t *v)
{
    if (!batch_has_in(t, input))
        return -1;
    const sb_value *value = sb_graph_value(t->graph, t->node->inputs[input]);
    const sb_tensor *c = &value->constant;
    if (!value->is_constant || c->rank > 1 ||
        (c->dtype != SB_DTYPE_I64 && c->dtype != SB_DTYPE_I32) ||
        sb_tensor_count(c) > 2 * SB_MAX_RANK)
        return -1;
    int n = (int)sb_tensor_count(c);
    for (int i = 0; i < n; i++)
        v[i] = sb_tensor_get_i64(c, i);
    return n;
}

/* Is `axis`, counted from the end if negative, among n axes? */
static bool batch_among(const int64_t *axes, int n, int rank, int axis)
{
    for (int i = 0; i < n; i++)
        if ((axes[i] < 0 ? axes[i] + rank : axes[i]) == axis)
            return true;
    return false;
}

/* How many of n axes are before `axis`? */
static int batch_before(const int64_t *axes, int n, int rank, int axis)
{
    int before = 0;

    for (int i = 0; i < n; i++)
        before += (axes[i] < 0 ? axes[i] + rank : axes[i]) < axis;
    return before;
}

/* The samples of input 0, if no other input has any and its rank is known. */
static bool batch_of_data(const sb_batch_trace *t, sb_samples *b, int *rank)
{
    for (uint32_t i = 1; i < t->node->n_in; i++)
        if (batch_is_in(t, i))
            return false;
    *b = t->in[0];
    *rank = batch_in_shape(t, 0)->rank;
    return b->axis < *rank;
}

static bool batch_give_all(sb_batch_trace *t, sb_samples b)
{
    for (uint32_t i = 0; i < t->node->n_out; i++)
        t->out[i] = b;
    return true;
}

/* ---- families ----------------------------------------------------------- */

bool sb_batch_first(sb_batch_trace *t)
{
    sb_samples b = t->in[0];

    /* BatchNormalization that takes its statistics from the batch. */
    if (batch_attr(t, "training_mode") != 0)
        return false;
    for (uint32_t i = 0; i < t->node->n_in; i++)
        if (batch_is_in(t, i) &&
            (t->in[i].axis != 0 || t->in[i].step != b.step))
            return false;
    return b.axis == 0 && batch_give_all(t, b);
}

/* Axes are counted from the end, since broadcasting adds them in front. */
bool sb_batch_broadcast(sb_batch_trace *t)
{
    int back = 0;
    int64_t step = 0;

    for (uint32_t i = 0; i < t->node->n_in; i++) {
        if (!batch_is_in(t, i))
            continue;
        int from = batch_in_shape(t, i)->rank - t->in[i].axis;
        if (from < 1 || (back > 0 && (from != back || t->in[i].step != step)))
            return false;
        back = from;
        step = t->in[i].step;
    }
    for (uint32_t i = 0; i < t->node->n_in; i++) {
        if (!batch_has_in(t, i) || batch_is_in(t, i))
            continue;
        const sb_shape *s = batch_in_shape(t, i);
        if (s->rank < 0 || (s->rank >= back && s->dim[s->rank - back] != 1))
            return false;
    }
    for (uint32_t i = 0; i < t->node->n_out; i++) {
        if (t->node->outputs[i] == SB_NONE)
            continue;
        if (batch_out_shape(t, i)->rank < back)
            return false;
        t->out[i] = (sb_samples){batch_out_shape(t, i)->rank - back, step};
    }
    return true;
}

bool sb_batch_same(sb_batch_trace *t)
{
    sb_samples b;
    int rank;

    return batch_of_data(t, &b, &rank) && batch_give_all(t, b);
}

/* All data inputs have their samples in the same place. */
static bool batch_alike(const sb_batch_trace *t, sb_samples *b, int *rank)
{
    *b = t->in[0];
    *rank = batch_in_shape(t, 0)->rank;
    for (uint32_t i = 0; i < t->node->n_in; i++)
        if (batch_has_in(t, i) &&
            (t->in[i].axis != b->axis || t->in[i].step != b->step))
            return false;
    return b->axis != SB_BATCH_NONE && b->axis < *rank;
}

bool sb_batch_but_axis(sb_batch_trace *t)
{
    int64_t axis = batch_attr(t, "axis");
    sb_samples b;
    int rank;

    if (!batch_of_data(t, &b, &rank) && !batch_alike(t, &b, &rank))
        return false;
    return !batch_among(&axis, 1, rank, b.axis) && batch_give_all(t, b);
}

bool sb_batch_but_tail(sb_batch_trace *t)
{
    int64_t axis = batch_attr(t, "axis");
    sb_samples b;
    int rank;

    if (!batch_of_data(t, &b, &rank))
        return false;
    return b.axis < (axis < 0 ? axis + rank : axis) && batch_give_all(t, b);
}

bool sb_batch_but_matrix(sb_batch_trace *t)
{
    sb_samples b;
    int rank;

    return batch_of_data(t, &b, &rank) && b.axis < rank - 2 &&
           batch_give_all(t, b);
}

bool sb_batch_if_kept(sb_batch_trace *t)
{
    sb_samples b;
    int rank;

    if (!batch_of_data(t, &b, &rank))
        return false;
    const sb_shape *y = batch_out_shape(t, 0);
    int axis = b.axis + y->rank - rank;
    if (y->rank < rank ||
        !sb_dim_same(batch_in_shape(t, 0)->dim[b.axis], y->dim[axis]))
        return false;
    b.axis = axis;
    return batch_give_all(t, b);
}

/* Both terms of SkipLayerNormalization, which then works along the last
 * axis. */
bool sb_batch_but_last(sb_batch_trace *t)
{
    return t->in[0].axis < batch_in_shape(t, 0)->rank - 1 &&
           sb_batch_broadcast(t);
}

/* ---- shapes ------------------------------------------------------------- */

/* The product of known dimensions [from, to); -1 if one is not known. */
static int64_t batch_product(const sb_shape *s, int from, int to)
{
    int64_t n = 1;

    for (int i = from; i < to; i++) {
        if (!sb_dim_known(s->dim[i]) || s->dim[i] > INT32_MAX || n > INT32_MAX)
            return -1;
        n *= s->dim[i];
    }
    return n;
}

/* Up to the axis of samples both shapes are the same, dimension by
 * dimension. */
static bool batch_same_head(const sb_shape *x, const sb_shape *y, int axis)
{
    if (axis >= y->rank)
        return false;
    for (int i = 0; i <= axis; i++)
        if (!sb_dim_same(x->dim[i], y->dim[i]))
            return false;
    return true;
}

/* In memory the samples follow each other, `inner` elements each, `outer`
 * times; the axis of the result must cut at the same places. */
bool sb_batch_reshape(sb_batch_trace *t)
{
    sb_samples b;
    int rank, axis = 0;

    if (!batch_of_data(t, &b, &rank))
        return false;
    const sb_shape *x = batch_in_shape(t, 0), *y = batch_out_shape(t, 0);
    if (batch_same_head(x, y, b.axis)) {
        t->out[0] = b;
        return true;
    }
    while (axis < y->rank && sb_dim_known(y->dim[axis]))
        axis++;
    if (axis >= y->rank)
        return false;
    int64_t outer = batch_product(x, 0, b.axis);
    int64_t inner = batch_product(x, b.axis + 1, rank);
    int64_t rest = batch_product(y, axis + 1, y->rank);
    if (outer < 0 || inner < 1 || rest < 1 || inner * b.step % rest != 0 ||
        batch_product(y, 0, axis) != outer)
        return false;
    t->out[0] = (sb_samples){axis, inner * b.step / rest};
    return true;
}

bool sb_batch_transpose(sb_batch_trace *t)
{
    const sb_attr *perm = sb_node_attr(t->node, "perm");
    sb_samples b;
    int rank, to = 0;

    if (!batch_of_data(t, &b, &rank))
        return false;
    if (!perm)
        to = rank - 1 - b.axis;
    else
        while (to < (int)perm->n && perm->ints[to] != b.axis)
            to++;
    t->out[0] = (sb_samples){to, b.step};
    return to < rank;
}

bool sb_batch_squeeze(sb_batch_trace *t)
{
    int64_t axes[2 * SB_MAX_RANK];
    int n = batch_ints(t, 1, axes), rank;
    sb_samples b;

    if (n < 0 || !batch_of_data(t, &b, &rank) ||
        batch_among(axes, n, rank, b.axis))
        return false;
    t->out[0] =
        (sb_samples){b.axis - batch_before(axes, n, rank, b.axis), b.step};
    return true;
}

bool sb_batch_unsqueeze(sb_batch_trace *t)
{
    int64_t axes[2 * SB_MAX_RANK];
    int n = batch_ints(t, 1, axes), rank, to = 0, left;
    sb_samples b;

    if (n < 0 || !batch_of_data(t, &b, &rank))
        return false;
    /* The place of old axis b among those that are not new. */
    left = b.axis;
    while (batch_among(axes, n, rank + n, to) || left-- > 0)
        to++;
    t->out[0] = (sb_samples){to, b.step};
    return true;
}

/* ---- picking ------------------------------------------------------------ */

bool sb_batch_gather(sb_batch_trace *t)
{
    int64_t axis = batch_attr(t, "axis");
    const sb_shape *x = batch_in_shape(t, 0), *index = batch_in_shape(t, 1);

    if (x->rank < 0 || index->rank < 0 ||
        batch_is_in(t, 0) == batch_is_in(t, 1))
        return false;
    axis += axis < 0 ? x->rank : 0;
    if (batch_is_in(t, 1)) {
        t->out[0] = (sb_samples){(int)axis + t->in[1].axis, t->in[1].step};
        return true;
    }
    t->out[0] = t->in[0];
    if (t->in[0].axis > axis)
        t->out[0].axis += index->rank - 1;
    return t->in[0].axis != axis;
}

/* The axis of samples survives `axes` being reduced to one index each. */
static bool batch_drop_axes(sb_batch_trace *t, const int64_t *axes, int n,
                            bool keep)
{
    sb_samples b;
    int rank;

    if (!batch_of_data(t, &b, &rank) || batch_among(axes, n, rank, b.axis))
        return false;
    if (!keep)
        b.axis -= batch_before(axes, n, rank, b.axis);
    return batch_give_all(t, b);
}

bool sb_batch_reduce(sb_batch_trace *t)
{
    int64_t axes[2 * SB_MAX_RANK];
    int n = batch_ints(t, 1, axes);

    if (n < 1) /* all axes, or none with noop_with_empty_axes */
        return false;
    return batch_drop_axes(t, axes, n, batch_attr(t, "keepdims") != 0);
}

bool sb_batch_arg(sb_batch_trace *t)
{
    int64_t axis = batch_attr(t, "axis");

    return batch_drop_axes(t, &axis, 1, batch_attr(t, "keepdims") != 0);
}

bool sb_batch_slice(sb_batch_trace *t)
{
    int64_t axes[2 * SB_MAX_RANK];
    int n = batch_ints(t, 3, axes), rank;
    sb_samples b;

    return n >= 0 && batch_of_data(t, &b, &rank) &&
           !batch_among(axes, n, rank, b.axis) && batch_give_all(t, b);
}

bool sb_batch_pad(sb_batch_trace *t)
{
    int64_t pads[2 * SB_MAX_RANK], axes[2 * SB_MAX_RANK];
    int n = batch_ints(t, 1, pads), n_axes = batch_ints(t, 3, axes), rank;
    sb_samples b;

    if (!batch_of_data(t, &b, &rank))
        return false;
    if (batch_has_in(t, 3))
        return n_axes >= 0 && !batch_among(axes, n_axes, rank, b.axis) &&
               batch_give_all(t, b);
    return n == 2 * rank && pads[b.axis] == 0 && pads[b.axis + rank] == 0 &&
           batch_give_all(t, b);
}

bool sb_batch_tile(sb_batch_trace *t)
{
    int64_t times[2 * SB_MAX_RANK];
    int n = batch_ints(t, 1, times), rank;
    sb_samples b;

    return batch_of_data(t, &b, &rank) && n == rank && times[b.axis] == 1 &&
           batch_give_all(t, b);
}

bool sb_batch_cumulate(sb_batch_trace *t)
{
    int64_t axis[2 * SB_MAX_RANK];

    return batch_ints(t, 1, axis) == 1 && batch_drop_axes(t, axis, 1, true);
}

/* ---- matmuls ------------------------------------------------------------ */

/* Rows of the first, or matrices of both. */
bool sb_batch_matmul(sb_batch_trace *t)
{
    const sb_shape *a = batch_in_shape(t, 0), *b = batch_in_shape(t, 1);
    bool turned = batch_attr(t, "transA") || batch_attr(t, "transBatchA") ||
                  batch_attr(t, "transB") || batch_attr(t, "transBatchB");

    if (a->rank < 2 || b->rank < 2)
        return false;
    if (!batch_is_in(t, 1) && b->rank == 2 && !turned)
        return t->in[0].axis < a->rank - 1 && sb_batch_same(t);
    for (uint32_t i = 0; i < 2; i++)
        if (batch_is_in(t, i) &&
            t->in[i].axis >= batch_in_shape(t, i)->rank - 2)
            return false;
    return !batch_attr(t, "transBatchA") && !batch_attr(t, "transBatchB") &&
           sb_batch_broadcast(t);
}

bool sb_batch_gemm(sb_batch_trace *t)
{
    if (batch_is_in(t, 1) || batch_is_in(t, 2) || batch_attr(t, "transA") ||
        t->in[0].axis != 0)
        return false;
    if (batch_has_in(t, 2)) { /* the same for all rows */
        const sb_shape *c = batch_in_shape(t, 2);
        if (c->rank < 0 || (c->rank == 2 && c->dim[0] != 1))
            return false;
    }
    t->out[0] = t->in[0];
    return true;
}

/* ---- others ------------------------------------------------------------- */

/* X [T, N, C], Y [T, directions, N, H], last states [directions, N, H]; with
 * `layout` 1 N comes first everywhere. */
bool sb_batch_rnn(sb_batch_trace *t)
{
    enum { X, LENGTHS = 4, H = 5, C = 6 };
    bool first = batch_attr(t, "layout") != 0;
    sb_samples b = t->in[X];

    if (b.axis != (first ? 0 : 1))
        return false;
    for (uint32_t i = 1; i < t->node->n_in; i++) {
        bool state = i == H || i == C, data = state || i == LENGTHS;
        int axis = state && !first ? 1 : 0;

        if (!batch_has_in(t, i))
            continue;
        if (data ? t->in[i].axis != axis || t->in[i].step != b.step
                 : batch_is_in(t, i))
            return false;
    }
    for (uint32_t i = 0; i < t->node->n_out; i++)
        t->out[i] = (sb_samples){first ? 0 : i == 0 ? 2 : 1, b.step};
    return true;
}

bool sb_batch_normalize_axes(sb_batch_trace *t)
{
    static const int64_t usual[] = {0, 2, 3};
    const sb_attr *axes = sb_node_attr(t->node, "axes");

    return batch_drop_axes(t, axes ? axes->ints : usual,
                           axes ? (int)axes->n : 3, true);
}
