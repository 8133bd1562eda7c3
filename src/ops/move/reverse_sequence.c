/* ReverseSequence: turns round the first sequence_lens[b] steps of each batch
 * item. */
#include <string.h>

#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    int64_t batch_axis, time_axis;
} reverse_attrs;

static const sb_attr_def attrs[] = {
    {"batch_axis", SB_ATTR_INT, offsetof(reverse_attrs, batch_axis), .i = 1},
    {"time_axis", SB_ATTR_INT, offsetof(reverse_attrs, time_axis), .i = 0},
    {0},
};

static sb_status reverse_infer(sb_infer *in)
{
    const reverse_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape, *n = &in->in[1]->type.shape;

    in->out[0].type = in->in[0]->type;
    if (a->batch_axis + a->time_axis != 1 || a->batch_axis < 0 ||
        a->batch_axis > 1)
        return sb_infer_fail(in,
                             "batch_axis %lld and time_axis %lld, want 0 "
                             "and 1 or 1 and 0",
                             (long long)a->batch_axis, (long long)a->time_axis);
    if (x->rank < 0)
        return SB_OK;
    if (x->rank < 2)
        return sb_infer_fail(in, "input of rank %d, want at least 2", x->rank);
    sb_dim batch = x->dim[a->batch_axis];
    if (n->rank >= 0 &&
        (n->rank != 1 || (sb_dim_known(n->dim[0]) && sb_dim_known(batch) &&
                          n->dim[0] != batch)))
        return sb_infer_fail(in, "sequence_lens must have one number for each "
                                 "batch item");
    return SB_OK;
}

static sb_status reverse_forward(sb_kernel *k)
{
    const reverse_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    int64_t n = x->dims[0], m = x->dims[1], steps = x->dims[a->time_axis];
    size_t run =
        (size_t)sb_dims_product(x->dims, 2, x->rank) * sb_dtype_size(x->dtype);
    const char *src = x->data;
    char *dst = k->out[0]->data;

    for (int64_t b = 0; b < x->dims[a->batch_axis]; b++) {
        int64_t len = sb_index_at(k->in[1], b);
        if (len < 0 || len > steps)
            return sb_kernel_fail(
                k, SB_BAD_DATA, "sequence_lens[%lld] is %lld, want 0 to %lld",
                (long long)b, (long long)len, (long long)steps);
    }
    for (int64_t i = 0; i < n && run; i++)
        for (int64_t j = 0; j < m; j++) {
            int64_t b = a->batch_axis ? j : i, t = a->batch_axis ? i : j;
            int64_t len = sb_index_at(k->in[1], b);
            int64_t from = t < len ? len - 1 - t : t;
            int64_t at = a->batch_axis ? from * m + b : b * m + from;
            memcpy(dst + (size_t)(i * m + j) * run, src + (size_t)at * run,
                   run);
        }
    return SB_OK;
}

const sb_op_def sb_op_reverse_sequence = {
    .name = "ReverseSequence",
    .since = 10,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(reverse_attrs),
    .attrs = attrs,
    .infer = reverse_infer,
    .prepare = sb_move_prepare,
    .forward = reverse_forward,
    .grad = sb_grad_itself,
    .tie = sb_tie_reverse,
};
