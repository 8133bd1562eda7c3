/* mobilenetv2 (arXiv 1801.04381): inverted residual blocks, each a 1x1
 * convolution to more channels, a depthwise 3x3 one, and a 1x1 one back. */
#include "nets/net.h"

#include "base/ctx.h"

/* expansion, channels, blocks, stride of the first: table 2 of the paper */
static const struct {
    int64_t expand, channels;
    int blocks;
    int64_t stride;
} stages[] = {
    {1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2},  {6, 64, 4, 2},
    {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1},
};

/* Convolution, norm and ReLU6: items 0 and 1 of a list, and its own item 2. */
static sb_value_id mobile_conv(sb_net *n, sb_value_id x, const char *path,
                               const sb_net_conv_spec *spec)
{
    x = sb_net_conv(n, x, sb_net_path(n, path, "0"), spec);
    x = sb_net_norm(n, x, sb_net_path(n, path, "1"), spec->out);
    const char *act = sb_net_path(n, path, "2");
    sb_value_id lo = sb_net_scalar(n, sb_net_path(n, act, "min"), 0);
    sb_value_id hi = sb_net_scalar(n, sb_net_path(n, act, "max"), 6);
    return sb_net_op3(n, "Clip", act, x, lo, hi, NULL);
}

static sb_value_id mobile_block(sb_net *n, sb_value_id x, const char *path,
                                int64_t in, int64_t out, int64_t expand,
                                int64_t stride)
{
    int64_t wide = in * expand;
    sb_value_id y = x;
    int at = 0;

    if (expand != 1)
        y = mobile_conv(n, y, sb_net_pathf(n, "%s.conv.%d", path, at++),
                        &(sb_net_conv_spec){in, wide, 1, 0, 0});
    y = mobile_conv(n, y, sb_net_pathf(n, "%s.conv.%d", path, at++),
                    &(sb_net_conv_spec){wide, wide, 3, stride, wide});
    y = sb_net_conv(n, y, sb_net_pathf(n, "%s.conv.%d", path, at++),
                    &(sb_net_conv_spec){wide, out, 1, 0, 0});
    y = sb_net_norm(n, y, sb_net_pathf(n, "%s.conv.%d", path, at), out);
    return stride == 1 && in == out ? sb_net_op2(n, "Add", path, x, y, NULL)
                                    : y;
}

static sb_value_id mobilenetv2_build(sb_net *n, sb_value_id x)
{
    int64_t in = 32, last = 1280;
    int at = 0;

    x = mobile_conv(n, x, sb_net_pathf(n, "features.%d", at++),
                    &(sb_net_conv_spec){n->size.channels, in, 3, 2, 0});
    for (size_t s = 0; s < SB_COUNT(stages); s++)
        for (int b = 0; b < stages[s].blocks; b++) {
            x = mobile_block(n, x, sb_net_pathf(n, "features.%d", at++), in,
                             stages[s].channels, stages[s].expand,
                             b == 0 ? stages[s].stride : 1);
            in = stages[s].channels;
        }
    x = mobile_conv(n, x, sb_net_pathf(n, "features.%d", at),
                    &(sb_net_conv_spec){in, last, 1, 0, 0});
    x = sb_net_op1(n, "GlobalAveragePool", "avgpool", x, NULL);
    x = sb_net_op1(n, "Flatten", "flatten", x, NULL);
    return sb_net_linear(n, x, "classifier.1", last, n->size.classes);
}

const sb_net_def sb_net_mobilenetv2 = {
    .name = "mobilenetv2",
    .summary = "inverted residual blocks with depthwise convolutions",
    .size = {3, 224, 224, 1000},
    .multiple = 1,
    .build = mobilenetv2_build,
};
