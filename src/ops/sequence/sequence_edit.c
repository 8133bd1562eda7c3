/* SequenceEmpty, SequenceConstruct, SequenceInsert, SequenceErase: sequences
 * from nothing, from tensors, and from others with one element more or less. */
#include "ops/sequence/sequence_util.h"

/* ---- SequenceEmpty ------------------------------------------------------ */

typedef struct {
    int64_t dtype;
} empty_attrs;

static const sb_attr_def empty_table[] = {
    {"dtype", SB_ATTR_INT, offsetof(empty_attrs, dtype), .i = SB_DTYPE_F32},
    {0},
};

static sb_status empty_forward(sb_kernel *k)
{
    const empty_attrs *a = k->attrs;

    if (a->dtype < 0 || a->dtype >= SB_DTYPE_COUNT)
        return sb_kernel_fail(k, SB_BAD_MODEL, "dtype is %lld",
                              (long long)a->dtype);
    return sb_sequence_give(k, 0, (sb_dtype)a->dtype, NULL, 0);
}

const sb_op_def sb_op_sequence_empty = {
    .name = "SequenceEmpty",
    .since = 11,
    .in_min = 0,
    .in_max = 0,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_DATA_SHAPE,
    .attrs_size = sizeof(empty_attrs),
    .attrs = empty_table,
    .infer = sb_sequence_infer,
    .forward = empty_forward,
};

/* ---- the others --------------------------------------------------------- */

/* Elements of the sequence and room for one more; sb_free() them. */
static sb_status items_of(const sb_kernel *k, const sb_sequence *s,
                          sb_tensor **out)
{
    *out = sb_alloc(k->ctx, (size_t)s->n + 1, sizeof **out);
    if (!*out)
        return SB_NO_MEMORY;
    for (int64_t i = 0; i < s->n; i++)
        (*out)[i] = sb_sequence_get(s, i);
    return SB_OK;
}

static sb_status construct_forward(sb_kernel *k)
{
    sb_tensor *items = sb_alloc(k->ctx, k->n_in, sizeof *items);

    if (!items)
        return SB_NO_MEMORY;
    for (uint32_t i = 0; i < k->n_in; i++)
        items[i] = *k->in[i];
    sb_status status = sb_sequence_give(k, 0, k->in[0]->dtype, items, k->n_in);
    sb_free(k->ctx, items);
    return status;
}

static sb_status construct_infer(sb_infer *in)
{
    for (uint32_t i = 0; i < in->n_in; i++)
        if (!in->in[i])
            return sb_infer_fail(in, "input %u is absent", i);
    return sb_sequence_infer(in);
}

const sb_op_def sb_op_sequence_construct = {
    .name = "SequenceConstruct",
    .since = 11,
    .in_min = 1,
    .in_max = SB_ARITY_ANY,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_DATA_SHAPE,
    .infer = construct_infer,
    .forward = construct_forward,
};

static sb_status insert_forward(sb_kernel *k)
{
    sb_sequence s;
    sb_tensor *items = NULL;

    SB_TRY(sb_sequence_in(k, 0, &s));
    int64_t at = s.n;
    /* Behind the last element is a place too. */
    if (sb_kernel_in(k, 2)) {
        SB_TRY(sb_sequence_position(k, 2, s.n + 1, &at));
        if (sb_tensor_get_i64(k->in[2], 0) < 0)
            at--;
        if (at < 0)
            return sb_kernel_fail(
                k, SB_BAD_DATA, "no position %lld in a sequence of %lld",
                (long long)sb_tensor_get_i64(k->in[2], 0), (long long)s.n);
    }
    SB_TRY(items_of(k, &s, &items));
    for (int64_t i = s.n; i > at; i--)
        items[i] = items[i - 1];
    items[at] = *k->in[1];
    sb_status status = sb_sequence_give(k, 0, s.dtype, items, (size_t)s.n + 1);
    sb_free(k->ctx, items);
    return status;
}

const sb_op_def sb_op_sequence_insert = {
    .name = "SequenceInsert",
    .since = 11,
    .in_min = 2,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_DATA_SHAPE | SB_OP_SEQUENCES,
    .infer = sb_sequence_infer,
    .forward = insert_forward,
};

static sb_status erase_forward(sb_kernel *k)
{
    sb_sequence s;
    sb_tensor *items = NULL;
    int64_t at = 0;

    SB_TRY(sb_sequence_in(k, 0, &s));
    if (s.n == 0)
        return sb_kernel_fail(k, SB_BAD_DATA, "the sequence is empty");
    at = s.n - 1;
    if (sb_kernel_in(k, 1))
        SB_TRY(sb_sequence_position(k, 1, s.n, &at));
    SB_TRY(items_of(k, &s, &items));
    for (int64_t i = at; i + 1 < s.n; i++)
        items[i] = items[i + 1];
    sb_status status = sb_sequence_give(k, 0, s.dtype, items, (size_t)s.n - 1);
    sb_free(k->ctx, items);
    return status;
}

const sb_op_def sb_op_sequence_erase = {
    .name = "SequenceErase",
    .since = 11,
    .in_min = 1,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_DATA_SHAPE | SB_OP_SEQUENCES,
    .infer = sb_sequence_infer,
    .forward = erase_forward,
};
