/* SplitToSequence: cuts a tensor along one axis into a sequence: at the sizes
 * in `split`, or into parts of one size if that is one number, or into slices
 * of 1, whose axis goes away unless `keepdims`. */
#include "ops/move/move_util.h"
#include "ops/sequence/sequence_util.h"

typedef struct {
    int64_t axis, keepdims;
} split_seq_attrs;

static const sb_attr_def attrs[] = {
    {"axis", SB_ATTR_INT, offsetof(split_seq_attrs, axis), .i = 0},
    {"keepdims", SB_ATTR_INT, offsetof(split_seq_attrs, keepdims), .i = 1,
     .flag = true},
    {0},
};

static sb_status split_seq_infer(sb_infer *in)
{
    const split_seq_attrs *a = in->attrs;
    int axis = 0;

    SB_TRY(sb_infer_want_ints(in, 1));
    if (in->in[0]->type.shape.rank >= 0)
        SB_TRY(sb_infer_axis(in, a->axis, in->in[0]->type.shape.rank, &axis));
    return sb_sequence_infer(in);
}

/* Number of parts; *each is their size, or 0 if `split` lists them. */
static sb_status count_parts(const sb_kernel *k, int64_t whole, int64_t *each,
                             int64_t *n)
{
    const sb_tensor *split = sb_kernel_in(k, 1);
    int64_t sum = 0;

    *each = 1;
    *n = whole;
    if (!split)
        return SB_OK;
    if (split->rank == 0) {
        *each = sb_tensor_get_i64(split, 0);
        if (*each < 1)
            return sb_kernel_fail(k, SB_BAD_DATA, "parts of %lld",
                                  (long long)*each);
        *n = whole / *each + (whole % *each != 0);
        return SB_OK;
    }
    *each = 0;
    *n = sb_tensor_count(split);
    for (int64_t i = 0; i < *n; i++) {
        int64_t part = sb_tensor_get_i64(split, i);
        if (part < 0 || part > whole - sum)
            return sb_kernel_fail(
                k, SB_BAD_DATA, "part %lld is %lld, %lld are left",
                (long long)i, (long long)part, (long long)(whole - sum));
        sum += part;
    }
    return sum == whole
               ? SB_OK
               : sb_kernel_fail(k, SB_BAD_DATA,
                                "the parts are %lld together, the axis has "
                                "%lld",
                                (long long)sum, (long long)whole);
}

/* Makes the sequence with parts that are not filled yet, then fills them. */
static sb_status split_seq_fill(sb_kernel *k, int axis, int64_t each,
                                sb_tensor *parts, int64_t n)
{
    const split_seq_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    size_t elem = sb_dtype_size(x->dtype);
    int64_t inner = sb_dims_product(x->dims, axis + 1, x->rank), at = 0;
    sb_sequence s;

    SB_TRY(sb_sequence_give(k, 0, x->dtype, parts, (size_t)n));
    if (!sb_sequence_open(k->out[0], &s))
        return sb_kernel_fail(k, SB_BAD_DATA, "the result is too large");
    for (int64_t i = 0; i < n; i++) {
        sb_tensor part = sb_sequence_get(&s, i), shaped = part;
        if (!a->keepdims && !sb_kernel_in(k, 1)) {
            shaped = sb_tensor_make(x->dtype, x->rank, x->dims);
            shaped.dims[axis] = each;
            shaped.data = part.data;
        }
        sb_strided c = sb_strided_between(&shaped, x, shaped.dims);
        if (sb_tensor_count(&shaped) > 0)
            sb_strided_copy(k->ctx, &c, part.data,
                            (const char *)x->data +
                                (size_t)(at * inner) * elem);
        at += shaped.dims[axis];
    }
    return SB_OK;
}

static void describe_parts(const sb_kernel *k, int axis, int64_t each,
                           sb_tensor *parts, int64_t n)
{
    const split_seq_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    bool drop = !a->keepdims && !sb_kernel_in(k, 1);
    int64_t left = x->dims[axis];

    for (int64_t i = 0; i < n; i++) {
        sb_tensor *p = &parts[i];
        *p = sb_tensor_make(x->dtype, x->rank, x->dims);
        p->dims[axis] = !each         ? sb_tensor_get_i64(k->in[1], i)
                        : left < each ? left
                                      : each;
        left -= p->dims[axis];
        for (int d = axis; drop && d + 1 < x->rank; d++)
            p->dims[d] = p->dims[d + 1];
        p->rank -= drop;
    }
}

static sb_status split_seq_forward(sb_kernel *k)
{
    const split_seq_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    int axis = sb_axis_norm(a->axis, x->rank);
    int64_t each = 0, n = 0;

    SB_TRY(count_parts(k, x->dims[axis], &each, &n));
    sb_tensor *parts = sb_alloc(k->ctx, (size_t)n + 1, sizeof *parts);
    if (!parts)
        return SB_NO_MEMORY;
    describe_parts(k, axis, each, parts, n);
    sb_status status = split_seq_fill(k, axis, each, parts, n);
    sb_free(k->ctx, parts);
    return status;
}

const sb_op_def sb_op_split_to_sequence = {
    .name = "SplitToSequence",
    .since = 11,
    .in_min = 1,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_DATA_SHAPE,
    .attrs_size = sizeof(split_seq_attrs),
    .attrs = attrs,
    .infer = split_seq_infer,
    .prepare = sb_move_prepare,
    .forward = split_seq_forward,
};
