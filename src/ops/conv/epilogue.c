/* Activations and sums behind another operator's work. */
#include "ops/conv/epilogue.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"

/* ONNX name, kind, and the parameters if the node gives none. */
static const struct {
    const char *name;
    sb_dnn_post_kind kind;
    float alpha, beta;
} known[] = {
    {"Relu", SB_DNN_RELU, 0, 0},
    {"LeakyRelu", SB_DNN_RELU, 0.01f, 0},
    {"Clip", SB_DNN_CLIP, -INFINITY, INFINITY},
    {"HardSigmoid", SB_DNN_LINEAR, 0.2f, 0.5f}, /* then clipped to [0, 1] */
    {"Swish", SB_DNN_SWISH, 1, 0},
    {"Sigmoid", SB_DNN_SIGMOID, 0, 0},
    {"Tanh", SB_DNN_TANH, 0, 0},
    {"HardSwish", SB_DNN_HARDSWISH, 0, 0},
    {"Gelu", SB_DNN_GELU_ERF, 0, 0},
    {"FastGelu", SB_DNN_GELU_TANH, 0, 0},
};

static bool epilogue_find(const sb_epilogue_op_attrs *a, sb_dnn_post *out)
{
    for (size_t i = 0; i < SB_COUNT(known); i++) {
        if (strcmp(known[i].name, a->activation) != 0)
            continue;
        *out = (sb_dnn_post){known[i].kind,
                             a->params.n > 0 ? a->params.v[0] : known[i].alpha,
                             a->params.n > 1 ? a->params.v[1] : known[i].beta};
        return true;
    }
    return false;
}

sb_status sb_epilogue_make(const sb_kernel *k, const sb_epilogue_op_attrs *a,
                           bool has_sum, sb_epilogue *out)
{
    const sb_dnn_post sum = {SB_DNN_SUM, 1, 0};
    sb_dnn_post act = {0};
    bool has_act = a->activation && a->activation[0];

    *out = (sb_epilogue){0};
    if (has_act && !epilogue_find(a, &act))
        return sb_kernel_fail(k, SB_UNSUPPORTED, "activation '%s' is not known",
                              a->activation);
    if (has_sum && !a->sum_last)
        out->post[out->n++] = sum;
    if (has_act)
        out->post[out->n++] = act;
    if (has_act && act.kind == SB_DNN_LINEAR)
        out->post[out->n++] = (sb_dnn_post){SB_DNN_CLIP, 0, 1};
    if (has_sum && a->sum_last)
        out->post[out->n++] = sum;
    return SB_OK;
}

void sb_epilogue_label(const char *main, const sb_epilogue_op_attrs *a,
                       bool has_sum, char *out, size_t size)
{
    bool has_act = a->activation && a->activation[0];

    (void)snprintf(out, size, "%s%s%s%s%s", main,
                   has_sum && !a->sum_last ? "+Add" : "", has_act ? "+" : "",
                   has_act ? a->activation : "",
                   has_sum && a->sum_last ? "+Add" : "");
}

typedef struct posts_job {
    const sb_epilogue *posts;
    float *y;
    const float *z;
} posts_job;

SB_HOT static void posts_sum(float *y, const float *z, size_t n)
{
    SB_SIMD
    for (size_t i = 0; i < n; i++)
        y[i] += z[i];
}

void sb_epilogue_op_row(const sb_dnn_post *post, float *y, const float *z,
                        size_t n)
{
    if (post->kind == SB_DNN_SUM)
        posts_sum(y, z, n);
    else
        sb_dnn_post_row(post, y, n);
}

static void posts_range(void *arg, size_t begin, size_t end)
{
    const posts_job *job = arg;

    for (size_t p = 0; p < job->posts->n; p++)
        sb_epilogue_op_row(&job->posts->post[p], job->y + begin,
                           job->z ? job->z + begin : NULL, end - begin);
}

void sb_epilogue_apply(sb_ctx *ctx, const sb_epilogue *posts, float *y,
                       const float *z, size_t n)
{
    posts_job job = {posts, y, z};

    if (posts->n)
        sb_parallel_for(ctx, n, 8192, posts_range, &job);
}
