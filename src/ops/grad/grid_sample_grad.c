/* GridSampleGrad: gradients of GridSample by the image and by the grid, and the
 * rule of AffineGrid.
 *
 * A thread owns planes of dx, or points of dgrid, and adds in the order of
 * points, or of channels. */
#include <string.h>

#include "base/threads.h"
#include "ops/grad/grad.h"
#include "ops/grad/grad_rules.h"
#include "ops/image/grid_sample.h"
#include "ops/move/move_util.h"

static const sb_attr_def attrs[] = {
    {"mode", SB_ATTR_STRING, offsetof(sb_grid_attrs, mode), .s = "linear"},
    {"padding_mode", SB_ATTR_STRING, offsetof(sb_grid_attrs, padding),
     .s = "zeros"},
    {"align_corners", SB_ATTR_INT, offsetof(sb_grid_attrs, align_corners),
     .i = 0, .flag = true},
    {0},
};

enum { IN_DY, IN_X, IN_GRID };

/* ---- rules -------------------------------------------------------------- */

sb_status sb_grad_grid_sample(sb_grad *g)
{
    sb_value_id out[2];

    (void)sb_emit(
        g, &(sb_emit_spec){.op = "GridSampleGrad",
                           .in = {g->dy[0], sb_grad_in(g, 0), sb_grad_in(g, 1)},
                           .n_in = 3,
                           .attrs = g->node->attrs,
                           .n_attrs = g->node->n_attrs,
                           .n_out = g->wanted[1] ? 2 : 1,
                           .more_out = out});
    if (g->status != SB_OK)
        return SB_OK;
    if (g->wanted[0])
        g->dx[0] = out[0];
    if (g->wanted[1])
        g->dx[1] = out[1];
    return SB_OK;
}

/* grid = theta (x, y, 1), where (x, y) is the grid of the unit matrix. */
sb_status sb_grad_affine_grid(sb_grad *g)
{
    sb_value_id theta = sb_grad_in(g, 0);
    int n = sb_grad_type(g, g->node->outputs[0])->shape.rank - 2;
    float unit[SB_GRID_AXES * (SB_GRID_AXES + 1)] = {0};
    static const int64_t turned[] = {0, 2, 1};
    const int64_t flat[] = {0, -1, n}, rows = 1, last = 2;
    sb_value_id one = SB_NONE;

    if (n < 2 || n > SB_GRID_AXES)
        return sb_grad_refuse(g, "the number of its sizes is not known");
    for (int i = 0; i < n; i++)
        unit[i * (n + 1) + i] = 1;
    SB_TRY(sb_graph_add_constant(g->graph, "back.const", SB_DTYPE_F32, 2,
                                 (const int64_t[]){n, n + 1}, unit, &one));
    sb_value_id base = sb_emit(
        g,
        &(sb_emit_spec){.op = "AffineGrid",
                        .in = {sb_grad_expand(g, one, theta), sb_grad_in(g, 1)},
                        .n_in = 2,
                        .attrs = g->node->attrs,
                        .n_attrs = g->node->n_attrs});
    sb_value_id to = sb_grad_ints(g, flat, 3);
    sb_value_id dy = sb_emit2(g, "Reshape", g->dy[0], to);
    sb_value_id by_place =
        sb_emit2(g, "MatMul",
                 sb_emit_with(g, "Transpose", dy, SB_NONE,
                              SB_EMIT_INTS("perm", turned, 3)),
                 sb_emit2(g, "Reshape", base, to));
    sb_value_id shift =
        sb_emit_with(g, "ReduceSum", dy, sb_grad_ints(g, &rows, 1),
                     SB_EMIT_INT("keepdims", 0));
    g->dx[0] =
        sb_emit_with(g, "Concat", by_place,
                     sb_emit2(g, "Unsqueeze", shift, sb_grad_ints(g, &last, 1)),
                     SB_EMIT_INT("axis", 2));
    return SB_OK;
}

/* ---- kernel ------------------------------------------------------------- */

typedef struct grid_grad_job {
    const sb_kernel *k;
    sb_grid_points points;
    int64_t n_channel;
} grid_grad_job;

static sb_status grid_grad_infer(sb_infer *in)
{
    sb_grid_config c;

    if (!sb_grid_config_of(in->attrs, &c))
        return sb_infer_fail(in, "an unknown mode or padding");
    sb_infer_set(in, 0, in->in[IN_X]->type.dtype, &in->in[IN_X]->type.shape);
    sb_infer_set(in, 1, in->in[IN_GRID]->type.dtype,
                 &in->in[IN_GRID]->type.shape);
    return SB_OK;
}

static sb_status grid_grad_prepare(sb_kernel *k)
{
    const sb_tensor *dy = k->in[IN_DY], *x = k->in[IN_X], *g = k->in[IN_GRID];
    bool fits = x->rank > 2 && g->rank == x->rank && dy->rank == x->rank &&
                g->dims[0] == x->dims[0] && dy->dims[0] == x->dims[0] &&
                dy->dims[1] == x->dims[1] &&
                g->dims[g->rank - 1] == x->rank - 2;

    for (int i = 2; fits && i < x->rank; i++)
        fits = dy->dims[i] == g->dims[i - 1];
    if (!fits)
        return sb_kernel_fail(k, SB_BAD_MODEL, "inputs do not fit together");
    return sb_grid_scratch(k, x, g, &k->scratch_size);
}

/* An item is one channel of one image. */
static void grid_grad_planes(void *arg, size_t begin, size_t end)
{
    const grid_grad_job *job = arg;
    const sb_grid_points *points = &job->points;
    int64_t n = points->n_points;
    int mix = points->n_mix;

    for (size_t item = begin; item < end; item++) {
        int64_t first = (int64_t)item / job->n_channel * n * mix;
        const float *dy =
            (const float *)job->k->in[IN_DY]->data + (int64_t)item * n;
        float *dx =
            (float *)job->k->out[0]->data + (int64_t)item * points->plane;
        const int64_t *o = points->offset + first;
        const float *w = points->weight + first;

        memset(dx, 0, (size_t)points->plane * sizeof *dx);
        for (int64_t p = 0; p < n; p++, o += mix, w += mix)
            for (int m = 0; m < mix; m++)
                dx[o[m]] += w[m] * dy[p];
    }
}

/* How the value of each channel at a point changes with coordinate `along`,
 * times dy. */
static double grid_grad_along(const grid_grad_job *job, int64_t item, int64_t p,
                              const sb_grid_axis *axes,
                              const float (*slope)[SB_GRID_TAPS], int along)
{
    const sb_grid_points *points = &job->points;
    int64_t first = item * job->n_channel;
    const float *x =
        (const float *)job->k->in[IN_X]->data + first * points->plane;
    const float *dy =
        (const float *)job->k->in[IN_DY]->data + first * points->n_points + p;
    double sum = 0;

    for (int m = 0; m < points->n_mix; m++) {
        int64_t offset = 0, stride = 1;
        float weight = 1;
        int rest = m;
        for (int i = points->n_axis - 1; i >= 0; i--) {
            int t = rest % points->c.taps;
            weight *= axes[i].index[t] < 0 ? 0
                      : i == along         ? slope[i][t]
                                           : axes[i].weight[t];
            offset += (axes[i].index[t] < 0 ? 0 : axes[i].index[t]) * stride;
            stride *= points->dims[i];
            rest /= points->c.taps;
        }
        for (int64_t c = 0; weight != 0 && c < job->n_channel; c++)
            sum += (double)(weight * x[c * points->plane + offset]) *
                   (double)dy[c * points->n_points];
    }
    return sum;
}

static void grid_grad_grid(void *arg, size_t begin, size_t end)
{
    const grid_grad_job *job = arg;
    const sb_grid_points *points = &job->points;
    int n = points->n_axis;

    for (size_t at = begin; at < end; at++) {
        const float *g = points->grid + at * (size_t)n;
        float *dg = (float *)job->k->out[1]->data + at * (size_t)n;
        int64_t item = (int64_t)at / points->n_points;
        sb_grid_axis axes[SB_GRID_AXES];
        float slope[SB_GRID_AXES][SB_GRID_TAPS];

        for (int i = 0; i < n; i++)
            sb_grid_taps(&points->c, g[n - 1 - i], points->dims[i], &axes[i],
                         slope[i]);
        for (int i = 0; i < n; i++)
            dg[n - 1 - i] = (float)grid_grad_along(
                job, item, (int64_t)at % points->n_points, axes,
                (const float(*)[SB_GRID_TAPS])slope, i);
    }
}

static sb_status grid_grad_forward(sb_kernel *k)
{
    const sb_tensor *x = k->in[IN_X], *grid = k->in[IN_GRID];
    grid_grad_job job = {.k = k, .n_channel = x->dims[1]};
    sb_grid_points *points = &job.points;

    for (uint32_t i = 0; i < k->n_out; i++)
        if (k->out[i])
            memset(k->out[i]->data, 0, sb_tensor_bytes(k->out[i]));
    if (sb_tensor_count(k->in[IN_DY]) == 0)
        return SB_OK;
    SB_TRY(sb_grid_open(k, x, grid, points));
    size_t n = (size_t)(x->dims[0] * points->n_points);
    sb_parallel_for(k->ctx, n, 256, sb_grid_table, points);
    if (sb_kernel_out(k, 0))
        sb_parallel_for(
            k->ctx, (size_t)(x->dims[0] * x->dims[1]),
            (size_t)(16384 / (points->n_points * points->n_mix) + 1),
            grid_grad_planes, &job);
    if (sb_kernel_out(k, 1))
        sb_parallel_for(k->ctx, n, 64, grid_grad_grid, &job);
    return SB_OK;
}

const sb_op_def sb_op_grid_sample_grad = {
    .name = "GridSampleGrad",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 3,
    .in_max = 3,
    .out_min = 1,
    .out_max = 2,
    .flags = SB_OP_F32,
    .attrs_size = sizeof(sb_grid_attrs),
    .attrs = attrs,
    .infer = grid_grad_infer,
    .prepare = grid_grad_prepare,
    .forward = grid_grad_forward,
};
