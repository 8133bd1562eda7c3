/* Trilu: the upper or lower triangle of each matrix, the rest 0; the diagonal
 * may be moved by k. */
#include <string.h>

#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    int64_t upper;
} trilu_attrs;

static const sb_attr_def attrs[] = {
    {"upper", SB_ATTR_INT, offsetof(trilu_attrs, upper), .i = 1, .flag = true},
    {0},
};

static sb_status trilu_infer(sb_infer *in)
{
    int rank = in->in[0]->type.shape.rank;

    if (rank >= 0 && rank < 2)
        return sb_infer_fail(in, "input of rank %d, want at least 2", rank);
    SB_TRY(sb_infer_want_one(in, 1, SB_DTYPE_I64));
    return sb_infer_same(in);
}

static sb_status trilu_prepare(sb_kernel *k)
{
    const sb_tensor *shift = sb_kernel_in(k, 1);

    if (shift && sb_tensor_count(shift) != 1)
        return sb_kernel_fail(k, SB_BAD_MODEL, "k has %lld elements, want 1",
                              (long long)sb_tensor_count(shift));
    return sb_move_prepare(k);
}

static sb_status trilu_forward(sb_kernel *k)
{
    const trilu_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0], *shift = sb_kernel_in(k, 1);
    size_t elem = sb_dtype_size(x->dtype);
    int64_t h = x->dims[x->rank - 2], w = x->dims[x->rank - 1];
    int64_t rows = w ? sb_tensor_count(x) / w : 0;
    int64_t by = shift ? sb_index_at(shift, 0) : 0;

    by = by < -h ? -h : by > w ? w : by;
    SB_TRY(sb_view_forward(k));
    for (int64_t r = 0; r < rows; r++) {
        int64_t cut = r % h + by + (a->upper ? 0 : 1); /* first kept / cut */
        cut = cut < 0 ? 0 : cut > w ? w : cut;
        char *row = (char *)k->out[0]->data + (size_t)(r * w) * elem;
        if (a->upper)
            memset(row, 0, (size_t)cut * elem);
        else
            memset(row + (size_t)cut * elem, 0, (size_t)(w - cut) * elem);
    }
    return SB_OK;
}

const sb_op_def sb_op_trilu = {
    .name = "Trilu",
    .since = 14,
    .in_min = 1,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INPLACE,
    .attrs_size = sizeof(trilu_attrs),
    .attrs = attrs,
    .batch = sb_batch_but_matrix,
    .infer = trilu_infer,
    .prepare = trilu_prepare,
    .forward = trilu_forward,
    .grad = sb_grad_itself,
    .tie = sb_tie_but_matrix,
};
