/* fashion_mnist.h - what train_fashion_mnist.c trains, and on what: changed
 * images, a schedule, and an untrained residual CNN with batch normalization,
 * 151,000 parameters, made with the builder. */
#ifndef FASHION_MNIST_H
#define FASHION_MNIST_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <sparsebit/sparsebit.h>

#define FASHION_TRAIN "examples/fashion_mnist.yaml"
#define FASHION_TEST  "examples/fashion_mnist_test.yaml"

enum { SIDE = 28 };

/* Half of the images mirrored, all moved by up to two pixels. */
static void fashion_augment(const float *from, float *to, size_t n)
{
    const float black = -0.2860f / 0.3530f;

    for (size_t i = 0; i < n; i++, from += SIDE * SIDE, to += SIDE * SIDE) {
        int flip = rand() % 2, dx = rand() % 5 - 2, dy = rand() % 5 - 2;

        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++) {
                int row = y + dy, col = (flip ? SIDE - 1 - x : x) + dx;
                int in = row >= 0 && row < SIDE && col >= 0 && col < SIDE;

                to[y * SIDE + x] = in ? from[row * SIDE + col] : black;
            }
    }
}

/* From 1/25 up to 1 in the first fifth of all steps, then down to nothing. */
static double fashion_one_cycle(double done)
{
    double turn = done < 0.2 ? 1 - done / 0.2 : (done - 0.2) / 0.8;
    double low = done < 0.2 ? 0.04 : 4e-6;

    return low + (1 - low) * (1 + cos(3.14159265358979 * turn)) / 2;
}

typedef struct net {
    sb_ctx *ctx;
    sb_model *model;
    sb_status status; /* of the first call that failed */
    uint64_t random;
} net;

/* Uniform in [-1, 1), the same on every machine. */
static float net_number(net *n)
{
    n->random = n->random * 6364136223846793005u + 1442695040888963407u;
    return (float)(n->random >> 40) / 8388608.0f - 1.0f;
}

/* `name.part`, all elements `value`, or random up to `spread`. */
static void net_weight(net *n, const char *name, const char *part, int rank,
                       const int64_t *dims, float value, float spread)
{
    sb_tensor *t = NULL;
    char full[64];

    (void)snprintf(full, sizeof full, "%s.%s", name, part);
    if (n->status == SB_OK)
        n->status = sb_tensor_create(n->ctx, SB_DTYPE_F32, rank, dims, &t);
    if (n->status != SB_OK)
        return;
    float *v = sb_tensor_data_mutable(t);
    for (int64_t i = 0; i < sb_tensor_elements(t); i++)
        v[i] = value + spread * net_number(n);
    n->status = sb_model_add_constant(n->model, full, t);
    sb_tensor_free(t);
}

/* A node with the name of its result, and the weights `out.PART`. */
static void net_node(net *n, const char *op, const char *a, const char *b,
                     const char *const *parts, size_t n_parts, const char *out,
                     const char *attrs)
{
    const char *in[8] = {a, b};
    char full[4][64];
    size_t n_in = b ? 2 : 1;

    for (size_t i = 0; i < n_parts; i++) {
        (void)snprintf(full[i], sizeof full[i], "%s.%s", out, parts[i]);
        in[n_in++] = full[i];
    }
    if (n->status == SB_OK)
        n->status = sb_model_add_node(n->model, op, in, n_in, &out, 1, attrs);
}

/* Convolution `conv`, normalization `bn`, and unless `relu` is NULL that. */
static void net_conv(net *n, const char *x, const char *conv, const char *bn,
                     const char *relu, int64_t in, int64_t out, int64_t k,
                     int stride)
{
    static const char *const weight[] = {"weight"};
    static const char *const norm[] = {"weight", "bias", "running_mean",
                                       "running_var"};
    const int64_t dims[] = {out, in, k, k};
    char attrs[128];

    net_weight(n, conv, "weight", 4, dims, 0,
               sqrtf(6.0f / (float)(in * k * k)));
    for (int i = 0; i < 4; i++)
        net_weight(n, bn, norm[i], 1, &out, i == 0 || i == 3 ? 1.0f : 0.0f, 0);
    (void)snprintf(attrs, sizeof attrs,
                   "kernel_shape=[%d,%d], pads=[%d,%d,%d,%d], strides=[%d,%d]",
                   (int)k, (int)k, (int)k / 2, (int)k / 2, (int)k / 2,
                   (int)k / 2, stride, stride);
    net_node(n, "Conv", x, NULL, weight, 1, conv, attrs);
    net_node(n, "BatchNormalization", conv, NULL, norm, 4, bn, NULL);
    if (relu)
        net_node(n, "Relu", bn, NULL, NULL, 0, relu, NULL);
}

/* Two convolutions and the way around them. */
static void net_block(net *n, const char *x, const char *name, int64_t in,
                      int64_t out, int stride)
{
    const char *const parts[] = {"conv1", "bn1",    "relu1",  "conv2",
                                 "bn2",   "down.0", "down.1", "add"};
    char p[8][64];
    const char *around = x;

    for (int i = 0; i < 8; i++)
        (void)snprintf(p[i], sizeof p[i], "%s.%s", name, parts[i]);
    net_conv(n, x, p[0], p[1], p[2], in, out, 3, stride);
    net_conv(n, p[2], p[3], p[4], NULL, out, out, 3, 1);
    if (in != out) {
        net_conv(n, x, p[5], p[6], NULL, in, out, 1, stride);
        around = p[6];
    }
    net_node(n, "Add", p[4], around, NULL, 0, p[7], NULL);
    net_node(n, "Relu", p[7], NULL, NULL, 0, name, NULL);
}

static sb_status fashion_net(sb_ctx *ctx, sb_model **out)
{
    static const char *const linear[] = {"weight", "bias"};
    const int64_t image[] = {-1, 1, SIDE, SIDE}, fc[] = {10, 64};
    net n = {ctx, NULL, SB_OK, 1};

    n.status = sb_model_create(ctx, "fashion_mnist", &n.model);
    if (n.status == SB_OK)
        n.status = sb_model_add_input(n.model, "image", SB_DTYPE_F32, 4, image);
    net_conv(&n, "image", "conv", "bn", "relu", 1, 32, 3, 2);
    net_block(&n, "relu", "layer1", 32, 32, 1);
    net_block(&n, "layer1", "layer2", 32, 64, 2);
    net_block(&n, "layer2", "layer3", 64, 64, 1);
    net_weight(&n, "logits", "weight", 2, fc, 0, 0.125f);
    net_weight(&n, "logits", "bias", 1, fc, 0, 0);
    net_node(&n, "GlobalAveragePool", "layer3", NULL, NULL, 0, "pool", NULL);
    net_node(&n, "Flatten", "pool", NULL, NULL, 0, "flatten", NULL);
    net_node(&n, "Gemm", "flatten", NULL, linear, 2, "logits", "transB=1");
    if (n.status == SB_OK)
        n.status = sb_model_add_output(n.model, "logits");
    if (n.status == SB_OK)
        n.status = sb_model_finish(n.model);
    if (n.status == SB_OK)
        *out = n.model;
    else
        sb_model_free(n.model);
    return n.status;
}

#endif
