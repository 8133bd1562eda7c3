/* Why a layer is bad: one scale serves all channels of what it reads, so the
 * largest of them decides how coarsely the others are rounded. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/op.h"
#include "quant/analyze/errors.h"
#include "quant/place/place.h"

/* The axis of the channels that a layer sums over; -1: it is none, or has a
 * scale for each of them. */
static int channel_axis(const sb_quant_model *qm, const sb_quantizer *q)
{
    int rank = sb_graph_value(qm->graph, q->value)->type.shape.rank;

    if (sb_quantizer_is_constant(qm, q) || q->axis >= 0)
        return -1;
    for (size_t i = 0; i < q->n_uses; i++) {
        const sb_node *node = sb_graph_node(qm->graph, q->uses[i].node);

        if (q->uses[i].input != 0 || sb_node_role(node) != SB_ROLE_WEIGHTED)
            continue;
        if (sb_node_flag(node, SB_OP_CONV))
            return rank > 2 ? 1 : -1;
        return sb_node_int(node, "transA", 0) == 0 && rank > 1 ? rank - 1 : -1;
    }
    return -1;
}

void sb_errors_channels(sb_quant_errors *e)
{
    for (size_t i = 0; i < e->qm->place.n_points; i++)
        e->values[i].axis = -1;
    for (size_t i = 0; i < e->qm->place.n_quantizers; i++) {
        const sb_quantizer *q = &e->qm->place.quantizers[i];
        struct sb_error_values *v = &e->values[q->point];

        if (v->axis < 0 && !sb_quantizer_is_off(e->qm, q))
            v->axis = channel_axis(e->qm, q);
    }
}

/* How many elements lie between two neighbors along an axis. */
static int64_t channel_stride(const sb_tensor *x, int axis)
{
    int64_t behind = sb_dims_product(x->dims, axis + 1, x->rank);

    if (x->layout != SB_LAYOUT_CHANNELS_LAST)
        return behind;
    return axis == 1 ? 1 : behind * x->dims[1]; /* axis 1 comes last */
}

sb_status sb_errors_see_channels(sb_ctx *ctx, struct sb_error_values *v,
                                 const sb_tensor *x)
{
    const float *data = x->data;
    int64_t n = v->axis < x->rank ? x->dims[v->axis] : 0;

    if (n == 0 || (v->reach && v->channels != n))
        return SB_OK; /* their number is not known, or not always the same */
    if (!v->reach) {
        v->reach = sb_alloc(ctx, (size_t)n, sizeof *v->reach);
        if (!v->reach)
            return SB_NO_MEMORY;
        v->channels = n;
    }
    int64_t inner = channel_stride(x, v->axis);
    int64_t count = sb_tensor_count(x);
    for (int64_t at = 0; at < count; at += n * inner)
        for (int64_t c = 0; c < n; c++) {
            float most = v->reach[c];
            for (int64_t i = 0; i < inner; i++) {
                float far = fabsf(data[at + c * inner + i]);
                most = far > most ? far : most;
            }
            v->reach[c] = most;
        }
    return SB_OK;
}

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

sb_status sb_errors_spread(const sb_quant_errors *e, sb_node_id node,
                           double *out)
{
    const sb_quantizer *q =
        node == SB_NONE ? NULL : sb_quantizer_on(e->qm, node, 0);
    const struct sb_error_values *v = q ? &e->values[q->point] : NULL;
    size_t n = 0;

    *out = 0;
    if (!v || !v->reach)
        return SB_OK;
    float *sorted = sb_alloc_raw(e->ctx, (size_t)v->channels, sizeof *sorted);
    if (!sorted)
        return SB_NO_MEMORY;
    for (int64_t c = 0; c < v->channels; c++)
        if (v->reach[c] > 0) /* a dead one needs no scale */
            sorted[n++] = v->reach[c];
    qsort(sorted, n, sizeof *sorted, compare_floats);
    if (n > 0)
        *out = (double)sorted[n - 1] / (double)sorted[(n - 1) / 2];
    sb_free(e->ctx, sorted);
    return SB_OK;
}
