/* Transpose: y[i_perm(0), i_perm(1), ...] = x[i_0, i_1, ...]; without `perm`
 * the axes are reversed. */
#include "ops/move_util.h"
#include "ops/strided_copy.h"

typedef struct {
    sb_ints perm;
} transpose_attrs;

static const sb_attr_def attrs[] = {
    {"perm", SB_ATTR_INTS, offsetof(transpose_attrs, perm), .i = 0},
    {0},
};

static int64_t perm_of(const transpose_attrs *a, int rank, int i)
{
    return a->perm.n ? a->perm.v[i] : rank - 1 - i;
}

static sb_status transpose_infer(sb_infer *in)
{
    const transpose_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape;
    bool seen[SB_MAX_RANK] = {false};
    int rank = x->rank;

    in->out[0].type.dtype = in->in[0]->type.dtype;
    if (rank < 0) {
        if (a->perm.n && a->perm.n <= SB_MAX_RANK)
            sb_infer_set_rank(in, 0, (int)a->perm.n);
        return SB_OK;
    }
    if (a->perm.n && a->perm.n != (size_t)rank)
        return sb_infer_fail(in, "perm has %zu entries, the input rank %d",
                             a->perm.n, rank);
    sb_shape out = {.rank = rank};
    for (int i = 0; i < rank; i++) {
        int64_t p = perm_of(a, rank, i);
        if (p < 0 || p >= rank || seen[p])
            return sb_infer_fail(in,
                                 "perm[%d] is %lld, want each of 0 to %d "
                                 "once",
                                 i, (long long)p, rank - 1);
        seen[p] = true;
        out.dim[i] = x->dim[p];
    }
    sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
    if (rank <= 1 && in->in[0]->content.rank >= 0)
        sb_infer_set_content(in, 0, &in->in[0]->content);
    return SB_OK;
}

static sb_status transpose_forward(sb_kernel *k)
{
    const transpose_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    int64_t strides[SB_MAX_RANK];
    sb_strided c =
        sb_strided_to(sb_dtype_size(x->dtype), x->rank, k->out[0]->dims);

    sb_strides_of(x->rank, x->dims, strides);
    for (int i = 0; i < x->rank; i++)
        c.src_stride[i] = strides[perm_of(a, x->rank, i)];
    sb_strided_copy(k->ctx, &c, k->out[0]->data, x->data);
    return SB_OK;
}

const sb_op_def sb_op_transpose = {
    .name = "Transpose",
    .since = 1,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(transpose_attrs),
    .attrs = attrs,
    .infer = transpose_infer,
    .prepare = sb_move_prepare,
    .forward = transpose_forward,
};
