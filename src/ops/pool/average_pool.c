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

/* ---- implementations ---------------------------------------------------- */

static sb_status average_last(sb_kernel *k)
{
    sb_pool_nhwc(k, average_divisor);
    return SB_OK;
}

static sb_status average_line(sb_kernel *k)
{
    sb_pool_lines(k, average_divisor);
    return SB_OK;
}

static const sb_pool_impl impls[] = {
    {"nhwc", sb_pool_suits_last, average_last},
    {"line", NULL, average_line},
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
