/* FusedConv: activation(Conv(x, w, b) + z), or activation(Conv(x, w, b)) + z
 * with `sum_last`, in one pass over the output.
 *
 * Ours comes from the pass fuse_conv; com.microsoft's from ONNX Runtime's
 * optimizer.  The sum is oneDNN's: it adds to what the output holds, so the
 * output takes the place of z where the executor can arrange it. */
#include "ops/batch_rules.h"
#include "ops/conv/conv.h"
#include "ops/conv/epilogue.h"
#include "ops/tie/tie_rules.h"

#include <string.h>

typedef struct {
    sb_window_attrs window;
    int64_t group;
    sb_epilogue_op_attrs post;
} fused_conv_attrs;

static const sb_attr_def attrs[] = {
    SB_WINDOW_ATTRS,
    {"group", SB_ATTR_INT, offsetof(fused_conv_attrs, group), .i = 1},
    SB_POST_ATTRS(fused_conv_attrs, post),
    {0},
};

static sb_status fused_conv_infer(sb_infer *in)
{
    const fused_conv_attrs *a = in->attrs;
    const sb_fact *z = sb_infer_in(in, 3);

    SB_TRY(sb_conv_infer(in, &a->window, a->group));
    sb_shape sum = in->out[0].type.shape;
    if (z && z->type.shape.rank >= 0 && sum.rank >= 0 &&
        (!sb_shape_broadcast(&sum, &z->type.shape) ||
         sum.rank != z->type.shape.rank))
        return sb_infer_fail(in, "the addend does not have the output's shape");
    return SB_OK;
}

static void fused_conv_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    sb_conv_layout(k, in, out);
    if (sb_kernel_in(k, 3))
        in[3] = out[0];
}

static sb_status fused_conv_prepare(sb_kernel *k)
{
    const fused_conv_attrs *a = k->attrs;
    const sb_tensor *z = sb_kernel_in(k, 3);
    sb_epilogue posts;
    sb_conv conv;

    for (int i = 0; z && i < z->rank; i++)
        if (z->dims[i] != k->out[0]->dims[i])
            return sb_kernel_fail(k, SB_BAD_MODEL,
                                  "dimension %d of the addend is %lld, want "
                                  "%lld",
                                  i, (long long)z->dims[i],
                                  (long long)k->out[0]->dims[i]);
    SB_TRY(sb_epilogue_make(k, &a->post, z != NULL, &posts));
    SB_TRY(sb_conv_sizes(k, &a->window, a->group, &conv));
    return sb_conv_prepare(k, &conv, posts.post, posts.n);
}

static void fused_conv_label(const sb_kernel *k, char *out, size_t size)
{
    const fused_conv_attrs *a = k->attrs;

    sb_epilogue_label("Conv", &a->post, sb_kernel_in(k, 3) != NULL, out, size);
}

const sb_op_def sb_op_fused_conv = {
    .name = "FusedConv",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 2,
    .in_max = 4,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_INPLACE_SUM,
    .attrs_size = sizeof(fused_conv_attrs),
    .attrs = attrs,
    .batch = sb_batch_first,
    .infer = fused_conv_infer,
    .layout = fused_conv_layout,
    .prepare = fused_conv_prepare,
    .forward = sb_conv_forward,
    .release = sb_conv_release,
    .macs = sb_conv_macs,
    .label = fused_conv_label,
};

const sb_op_def sb_op_ms_fused_conv = {
    .name = "FusedConv",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 2,
    .in_max = 4,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_INPLACE_SUM,
    .attrs_size = sizeof(fused_conv_attrs),
    .attrs = attrs,
    .batch = sb_batch_first,
    .infer = fused_conv_infer,
    .layout = fused_conv_layout,
    .prepare = fused_conv_prepare,
    .forward = sb_conv_forward,
    .release = sb_conv_release,
    .macs = sb_conv_macs,
    .label = fused_conv_label,
    .tie = sb_tie_conv,
    .recut = sb_recut_conv,
};
