/* src/dnn: layouts, fused activations, and every allocation failing.
 * Convolution and products as such are tested through their operators. */
#include "sbtest_node.h"

#include <math.h>
#include <string.h>

#include "dnn/dnn.h"

static sb_dnn_conv_desc small_conv(void)
{
    return (sb_dnn_conv_desc){
        .what = "test",
        .n_spatial = 2,
        .n_batch = 1,
        .in_channels = 32,
        .out_channels = 48,
        .groups = 1,
        .in = {9, 9},
        .out = {9, 9},
        .kernel = {3, 3},
        .stride = {1, 1},
        .dilation = {1, 1},
        .pad_lo = {1, 1},
        .has_bias = true,
    };
}

/* The weights as the object reads them; freed at exit. */
static const float *packed_for(sb_dnn_conv *conv, const float *w)
{
    const sb_dnn_packing *how = sb_dnn_conv_packing(conv);

    if (how->bytes == 0)
        return w;
    char shape[32];
    (void)snprintf(shape, sizeof shape, "%zu",
                   (how->bytes + how->scratch) / sizeof(float) + 64);
    float *to = test_tensor(SB_DTYPE_F32, shape, NULL)->data;
    assert_ok(sb_dnn_conv_pack(conv, w, to, (char *)to + how->bytes));
    return to;
}

/* The same convolution in plain order and with channels last. */
static void test_conv_layouts(void **state)
{
    (void)state;
    enum { ROOM = 1 << 20 };
    sb_rng rng;

    sb_rng_init(&rng, 2);
    sb_tensor *x = test_floats(&rng, 4, (int64_t[]){1, 32, 9, 9});
    sb_tensor *w = test_floats(&rng, 4, (int64_t[]){48, 32, 3, 3});
    sb_tensor *b = test_floats(&rng, 1, (int64_t[]){48});
    sb_tensor *plain = test_floats(&rng, 4, (int64_t[]){1, 48, 9, 9});
    sb_tensor *last_x = test_floats(&rng, 4, x->dims);
    sb_tensor *last_y = test_floats(&rng, 4, plain->dims);
    sb_tensor *back = test_floats(&rng, 4, plain->dims);
    sb_tensor *scratch = test_floats(&rng, 1, (int64_t[]){ROOM});
    sb_dnn_conv_desc desc = small_conv();
    sb_dnn_conv *conv = NULL;

    last_x->layout = last_y->layout = SB_LAYOUT_CHANNELS_LAST;
    assert_ok(sb_dnn_conv_create(test_ctx(), &desc, &conv));
    assert_true(sb_dnn_conv_scratch(conv) <= ROOM * sizeof(float));
    assert_ok(sb_dnn_conv_run(conv, x->data, packed_for(conv, w->data), b->data,
                              plain->data, scratch->data, NULL));
    sb_dnn_conv_free(conv);
    desc.src_layout = desc.in_channels;
    desc.dst_layout = desc.out_channels;
    assert_ok(sb_dnn_conv_create(test_ctx(), &desc, &conv));
    assert_true(sb_dnn_conv_scratch(conv) <= ROOM * sizeof(float));
    sb_tensor_reorder(test_ctx(), x, last_x);
    assert_ok(sb_dnn_conv_run(conv, last_x->data, packed_for(conv, w->data),
                              b->data, last_y->data, scratch->data, NULL));
    sb_tensor_reorder(test_ctx(), last_y, back);
    for (int64_t i = 0; i < sb_tensor_count(plain); i++)
        assert_close("channels last", sb_tensor_get_f64(back, i),
                     sb_tensor_get_f64(plain, i), 1e-4);
    sb_dnn_conv_free(conv);
}

/* Activations behind the convolution, and the sum with what dst held. */
static void test_conv_posts(void **state)
{
    (void)state;
    static const sb_dnn_post posts[] = {
        {SB_DNN_RELU, 0.1f, 0},  {SB_DNN_CLIP, -0.5f, 0.75f},
        {SB_DNN_SWISH, 1.0f, 0}, {SB_DNN_SIGMOID, 0, 0},
        {SB_DNN_TANH, 0, 0},     {SB_DNN_HARDSWISH, 0, 0},
        {SB_DNN_SUM, 0.5f, 0},
    };
    enum { COUNT = 48 * 81 };
    sb_rng rng;

    sb_rng_init(&rng, 3);
    sb_tensor *x = test_floats(&rng, 4, (int64_t[]){1, 32, 9, 9});
    sb_tensor *w = test_floats(&rng, 4, (int64_t[]){48, 32, 3, 3});
    sb_tensor *b = test_floats(&rng, 1, (int64_t[]){48});
    sb_tensor *scratch = test_floats(&rng, 1, (int64_t[]){1 << 20});
    float plain[COUNT], y[COUNT], old[COUNT];
    for (size_t i = 0; i <= SB_COUNT(posts); i++) {
        sb_dnn_conv_desc desc = small_conv();
        sb_dnn_conv *conv = NULL;

        desc.n_posts = i ? 1 : 0;
        desc.posts[0] = posts[i ? i - 1 : 0];
        for (int e = 0; e < COUNT; e++)
            y[e] = old[e] = (float)e / COUNT;
        assert_ok(sb_dnn_conv_create(test_ctx(), &desc, &conv));
        assert_ok(sb_dnn_conv_run(conv, x->data, packed_for(conv, w->data),
                                  b->data, y, scratch->data, NULL));
        sb_dnn_conv_free(conv);
        if (i == 0)
            memcpy(plain, y, sizeof y);
        for (int e = 0; i && e < COUNT; e++) {
            double v = (double)plain[e], s = 1 / (1 + exp(-v));
            double want[] = {v > 0 ? v : 0.1 * v,
                             fmin(fmax(v, -0.5), 0.75),
                             v * s,
                             s,
                             tanh(v),
                             v * fmin(fmax(v + 3, 0), 6) / 6,
                             v + 0.5 * (double)old[e]};
            assert_close("activation", y[e], want[i - 1], 1e-4);
        }
    }
}

static sb_status scenario(sb_ctx *ctx)
{
    static float a[32 * 64], c[32 * 300], b[64 * 300], packed[1 << 16];
    static float scratch[1 << 20];
    sb_dnn_conv_desc conv_desc = small_conv();
    sb_dnn_gemm_desc gemm_desc = {.what = "test",
                                  .m = 32,
                                  .n = 300,
                                  .k = 64,
                                  .a_row = 64,
                                  .a_col = 1,
                                  .b_row = 300,
                                  .b_col = 1,
                                  .c_row = 300,
                                  .pack = true};
    sb_dnn_conv *conv = NULL;
    sb_dnn_gemm *gemm = NULL;

    SB_TRY(sb_dnn_conv_create(ctx, &conv_desc, &conv));
    sb_status status = sb_dnn_gemm_create(ctx, &gemm_desc, &gemm);
    if (status == SB_OK)
        status = sb_dnn_gemm_pack(gemm, b, packed, scratch);
    if (status == SB_OK) {
        sb_dnn_gemm_args args = {
            .a = a, .b = packed, .c = c, .scratch = scratch};
        status = sb_dnn_gemm_run(gemm, &args);
    }
    sb_dnn_gemm_free(gemm);
    sb_dnn_conv_free(conv);
    return status;
}

static void test_every_failed_allocation_is_reported(void **state)
{
    (void)state;
    test_every_allocation("dnn", scenario);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv_layouts),
        cmocka_unit_test(test_conv_posts),
        cmocka_unit_test(test_every_failed_allocation_is_reported),
    };
    int rc = test_every_isa(argc, argv);

    return rc >= 0 ? rc : cmocka_run_group_tests_name("dnn", tests, NULL, NULL);
}
