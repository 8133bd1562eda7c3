/* Shape: the dimensions [start, end) of the input as an int64 tensor. */
#include "ops/move/move_util.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    int64_t start, end;
} shape_attrs;

static const sb_attr_def attrs[] = {
    {"start", SB_ATTR_INT, offsetof(shape_attrs, start), .i = 0},
    {"end", SB_ATTR_INT, offsetof(shape_attrs, end), .i = INT64_MAX},
    {0},
};

/* Counts from the end if negative, clamped to [0, rank]. */
static int shape_place(int64_t at, int rank)
{
    at = at < 0 ? at + rank : at;
    return (int)(at < 0 ? 0 : at > rank ? rank : at);
}

static sb_status shape_infer(sb_infer *in)
{
    const shape_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape;
    sb_shape content = {.rank = 0}, out = sb_shape_of_rank(1);

    if (x->rank >= 0) {
        int end = shape_place(a->end, x->rank);
        for (int i = shape_place(a->start, x->rank); i < end; i++)
            content.dim[content.rank++] = x->dim[i];
        out.dim[0] = content.rank;
    }
    sb_infer_set(in, 0, SB_DTYPE_I64, &out);
    if (x->rank >= 0)
        sb_infer_set_content(in, 0, &content);
    return SB_OK;
}

static sb_status shape_forward(sb_kernel *k)
{
    const shape_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    int64_t *y = k->out[0]->data;
    int end = shape_place(a->end, x->rank);

    for (int i = shape_place(a->start, x->rank); i < end; i++)
        *y++ = x->dims[i];
    return SB_OK;
}

const sb_op_def sb_op_shape = {
    .name = "Shape",
    .since = 15,
    .quant = SB_ROLE_PASS,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_SHAPE_ONLY | SB_OP_FLAT,
    .attrs_size = sizeof(shape_attrs),
    .attrs = attrs,
    .infer = shape_infer,
    .forward = shape_forward,
    .tie = sb_tie_shape,
};
