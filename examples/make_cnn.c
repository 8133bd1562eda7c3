/* make_cnn OUT.onnx - builds a small convolutional network and saves it.
 *
 * Shows the builder: inputs, weights and nodes are added by name, checked by
 * sb_model_finish(), and written as an ordinary ONNX file.  The weights are
 * random but always the same. */
#include <math.h>
#include <stdio.h>

#include <sparsebit/sparsebit.h>

/* The same numbers in [-1, 1) on every machine. */
static float next_number(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

/* A weight of random numbers scaled for its fan-in. */
static sb_status add_weight(sb_ctx *ctx, sb_model *m, const char *name,
                            int rank, const int64_t *dims, uint32_t seed)
{
    sb_tensor *t = NULL;
    sb_status status = sb_tensor_create(ctx, SB_DTYPE_F32, rank, dims, &t);

    if (status != SB_OK)
        return status;
    int64_t n = sb_tensor_elements(t), fan_in = n / dims[0];
    float *v = sb_tensor_data_mutable(t);
    for (int64_t i = 0; i < n; i++)
        v[i] = next_number(&seed) * sqrtf(6.0f / (float)fan_in);
    status = sb_model_add_constant(m, name, t);
    sb_tensor_free(t);
    return status;
}

/* [N, 1, 28, 28] -> conv 8, relu, pool -> conv 16, relu, pool -> 10 classes */
static sb_status build(sb_ctx *ctx, sb_model *m)
{
    const int64_t image[] = {-1, 1, 28, 28};
    const int64_t w1[] = {8, 1, 3, 3}, w2[] = {16, 8, 3, 3};
    const int64_t w3[] = {10, 16 * 7 * 7}, b3[] = {10};
    static const struct {
        const char *op, *inputs[3], *output, *attrs;
    } nodes[] = {
        {"Conv", {"image", "conv1.weight"}, "c1", "pads=[1,1,1,1]"},
        {"Relu", {"c1"}, "r1", NULL},
        {"MaxPool", {"r1"}, "p1", "kernel_shape=[2,2], strides=[2,2]"},
        {"Conv", {"p1", "conv2.weight"}, "c2", "pads=[1,1,1,1]"},
        {"Relu", {"c2"}, "r2", NULL},
        {"MaxPool", {"r2"}, "p2", "kernel_shape=[2,2], strides=[2,2]"},
        {"Identity", {"p2"}, "p2_again", NULL}, /* for simplify to remove */
        {"Flatten", {"p2_again"}, "flat", NULL},
        {"Gemm", {"flat", "fc.weight", "fc.bias"}, "logits", "transB=1"},
        {"Softmax", {"logits"}, "probabilities", NULL},
    };
    sb_status s = sb_model_add_input(m, "image", SB_DTYPE_F32, 4, image);

    if (s == SB_OK)
        s = add_weight(ctx, m, "conv1.weight", 4, w1, 1);
    if (s == SB_OK)
        s = add_weight(ctx, m, "conv2.weight", 4, w2, 2);
    if (s == SB_OK)
        s = add_weight(ctx, m, "fc.weight", 2, w3, 3);
    if (s == SB_OK)
        s = add_weight(ctx, m, "fc.bias", 1, b3, 4);
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes && s == SB_OK; i++) {
        size_t n = 0;

        while (n < 3 && nodes[i].inputs[n])
            n++;
        s = sb_model_add_node(m, nodes[i].op, nodes[i].inputs, n,
                              &nodes[i].output, 1, nodes[i].attrs);
    }
    if (s == SB_OK)
        s = sb_model_add_output(m, "probabilities");
    return s == SB_OK ? sb_model_finish(m) : s;
}

int main(int argc, char **argv)
{
    sb_ctx *ctx = NULL;
    sb_model *model = NULL;

    if (argc != 2) {
        fprintf(stderr, "usage: make_cnn OUT.onnx\n");
        return 2;
    }
    if (sb_ctx_create(NULL, &ctx) != SB_OK)
        return 1;
    sb_status status = sb_model_create(ctx, "small_cnn", &model);
    if (status == SB_OK)
        status = build(ctx, model);
    if (status == SB_OK)
        status = sb_model_save(model, argv[1]);
    if (status != SB_OK)
        fprintf(stderr, "make_cnn: %s\n", sb_ctx_error(ctx));
    sb_model_free(model);
    sb_ctx_free(ctx);
    return status != SB_OK;
}
