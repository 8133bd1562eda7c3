/* AveragePool: the mean of each window.
 *
 * count_include_pad divides by the window's taps that lie inside the padded
 * input; taps that ceil_mode adds beyond the pads never count. */
#include "ops/pool.h"

typedef struct {
    sb_window_attrs window;
    int64_t count_include_pad;
} average_pool_attrs;

static const sb_attr_def attrs[] = {
    SB_WINDOW_ATTRS,
    {"count_include_pad", SB_ATTR_INT,
     offsetof(average_pool_attrs, count_include_pad), .i = 0},
    {0},
};

static sb_status average_pool_infer(sb_infer *in)
{
    const average_pool_attrs *a = in->attrs;

    return sb_pool_infer(in, &a->window, 0, in->in[0]->type.dtype);
}

/* True if the last window of some dimension reaches beyond the high pad. */
static bool overhangs(const sb_window *w)
{
    for (int i = 0; i < w->n; i++) {
        int64_t end = (w->out[i] - 1) * w->stride[i] +
                      (w->kernel[i] - 1) * w->dilation[i] + 1;
        if (end > w->in[i] + w->pad_lo[i] + w->pad_hi[i])
            return true;
    }
    return false;
}

static sb_status average_pool_prepare(sb_kernel *k)
{
    const average_pool_attrs *a = k->attrs;
    sb_dnn_pool_kind kind =
        a->count_include_pad ? SB_DNN_POOL_AVG_PADDED : SB_DNN_POOL_AVG;

    SB_TRY(sb_pool_prepare(k, &a->window, &kind));
    sb_pool_state *s = k->state;
    if (s->dnn && a->count_include_pad && overhangs(&s->w)) {
        sb_dnn_pool_free(s->dnn); /* it would count the overhang */
        s->dnn = NULL;
        k->scratch_size = 0;
    }
    return SB_OK;
}

/* Taps inside the padded input. */
static int64_t padded_taps(const sb_pool_walk *walk)
{
    const sb_window *w = walk->w;
    int64_t count = 1;

    for (int i = 0; i < w->n; i++) {
        int64_t room = w->in[i] + w->pad_hi[i] - walk->start[i];
        int64_t fit = (room + w->dilation[i] - 1) / w->dilation[i];
        count *= fit < w->kernel[i] ? fit : w->kernel[i];
    }
    return count;
}

static int64_t average_divisor(const sb_kernel *k, const sb_pool_walk *walk)
{
    const average_pool_attrs *a = k->attrs;

    return a->count_include_pad ? padded_taps(walk) : walk->inside;
}

static void average_plane(const sb_kernel *k, const sb_pool_state *s,
                          int64_t plane)
{
    const float *x = (const float *)k->in[0]->data + plane * s->w.in_count;
    float *y = (float *)k->out[0]->data + plane * s->w.out_count;
    sb_pool_walk walk;

    sb_pool_walk_begin(&walk, &s->w);
    do {
        double sum = 0;
        int64_t count = average_divisor(k, &walk);
        for (int64_t t = sb_pool_tap_first(&walk); t >= 0;
             t = sb_pool_tap_next(&walk))
            sum += (double)x[t];
        *y++ = count > 0 ? (float)(sum / (double)count) : 0;
    } while (sb_pool_walk_next(&walk));
}

static sb_status average_pool_forward(sb_kernel *k)
{
    sb_pool_state *s = k->state;

    if (s->dnn)
        return sb_dnn_pool_run(s->dnn, k->in[0]->data, k->out[0]->data,
                               k->scratch);
    if (k->in[0]->layout == SB_LAYOUT_CHANNELS_LAST)
        sb_pool_last(k, average_divisor);
    else if (s->w.n == 1)
        sb_pool_line(k, average_divisor);
    else
        sb_pool_planes(k, average_plane);
    return SB_OK;
}

const sb_op_def sb_op_average_pool = {
    .name = "AveragePool",
    .since = 7,
    .quant = SB_ROLE_SINGLE,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .attrs_size = sizeof(average_pool_attrs),
    .attrs = attrs,
    .infer = average_pool_infer,
    .layout = sb_pool_layout,
    .prepare = average_pool_prepare,
    .forward = average_pool_forward,
    .release = sb_pool_release,
};
