/* The functions behind fused operators: for loops that do without oneDNN, and
 * for those that oneDNN does not compute as ONNX has them. */
#include <math.h>

#include "base/simd.h"
#include "dnn/dnn_prim.h"

/* The comparisons below are false for NaN, which so stays what it is.  They are
 * single instructions, whose operands are in the order that keeps it. */
static inline float post_relu(float x)
{
    return x < 0 ? 0 : x;
}

static inline float post_clip(float x, float lo, float hi)
{
    float y = x < lo ? lo : x;

    return y > hi ? hi : y;
}

float sb_dnn_post_value(const sb_dnn_post *post, float x)
{
    switch (post->kind) {
    case SB_DNN_RELU:
        return post->alpha == 0 ? post_relu(x) : x < 0 ? post->alpha * x : x;
    case SB_DNN_CLIP:
        return post_clip(x, post->alpha, post->beta);
    case SB_DNN_LINEAR:
        return post->alpha * x + post->beta;
    case SB_DNN_SWISH:
        return x / (1 + expf(-post->alpha * x));
    case SB_DNN_SIGMOID:
        return 1 / (1 + expf(-x));
    case SB_DNN_TANH:
        return tanhf(x);
    case SB_DNN_HARDSWISH:
        return x * post_clip(x / 6 + 0.5f, 0, 1);
    case SB_DNN_GELU_ERF:
        return x * 0.5f * (1 + erff(x * 0.70710678f));
    case SB_DNN_GELU_TANH:
        return x * 0.5f *
               (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    default:
        return x;
    }
}

SB_HOT void sb_dnn_post_row(const sb_dnn_post *post, float *x, size_t n)
{
    const float a = post->alpha, b = post->beta;

    if (post->kind == SB_DNN_RELU && a == 0) {
        SB_SIMD
        for (size_t i = 0; i < n; i++)
            x[i] = post_relu(x[i]);
    } else if (post->kind == SB_DNN_RELU) {
        SB_SIMD
        for (size_t i = 0; i < n; i++)
            x[i] = x[i] < 0 ? a * x[i] : x[i];
    } else if (post->kind == SB_DNN_CLIP) {
        SB_SIMD
        for (size_t i = 0; i < n; i++)
            x[i] = post_clip(x[i], a, b);
    } else {
        for (size_t i = 0; i < n; i++)
            x[i] = sb_dnn_post_value(post, x[i]);
    }
}

/* Its kernels have max(x, 0) and min(max(x, alpha), beta) with operands in the
 * order that turns NaN into the limit. */
static bool post_loses_nan(const sb_dnn_post *post)
{
    return post->kind == SB_DNN_CLIP ||
           (post->kind == SB_DNN_RELU && post->alpha == 0);
}

size_t sb_dnn_posts_inside(const sb_dnn_post *posts, size_t n)
{
    size_t i = 0;

    while (i < n && !post_loses_nan(&posts[i]))
        i++;
    return i;
}

void sb_dnn_posts_row(const sb_dnn_post *posts, size_t n, float *x,
                      size_t count)
{
    for (size_t i = 0; i < n; i++)
        sb_dnn_post_row(&posts[i], x, count);
}
