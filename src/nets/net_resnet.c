/* Residual networks (arXiv 1512.03385) of blocks with two 3x3 convolutions.
 *
 * resnet20 is the one for CIFAR-10: three stages of 16, 32 and 64 channels on
 * images of 32x32.  resnet18 is the one for ImageNet.  Where a block changes
 * the number of channels, a 1x1 convolution adapts what is added. */
#include "nets/net.h"

static sb_value_id resnet_conv_norm(sb_net *n, sb_value_id x, const char *conv,
                                    const char *norm,
                                    const sb_net_conv_spec *spec)
{
    return sb_net_norm(n, sb_net_conv(n, x, conv, spec), norm, spec->out);
}

static sb_value_id resnet_block(sb_net *n, sb_value_id x, const char *path,
                                int64_t in, int64_t out, int64_t stride)
{
    sb_value_id y = resnet_conv_norm(
        n, x, sb_net_path(n, path, "conv1"), sb_net_path(n, path, "bn1"),
        &(sb_net_conv_spec){in, out, 3, stride, 0});

    y = sb_net_op1(n, "Relu", sb_net_path(n, path, "relu1"), y, NULL);
    y = resnet_conv_norm(n, y, sb_net_path(n, path, "conv2"),
                         sb_net_path(n, path, "bn2"),
                         &(sb_net_conv_spec){out, out, 3, 0, 0});
    if (in != out || stride != 1)
        x = resnet_conv_norm(n, x, sb_net_path(n, path, "downsample.0"),
                             sb_net_path(n, path, "downsample.1"),
                             &(sb_net_conv_spec){in, out, 1, stride, 0});
    y = sb_net_op2(n, "Add", path, y, x, NULL);
    return sb_net_op1(n, "Relu", sb_net_path(n, path, "relu2"), y, NULL);
}

/* Stages of `blocks` blocks; each but the first halves the image and doubles
 * the channels. */
static sb_value_id resnet_stages(sb_net *n, sb_value_id x, int stages,
                                 int blocks, int64_t channels)
{
    int64_t in = channels;

    for (int s = 0; s < stages; s++)
        for (int b = 0; b < blocks; b++) {
            int64_t out = channels << s;

            x = resnet_block(n, x, sb_net_pathf(n, "layer%d.%d", s + 1, b), in,
                             out, s > 0 && b == 0 ? 2 : 1);
            in = out;
        }
    x = sb_net_op1(n, "GlobalAveragePool", "avgpool", x, NULL);
    x = sb_net_op1(n, "Flatten", "flatten", x, NULL);
    return sb_net_linear(n, x, "fc", in, n->size.classes);
}

static sb_value_id resnet20_build(sb_net *n, sb_value_id x)
{
    x = resnet_conv_norm(n, x, "conv1", "bn1",
                         &(sb_net_conv_spec){n->size.channels, 16, 3, 0, 0});
    x = sb_net_op1(n, "Relu", "relu", x, NULL);
    return resnet_stages(n, x, 3, 3, 16);
}

static sb_value_id resnet18_build(sb_net *n, sb_value_id x)
{
    x = resnet_conv_norm(n, x, "conv1", "bn1",
                         &(sb_net_conv_spec){n->size.channels, 64, 7, 2, 0});
    x = sb_net_op1(n, "Relu", "relu", x, NULL);
    x = sb_net_op1(n, "MaxPool", "maxpool", x,
                   "kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]");
    return resnet_stages(n, x, 4, 2, 64);
}

const sb_net_def sb_net_resnet18 = {
    .name = "resnet18",
    .summary = "residual network of 18 layers, for photographs",
    .size = {3, 224, 224, 1000},
    .multiple = 1,
    .build = resnet18_build,
};

const sb_net_def sb_net_resnet20 = {
    .name = "resnet20",
    .summary = "residual network of 20 layers, for small images",
    .size = {3, 32, 32, 10},
    .multiple = 1,
    .build = resnet20_build,
};
