/* The functions behind fused operators: for loops that do without oneDNN, and
 * for those that oneDNN does not compute as ONNX has them. */
#include "base/simd.h"
#include "dnn/dnn_prim.h"
#include "dnn/vec_math.h"

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

/* One loop for each function, so that each is vector code. */
#define POST_LOOP(expr)                  \
    do {                                 \
        SB_SIMD                          \
        for (size_t i = 0; i < n; i++) { \
            const float x = y[i];        \
            y[i] = (expr);               \
        }                                \
    } while (0)

SB_HOT void sb_dnn_post_row(const sb_dnn_post *post, float *y, size_t n)
{
    const float a = post->alpha, b = post->beta;

    switch (post->kind) {
    case SB_DNN_RELU:
        if (a == 0)
            POST_LOOP(post_relu(x));
        else
            POST_LOOP(x < 0 ? a * x : x);
        break;
    case SB_DNN_CLIP:
        POST_LOOP(post_clip(x, a, b));
        break;
    case SB_DNN_LINEAR:
        POST_LOOP(a * x + b);
        break;
    case SB_DNN_SWISH:
        POST_LOOP(x * sb_vec_sigmoidf(a * x));
        break;
    case SB_DNN_SIGMOID:
        POST_LOOP(sb_vec_sigmoidf(x));
        break;
    case SB_DNN_TANH:
        POST_LOOP(sb_vec_tanhf(x));
        break;
    case SB_DNN_HARDSWISH:
        POST_LOOP(x * post_clip(x / 6 + 0.5f, 0, 1));
        break;
    case SB_DNN_GELU_ERF:
        POST_LOOP(0.5f * x * (1 + sb_vec_erff(x * 0.70710678f)));
        break;
    case SB_DNN_GELU_TANH:
        POST_LOOP(
            0.5f * x *
            (1 + sb_vec_tanhf(0.79788456f * (x + 0.044715f * x * x * x))));
        break;
    case SB_DNN_SUM:
        break;
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
