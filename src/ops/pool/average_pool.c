/* AveragePool: the mean of each window.
 *
 * count_include_pad divides by the window's taps that lie inside the padded
 * input; taps that ceil_mode adds beyond the pads never count. */
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/pool/pool.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    sb_window_attrs window;
    int64_t count_include_pad;
} average_pool_attrs;

static const sb_attr_def attrs[] = {
    SB_WINDOW_ATTRS,
    {"count_include_pad", SB_ATTR_INT,
     offsetof(average_pool_attrs, count_include_pad), .i = 0, .flag = true},
    {0},
};

static sb_status average_pool_infer(sb_infer *in)
{
    const average_pool_attrs *a = in->attrs;

    return sb_pool_infer(in, &a->window, 0, in->in[0]->type.dtype);
}

/* True if the last window of some dimension reaches beyond the high pad. */
static bool average_pool_overhangs(const sb_window *w)
{
    for (int i = 0; i < w->n; i++) {
        int64_t end = (w->out[i] - 1) * w->stride[i] +
                      (w->kernel[i] - 1) * w->dilation[i] + 1;
        if (end > w->in[i] + w->pad_lo[i] + w->pad_hi[i])
            return true;
    }
    return false;
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

int64_t sb_average_pool_divisor(const sb_pool_walk *walk, bool with_pad)
{
    return with_pad ? padded_taps(walk) : walk->inside;
}

static int64_t average_divisor(const sb_kernel *k, const sb_pool_walk *walk)
{
    const average_pool_attrs *a = k->attrs;

    return sb_average_pool_divisor(walk, a->count_include_pad);
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

/* ---- implementations ---------------------------------------------------- */

static sb_status average_last(sb_kernel *k)
{
    sb_pool_nhwc(k, average_divisor);
    return SB_OK;
}

static sb_status average_line(sb_kernel *k)
{
    sb_pool_1d(k, average_divisor);
    return SB_OK;
}

static sb_status average_planes(sb_kernel *k)
{
    sb_pool_planes(k, average_plane);
    return SB_OK;
}

/* oneDNN would count the overhang. */
static bool average_suits_onednn(const sb_kernel *k, const sb_pool_state *s)
{
    const average_pool_attrs *a = k->attrs;

    return sb_pool_suits_onednn(k, s) &&
           !(a->count_include_pad && average_pool_overhangs(&s->w));
}

static sb_status average_create_onednn(sb_kernel *k, sb_pool_state *s)
{
    const average_pool_attrs *a = k->attrs;

    return sb_pool_onednn_create(
        k, s, a->count_include_pad ? SB_DNN_POOL_AVG_PADDED : SB_DNN_POOL_AVG);
}

static const sb_pool_impl impls[] = {
    {"nhwc", sb_pool_suits_last, NULL, average_last},
    {"line", sb_pool_suits_line, NULL, average_line},
    {"onednn", average_suits_onednn, average_create_onednn, sb_pool_onednn_run},
    {"naive", NULL, NULL, average_planes},
};

static sb_status average_pool_prepare(sb_kernel *k)
{
    const average_pool_attrs *a = k->attrs;

    return sb_pool_prepare(k, &a->window, impls, SB_COUNT(impls));
}

const sb_op_def sb_op_average_pool = {
    .name = "AveragePool",
    .since = 7,
    .quant = SB_ROLE_SINGLE,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_HOMOGENEOUS,
    .attrs_size = sizeof(average_pool_attrs),
    .attrs = attrs,
    .batch = sb_batch_first,
    .infer = average_pool_infer,
    .layout = sb_pool_layout,
    .prepare = average_pool_prepare,
    .forward = sb_pool_forward,
    .grad = sb_grad_average_pool,
    .release = sb_pool_release,
    .tie = sb_tie_pool,
};
