/* Scales and zero points of exported integers. */
#include <math.h>

#include "quant/export/export.h"
#include "quant/model/weight.h"

sb_status sb_export_check_scale(sb_ctx *ctx, const char *value, int64_t i,
                                float scale)
{
    if (isfinite(scale) && scale > 0)
        return SB_OK;
    return sb_fail(ctx, SB_BAD_ARG,
                   "value '%s': scale %lld is %g, want a finite number above 0",
                   value, (long long)i, (double)scale);
}

/* Dimensions of the scales of a quantizer: none, [n], or those of the weight
 * with blocks counted along the axis. */
static int param_dims(const sb_quant_model *qm, const sb_quantizer *q,
                      int64_t *dims)
{
    const sb_tensor *w = &sb_graph_value(qm->graph, q->value)->constant;

    if (q->axis < 0)
        return 0;
    dims[0] = sb_quantizer_qparams(qm, q)->n;
    if (q->block == 0)
        return 1;
    for (int i = 0; i < w->rank; i++)
        dims[i] = w->dims[i];
    dims[q->axis] = (dims[q->axis] + q->block - 1) / q->block;
    return w->rank;
}

static sb_status zero_points(sb_ctx *ctx, const sb_qparams *p,
                             sb_integer_type type, int rank,
                             const int64_t *dims, sb_tensor *out)
{
    size_t n = (size_t)p->n;
    float *z = sb_alloc(ctx, n, sizeof *z);
    sb_tensor t = sb_tensor_make(type.dtype, rank, dims);

    if (!z)
        return SB_NO_MEMORY;
    sb_status status = sb_tensor_alloc(ctx, &t);
    if (status == SB_OK) {
        for (size_t i = 0; i < n; i++)
            z[i] = p->zero_point[i] + (float)type.offset;
        sb_convert(SB_DTYPE_F32, z, type.dtype, t.data, n);
        *out = t;
    }
    sb_free(ctx, z);
    return status;
}

sb_status sb_export_params(sb_graph *g, const sb_quant_model *qm,
                           const sb_quantizer *q, sb_value_id *scale,
                           sb_value_id *zero)
{
    sb_integer_type type = sb_quantizer_type(qm, q);
    const char *name = sb_graph_value(qm->graph, q->value)->name;
    int64_t dims[SB_MAX_RANK];
    int rank = param_dims(qm, q, dims);
    const sb_tensor like = sb_tensor_make(SB_DTYPE_F32, rank, dims);
    const sb_qparams *p = sb_quantizer_qparams(qm, q);
    sb_tensor z;

    SB_TRY(sb_export_array(g, name, "_scale", &like, p->scale, scale));
    SB_TRY(zero_points(qm->ctx, p, type, rank, dims, &z));
    sb_status status = sb_export_constant(g, name, "_zero_point", &z, zero);
    sb_tensor_drop(&z);
    return status;
}
