/* com.microsoft QLinearConcat: concatenation of bytes that have scales and zero
 * points of their own, each requantized to the output's.
 *
 * Inputs: y_scale, y_zero, then x, x_scale, x_zero for each part.  A part is
 * requantized by a table of 256, or copied if its parameters are the output's.
 */
#include <string.h>

#include "ops/quantized/quant_util.h"

enum { Y_SCALE, Y_ZERO, FIRST };

typedef struct qconcat_attrs {
    int64_t axis;
} qconcat_attrs;

static const sb_attr_def qconcat_attr_defs[] = {
    {.name = "axis",
     SB_ATTR_INT,
     offsetof(qconcat_attrs, axis),
     .required = true},
    {0},
};

static sb_status qconcat_infer(sb_infer *in)
{
    const qconcat_attrs *a = in->attrs;
    const sb_fact *first = sb_infer_in(in, FIRST);
    sb_shape out = sb_shape_unknown();
    int axis = 0;

    if (!first || (in->n_in - FIRST) % 3 != 0)
        return sb_infer_fail(in, "has %u inputs, want 2 + 3 a part", in->n_in);
    for (uint32_t i = FIRST; i < in->n_in; i += 3) {
        const sb_fact *part = in->in[i];

        if (!part)
            return sb_infer_fail(in, "input %u is missing", i);
        const sb_shape *s = &part->type.shape;
        if (s->rank < 0) {
            out = sb_shape_unknown();
            break;
        }
        if (i == FIRST) {
            out = *s;
            SB_TRY(sb_infer_axis(in, a->axis, s->rank, &axis));
            continue;
        }
        if (s->rank != out.rank)
            return sb_infer_fail(in, "input %u has rank %d, want %d", i,
                                 s->rank, out.rank);
        for (int d = 0; d < out.rank; d++) {
            if (d == axis)
                out.dim[d] = sb_dim_add(out.dim[d], s->dim[d]);
            else if (!sb_dim_known(out.dim[d]))
                out.dim[d] = s->dim[d];
            else if (sb_dim_known(s->dim[d]) && s->dim[d] != out.dim[d])
                return sb_infer_fail(in,
                                     "input %u has dimension %lld at %d, "
                                     "want %lld",
                                     i, (long long)s->dim[d], d,
                                     (long long)out.dim[d]);
        }
    }
    sb_infer_set(in, 0, first->type.dtype, &out);
    return SB_OK;
}

static int qconcat_axis(const sb_kernel *k)
{
    const qconcat_attrs *a = k->attrs;

    return (int)(a->axis < 0 ? a->axis + k->out[0]->rank : a->axis);
}

/* Channels last if some part lies so, and channels are put together. */
static void qconcat_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    bool last = false;

    for (uint32_t i = FIRST; i < k->n_in; i += 3)
        last = last || k->in[i]->layout == SB_LAYOUT_CHANNELS_LAST;
    if (!last || k->out[0]->rank < 3 || qconcat_axis(k) != 1)
        return;
    for (uint32_t i = FIRST; i < k->n_in; i += 3)
        in[i] = SB_LAYOUT_CHANNELS_LAST;
    out[0] = SB_LAYOUT_CHANNELS_LAST;
}

static sb_status qconcat_prepare(sb_kernel *k)
{
    sb_dtype dtype = k->in[FIRST]->dtype;

    SB_TRY(sb_byte_check(k, FIRST));
    SB_TRY(sb_qparam_check(k, Y_SCALE, Y_ZERO, dtype));
    for (uint32_t i = FIRST; i < k->n_in; i += 3) {
        if (k->in[i]->dtype != dtype)
            return sb_kernel_fail(
                k, SB_BAD_MODEL, "input %u has type %s, want %s", i,
                sb_dtype_name(k->in[i]->dtype), sb_dtype_name(dtype));
        SB_TRY(sb_qparam_check(k, i + 1, i + 2, dtype));
    }
    return SB_OK;
}

/* `n_row` rows of `row` bytes from x to rows of `y_row` bytes in y. */
static void copy_part(const uint8_t *table, const uint8_t *x, int64_t n_row,
                      int64_t row, uint8_t *y, int64_t y_row)
{
    for (int64_t r = 0; r < n_row; r++) {
        if (!table)
            memcpy(y, x, (size_t)row);
        else
            for (int64_t i = 0; i < row; i++)
                y[i] = table[x[i]];
        x += row;
        y += y_row;
    }
}

static sb_status qconcat_forward(sb_kernel *k)
{
    const sb_tensor *out = k->out[0];
    bool last = out->layout == SB_LAYOUT_CHANNELS_LAST;
    int axis = qconcat_axis(k), end = last ? axis + 1 : out->rank;
    int64_t n_row = sb_dims_product(out->dims, 0, axis) *
                    sb_dims_product(out->dims, end, out->rank);
    int64_t y_row = sb_dims_product(out->dims, axis, end), at = 0;
    sb_qparam y = sb_qparam_read(k, Y_SCALE, Y_ZERO);

    for (uint32_t i = FIRST; i < k->n_in; i += 3) {
        const sb_tensor *x = k->in[i];
        int64_t row = sb_dims_product(x->dims, axis, end);
        sb_qparam q = sb_qparam_read(k, i + 1, i + 2);
        bool same = q.scale == y.scale && q.zero == y.zero;
        uint8_t table[256];

        if (!same)
            sb_byte_table(x->dtype, q, out->dtype, y, NULL, 0, table);
        if (sb_tensor_count(x) > 0)
            copy_part(same ? NULL : table, x->data, n_row, row,
                      (uint8_t *)out->data + at, y_row);
        at += row;
    }
    return SB_OK;
}

const sb_op_def sb_op_ms_qlinear_concat = {
    .name = "QLinearConcat",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 5,
    .in_max = SB_ARITY_ANY,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INTEGER,
    .attrs_size = sizeof(qconcat_attrs),
    .attrs = qconcat_attr_defs,
    .infer = qconcat_infer,
    .layout = qconcat_layout,
    .prepare = qconcat_prepare,
    .forward = qconcat_forward,
};
