/* Det: determinants of the square matrices in the last two dimensions, by
 * elimination with row exchange, in double. */
#include <math.h>

#include "ops/infer_util.h"

static sb_status det_infer(sb_infer *in)
{
    const sb_shape *x = &in->in[0]->type.shape;
    sb_shape out = *x;

    if (x->rank >= 0) {
        if (x->rank < 2)
            return sb_infer_fail(in, "rank is %d, want at least 2", x->rank);
        sb_dim h = x->dim[x->rank - 2], w = x->dim[x->rank - 1];
        if (sb_dim_known(h) && sb_dim_known(w) && h != w)
            return sb_infer_fail(in, "matrices are %lld x %lld, want square",
                                 (long long)h, (long long)w);
        out.rank -= 2;
    }
    sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
    return SB_OK;
}

static sb_status det_prepare(sb_kernel *k)
{
    const sb_tensor *x = k->in[0];
    int64_t n = x->dims[x->rank - 1];

    if (!sb_dtype_is_float(x->dtype) || sb_dtype_size(x->dtype) == 0)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "not for elements of type %s",
                              sb_dtype_name(x->dtype));
    if (sb_tensor_count(x) > 0)
        k->scratch_size = (size_t)(n * n) * sizeof(double);
    return SB_OK;
}

static void swap_rows(double *a, double *b, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        double t = a[j];
        a[j] = b[j];
        b[j] = t;
    }
}

/* Destroys m [n, n]. */
static double det_determinant(double *m, size_t n)
{
    double det = 1;

    for (size_t c = 0; c < n; c++) {
        size_t pivot = c;
        for (size_t r = c + 1; r < n; r++)
            if (fabs(m[r * n + c]) > fabs(m[pivot * n + c]))
                pivot = r;
        if (m[pivot * n + c] == 0)
            return 0;
        if (pivot != c) {
            swap_rows(m + pivot * n, m + c * n, n);
            det = -det;
        }
        det *= m[c * n + c];
        for (size_t r = c + 1; r < n; r++) {
            double f = m[r * n + c] / m[c * n + c];
            for (size_t j = c + 1; j < n; j++)
                m[r * n + j] -= f * m[c * n + j];
        }
    }
    return det;
}

static sb_status det_forward(sb_kernel *k)
{
    const sb_tensor *x = k->in[0];
    sb_tensor *y = k->out[0];
    size_t n = (size_t)x->dims[x->rank - 1];
    size_t x_size = sb_dtype_size(x->dtype), y_size = sb_dtype_size(y->dtype);

    for (size_t i = 0; i < (size_t)sb_tensor_count(y); i++) {
        const char *from = (const char *)x->data + i * n * n * x_size;

        sb_convert(x->dtype, from, SB_DTYPE_F64, k->scratch, n * n);
        double det = det_determinant(k->scratch, n);
        sb_convert(SB_DTYPE_F64, &det, y->dtype, (char *)y->data + i * y_size,
                   1);
    }
    return SB_OK;
}

const sb_op_def sb_op_det = {
    .name = "Det",
    .since = 11,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .infer = det_infer,
    .prepare = det_prepare,
    .forward = det_forward,
};
