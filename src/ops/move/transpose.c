/* Transpose: y[i_perm(0), i_perm(1), ...] = x[i_0, i_1, ...]; without `perm`
 * the axes are reversed. */
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"
#include "ops/tie/tie_rules.h"

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
    if ((a->perm.n || sb_node_attr(in->node, "perm")) &&
        a->perm.n != (size_t)rank)
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

/* Would the output lie as the input does, with these layouts? */
static bool lies_alike(const sb_kernel *k, sb_layout in, sb_layout out)
{
    sb_tensor x = *k->in[0], y = *k->out[0];
    int64_t from[SB_MAX_RANK], to[SB_MAX_RANK];

    x.layout = in;
    y.layout = out;
    sb_tensor_strides(&x, from);
    sb_tensor_strides(&y, to);
    for (int i = 0; i < y.rank; i++)
        if (y.dims[i] != 1 && to[i] != from[perm_of(k->attrs, y.rank, i)])
            return false;
    return true;
}

static bool transpose_is_view(const sb_kernel *k)
{
    return lies_alike(k, k->in[0]->layout, k->out[0]->layout);
}

/* Does dimension `dim` of the output run along the input's memory? */
static bool runs_along(const sb_kernel *k, int dim)
{
    int64_t from[SB_MAX_RANK];

    sb_tensor_strides(k->in[0], from);
    return k->out[0]->dims[dim] > 1 &&
           from[perm_of(k->attrs, k->out[0]->rank, dim)] == 1;
}

/* Takes the input as it lies.  From [N, H, W, C] to [N, C, H, W] in channels
 * last, and from there back, nothing moves at all; where something does, the
 * output lies so that runs are copied if it can. */
static void transpose_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    int rank = k->out[0]->rank;

    in[0] = k->in[0]->layout;
    if (rank < 3 || lies_alike(k, in[0], SB_LAYOUT_PLAIN))
        return;
    if (lies_alike(k, in[0], SB_LAYOUT_CHANNELS_LAST) ||
        (in[0] == SB_LAYOUT_PLAIN && rank > 3 && runs_along(k, 1) &&
         !runs_along(k, rank - 1)))
        out[0] = SB_LAYOUT_CHANNELS_LAST;
}

static sb_status transpose_forward(sb_kernel *k)
{
    const transpose_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0], *y = k->out[0];
    int64_t strides[SB_MAX_RANK];

    if (y->data == x->data)
        return SB_OK;
    sb_strided c = sb_strided_between(y, y, y->dims);
    sb_tensor_strides(x, strides);
    for (int at = 0; at < y->rank; at++)
        c.src_stride[at] =
            strides[perm_of(a, x->rank, sb_tensor_dim_at(y, at))];
    sb_strided_copy(k->ctx, &c, y->data, x->data);
    return SB_OK;
}

const sb_op_def sb_op_transpose = {
    .name = "Transpose",
    .since = 1,
    .quant = SB_ROLE_PASS,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(transpose_attrs),
    .attrs = attrs,
    .batch = sb_batch_transpose,
    .infer = transpose_infer,
    .layout = transpose_layout,
    .is_view = transpose_is_view,
    .prepare = sb_move_prepare,
    .forward = transpose_forward,
    .grad = sb_grad_transpose,
    .tie = sb_tie_transpose,
};
