/* LRN: y = x / (bias + alpha / size * sum of x^2 over nearby channels)^beta.
 *
 * The channels of a pixel are far apart, so each (image, channel) plane sums
 * the squares of its neighbors' planes into y first. */
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"
#include "ops/tie/tie_rules.h"

#include <math.h>

#include "base/threads.h"

typedef struct {
    float alpha, beta, bias;
    int64_t size;
} lrn_attrs;

static const sb_attr_def attrs[] = {
    {"alpha", SB_ATTR_FLOAT, offsetof(lrn_attrs, alpha), .f = 0.0001f},
    {"beta", SB_ATTR_FLOAT, offsetof(lrn_attrs, beta), .f = 0.75f},
    {"bias", SB_ATTR_FLOAT, offsetof(lrn_attrs, bias), .f = 1.0f},
    {"size", SB_ATTR_INT, offsetof(lrn_attrs, size), .required = true},
    {0},
};

static sb_status lrn_infer(sb_infer *in)
{
    const lrn_attrs *a = in->attrs;
    int rank = in->in[0]->type.shape.rank;

    if (a->size < 1)
        return sb_infer_fail(in, "size is %lld, want at least 1",
                             (long long)a->size);
    if (rank >= 0 && rank < 2)
        return sb_infer_fail(in, "input of rank %d, want at least 2", rank);
    return sb_infer_same(in);
}

static void lrn_plane(const sb_kernel *k, int64_t plane)
{
    const lrn_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    int64_t channels = x->dims[1], c = plane % channels;
    int64_t size = sb_dims_product(x->dims, 2, x->rank);
    int64_t before = (a->size - 1) / 2, after = a->size - 1 - before;
    int64_t first = c > before ? c - before : 0;
    int64_t last = after < channels - 1 - c ? c + after : channels - 1;
    const float *in = (const float *)x->data + plane * size;
    float *y = (float *)k->out[0]->data + plane * size;
    float scale = a->alpha / (float)a->size;

    for (int64_t i = 0; i < size; i++)
        y[i] = 0;
    for (int64_t j = first; j <= last; j++) {
        const float *near = in + (j - c) * size;
        for (int64_t i = 0; i < size; i++)
            y[i] += near[i] * near[i];
    }
    for (int64_t i = 0; i < size; i++)
        y[i] = in[i] / powf(a->bias + scale * y[i], a->beta);
}

/* Channels last: the neighbors are side by side. */
static void lrn_place(const sb_kernel *k, int64_t place)
{
    const lrn_attrs *a = k->attrs;
    int64_t n = k->in[0]->dims[1];
    int64_t before = (a->size - 1) / 2, after = a->size - 1 - before;
    const float *x = (const float *)k->in[0]->data + place * n;
    float *y = (float *)k->out[0]->data + place * n;
    float scale = a->alpha / (float)a->size;

    before = before < n ? before : n - 1;
    after = after < n ? after : n - 1;
    for (int64_t c = 0; c < n; c++)
        y[c] = 0;
    for (int64_t by = -before; by <= after; by++)
        for (int64_t c = by < 0 ? -by : 0; c < n && c + by < n; c++)
            y[c] += x[c + by] * x[c + by];
    for (int64_t c = 0; c < n; c++)
        y[c] = x[c] / powf(a->bias + scale * y[c], a->beta);
}

static void lrn_places(void *arg, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        lrn_place(arg, (int64_t)i);
}

static void lrn_range(void *arg, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        lrn_plane(arg, (int64_t)i);
}

static sb_status lrn_forward(sb_kernel *k)
{
    const sb_tensor *x = k->in[0];
    int64_t places = x->dims[0] * sb_dims_product(x->dims, 2, x->rank);

    if (x->layout == SB_LAYOUT_CHANNELS_LAST && x->dims[1] > 0) {
        sb_parallel_for(k->ctx, (size_t)places, (size_t)(1024 / x->dims[1] + 1),
                        lrn_places, k);
        return SB_OK;
    }
    sb_parallel_for(k->ctx, (size_t)(x->dims[0] * x->dims[1]), 1, lrn_range, k);
    return SB_OK;
}

const sb_op_def sb_op_lrn = {
    .name = "LRN",
    .since = 1,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .attrs_size = sizeof(lrn_attrs),
    .attrs = attrs,
    .batch = sb_batch_first,
    .infer = lrn_infer,
    .layout = sb_move_layout,
    .forward = lrn_forward,
    .grad = sb_grad_lrn,
    .tie = sb_tie_lrn,
};
