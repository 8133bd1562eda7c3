/* GridSample: reads an image (or volume) at given places in [-1, 1].
 *
 * Each axis turns its coordinate into 1, 2 or 4 taps (nearest, linear, cubic):
 * an index and a weight.  What lies outside is 0, the border, or the mirror
 * image; an index of -1 reads as 0.  The value is the sum over all
 * combinations of taps, which are tabulated once and serve every channel. */
#include "ops/image/grid_sample.h"

#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"
#include "ops/tie/tie_rules.h"

static const sb_attr_def attrs[] = {
    {"mode", SB_ATTR_STRING, offsetof(sb_grid_attrs, mode), .s = "linear"},
    {"padding_mode", SB_ATTR_STRING, offsetof(sb_grid_attrs, padding),
     .s = "zeros"},
    {"align_corners", SB_ATTR_INT, offsetof(sb_grid_attrs, align_corners),
     .i = 0, .flag = true},
    {0},
};

/* Opset 16 called them bilinear and bicubic. */
bool sb_grid_config_of(const sb_grid_attrs *a, sb_grid_config *c)
{
    static const struct {
        const char *name;
        int taps;
    } modes[] = {{"nearest", 1},
                 {"linear", 2},
                 {"bilinear", 2},
                 {"cubic", 4},
                 {"bicubic", 4}};
    static const char *const paddings[] = {"zeros", "border", "reflection"};
    bool known = false;

    *c = (sb_grid_config){.align = a->align_corners != 0};
    for (size_t i = 0; i < SB_COUNT(modes); i++)
        if (strcmp(a->mode, modes[i].name) == 0)
            c->taps = modes[i].taps;
    for (size_t i = 0; i < SB_COUNT(paddings); i++)
        if (strcmp(a->padding, paddings[i]) == 0) {
            c->padding = (sb_grid_padding)i;
            known = true;
        }
    return c->taps && known;
}

static sb_status grid_infer(sb_infer *in)
{
    const sb_shape *x = &in->in[0]->type.shape, *g = &in->in[1]->type.shape;
    const sb_grid_attrs *a = in->attrs;
    sb_grid_config c;
    int rank = x->rank >= 0 ? x->rank : g->rank;

    in->out[0].type.dtype = in->in[0]->type.dtype;
    if (!sb_grid_config_of(a, &c))
        return sb_infer_fail(in, "mode '%s' with padding '%s'", a->mode,
                             a->padding);
    if (rank < 0)
        return SB_OK;
    if (rank < 3 || (g->rank >= 0 && g->rank != rank) ||
        (x->rank >= 0 && g->rank == rank && sb_dim_known(g->dim[rank - 1]) &&
         g->dim[rank - 1] != rank - 2))
        return sb_infer_fail(in, "an input of rank %d and a grid of rank %d",
                             x->rank, g->rank);
    if (x->rank >= 0 && g->rank >= 0 && sb_dim_known(x->dim[0]) &&
        sb_dim_known(g->dim[0]) && x->dim[0] != g->dim[0])
        return sb_infer_fail(in, "batch of %lld, grid of %lld",
                             (long long)x->dim[0], (long long)g->dim[0]);
    sb_shape out = sb_shape_of_rank(rank);
    if (x->rank >= 0) {
        out.dim[0] = x->dim[0];
        out.dim[1] = x->dim[1];
    }
    for (int i = 2; i < rank && g->rank >= 0; i++)
        out.dim[i] = g->dim[i - 1];
    sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
    return SB_OK;
}

/* ---- one axis ----------------------------------------------------------- */

/* The mirror image of x in [lo, hi]; `turned`: it moves against x. */
static float grid_sample_mirror(float x, float lo, float hi, bool *turned)
{
    float range = hi - lo;

    *turned = false;
    if (!(range > 0))
        return lo;
    float period = 2 * range, m = fmodf(x - lo, period);
    m = m < 0 ? m + period : m;
    *turned = m > range;
    return lo + (*turned ? period - m : m);
}

static float grid_sample_reflect(float x, float lo, float hi)
{
    bool turned;

    return grid_sample_mirror(x, lo, hi, &turned);
}

static int64_t tap_index(const sb_grid_config *c, float x, int64_t n)
{
    float last = (float)(n - 1);

    if (c->padding == SB_GRID_REFLECT && !(x >= 0 && x <= last))
        x = c->align ? grid_sample_reflect(x, 0, last)
                     : grid_sample_reflect(x, -0.5f, last + 0.5f);
    if (c->padding == SB_GRID_ZEROS && !(x >= 0 && x <= last))
        return -1;
    return x >= 0 ? (x < last ? (int64_t)x : n - 1) : 0; /* NaN: 0 */
}

/* Cubic convolution with a = -0.75 at distance d. */
static float grid_sample_cubic(float d)
{
    const float a = -0.75f;

    d = fabsf(d);
    return d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1
                  : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
}

/* The derivative of that. */
static float grid_sample_cubic_slope(float d)
{
    const float a = -0.75f;
    float e = fabsf(d);
    float s = e <= 1 ? (3 * (a + 2) * e - 2 * (a + 3)) * e
                     : (3 * a * e - 10 * a) * e + 8 * a;

    return d < 0 ? -s : s;
}

/* Where along an axis coordinate g is, and how fast that changes with g. */
static float grid_sample_place(const sb_grid_config *c, float g, int64_t n,
                               float *speed)
{
    float len = (float)n;
    float x = c->align ? (g + 1) / 2 * (len - 1) : ((g + 1) * len - 1) / 2;
    float lo = c->align ? 0 : -0.5f, hi = c->align ? len - 1 : len - 0.5f;
    bool turned;

    *speed = c->align ? (len - 1) / 2 : len / 2;
    if (c->taps == 1) {
        x = nearbyintf(x);
        *speed = 0;
    }
    /* Cubic pads each tap by itself: the curve goes on past the border. */
    if (c->taps == 4 || (x >= lo && x <= hi))
        return x;
    if (c->padding == SB_GRID_BORDER) {
        *speed = 0;
        return x > 0 ? len - 1 : 0;
    }
    if (c->padding == SB_GRID_REFLECT) {
        x = grid_sample_mirror(x, lo, hi, &turned);
        *speed = turned ? -*speed : *speed;
    }
    return x;
}

void sb_grid_taps(const sb_grid_config *c, float g, int64_t n,
                  sb_grid_axis *out, float *slope)
{
    float speed, x = grid_sample_place(c, g, n, &speed);

    if (c->taps == 1) {
        out->index[0] = tap_index(c, x, n);
        out->weight[0] = 1;
        if (slope)
            slope[0] = 0;
        return;
    }
    float left = floorf(x), part = x - left;
    for (int t = 0; t < c->taps; t++) {
        float place = (float)(t - (c->taps == 4));
        out->index[t] = tap_index(c, left + place, n);
        out->weight[t] = c->taps == 4 ? grid_sample_cubic(part - place)
                         : t          ? part
                                      : 1 - part;
        if (slope)
            slope[t] =
                speed * (c->taps == 4 ? grid_sample_cubic_slope(part - place)
                         : t          ? 1
                                      : -1);
    }
}

/* ---- all points ---------------------------------------------------------- */

void sb_grid_table(void *arg, size_t begin, size_t end)
{
    const sb_grid_points *points = arg;
    int taps = points->c.taps, n_mix = points->n_mix;

    for (size_t point = begin; point < end; point++) {
        const float *g = points->grid + point * (size_t)points->n_axis;
        sb_grid_axis axes[SB_GRID_AXES];
        for (int i = 0; i < points->n_axis; i++) /* x first in the grid */
            sb_grid_taps(&points->c, g[points->n_axis - 1 - i], points->dims[i],
                         &axes[i], NULL);
        for (int m = 0; m < n_mix; m++) {
            int64_t offset = 0, stride = 1;
            float weight = 1;
            int rest = m;
            for (int i = points->n_axis - 1; i >= 0; i--) {
                int64_t at = axes[i].index[rest % taps];
                weight = at < 0 ? 0 : weight * axes[i].weight[rest % taps];
                offset += (at < 0 ? 0 : at) * stride;
                stride *= points->dims[i];
                rest /= taps;
            }
            points->offset[point * (size_t)n_mix + (size_t)m] = offset;
            points->weight[point * (size_t)n_mix + (size_t)m] = weight;
        }
    }
}

sb_status sb_grid_scratch(const sb_kernel *k, const sb_tensor *x,
                          const sb_tensor *grid, size_t *bytes)
{
    size_t n = 1;
    sb_grid_config c;

    if (x->dtype != SB_DTYPE_F32 || grid->dtype != SB_DTYPE_F32)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "elements of type %s",
                              sb_dtype_name(x->dtype));
    if (x->rank - 2 > SB_GRID_AXES)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "%d axes, at most %d",
                              x->rank - 2, SB_GRID_AXES);
    (void)sb_grid_config_of(k->attrs, &c);
    for (int i = 2; i < x->rank; i++)
        n *= (size_t)c.taps;
    if (!sb_mul_size(n, (size_t)sb_dims_product(grid->dims, 0, grid->rank - 1),
                     &n) ||
        !sb_mul_size(n, sizeof(int64_t) + sizeof(float), bytes))
        return sb_kernel_fail(k, SB_NO_MEMORY, "too many points");
    return SB_OK;
}

sb_status sb_grid_open(const sb_kernel *k, const sb_tensor *x,
                       const sb_tensor *grid, sb_grid_points *out)
{
    *out = (sb_grid_points){.n_axis = x->rank - 2,
                            .n_mix = 1,
                            .n_points =
                                sb_dims_product(grid->dims, 1, grid->rank - 1),
                            .plane = sb_dims_product(x->dims, 2, x->rank),
                            .dims = x->dims + 2,
                            .grid = grid->data};
    (void)sb_grid_config_of(k->attrs, &out->c);
    if (out->plane == 0)
        return sb_kernel_fail(k, SB_BAD_DATA, "the image is empty");
    for (int i = 0; i < out->n_axis; i++)
        out->n_mix *= out->c.taps;
    size_t n = (size_t)(grid->dims[0] * out->n_points);
    out->offset = k->scratch;
    out->weight = (float *)(void *)(out->offset + n * (size_t)out->n_mix);
    return SB_OK;
}

/* ---- running --------------------------------------------------------------- */

typedef struct {
    const sb_kernel *k;
    sb_grid_points points;
} grid_job;

/* An item is one channel of one image. */
static void grid_channels(void *arg, size_t begin, size_t end)
{
    const grid_job *job = arg;
    const sb_grid_points *points = &job->points;
    int64_t n_channel = job->k->in[0]->dims[1], n = points->n_points;
    int mix = points->n_mix;

    for (size_t item = begin; item < end; item++) {
        int64_t first = (int64_t)item / n_channel * n * mix;
        const float *x =
            (const float *)job->k->in[0]->data + (int64_t)item * points->plane;
        float *y = (float *)job->k->out[0]->data + (int64_t)item * n;
        const int64_t *o = points->offset + first;
        const float *w = points->weight + first;
        if (mix == 4) {
            for (int64_t p = 0; p < n; p++, o += 4, w += 4)
                y[p] = w[0] * x[o[0]] + w[1] * x[o[1]] + w[2] * x[o[2]] +
                       w[3] * x[o[3]];
            continue;
        }
        for (int64_t p = 0; p < n; p++, o += mix, w += mix) {
            float sum = 0;
            for (int m = 0; m < mix; m++)
                sum += w[m] * x[o[m]];
            y[p] = sum;
        }
    }
}

static sb_status grid_prepare(sb_kernel *k)
{
    return sb_grid_scratch(k, k->in[0], k->in[1], &k->scratch_size);
}

static sb_status grid_forward(sb_kernel *k)
{
    const sb_tensor *y = k->out[0];
    grid_job job = {.k = k};
    sb_grid_points *points = &job.points;

    if (sb_tensor_count(y) == 0)
        return SB_OK;
    SB_TRY(sb_grid_open(k, k->in[0], k->in[1], points));
    sb_parallel_for(k->ctx, (size_t)(y->dims[0] * points->n_points), 256,
                    sb_grid_table, points);
    sb_parallel_for(k->ctx, (size_t)(y->dims[0] * y->dims[1]),
                    (size_t)(16384 / (points->n_points * points->n_mix) + 1),
                    grid_channels, &job);
    return SB_OK;
}

const sb_op_def sb_op_grid_sample = {
    .name = "GridSample",
    .since = 20,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .attrs_size = sizeof(sb_grid_attrs),
    .attrs = attrs,
    .batch = sb_batch_first,
    .infer = grid_infer,
    .prepare = grid_prepare,
    .forward = grid_forward,
    .grad = sb_grad_grid_sample,
    .tie = sb_tie_pool,
};
