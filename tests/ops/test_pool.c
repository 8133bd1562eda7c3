/* AveragePool, MaxPool and LpPool against naive windows: random ranks, strides,
 * dilations, pads, ceil_mode; indices; bytes; the same result for any number of
 * threads. */
#include "sbtest_node.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CASES = 80, MOST = 3 };

typedef struct {
    int n;
    bool ceil_mode, count_pad;
    int64_t batch, channels;
    int64_t size[MOST], kernel[MOST], stride[MOST], dilation[MOST];
    int64_t lo[MOST], hi[MOST], out[MOST];
} shape;

static shape random_shape(sb_rng *rng)
{
    shape s = {.n = (int)test_pick(rng, 1, 3)};

    s.ceil_mode = test_pick(rng, 0, 1);
    s.count_pad = test_pick(rng, 0, 1);
    s.batch = test_pick(rng, 1, 2);
    s.channels = test_pick(rng, 1, 20);
    for (int i = 0; i < s.n; i++) {
        s.kernel[i] = test_pick(rng, 1, 4);
        s.stride[i] = test_pick(rng, 1, 3);
        s.dilation[i] = test_pick(rng, 0, 3) ? 1 : 2;
        s.lo[i] = test_pick(rng, 0, s.kernel[i] - 1);
        s.hi[i] = test_pick(rng, 0, s.kernel[i] - 1);
        int64_t reach = (s.kernel[i] - 1) * s.dilation[i] + 1;
        s.size[i] = reach + test_pick(rng, 0, 9);
        int64_t room = s.size[i] + s.lo[i] + s.hi[i] - reach;
        s.out[i] = room / s.stride[i] + 1;
        if (s.ceil_mode && room % s.stride[i] &&
            s.out[i] * s.stride[i] < s.size[i] + s.lo[i])
            s.out[i]++;
    }
    return s;
}

static void place(int n, const int64_t *box, int64_t index, int64_t *at)
{
    for (int i = n - 1; i >= 0; i--) {
        at[i] = index % box[i];
        index /= box[i];
    }
}

static int64_t product(int n, const int64_t *v)
{
    int64_t p = 1;

    for (int i = 0; i < n; i++)
        p *= v[i];
    return p;
}

/* What one window holds. */
typedef struct {
    double sum, most, squares;
    int64_t inside, padded, most_at;
} tally;

static tally look(const shape *s, const float *plane, int64_t window)
{
    tally t = {.most = -INFINITY, .most_at = -1};
    int64_t at[MOST], tap[MOST];

    place(s->n, s->out, window, at);
    for (int64_t k = 0; k < product(s->n, s->kernel); k++) {
        bool in_pad = true, in_x = true;
        int64_t index = 0;
        place(s->n, s->kernel, k, tap);
        for (int i = 0; i < s->n; i++) {
            int64_t p =
                at[i] * s->stride[i] + tap[i] * s->dilation[i] - s->lo[i];
            in_x = in_x && p >= 0 && p < s->size[i];
            in_pad = in_pad && p < s->size[i] + s->hi[i];
            index = index * s->size[i] + p;
        }
        t.padded += in_pad;
        if (!in_x)
            continue;
        t.inside++;
        t.sum += (double)plane[index];
        t.squares += (double)plane[index] * (double)plane[index];
        if ((double)plane[index] > t.most) {
            t.most = (double)plane[index];
            t.most_at = index;
        }
    }
    return t;
}

static void attrs_text(const shape *s, const char *more, char *out, size_t size)
{
    int64_t pads[2 * MOST];
    char part[4][128];

    for (int i = 0; i < s->n; i++) {
        pads[i] = s->lo[i];
        pads[i + s->n] = s->hi[i];
    }
    (void)snprintf(
        out, size, "%s, %s, %s, %s, ceil_mode=%d%s",
        test_ints(part[0], sizeof part[0], "pads", 2 * s->n, pads),
        test_ints(part[1], sizeof part[1], "strides", s->n, s->stride),
        test_ints(part[2], sizeof part[2], "dilations", s->n, s->dilation),
        test_ints(part[3], sizeof part[3], "kernel_shape", s->n, s->kernel),
        s->ceil_mode, more);
}

static void check_op(const shape *s, sb_tensor *x, const char *op,
                     const char *more, double (*want)(const shape *, tally))
{
    char attrs[512];
    sb_tensor *y;

    attrs_text(s, more, attrs, sizeof attrs);
    test_node node = {
        .op = op, .attrs = attrs, .in = {x}, .n_in = 1, .n_out = 1};
    test_node_threads(&node, &y);
    int64_t in = product(s->n, s->size), out = product(s->n, s->out);
    assert_int_equal(sb_tensor_count(y), s->batch * s->channels * out);
    for (int64_t i = 0; i < s->batch * s->channels * out; i++) {
        const float *plane = (float *)x->data + i / out * in;
        assert_close(attrs, ((float *)y->data)[i],
                     want(s, look(s, plane, i % out)), 2e-5);
    }
}

static double average(const shape *s, tally t)
{
    int64_t n = s->count_pad ? t.padded : t.inside;

    return n ? t.sum / (double)n : 0;
}

static double most(const shape *s, tally t)
{
    (void)s;
    return t.most;
}

static double norm2(const shape *s, tally t)
{
    (void)s;
    return sqrt(t.squares);
}

/* MaxPool of bytes: of the same numbers as floats. */
static void check_bytes(const shape *s, const sb_tensor *x, sb_dtype dtype)
{
    char attrs[512], dims[96] = "";
    size_t used = 0;
    sb_tensor *y, *bytes, *floats;

    for (int i = 0; i < x->rank; i++)
        used += (size_t)snprintf(dims + used, sizeof dims - used, "%s%d",
                                 i ? "x" : "", (int)x->dims[i]);
    bytes = test_tensor(dtype, dims, NULL);
    floats = test_tensor(SB_DTYPE_F32, dims, NULL);
    for (int64_t i = 0; i < sb_tensor_count(x); i++) {
        float v = floorf(((const float *)x->data)[i] * 120);
        v = dtype == SB_DTYPE_U8 ? v + 120 : v;
        ((uint8_t *)bytes->data)[i] = (uint8_t)(int)v;
        ((float *)floats->data)[i] = v;
    }
    attrs_text(s, "", attrs, sizeof attrs);
    test_node node = {
        .op = "MaxPool", .attrs = attrs, .in = {bytes}, .n_in = 1, .n_out = 1};
    test_node_threads(&node, &y);
    int64_t in = product(s->n, s->size), out = product(s->n, s->out);
    for (int64_t i = 0; i < s->batch * s->channels * out; i++) {
        tally t = look(s, (float *)floats->data + i / out * in, i % out);
        double least = dtype == SB_DTYPE_U8 ? 0 : INT8_MIN;
        assert_int_equal(sb_tensor_get_i64(y, i),
                         t.inside ? (int64_t)t.most : (int64_t)least);
    }
}

static void test_random_windows(void **state)
{
    (void)state;
    sb_rng rng;

    sb_rng_init(&rng, test_seed(31));
    for (int i = 0; i < CASES; i++) {
        shape s = random_shape(&rng);
        int64_t dims[MOST + 2] = {s.batch, s.channels};
        memcpy(dims + 2, s.size, sizeof s.size[0] * (size_t)s.n);
        sb_tensor *x = test_floats(&rng, s.n + 2, dims);
        check_op(&s, x, "AveragePool",
                 s.count_pad ? ", count_include_pad=1" : "", average);
        check_op(&s, x, "MaxPool", "", most);
        check_bytes(&s, x, i % 2 ? SB_DTYPE_U8 : SB_DTYPE_I8);
        check_op(&s, x, "LpPool", "", norm2);
    }
}

static void test_max_indices(void **state)
{
    (void)state;
    sb_tensor *out[2];
    sb_tensor *x = test_f32("1x1x3x3", 1, 9, 3, 4, 5, 6, 7, 8, 2);
    test_node node = {.op = "MaxPool",
                      .in = {x},
                      .n_in = 1,
                      .n_out = 2,
                      .attrs = "kernel_shape=[2,2]"};

    test_node_run(&node, out);
    assert_tensor("values", out[0], test_f32("1x1x2x2", 9, 9, 8, 8), 0);
    assert_tensor("rows", out[1], test_i64("1x1x2x2", 1, 1, 7, 7), 0);
    node.attrs = "kernel_shape=[2,2], storage_order=1";
    test_node_run(&node, out);
    assert_tensor("columns", out[1], test_i64("1x1x2x2", 3, 3, 5, 5), 0);
}

static void test_max_bytes(void **state)
{
    (void)state;
    static const double v[] = {3, 1, 4, 1, 5, 9}, want[] = {4, 5, 9};
    static const double below[] = {-3, -1, -4, -1, -5, -9};
    static const double want_below[] = {-1, -1, -5};
    sb_tensor *y;
    test_node node = {.op = "MaxPool",
                      .n_in = 1,
                      .n_out = 1,
                      .attrs = "kernel_shape=[3], strides=[2], pads=[0,1]"};

    node.in[0] = test_tensor(SB_DTYPE_U8, "1x1x6", v);
    test_node_run(&node, &y);
    assert_tensor("u8", y, test_tensor(SB_DTYPE_U8, "1x1x3", want), 0);
    node.in[0] = test_tensor(SB_DTYPE_I8, "1x1x6", below);
    test_node_run(&node, &y);
    assert_tensor("i8", y, test_tensor(SB_DTYPE_I8, "1x1x3", want_below), 0);
}

/* Behind a convolution, where memory is channels-last: the maximum of what was
 * quantized is what the maximum is quantized to. */
static void test_max_bytes_behind_conv(void **state)
{
    (void)state;
    static const char *const types[] = {"u8", "i8"};

    for (size_t i = 0; i < SB_COUNT(types); i++) {
        char text[512];
        sb_tensor *out[2];
        const sb_tensor *x = test_random(SB_DTYPE_F32, "2x3x9x8", 7);
        (void)snprintf(text, sizeof text,
                       "graph g(x: f32[2,3,9,8]) -> (a, b) {\n"
                       "  w: f32[20,3,3,3] = random(3)\n"
                       "  s: f32[] = 0.05\n"
                       "  z: %s[] = 20\n"
                       "  c = Conv(x, w)\n"
                       "  q = QuantizeLinear(c, s, z)\n"
                       "  a = MaxPool(q) {kernel_shape=[3,2], strides=[2,1], "
                       "pads=[1,0,1,1]}\n"
                       "  m = MaxPool(c) {kernel_shape=[3,2], strides=[2,1], "
                       "pads=[1,0,1,1]}\n"
                       "  b = QuantizeLinear(m, s, z)\n"
                       "}\n",
                       types[i]);
        test_run(text, &x, out, 2);
        assert_tensor(types[i], out[0], out[1], 0);
    }
}

static void test_global_pools_by_hand(void **state)
{
    (void)state;
    sb_tensor *y;
    test_node node = {.op = "GlobalAveragePool",
                      .n_in = 1,
                      .n_out = 1,
                      .in = {test_f32("1x2x2x2", 1, 2, 3, 4, -1, -2, -3, -6)}};

    test_node_run(&node, &y);
    assert_tensor("mean", y, test_f32("1x2x1x1", 2.5, -3), 1e-6);
    node.op = "GlobalMaxPool";
    test_node_run(&node, &y);
    assert_tensor("max", y, test_f32("1x2x1x1", 4, -1), 0);
    node.op = "GlobalLpPool";
    node.attrs = "p=1";
    test_node_run(&node, &y);
    assert_tensor("sum of |x|", y, test_f32("1x2x1x1", 10, 12), 1e-6);
}

/* An input below the window has one with ceil_mode, if a step reaches as far;
 * values as ONNX Runtime's. */
static void test_short_inputs(void **state)
{
    (void)state;
    sb_tensor *y = NULL;
    test_node node = {.op = "MaxPool",
                      .attrs = "kernel_shape=[3], strides=[2], ceil_mode=1",
                      .in = {test_f32("1x2x2", 3, 1, -4, -2)},
                      .n_in = 1,
                      .n_out = 1};

    test_node_run(&node, &y);
    assert_tensor("max", y, test_f32("1x2x1", 3, -2), 0);
    node.op = "AveragePool";
    test_node_run(&node, &y);
    assert_tensor("mean", y, test_f32("1x2x1", 2, -3), 1e-6);
    node.op = "LpPool";
    node.attrs = "kernel_shape=[3], strides=[2], ceil_mode=1, p=1";
    test_node_run(&node, &y);
    assert_tensor("sum of |x|", y, test_f32("1x2x1", 4, 6), 1e-6);
    node.attrs = "kernel_shape=[4], strides=[2], ceil_mode=1";
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    node.attrs = "kernel_shape=[3], strides=[2]";
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
}

static void test_bad_models(void **state)
{
    (void)state;
    sb_tensor *y;
    test_node node = {.op = "MaxPool",
                      .n_in = 1,
                      .n_out = 1,
                      .in = {test_random(SB_DTYPE_F32, "1x1x4x4", 1)}};

    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    assert_error_has("kernel_shape");
    node.attrs = "kernel_shape=[5,5]";
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    node.attrs = "kernel_shape=[2,2,2]";
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    node.attrs = "kernel_shape=[2,2], strides=[1,0]";
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    node.attrs = "kernel_shape=[2,-2]";
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_windows),
        cmocka_unit_test(test_max_indices),
        cmocka_unit_test(test_max_bytes),
        cmocka_unit_test(test_max_bytes_behind_conv),
        cmocka_unit_test(test_global_pools_by_hand),
        cmocka_unit_test(test_short_inputs),
        cmocka_unit_test(test_bad_models),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
