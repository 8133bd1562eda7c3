/* SequenceAt, SequenceLength, ConcatFromSequence: from sequences to tensors. */
#include "ops/control/iterate.h"
#include "ops/move/move_util.h"
#include "ops/sequence/sequence_util.h"

static sb_status at_infer(sb_infer *in)
{
    (void)in; /* the sequence alone knows */
    return SB_OK;
}

static sb_status at_forward(sb_kernel *k)
{
    sb_sequence s;
    int64_t at = 0;

    SB_TRY(sb_sequence_in(k, 0, &s));
    SB_TRY(sb_sequence_position(k, 1, s.n, &at));
    sb_tensor t = sb_sequence_get(&s, at);
    return sb_kernel_give(k, 0, &t);
}

const sb_op_def sb_op_sequence_at = {
    .name = "SequenceAt",
    .since = 11,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_DATA_SHAPE | SB_OP_SEQUENCES,
    .infer = at_infer,
    .forward = at_forward,
};

static sb_status length_infer(sb_infer *in)
{
    sb_infer_set(in, 0, SB_DTYPE_I64, &(sb_shape){.rank = 0});
    return SB_OK;
}

static sb_status length_forward(sb_kernel *k)
{
    sb_sequence s;

    SB_TRY(sb_sequence_in(k, 0, &s));
    *(int64_t *)k->out[0]->data = s.n;
    return SB_OK;
}

const sb_op_def sb_op_sequence_length = {
    .name = "SequenceLength",
    .since = 11,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_SEQUENCES,
    .infer = length_infer,
    .forward = length_forward,
};

/* ---- ConcatFromSequence -------------------------------------------------- */

typedef struct {
    int64_t axis, new_axis;
} concat_seq_attrs;

static const sb_attr_def attrs[] = {
    {"axis", SB_ATTR_INT, offsetof(concat_seq_attrs, axis), .required = true},
    {"new_axis", SB_ATTR_INT, offsetof(concat_seq_attrs, new_axis), .i = 0,
     .flag = true},
    {0},
};

/* The element as a part of the result: with the new axis, if there is one. */
static sb_tensor part_of(const sb_sequence *s, int64_t i, int at, bool added)
{
    sb_tensor t = sb_sequence_get(s, i), part = t;

    if (!added)
        return t;
    part.rank++;
    for (int d = 0; d < part.rank; d++)
        part.dims[d] = d == at ? 1 : t.dims[d < at ? d : d - 1];
    return part;
}

/* Dimensions of all parts together. */
static sb_status join_dims(const sb_kernel *k, const sb_sequence *s, int at,
                           bool added, sb_tensor *out)
{
    for (int64_t i = 0; i < s->n; i++) {
        if (i > 0 && sb_sequence_get(s, i).rank != out->rank - added)
            return sb_kernel_fail(k, SB_BAD_DATA,
                                  "element %lld has another rank than those "
                                  "before it",
                                  (long long)i);
        sb_tensor part = part_of(s, i, at, added);
        if (i == 0) {
            *out = sb_tensor_make(part.dtype, part.rank, part.dims);
            continue;
        }
        for (int d = 0; d < out->rank; d++)
            if (d != at && part.dims[d] != out->dims[d])
                return sb_kernel_fail(
                    k, SB_BAD_DATA,
                    "element %lld has %lld in dimension %d, want %lld",
                    (long long)i, (long long)part.dims[d], d,
                    (long long)out->dims[d]);
        if (part.dims[at] > INT64_MAX - out->dims[at])
            return sb_kernel_fail(k, SB_NO_MEMORY, "the result is too large");
        out->dims[at] += part.dims[at];
    }
    return SB_OK;
}

static sb_status concat_seq_forward(sb_kernel *k)
{
    const concat_seq_attrs *a = k->attrs;
    bool added = a->new_axis != 0;
    sb_sequence s;
    sb_tensor all = {0};

    SB_TRY(sb_sequence_in(k, 0, &s));
    if (s.n == 0 || sb_dtype_size(s.dtype) == 0)
        return sb_kernel_fail(k, SB_UNSUPPORTED,
                              "nothing to join in a sequence of %lld %s",
                              (long long)s.n, sb_dtype_name(s.dtype));
    int rank = sb_sequence_get(&s, 0).rank + added;
    if (a->axis < -rank || a->axis >= rank || rank > SB_MAX_RANK)
        return sb_kernel_fail(k, SB_BAD_DATA,
                              "axis %lld, the result has rank "
                              "%d",
                              (long long)a->axis, rank);
    int at = sb_axis_norm(a->axis, rank);
    SB_TRY(join_dims(k, &s, at, added, &all));
    SB_TRY(k->host->resize_out(k, 0, all.dtype, all.rank, all.dims));
    char *to = k->out[0]->data;
    int64_t stride = sb_dims_product(all.dims, at + 1, all.rank);
    for (int64_t i = 0; i < s.n; i++) {
        sb_tensor part = part_of(&s, i, at, added);
        sb_strided c = sb_strided_between(k->out[0], &part, part.dims);
        if (sb_tensor_count(&part) > 0)
            sb_strided_copy(k->ctx, &c, to, part.data);
        to += (size_t)(part.dims[at] * stride) * sb_dtype_size(all.dtype);
    }
    return SB_OK;
}

const sb_op_def sb_op_concat_from_sequence = {
    .name = "ConcatFromSequence",
    .since = 11,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_DATA_SHAPE | SB_OP_SEQUENCES,
    .attrs_size = sizeof(concat_seq_attrs),
    .attrs = attrs,
    .infer = at_infer,
    .forward = concat_seq_forward,
};
