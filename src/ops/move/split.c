/* Split: cuts a tensor along one axis, at the sizes in `split`, or into
 * num_outputs equal parts of which the last may be smaller. */
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    int64_t axis;
    int64_t num_outputs;
} split_attrs;

static const sb_attr_def attrs[] = {
    {"axis", SB_ATTR_INT, offsetof(split_attrs, axis), .i = 0},
    {"num_outputs", SB_ATTR_INT, offsetof(split_attrs, num_outputs), .i = 0},
    {0},
};

/* Part i of `whole` cut into n parts. */
static int64_t even_part(int64_t whole, int64_t n, uint32_t i)
{
    int64_t each = whole / n + (whole % n != 0);
    int64_t left = whole > each * (int64_t)i ? whole - each * (int64_t)i : 0;

    return left < each ? left : each;
}

static int64_t part_count(const split_attrs *a, uint32_t n_out)
{
    return a->num_outputs ? a->num_outputs : (int64_t)n_out;
}

/* Part i as the `split` input gives it. */
static sb_dim given_part(const sb_fact *f, uint32_t i)
{
    sb_shape c = {0};

    if (f->constant && sb_dtype_is_integral(f->constant->dtype))
        return sb_tensor_get_i64(f->constant, i);
    return sb_fact_content(f, &c) && (int)i < c.rank ? c.dim[i]
                                                     : SB_DIM_UNKNOWN;
}

static sb_status split_sizes(const sb_infer *in, sb_dim whole, uint32_t i,
                             sb_dim *out)
{
    const sb_fact *given = sb_infer_in(in, 1);

    if (given) {
        *out = given_part(given, i);
        if (sb_dim_known(*out) && *out < 0)
            return sb_infer_fail(in, "split[%u] is %lld", i, (long long)*out);
    } else {
        *out = sb_dim_known(whole)
                   ? even_part(whole, part_count(in->attrs, in->n_out), i)
                   : SB_DIM_UNKNOWN;
    }
    return SB_OK;
}

/* Hands elements [at, at + part) of a small 1-d input to output i. */
static void split_content(sb_infer *in, uint32_t i, sb_dim at, sb_dim part)
{
    const sb_shape *c = &in->in[0]->content;
    sb_shape piece = {0};

    if (in->in[0]->type.shape.rank != 1 || c->rank < 0 || !sb_dim_known(at) ||
        !sb_dim_known(part) || part > c->rank || at > c->rank - part)
        return;
    piece.rank = (int)part;
    for (int j = 0; j < piece.rank; j++)
        piece.dim[j] = c->dim[at + j];
    sb_infer_set_content(in, i, &piece);
}

static sb_status split_infer(sb_infer *in)
{
    const split_attrs *a = in->attrs;
    const sb_fact *x = in->in[0];
    sb_shape out = x->type.shape;
    sb_dim whole = SB_DIM_UNKNOWN, sum = 0;
    int axis = 0;

    SB_TRY(sb_infer_want_ints(in, 1));
    if (out.rank >= 0) {
        SB_TRY(sb_infer_axis(in, a->axis, out.rank, &axis));
        whole = out.dim[axis];
    }
    int64_t n =
        sb_infer_in(in, 1) ? sb_infer_length(in, 1) : part_count(a, in->n_out);
    if (n != (int64_t)in->n_out && (n >= 0 || !sb_infer_in(in, 1)))
        return sb_infer_fail(in, "%lld parts for %u outputs", (long long)n,
                             in->n_out);
    for (uint32_t i = 0; i < in->n_out; i++) {
        sb_dim part = SB_DIM_UNKNOWN;
        SB_TRY(split_sizes(in, whole, i, &part));
        if (out.rank >= 0)
            out.dim[axis] = part;
        sb_infer_set(in, i, x->type.dtype, &out);
        split_content(in, i, sum, part);
        sum = sb_dim_add(sum, part);
    }
    if (sb_dim_known(whole) && sb_dim_known(sum) && sum != whole)
        return sb_infer_fail(in,
                             "the parts are %lld together, axis %d has %lld",
                             (long long)sum, axis, (long long)whole);
    return SB_OK;
}

static sb_status split_forward(sb_kernel *k)
{
    const split_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0], *given = sb_kernel_in(k, 1);
    int axis = sb_axis_norm(a->axis, x->rank);
    size_t elem = sb_dtype_size(x->dtype);
    int64_t stride[SB_MAX_RANK], at = 0;

    sb_tensor_strides(x, stride);
    for (uint32_t i = 0; i < k->n_out; i++) {
        int64_t part =
            given ? sb_index_at(given, i)
                  : even_part(x->dims[axis], part_count(a, k->n_out), i);
        if (k->out[i] && sb_tensor_count(k->out[i]) > 0) {
            sb_strided c = sb_strided_between(k->out[i], x, k->out[i]->dims);
            sb_strided_copy(k->ctx, &c, k->out[i]->data,
                            (const char *)x->data +
                                (size_t)(at * stride[axis]) * elem);
        }
        at += part;
    }
    return SB_OK;
}

const sb_op_def sb_op_split = {
    .name = "Split",
    .since = 18,
    .quant = SB_ROLE_PASS,
    .in_min = 1,
    .in_max = 2,
    .out_min = 1,
    .out_max = SB_ARITY_ANY,
    .attrs_size = sizeof(split_attrs),
    .attrs = attrs,
    .batch = sb_batch_but_axis,
    .infer = split_infer,
    .layout = sb_move_layout,
    .prepare = sb_move_prepare,
    .forward = split_forward,
    .grad = sb_grad_split,
    .tie = sb_tie_split,
    .recut = sb_recut_split,
};
