/* com.microsoft QLinearAveragePool and QLinearGlobalAveragePool.
 *
 * As in ONNX Runtime the window sum of the first is in float32 over dequantized
 * elements, row by row:
 *
 *     y = saturate(round_half_even(mean / y_scale + y_zero))
 *
 * The global one sums integers exactly:
 *
 *     y = saturate(round_half_even(sum(x - x_zero) *
 *                                  (x_scale / (y_scale * count))) + y_zero)
 *
 * Layout is [N, C, ...], or [N, ..., C] with channels_last. */
#include <string.h>

#include "base/threads.h"
#include "ops/int8/int8_conv.h"

enum { X, X_SCALE, X_ZERO, Y_SCALE, Y_ZERO };

typedef struct qpool_attrs {
    sb_int8_conv_attrs window;
    int64_t ceil_mode, count_include_pad, channels_last;
} qpool_attrs;

#define ATTR(field) offsetof(qpool_attrs, field)

static const sb_attr_def qpool_attr_defs[] = {
    {.name = "auto_pad", SB_ATTR_STRING, ATTR(window.auto_pad), .s = "NOTSET"},
    {.name = "ceil_mode", SB_ATTR_INT, ATTR(ceil_mode), .flag = true},
    {.name = "channels_last", SB_ATTR_INT, ATTR(channels_last), .flag = true},
    {.name = "count_include_pad",
     SB_ATTR_INT,
     ATTR(count_include_pad),
     .flag = true},
    {.name = "dilations", SB_ATTR_INTS, ATTR(window.dilations)},
    {.name = "kernel_shape",
     SB_ATTR_INTS,
     ATTR(window.kernel_shape),
     .required = true},
    {.name = "pads", SB_ATTR_INTS, ATTR(window.pads)},
    {.name = "strides", SB_ATTR_INTS, ATTR(window.strides)},
    {0},
};

static const sb_attr_def qglobal_attr_defs[] = {
    {.name = "channels_last", SB_ATTR_INT, ATTR(channels_last), .flag = true},
    {0},
};

static sb_status qpool_check(sb_kernel *k)
{
    SB_TRY(sb_byte_check(k, X));
    SB_TRY(sb_qparam_check(k, X_SCALE, X_ZERO, k->in[X]->dtype));
    return sb_qparam_check(k, Y_SCALE, Y_ZERO, k->in[X]->dtype);
}

/* Pixels come one after another, of whatever channels-last there is. */
static bool qpool_last(const sb_kernel *k)
{
    const qpool_attrs *a = k->attrs;

    return a->channels_last || k->in[X]->layout == SB_LAYOUT_CHANNELS_LAST;
}

static void qpool_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    const qpool_attrs *a = k->attrs;

    if (a->channels_last || k->in[X]->layout != SB_LAYOUT_CHANNELS_LAST)
        return;
    in[X] = out[0] = SB_LAYOUT_CHANNELS_LAST;
}

/* The dimension that holds channels, and the first that does not. */
static int channel_dim(const sb_kernel *k)
{
    const qpool_attrs *a = k->attrs;

    return a->channels_last ? k->in[X]->rank - 1 : 1;
}

/* ---- the global pool ---------------------------------------------------- */

static sb_status qglobal_infer(sb_infer *in)
{
    const qpool_attrs *a = in->attrs;
    sb_shape out = in->in[X]->type.shape;

    if (out.rank >= 0 && out.rank < 3)
        return sb_infer_fail(in, "input has rank %d, want 3 or more", out.rank);
    for (int d = 0; d < out.rank - 2; d++)
        out.dim[a->channels_last ? d + 1 : d + 2] = 1;
    sb_infer_set(in, 0, in->in[X]->type.dtype, &out);
    return SB_OK;
}

typedef struct qglobal_job {
    const sb_tensor *x;
    uint8_t *y;
    int64_t n_channel, n_pixel, channel_step;
    sb_qparam in, out;
} qglobal_job;

enum { PIECE = 64 }; /* channels of one item */

/* Sums of `n` channels from element `at` on, less zero points. */
SB_HOT static void qglobal_sums(const qglobal_job *j, int64_t at, int64_t n,
                                int64_t *sum)
{
    memset(sum, 0, PIECE * sizeof *sum);
    for (int64_t p = 0; p < j->n_pixel && j->channel_step == 1; p++) {
        const uint8_t *x = (const uint8_t *)j->x->data + at + p * j->n_channel;

        if (j->x->dtype == SB_DTYPE_I8)
            for (int64_t c = 0; c < n; c++)
                sum[c] += (int8_t)x[c];
        else
            for (int64_t c = 0; c < n; c++)
                sum[c] += x[c];
    }
    for (int64_t c = 0; c < n && j->channel_step != 1; c++)
        for (int64_t p = 0; p < j->n_pixel; p++)
            sum[c] += sb_byte_at(j->x, at + c * j->channel_step + p);
    for (int64_t c = 0; c < n; c++)
        sum[c] -= j->in.zero * j->n_pixel;
}

static void qglobal_range(void *arg, size_t begin, size_t end)
{
    const qglobal_job *j = arg;
    sb_dtype dtype = j->x->dtype;
    float scale = j->in.scale / (j->out.scale * (float)j->n_pixel);
    float lo = (float)(sb_quant_min(dtype) - j->out.zero);
    float hi = (float)(sb_quant_max(dtype) - j->out.zero);
    int64_t n_piece = (j->n_channel + PIECE - 1) / PIECE;

    for (size_t i = begin; i < end; i++) {
        int64_t image = (int64_t)i / n_piece, c = (int64_t)i % n_piece * PIECE;
        int64_t n = j->n_channel - c < PIECE ? j->n_channel - c : PIECE;
        uint8_t *y = j->y + image * j->n_channel + c;
        int64_t sum[PIECE];

        qglobal_sums(j, image * j->n_channel * j->n_pixel + c * j->channel_step,
                     n, sum);
        for (int64_t m = 0; m < n; m++)
            y[m] = (uint8_t)(sb_round_clamp((float)sum[m] * scale, lo, hi) +
                             j->out.zero);
    }
}

static sb_status qglobal_forward(sb_kernel *k)
{
    const sb_tensor *x = k->in[X];
    bool last = qpool_last(k);
    int64_t n_channel = x->dims[channel_dim(k)];
    qglobal_job job = {
        .x = x,
        .y = k->out[0]->data,
        .n_channel = n_channel,
        .n_pixel = sb_dims_product(x->dims, 1, x->rank) /
                   (n_channel > 0 ? n_channel : 1),
        .in = sb_qparam_read(k, X_SCALE, X_ZERO),
        .out = sb_qparam_read(k, Y_SCALE, Y_ZERO),
    };

    job.channel_step = last ? 1 : job.n_pixel;
    sb_parallel_for(
        k->ctx, (size_t)(x->dims[0] * ((job.n_channel + PIECE - 1) / PIECE)), 4,
        qglobal_range, &job);
    return SB_OK;
}

/* ---- the sliding pool --------------------------------------------------- */

static sb_status qpool_infer(sb_infer *in)
{
    const qpool_attrs *a = in->attrs;
    const sb_shape *x = &in->in[X]->type.shape;
    sb_shape out = *x;
    size_t n = (size_t)(x->rank - 2);

    if (x->rank < 0) {
        sb_infer_set(in, 0, in->in[X]->type.dtype, &out);
        return SB_OK;
    }
    if (x->rank < 3 || !sb_int8_conv_lengths_fit(&a->window, n))
        return sb_infer_fail(in, "attributes do not fit input of rank %d",
                             x->rank);
    for (size_t d = 0; d < n; d++) {
        size_t at = a->channels_last ? d + 1 : d + 2;
        sb_axis_window w = {.kernel = a->window.kernel_shape.v[d],
                            .ceil = a->ceil_mode != 0};

        out.dim[at] = SB_DIM_UNKNOWN;
        if (!sb_dim_known(x->dim[at]))
            continue;
        const char *wrong =
            sb_int8_axis_window(&a->window, n, d, x->dim[at], &w);
        if (wrong)
            return sb_infer_fail(in, "%s", wrong);
        out.dim[at] = w.out;
    }
    sb_infer_set(in, 0, in->in[X]->type.dtype, &out);
    return SB_OK;
}

typedef struct qpool_job {
    const sb_tensor *x;
    uint8_t *y;
    int64_t n_channel;
    int64_t in_dim[3];
    sb_axis_window w[3];
    int64_t channel_step, pixel_step, image_step, y_channel_step, y_pixel_step,
        y_image_step;
    sb_qparam in, out;
    bool include_pad;
} qpool_job;

/* Input range of output position `o` along one axis. */
static void window_range(const sb_axis_window *w, int64_t n, int64_t o,
                         int64_t *begin, int64_t *end)
{
    *begin = o * w->stride - w->pad;
    *end = *begin + w->kernel < n ? *begin + w->kernel : n;
    *begin = *begin > 0 ? *begin : 0;
}

/* One output element of the channel that starts at element `at`. */
static uint8_t pool_pixel(const qpool_job *j, int64_t at, const int64_t o[3])
{
    int64_t begin[3], end[3], count = 1;
    float sum = 0;

    for (int d = 0; d < 3; d++) {
        window_range(&j->w[d], j->in_dim[d], o[d], &begin[d], &end[d]);
        count *= j->include_pad ? j->w[d].kernel : end[d] - begin[d];
    }
    for (int64_t z = begin[0]; z < end[0]; z++)
        for (int64_t y = begin[1]; y < end[1]; y++)
            for (int64_t x = begin[2]; x < end[2]; x++) {
                int64_t p = (z * j->in_dim[1] + y) * j->in_dim[2] + x;

                sum += j->in.scale *
                       (float)(sb_byte_at(j->x, at + p * j->pixel_step) -
                               j->in.zero);
            }
    sb_dtype dtype = j->x->dtype;
    return (uint8_t)sb_round_clamp(
        sum / (float)count / j->out.scale + (float)j->out.zero,
        (float)sb_quant_min(dtype), (float)sb_quant_max(dtype));
}

static void qpool_range(void *arg, size_t begin, size_t end)
{
    const qpool_job *j = arg;

    for (size_t i = begin; i < end; i++) {
        int64_t image = (int64_t)i / j->n_channel,
                c = (int64_t)i % j->n_channel;
        int64_t at = image * j->image_step + c * j->channel_step;
        uint8_t *y = j->y + image * j->y_image_step + c * j->y_channel_step;
        int64_t o[3];

        for (o[0] = 0; o[0] < j->w[0].out; o[0]++)
            for (o[1] = 0; o[1] < j->w[1].out; o[1]++)
                for (o[2] = 0; o[2] < j->w[2].out; o[2]++) {
                    *y = pool_pixel(j, at, o);
                    y += j->y_pixel_step;
                }
    }
}

static sb_status qpool_prepare(sb_kernel *k)
{
    const qpool_attrs *a = k->attrs;

    for (size_t i = 0; i < a->window.dilations.n; i++)
        if (a->window.dilations.v[i] != 1)
            return sb_kernel_fail(k, SB_UNSUPPORTED, "dilations are not 1");
    if (k->in[X]->rank < 3 || k->in[X]->rank > 5)
        return sb_kernel_fail(k, SB_UNSUPPORTED,
                              "input has rank %d, want 3 to 5", k->in[X]->rank);
    return qpool_check(k);
}

static sb_status qpool_forward(sb_kernel *k)
{
    const qpool_attrs *a = k->attrs;
    const sb_tensor *x = k->in[X];
    bool last = qpool_last(k);
    int n = x->rank - 2, skip = 3 - n;
    qpool_job job = {
        .x = x,
        .y = k->out[0]->data,
        .n_channel = x->dims[channel_dim(k)],
        .in = sb_qparam_read(k, X_SCALE, X_ZERO),
        .out = sb_qparam_read(k, Y_SCALE, Y_ZERO),
        .include_pad = a->count_include_pad != 0,
    };
    int64_t n_in = 1, n_out = 1;

    for (int d = 0; d < 3; d++) {
        sb_axis_window w = {1, 1, 1, 0, 1, a->ceil_mode != 0};

        job.in_dim[d] = 1;
        if (d >= skip) {
            size_t at = (size_t)(d - skip);

            job.in_dim[d] = x->dims[at + (a->channels_last ? 1 : 2)];
            w.kernel = a->window.kernel_shape.v[at];
            /* infer() has seen these numbers and found them right */
            (void)sb_int8_axis_window(&a->window, (size_t)n, at, job.in_dim[d],
                                      &w);
        }
        job.w[d] = w;
        n_in *= job.in_dim[d];
        n_out *= w.out;
    }
    job.image_step = job.n_channel * n_in;
    job.y_image_step = job.n_channel * n_out;
    job.channel_step = last ? 1 : n_in;
    job.y_channel_step = last ? 1 : n_out;
    job.pixel_step = job.y_pixel_step = last ? job.n_channel : 1;
    sb_parallel_for(k->ctx, (size_t)(x->dims[0] * job.n_channel), 8,
                    qpool_range, &job);
    return SB_OK;
}

const sb_op_def sb_op_ms_qlinear_average_pool = {
    .name = "QLinearAveragePool",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 4,
    .in_max = 5,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INTEGER,
    .attrs_size = sizeof(qpool_attrs),
    .attrs = qpool_attr_defs,
    .infer = qpool_infer,
    .layout = qpool_layout,
    .prepare = qpool_prepare,
    .forward = qpool_forward,
};

const sb_op_def sb_op_ms_qlinear_global_average_pool = {
    .name = "QLinearGlobalAveragePool",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 4,
    .in_max = 5,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INTEGER,
    .attrs_size = sizeof(qpool_attrs),
    .attrs = qglobal_attr_defs,
    .infer = qglobal_infer,
    .layout = qpool_layout,
    .prepare = qpool_check,
    .forward = qglobal_forward,
};
