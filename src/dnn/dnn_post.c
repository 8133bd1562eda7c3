/* The functions behind fused operators, for loops that do without oneDNN. */
#include <math.h>

#include "dnn/dnn.h"

float sb_dnn_post_value(const sb_dnn_post *post, float x)
{
    switch (post->kind) {
    case SB_DNN_RELU:
        return x < 0 ? post->alpha * x : x;
    case SB_DNN_CLIP:
        return fminf(fmaxf(x, post->alpha), post->beta);
    case SB_DNN_LINEAR:
        return post->alpha * x + post->beta;
    case SB_DNN_SWISH:
        return x / (1 + expf(-post->alpha * x));
    case SB_DNN_SIGMOID:
        return 1 / (1 + expf(-x));
    case SB_DNN_TANH:
        return tanhf(x);
    case SB_DNN_HARDSWISH:
        return x * fminf(fmaxf(x / 6 + 0.5f, 0), 1);
    case SB_DNN_GELU_ERF:
        return x * 0.5f * (1 + erff(x * 0.70710678f));
    case SB_DNN_GELU_TANH:
        return x * 0.5f *
               (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    default:
        return x;
    }
}
