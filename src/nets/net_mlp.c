/* mlp: three fully connected layers with ReLU between them. */
#include "nets/net.h"

static sb_value_id mlp_build(sb_net *n, sb_value_id x)
{
    const sb_net_size *s = &n->size;
    const int64_t widths[] = {s->channels * s->height * s->width, 512, 256,
                              s->classes};

    x = sb_net_op1(n, "Flatten", "flatten", x, NULL);
    for (int i = 0; i < 3; i++) {
        x = sb_net_linear(n, x, sb_net_pathf(n, "fc%d", i + 1), widths[i],
                          widths[i + 1]);
        if (i < 2)
            x = sb_net_op1(n, "Relu", sb_net_pathf(n, "relu%d", i + 1), x,
                           NULL);
    }
    return x;
}

const sb_net_def sb_net_mlp = {
    .name = "mlp",
    .summary = "fully connected layers of 512 and 256 units",
    .size = {1, 28, 28, 10},
    .multiple = 1,
    .build = mlp_build,
};
