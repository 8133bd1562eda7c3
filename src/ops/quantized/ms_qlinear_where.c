/* com.microsoft QLinearWhere: condition ? x : y on bytes, each requantized to
 * the output's scale and zero point by a table. */
#include "ops/quantized/quant_util.h"

enum { COND, X, X_SCALE, X_ZERO, Y, Y_SCALE, Y_ZERO, Z_SCALE, Z_ZERO };

static sb_status qwhere_infer(sb_infer *in)
{
    sb_shape shape = in->in[COND]->type.shape;

    if (!sb_shape_broadcast(&shape, &in->in[X]->type.shape) ||
        !sb_shape_broadcast(&shape, &in->in[Y]->type.shape))
        return sb_infer_fail(in, "condition, X and Y do not broadcast");
    sb_infer_set(in, 0, in->in[X]->type.dtype, &shape);
    return SB_OK;
}

static sb_status qwhere_prepare(sb_kernel *k)
{
    sb_dtype dtype = k->in[X]->dtype;

    SB_TRY(sb_byte_check(k, X));
    if (k->in[Y]->dtype != dtype || k->in[COND]->dtype != SB_DTYPE_BOOL)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "condition has type %s and Y %s, want bool and "
                              "%s",
                              sb_dtype_name(k->in[COND]->dtype),
                              sb_dtype_name(k->in[Y]->dtype),
                              sb_dtype_name(dtype));
    SB_TRY(sb_qparam_check(k, X_SCALE, X_ZERO, dtype));
    SB_TRY(sb_qparam_check(k, Y_SCALE, Y_ZERO, dtype));
    return sb_qparam_check(k, Z_SCALE, Z_ZERO, dtype);
}

/* Element of a broadcast operand that belongs to element `at` of the result. */
static int64_t source_of(const sb_tensor *t, const sb_tensor *out, int64_t at)
{
    int64_t from = 0, stride = 1;

    for (int d = out->rank - 1; d >= 0; d--) {
        int i = d - (out->rank - t->rank);

        if (i < 0)
            break;
        if (t->dims[i] != 1)
            from += at % out->dims[d] * stride;
        stride *= t->dims[i];
        at /= out->dims[d];
    }
    return from;
}

static sb_status qwhere_forward(sb_kernel *k)
{
    const sb_tensor *cond = k->in[COND], *x = k->in[X], *y = k->in[Y];
    sb_tensor *z = k->out[0];
    sb_qparam q = sb_qparam_read(k, Z_SCALE, Z_ZERO);
    uint8_t x_table[256], y_table[256];
    int64_t n = sb_tensor_count(z);

    sb_byte_table(x->dtype, sb_qparam_read(k, X_SCALE, X_ZERO), z->dtype, q,
                  NULL, 0, x_table);
    sb_byte_table(y->dtype, sb_qparam_read(k, Y_SCALE, Y_ZERO), z->dtype, q,
                  NULL, 0, y_table);
    for (int64_t i = 0; i < n; i++) {
        bool take_x = ((const uint8_t *)cond->data)[source_of(cond, z, i)] != 0;
        const sb_tensor *from = take_x ? x : y;
        uint8_t q_from = ((const uint8_t *)from->data)[source_of(from, z, i)];

        ((uint8_t *)z->data)[i] = (take_x ? x_table : y_table)[q_from];
    }
    return SB_OK;
}

const sb_op_def sb_op_ms_qlinear_where = {
    .name = "QLinearWhere",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 9,
    .in_max = 9,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INTEGER,
    .infer = qwhere_infer,
    .prepare = qwhere_prepare,
    .forward = qwhere_forward,
};
