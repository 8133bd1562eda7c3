/* Concat: joins tensors along one axis. */
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    int64_t axis;
} concat_attrs;

static const sb_attr_def attrs[] = {
    {"axis", SB_ATTR_INT, offsetof(concat_attrs, axis), .required = true},
    {0},
};

/* The elements of small 1-d tensors that compute shapes. */
static void concat_content(sb_infer *in)
{
    sb_shape all = {.rank = 0};

    for (uint32_t i = 0; i < in->n_in; i++) {
        sb_shape part = {0};
        if (!in->in[i] || in->in[i]->type.shape.rank != 1 ||
            !sb_fact_content(in->in[i], &part) ||
            part.rank > SB_MAX_RANK - all.rank)
            return;
        for (int j = 0; j < part.rank; j++)
            all.dim[all.rank++] = part.dim[j];
    }
    sb_infer_set_content(in, 0, &all);
}

/* Merges the dimensions of input i into `out`. */
static sb_status concat_merge(const sb_infer *in, uint32_t i, int axis,
                              sb_shape *out)
{
    const sb_shape *s = &in->in[i]->type.shape;

    if (s->rank != out->rank)
        return sb_infer_fail(in, "input %u has rank %d, input 0 rank %d", i,
                             s->rank, out->rank);
    for (int d = 0; d < s->rank; d++) {
        if (d == axis) {
            out->dim[d] = sb_dim_add(out->dim[d], s->dim[d]);
        } else if (!sb_dim_known(out->dim[d])) {
            if (sb_dim_known(s->dim[d]) || out->dim[d] == SB_DIM_UNKNOWN)
                out->dim[d] = s->dim[d];
        } else if (sb_dim_known(s->dim[d]) && s->dim[d] != out->dim[d]) {
            return sb_infer_fail(
                in, "dimension %d of input %u is %lld, want %lld", d, i,
                (long long)s->dim[d], (long long)out->dim[d]);
        }
    }
    return SB_OK;
}

static sb_status concat_infer(sb_infer *in)
{
    const concat_attrs *a = in->attrs;
    sb_shape out = sb_shape_unknown();
    bool all_ranks = true;
    int axis = 0;

    for (uint32_t i = 0; i < in->n_in; i++) {
        if (!in->in[i])
            return sb_infer_fail(in, "input %u is absent", i);
        if (in->in[i]->type.dtype)
            in->out[0].type.dtype = in->in[i]->type.dtype;
        all_ranks = all_ranks && in->in[i]->type.shape.rank >= 0;
        if (out.rank < 0)
            out = sb_shape_of_rank(in->in[i]->type.shape.rank);
    }
    if (out.rank >= 0)
        SB_TRY(sb_infer_axis(in, a->axis, out.rank, &axis));
    if (all_ranks && out.rank >= 0) {
        out.dim[axis] = 0;
        for (uint32_t i = 0; i < in->n_in; i++)
            SB_TRY(concat_merge(in, i, axis, &out));
    }
    in->out[0].type.shape = out;
    concat_content(in);
    return SB_OK;
}

/* Types must agree, or a later input would be read beyond its end. */
static sb_status concat_prepare(sb_kernel *k)
{
    for (uint32_t i = 1; i < k->n_in; i++)
        if (k->in[i]->dtype != k->in[0]->dtype)
            return sb_kernel_fail(
                k, SB_BAD_MODEL, "input %u is %s, input 0 is %s", i,
                sb_dtype_name(k->in[i]->dtype), sb_dtype_name(k->in[0]->dtype));
    return sb_move_prepare(k);
}

static sb_status concat_forward(sb_kernel *k)
{
    const concat_attrs *a = k->attrs;
    sb_tensor *y = k->out[0];
    int axis = sb_axis_norm(a->axis, y->rank);
    size_t elem = sb_dtype_size(y->dtype);
    int64_t stride[SB_MAX_RANK];
    char *dst = y->data;

    sb_tensor_strides(y, stride);
    for (uint32_t i = 0; i < k->n_in; i++) {
        const sb_tensor *x = k->in[i];
        sb_strided c = sb_strided_between(y, x, x->dims);

        if (sb_tensor_count(x) == 0)
            continue;
        sb_strided_copy(k->ctx, &c, dst, x->data);
        dst += (size_t)(x->dims[axis] * stride[axis]) * elem;
    }
    return SB_OK;
}

/* Channels last if at least half of what comes in lies so. */
static void concat_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    int64_t last = 0;

    if (k->out[0]->rank < 3)
        return;
    for (uint32_t i = 0; i < k->n_in; i++)
        if (k->in[i]->layout == SB_LAYOUT_CHANNELS_LAST)
            last += sb_tensor_count(k->in[i]);
    if (last == 0 || last < sb_tensor_count(k->out[0]) / 2)
        return;
    for (uint32_t i = 0; i < k->n_in; i++)
        in[i] = SB_LAYOUT_CHANNELS_LAST;
    out[0] = SB_LAYOUT_CHANNELS_LAST;
}

const sb_op_def sb_op_concat = {
    .name = "Concat",
    .since = 4,
    .quant = SB_ROLE_PASS,
    .in_min = 1,
    .in_max = SB_ARITY_ANY,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_JOINS,
    .attrs_size = sizeof(concat_attrs),
    .attrs = attrs,
    .batch = sb_batch_but_axis,
    .infer = concat_infer,
    .layout = concat_layout,
    .prepare = concat_prepare,
    .forward = concat_forward,
    .grad = sb_grad_concat,
    .tie = sb_tie_concat,
};
