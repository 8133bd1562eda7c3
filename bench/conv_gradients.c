/* bench/conv_gradients: what oneDNN offers for the gradients of convolutions.
 *
 *     conv_gradients [BATCH [THREADS]]
 *
 * For layers of ResNet-18, ResNet-50, MobileNetV2, EfficientNet-B0 and
 * ResNet-20, channels last: the kernel that oneDNN chooses for the gradient of
 * the input and of the weights, GFLOPS, and whether the bytes of the result are
 * the same for 1, 2 and THREADS of its threads.  It is why src/ops/conv and
 * src/dnn compute gradients as they do.  Target `bench_conv_gradients`. */
#define _POSIX_C_SOURCE 200809L
#include <dnnl.h>
#include <omp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 3, TENSORS = 3 };

typedef struct layer {
    const char *net;
    int64_t c, m, size, kernel, stride, groups;
} layer;

static const layer layers[] = {
    {"ResNet-18", 3, 64, 224, 7, 2, 1},
    {"ResNet-18", 64, 64, 56, 3, 1, 1},
    {"ResNet-18", 64, 128, 56, 3, 2, 1},
    {"ResNet-18", 64, 128, 56, 1, 2, 1},
    {"ResNet-18", 256, 256, 14, 3, 1, 1},
    {"ResNet-18", 512, 512, 7, 3, 1, 1},
    {"ResNet-50", 256, 64, 56, 1, 1, 1},
    {"ResNet-50", 512, 2048, 7, 1, 1, 1},
    {"MobileNetV2", 16, 96, 112, 1, 1, 1},
    {"MobileNetV2", 96, 96, 112, 3, 2, 96},
    {"MobileNetV2", 144, 24, 56, 1, 1, 1},
    {"MobileNetV2", 144, 144, 56, 3, 1, 144},
    {"MobileNetV2", 576, 96, 14, 1, 1, 1},
    {"MobileNetV2", 960, 960, 7, 3, 1, 960},
    {"EfficientNet-B0", 240, 240, 28, 5, 1, 240},
    {"EfficientNet-B0", 672, 672, 14, 5, 2, 672},
    {"EfficientNet-B0", 1152, 192, 7, 1, 1, 1},
    {"ResNet-20", 16, 16, 32, 3, 1, 1},
    {"ResNet-20", 16, 32, 32, 3, 2, 1},
    {"ResNet-20", 64, 64, 8, 3, 1, 1},
};

static void must(dnnl_status_t status)
{
    if (status == dnnl_success)
        return;
    fprintf(stderr, "conv_gradients: oneDNN status %d\n", (int)status);
    exit(1);
}

static double now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Descriptions of src, weights and dst; the kernel may choose the weights'. */
static void describe(const layer *l, int64_t batch, dnnl_memory_desc_t md[3])
{
    int64_t out = (l->size + l->stride - 1) / l->stride;
    dnnl_dims_t x = {batch, l->c, l->size, l->size};
    dnnl_dims_t y = {batch, l->m, out, out};
    dnnl_dims_t dense = {l->m, l->c, l->kernel, l->kernel};
    dnnl_dims_t grouped = {l->groups, l->m / l->groups, l->c / l->groups,
                           l->kernel, l->kernel};
    bool many = l->groups > 1;

    must(dnnl_memory_desc_init_by_tag(&md[0], 4, x, dnnl_f32, dnnl_nhwc));
    must(dnnl_memory_desc_init_by_tag(&md[1], many ? 5 : 4,
                                      many ? grouped : dense, dnnl_f32,
                                      dnnl_format_tag_any));
    must(dnnl_memory_desc_init_by_tag(&md[2], 4, y, dnnl_f32, dnnl_nhwc));
}

static dnnl_primitive_desc_t choose(const layer *l, dnnl_engine_t engine,
                                    const dnnl_memory_desc_t *md, bool data)
{
    int64_t out = (l->size + l->stride - 1) / l->stride;
    int64_t lo = l->kernel / 2;
    int64_t hi = (out - 1) * l->stride + l->kernel - l->size - lo;
    dnnl_dims_t stride = {l->stride, l->stride}, dense = {0, 0};
    dnnl_dims_t pad_lo = {lo, lo}, pad_hi = {hi, hi};
    dnnl_primitive_desc_t forward, pd = NULL;
    dnnl_convolution_desc_t d;

    must(dnnl_dilated_convolution_forward_desc_init(
        &d, dnnl_forward_training, dnnl_convolution_direct, &md[0], &md[1],
        NULL, &md[2], stride, dense, pad_lo, pad_hi));
    must(dnnl_primitive_desc_create(&forward, &d, NULL, engine, NULL));
    must(data ? dnnl_dilated_convolution_backward_data_desc_init(
                    &d, dnnl_convolution_direct, &md[0], &md[1], &md[2], stride,
                    dense, pad_lo, pad_hi)
              : dnnl_dilated_convolution_backward_weights_desc_init(
                    &d, dnnl_convolution_direct, &md[0], &md[1], NULL, &md[2],
                    stride, dense, pad_lo, pad_hi));
    must(dnnl_primitive_desc_create(&pd, &d, NULL, engine, forward));
    (void)dnnl_primitive_desc_destroy(forward);
    return pd;
}

/* Runs it on tensors filled alike each time; returns seconds, and the result
 * in *result with its size, to be freed. */
static double run(const layer *l, dnnl_engine_t engine, int64_t batch,
                  int threads, bool data, const char **name, float **result,
                  size_t *bytes)
{
    dnnl_memory_desc_t md[TENSORS];
    dnnl_memory_t memory[TENSORS];
    float *at[TENSORS];
    dnnl_primitive_t primitive;
    dnnl_stream_t stream;
    double best = 1e9;

    omp_set_num_threads(threads);
    describe(l, batch, md);
    dnnl_primitive_desc_t pd = choose(l, engine, md, data);
    must(dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0,
                                   (void *)name));
    md[1] = *dnnl_primitive_desc_query_md(
        pd, data ? dnnl_query_weights_md : dnnl_query_diff_weights_md, 0);
    for (int i = 0; i < TENSORS; i++) {
        size_t size = dnnl_memory_desc_get_size(&md[i]);
        at[i] = malloc(size);
        for (size_t j = 0; at[i] && j < size / sizeof(float); j++)
            at[i][j] = (float)((j * 2654435761u >> 7) % 2001) / 1000 - 1;
        must(dnnl_memory_create(&memory[i], &md[i], engine, at[i]));
    }
    must(dnnl_primitive_create(&primitive, pd));
    must(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
    const dnnl_exec_arg_t args[] = {
        {data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, memory[0]},
        {data ? DNNL_ARG_WEIGHTS : DNNL_ARG_DIFF_WEIGHTS, memory[1]},
        {DNNL_ARG_DIFF_DST, memory[2]}};
    for (int i = 0; i < ROUNDS; i++) {
        double begin = now();
        must(dnnl_primitive_execute(primitive, stream, TENSORS, args));
        must(dnnl_stream_wait(stream));
        double took = now() - begin;
        best = took < best ? took : best;
    }
    int kept = data ? 0 : 1;
    *result = at[kept];
    *bytes = dnnl_memory_desc_get_size(&md[kept]);
    for (int i = 0; i < TENSORS; i++) {
        (void)dnnl_memory_destroy(memory[i]);
        if (i != kept)
            free(at[i]);
    }
    (void)dnnl_primitive_destroy(primitive);
    (void)dnnl_primitive_desc_destroy(pd);
    (void)dnnl_stream_destroy(stream);
    return best;
}

static void probe(const layer *l, dnnl_engine_t engine, int64_t batch,
                  int threads, bool data)
{
    const int widths[] = {1, 2, threads};
    int64_t out = (l->size + l->stride - 1) / l->stride;
    double flops = 2.0 * (double)(batch * out * out * l->m) *
                   (double)(l->c / l->groups * l->kernel * l->kernel);
    float *first = NULL, *other;
    const char *name, *fastest;
    size_t bytes, n;
    bool same = true;

    double took = run(l, engine, batch, threads, data, &fastest, &other, &n);
    free(other);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        (void)run(l, engine, batch, widths[i], data, &name, &other, &bytes);
        if (first)
            same = same && memcmp(first, other, bytes) == 0;
        else
            first = other;
        if (first != other)
            free(other);
    }
    free(first);
    printf("| %s | %d x %d, %dx%d/%d%s, %d | %s | %s | %.0f | %s |\n", l->net,
           (int)l->c, (int)l->m, (int)l->kernel, (int)l->kernel, (int)l->stride,
           l->groups > 1 ? " depthwise" : "", (int)l->size,
           data ? "input" : "weights", fastest, 1e-9 * flops / took,
           same ? "yes" : "no");
}

int main(int argc, char **argv)
{
    int64_t batch = argc > 1 ? atoi(argv[1]) : 16;
    int threads = argc > 2 ? atoi(argv[2]) : omp_get_max_threads();
    dnnl_engine_t engine;

    (void)setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    must(dnnl_engine_create(&engine, dnnl_cpu, 0));
    puts("| network | channels, window/stride, size | gradient of | kernel | "
         "GFLOPS | steady |\n|---|---|---|---|--:|---|");
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        probe(&layers[i], engine, batch, threads, true);
        probe(&layers[i], engine, batch, threads, false);
    }
    (void)dnnl_engine_destroy(engine);
    return 0;
}
