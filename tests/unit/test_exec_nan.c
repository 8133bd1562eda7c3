/* NaN stays NaN, and Clip with min > max gives max, whatever is fused and
 * whichever kernel computes it.  What is expected follows from the definitions
 * of ONNX: all windows here hold the pixel at their center. */
#include "sbtest.h"

#include <math.h>

typedef struct layer {
    const char *x, *w; /* shapes */
    const char *text;  /* computes c of x and w, same height and width */
} layer;

/* One for each kernel, as conv_select.c lists them. */
static const layer layers[] = {
    {"1x32x28x28", "32x32x3x3", "  c = Conv(x, w) {pads=[1,1,1,1]}\n"},
    {"1x24x9x9", "24x1x3x3", "  c = Conv(x, w) {group=24, pads=[1,1,1,1]}\n"},
    {"1x16x9x9", "40x16x1x1", "  c = Conv(x, w)\n"},
    {"1x256x6x6", "144x256x3x3", "  c = Conv(x, w) {pads=[1,1,1,1]}\n"},
    {"1x4x8x8", "8x4x3x3", "  c = Conv(x, w) {pads=[1,1,1,1]}\n"},
    {"2x6x9x9", "6x2x3x3", "  c = Conv(x, w) {group=3, pads=[1,1,1,1]}\n"},
    {"1x3x16x16", "8x3x5x5", "  c = Conv(x, w) {pads=[2,2,2,2]}\n"},
    {"1x16x9x9", "16x24x3x3", "  c = ConvTranspose(x, w) {pads=[1,1,1,1]}\n"},
    {"1x4x5x5x5", "8x4x3x3x3", "  c = Conv(x, w) {pads=[1,1,1,1,1,1]}\n"},
    {"1x8x4x20", "20x20", "  c = MatMul(x, w)\n"},
    {"64x80", "80x80", "  c = MatMul(x, w)\n"},
    {"64x80", "80x80", "  c = Gemm(x, w)\n"},
    {"1x8x12x12", "1", "  c = Identity(x)\n"},
};

static const char *const tails[] = {
    "  y = Relu(c)\n",
    "  y = Clip(c, lo, hi)\n",
    "  y = Clip(c, hi, lo)\n",
    "  y = LeakyRelu(c)\n",
    "  y = HardSigmoid(c)\n",
    "  y = HardSwish(c)\n",
    "  y = Sigmoid(c)\n",
    "  s = Sigmoid(c)\n  y = Mul(c, s)\n",
    "  y = Tanh(c)\n",
    "  y = Gelu(c)\n",
    "  a = Add(c, c)\n  y = Relu(a)\n",
    "  a = Relu(c)\n  y = Add(a, k)\n",
    "  a = Add(c, k)\n  y = Relu(a)\n",
    "  a = Add(c, k)\n  y = Clip(a, lo, hi)\n",
};

static const char *const pools[] = {
    "  y = MaxPool(c) {kernel_shape=[3,3], pads=[1,1,1,1]}\n",
    "  a = Relu(c)\n  y = MaxPool(a) {kernel_shape=[3,3], pads=[1,1,1,1]}\n",
    "  y, i = MaxPool(c) {kernel_shape=[3,3], pads=[1,1,1,1]}\n",
    "  y = GlobalMaxPool(c)\n",
    "  a = GlobalMaxPool(c)\n  y = Add(a, c)\n",
    "  y = ReduceMax(c) {keepdims=0}\n",
};

static sb_status nan_ignore(void *user, const char *name, const sb_tensor *t)
{
    (void)user;
    (void)name;
    (void)t;
    return SB_OK;
}

/* Runs fused, fused and exact, and as it is; `check` sees each result. */
static void run_modes(const char *text, const sb_tensor *x,
                      void (*check)(const char *text, const sb_tensor *y))
{
    sb_model *model = NULL;

    assert_ok(sb_model_parse(test_ctx(), text, &model));
    for (int mode = 0; mode < 3; mode++) {
        sb_session_options opt = SB_SESSION_OPTIONS_INIT;
        sb_session *session = NULL;
        const sb_tensor *y = NULL;

        opt.exact = mode == 1;
        opt.dump = mode == 2 ? nan_ignore : NULL;
        assert_ok(sb_session_create(model, &opt, &session));
        assert_ok(sb_session_run(session, &x, 1, &y, 1));
        check(text, y);
        sb_session_free(session);
    }
    sb_model_free(model);
}

static void network(char *text, size_t size, const layer *l, const char *tail)
{
    char x[64], w[64];

    (void)snprintf(x, sizeof x, "%s", l->x);
    (void)snprintf(w, sizeof w, "%s", l->w);
    for (char *p = x; *p; p++)
        *p = *p == 'x' ? ',' : *p;
    for (char *p = w; *p; p++)
        *p = *p == 'x' ? ',' : *p;
    (void)snprintf(text, size,
                   "graph g(x: f32[%s]) -> (y) {\n"
                   "  w: f32[%s] = random(1)\n"
                   "  lo: f32 = 0\n  hi: f32 = 6\n  k: f32 = 0.5\n"
                   "%s%s}\n",
                   x, w, l->text, tail);
}

/* The first pixel of the first image is NaN in all channels, or the first row
 * of a matrix. */
static void expect_first_nan(const char *text, const sb_tensor *y)
{
    int64_t channels = y->rank > 2 ? y->dims[1] : y->rank == 2 ? y->dims[1] : 1;
    int64_t step = 1;

    for (int i = 2; i < y->rank; i++)
        step *= y->dims[i];
    for (int64_t c = 0; c < channels; c++)
        if (!isnan(((const float *)y->data)[c * step]))
            fail_msg("channel %lld is %g, want NaN:\n%s", (long long)c,
                     (double)((const float *)y->data)[c * step], text);
}

static sb_tensor *with_nan(const char *shape)
{
    sb_tensor *x = test_random(SB_DTYPE_F32, shape, 2);
    int64_t step = 1;

    for (int i = 2; i < x->rank; i++)
        step *= x->dims[i];
    for (int64_t c = 0; c < x->dims[1]; c++)
        ((float *)x->data)[c * step] = NAN;
    return x;
}

static void test_nan_passes_through_activations(void **state)
{
    char text[1024];

    (void)state;
    for (size_t i = 0; i < SB_COUNT(layers); i++) {
        const sb_tensor *x = with_nan(layers[i].x);
        for (size_t t = 0; t < SB_COUNT(tails); t++) {
            network(text, sizeof text, &layers[i], tails[t]);
            run_modes(text, x, expect_first_nan);
        }
    }
}

static void test_nan_passes_through_pools(void **state)
{
    char text[1024];

    (void)state;
    for (size_t i = 0; i < SB_COUNT(layers); i++) {
        const sb_tensor *x = with_nan(layers[i].x);
        if (x->rank != 4)
            continue;
        for (size_t t = 0; t < SB_COUNT(pools); t++) {
            network(text, sizeof text, &layers[i], pools[t]);
            run_modes(text, x, expect_first_nan);
        }
    }
}

/* A NaN weight reaches every element of its channel but those whose window has
 * it in the padding. */
static void expect_inner_nan(const char *text, const sb_tensor *y)
{
    int64_t h = y->dims[2], w = y->dims[3];

    for (int64_t i = 1; i + 1 < h; i++)
        for (int64_t j = 1; j + 1 < w; j++)
            if (!isnan(((const float *)y->data)[i * w + j]))
                fail_msg("element %lld, %lld is a number:\n%s", (long long)i,
                         (long long)j, text);
}

static void test_nan_weights_are_seen(void **state)
{
    const sb_tensor *x = test_random(SB_DTYPE_F32, "1x2x6x6", 3);

    (void)state;
    for (size_t t = 0; t < SB_COUNT(tails); t++) {
        char text[1024];
        (void)snprintf(text, sizeof text,
                       "graph g(x: f32[1,2,6,6]) -> (y) {\n"
                       "  w: f32[1,2,2,2] = [1, nan, 2, 3, 4, 5, 6, 7]\n"
                       "  lo: f32 = 0\n  hi: f32 = 6\n  k: f32 = 0.5\n"
                       "  c = Conv(x, w) {pads=[0,0,1,1]}\n%s}\n",
                       tails[t]);
        run_modes(text, x, expect_inner_nan);
    }
}

static void expect_lo(const char *text, const sb_tensor *y)
{
    for (int64_t i = 0; i < sb_tensor_count(y); i++)
        if (((const float *)y->data)[i] != 0)
            fail_msg("element %lld is %g, want 0:\n%s", (long long)i,
                     (double)((const float *)y->data)[i], text);
}

static void test_clip_with_min_above_max_gives_max(void **state)
{
    char text[1024];

    (void)state;
    for (size_t i = 0; i < SB_COUNT(layers); i++) {
        network(text, sizeof text, &layers[i], "  y = Clip(c, hi, lo)\n");
        run_modes(text, test_random(SB_DTYPE_F32, layers[i].x, 2), expect_lo);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nan_passes_through_activations),
        cmocka_unit_test(test_nan_passes_through_pools),
        cmocka_unit_test(test_nan_weights_are_seen),
        cmocka_unit_test(test_clip_with_min_above_max_gives_max),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
