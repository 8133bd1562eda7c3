/* Conv and ConvTranspose against a naive sum in double: random ranks, groups,
 * strides, dilations, lopsided pads; the same bytes for any number of threads
 * and, within rounding, for any instruction set of oneDNN. */
#include "graph/text.h"
#include "ops/op_registry.h"
#include "sbtest_node.h"

#include <stdio.h>
#include <string.h>

enum { CASES = 60, MOST = 4 };

typedef struct {
    int n; /* spatial dimensions */
    bool transposed;
    int64_t batch, groups, in, out; /* channels of a group */
    int64_t size[MOST], kernel[MOST], stride[MOST], dilation[MOST];
    int64_t lo[MOST], hi[MOST], result[MOST];
} shape;

static shape random_shape(sb_rng *rng, bool transposed)
{
    static const int64_t channels[] = {1, 2, 3, 4, 7, 8, 16, 17, 32};
    shape s = {.n = (int)test_pick(rng, 1, 3), .transposed = transposed};

    s.batch = test_pick(rng, 1, 3);
    s.groups = test_pick(rng, 0, 1) ? 1 : test_pick(rng, 2, 4);
    s.in = channels[test_pick(rng, 0, 8)];
    s.out = channels[test_pick(rng, 0, 8)];
    for (int i = 0; i < s.n; i++) {
        s.kernel[i] = test_pick(rng, 1, 4);
        s.stride[i] = test_pick(rng, 1, 3);
        s.dilation[i] = test_pick(rng, 1, 2);
        s.lo[i] = test_pick(rng, 0, s.kernel[i] - 1);
        s.hi[i] = test_pick(rng, 0, s.kernel[i] - 1);
        int64_t reach = (s.kernel[i] - 1) * s.dilation[i] + 1;
        s.size[i] = reach + test_pick(rng, 0, s.n == 3 ? 3 : 12);
        s.result[i] =
            transposed
                ? s.stride[i] * (s.size[i] - 1) + reach - s.lo[i] - s.hi[i]
                : (s.size[i] + s.lo[i] + s.hi[i] - reach) / s.stride[i] + 1;
    }
    return s;
}

static int64_t product(int n, const int64_t *v)
{
    int64_t p = 1;

    for (int i = 0; i < n; i++)
        p *= v[i];
    return p;
}

/* Position `index` of a box as coordinates. */
static void place(int n, const int64_t *box, int64_t index, int64_t *at)
{
    for (int i = n - 1; i >= 0; i--) {
        at[i] = index % box[i];
        index /= box[i];
    }
}

/* Every (small element, tap) pair touches one element of the large side: the
 * input of a convolution, the output of a transposed one.  -1: a pad. */
static int64_t touched(const shape *s, const int64_t *small, const int64_t *tap)
{
    const int64_t *large = s->transposed ? s->result : s->size;
    int64_t index = 0;

    for (int i = 0; i < s->n; i++) {
        int64_t p =
            small[i] * s->stride[i] + tap[i] * s->dilation[i] - s->lo[i];
        if (p < 0 || p >= large[i])
            return -1;
        index = index * large[i] + p;
    }
    return index;
}

static void naive(const shape *s, const float *x, const float *w,
                  const float *b, double *y)
{
    const int64_t *box = s->transposed ? s->size : s->result;
    int64_t places = product(s->n, box), taps = product(s->n, s->kernel);
    int64_t in_size = product(s->n, s->size),
            out_size = product(s->n, s->result);
    int64_t m_all = s->out * s->groups, c_all = s->in * s->groups;

    for (int64_t i = 0; i < s->batch * m_all * out_size; i++)
        y[i] = b ? (double)b[i / out_size % m_all] : 0;
    for (int64_t n = 0; n < s->batch; n++)
        for (int64_t g = 0; g < s->groups; g++)
            for (int64_t m = 0; m < s->out; m++)
                for (int64_t c = 0; c < s->in; c++)
                    for (int64_t p = 0; p < places; p++)
                        for (int64_t t = 0; t < taps; t++) {
                            int64_t at[MOST], tap[MOST];
                            place(s->n, box, p, at);
                            place(s->n, s->kernel, t, tap);
                            int64_t q = touched(s, at, tap);
                            if (q < 0)
                                continue;
                            int64_t from = s->transposed ? p : q;
                            int64_t to = s->transposed ? q : p;
                            int64_t ws =
                                s->transposed
                                    ? ((g * s->in + c) * s->out + m) * taps + t
                                    : ((g * s->out + m) * s->in + c) * taps + t;
                            y[(n * m_all + g * s->out + m) * out_size + to] +=
                                (double)
                                    x[(n * c_all + g * s->in + c) * in_size +
                                      from] *
                                (double)w[ws];
                        }
}

static void attrs_text(const shape *s, char *out, size_t size)
{
    int64_t pads[2 * MOST];
    char part[4][128];

    for (int i = 0; i < s->n; i++) {
        pads[i] = s->lo[i];
        pads[i + s->n] = s->hi[i];
    }
    (void)snprintf(
        out, size, "group=%lld, %s, %s, %s, %s", (long long)s->groups,
        test_ints(part[0], sizeof part[0], "pads", 2 * s->n, pads),
        test_ints(part[1], sizeof part[1], "strides", s->n, s->stride),
        test_ints(part[2], sizeof part[2], "dilations", s->n, s->dilation),
        test_ints(part[3], sizeof part[3], "kernel_shape", s->n, s->kernel));
}

static void check_shape(sb_rng *rng, const shape *s, bool bias,
                        uint32_t constant)
{
    char attrs[512];
    int64_t x_dims[MOST + 2] = {s->batch, s->in * s->groups};
    int64_t w_dims[MOST + 2] = {s->groups * (s->transposed ? s->in : s->out),
                                s->transposed ? s->out : s->in};
    int64_t m = s->out * s->groups;
    sb_tensor *y;

    memcpy(x_dims + 2, s->size, sizeof s->size[0] * (size_t)s->n);
    memcpy(w_dims + 2, s->kernel, sizeof s->kernel[0] * (size_t)s->n);
    attrs_text(s, attrs, sizeof attrs);
    sb_tensor *x = test_floats(rng, s->n + 2, x_dims);
    sb_tensor *w = test_floats(rng, s->n + 2, w_dims);
    sb_tensor *b = test_floats(rng, 1, &m);
    test_node node = {.op = s->transposed ? "ConvTranspose" : "Conv",
                      .attrs = attrs,
                      .in = {x, w, bias ? b : NULL},
                      .n_in = 3,
                      .n_out = 1,
                      .constant = constant};
    test_node_threads(&node, &y);
    assert_int_equal(y->dims[1], m);
    for (int i = 0; i < s->n; i++)
        assert_int_equal(y->dims[i + 2], s->result[i]);
    size_t count = (size_t)sb_tensor_count(y);
    sb_tensor room =
        sb_tensor_make(SB_DTYPE_F64, 1, (int64_t[]){(int64_t)count});
    assert_ok(sb_tensor_alloc(test_ctx(), &room));
    naive(s, x->data, w->data, bias ? b->data : NULL, room.data);
    for (size_t i = 0; i < count; i++)
        assert_close(attrs, ((float *)y->data)[i], ((double *)room.data)[i],
                     2e-5 * (double)(s->in + 10));
    sb_tensor_drop(&room);
}

static void check_random(bool transposed, uint64_t seed)
{
    sb_rng rng;

    sb_rng_init(&rng, test_seed(seed));
    for (int i = 0; i < CASES; i++) {
        shape s = random_shape(&rng, transposed);
        bool bad = false;
        for (int d = 0; d < s.n; d++)
            bad = bad || s.result[d] < 1;
        if (!bad)
            check_shape(&rng, &s, i % 2, i % 3 ? 1u << 1 : 0);
    }
}

static void test_conv_is_the_naive_sum(void **state)
{
    (void)state;
    check_random(false, 11);
}

static void test_conv_transpose(void **state)
{
    (void)state;
    check_random(true, 12);
}

static const shape large_shapes[] = {
    {.n = 2,
     .batch = 1,
     .groups = 24,
     .in = 1,
     .out = 1,
     .size = {20, 20},
     .kernel = {3, 3},
     .stride = {2, 2},
     .dilation = {1, 1},
     .lo = {1, 0},
     .hi = {1, 1},
     .result = {10, 10}},
    {.n = 2,
     .batch = 1,
     .groups = 1,
     .in = 3,
     .out = 32,
     .size = {32, 32},
     .kernel = {7, 7},
     .stride = {2, 2},
     .dilation = {1, 1},
     .lo = {3, 3},
     .hi = {3, 3},
     .result = {16, 16}},
    {.n = 2,
     .batch = 2,
     .groups = 1,
     .in = 128,
     .out = 64,
     .size = {7, 7},
     .kernel = {1, 1},
     .stride = {1, 1},
     .dilation = {1, 1},
     .result = {7, 7}},
    {.n = 2,
     .batch = 2,
     .groups = 1,
     .in = 16,
     .out = 24,
     .size = {5, 6},
     .kernel = {1, 1},
     .stride = {1, 1},
     .dilation = {1, 1},
     .lo = {1, 2},
     .hi = {0, 3},
     .result = {6, 11}},
    {.n = 4,
     .batch = 1,
     .groups = 2,
     .in = 2,
     .out = 3,
     .size = {3, 4, 3, 2},
     .kernel = {2, 2, 2, 2},
     .stride = {1, 1, 1, 1},
     .dilation = {1, 1, 1, 1},
     .lo = {1, 0, 0, 0},
     .result = {3, 3, 2, 1}},
};

static void test_depthwise_and_large(void **state)
{
    sb_rng rng;

    (void)state;
    sb_rng_init(&rng, 5);
    for (size_t i = 0; i < SB_COUNT(large_shapes); i++) {
        check_shape(&rng, &large_shapes[i], true, 1u << 1);
        check_shape(&rng, &large_shapes[i], false, 0);
    }
}

static void test_bad_models(void **state)
{
    (void)state;
    sb_tensor *y;
    sb_tensor *x = test_random(SB_DTYPE_F32, "1x4x5x5", 1);
    sb_tensor *w = test_random(SB_DTYPE_F32, "6x2x3x3", 2);
    sb_tensor *b = test_random(SB_DTYPE_F32, "5", 3);
    test_node node = {.op = "Conv", .in = {x, w, b}, .n_in = 3, .n_out = 1};

    node.attrs = "group=2";
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    assert_error_has("bias");
    node.n_in = 2;
    node.attrs = "group=1";
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    assert_error_has("channels");
    node.attrs = "group=0";
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    node.attrs = "group=2, strides=[0,1]";
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    assert_error_has("strides");
    node.attrs = "group=2, pads=[1,1]";
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    node.attrs = "group=2, dilations=[4611686018427387904,1]";
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    node.attrs = "group=2, kernel_shape=[9,9]";
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    node.attrs = "group=2, auto_pad=\"SOME\"";
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
}

/* Passes compute with attributes before the rank of an input is known. */
static void test_attributes_of_inputs_of_any_rank(void **state)
{
    (void)state;
    static const struct {
        const char *node, *error;
    } bad[] = {
        {"Conv(x, w) {dilations=[9223372036854775807,1]}", "dilations[0]"},
        {"Conv(x, w) {strides=[0,1]}", "strides[0]"},
        {"Conv(x, w) {pads=[0,0,0,-9223372036854775808]}", "pads[3]"},
        {"Conv(x, w) {pads=[1]}", "pads has 1 numbers, want 4"},
        {"Conv(x, e)", "kernel size 0 is 0"},
        {"ConvTranspose(x, w) {strides=[1,-1]}", "strides[1]"},
        {"MaxPool(x) {kernel_shape=[-9223372036854775808,2]}", "kernel_shape"},
        {"AveragePool(x) {kernel_shape=[1,1,1,1,1,1,1,1,1,1,1]}", "want 10"},
    };
    char text[400];

    for (size_t i = 0; i < SB_COUNT(bad); i++) {
        sb_graph *g = NULL;

        (void)snprintf(text, sizeof text,
                       "graph g(x: f32[*]) -> (y) {\n w: f32[2,2,1,1] = 1\n"
                       " e: f32[2,2,0,1] = []\n y = %s\n}\n",
                       bad[i].node);
        assert_ok(sb_graph_parse(test_ctx(), text, &g));
        assert_status(sb_graph_infer(g), SB_BAD_MODEL);
        assert_error_has(bad[i].error);
        sb_graph_free(g);
    }
}

/* Padding of a 1x1 convolution, then an activation, then a sum: inside
 * relu(2 * 3 - 1) + 10, in the frame relu(-1) + 10. */
static void test_frame_with_sum(void **state)
{
    (void)state;
    sb_model *model = NULL;
    sb_session *session = NULL;
    sb_tensor *x = test_tensor(SB_DTYPE_F32, "1x16x2x2", NULL);
    sb_tensor *z = test_tensor(SB_DTYPE_F32, "1x16x4x4", NULL);
    const sb_tensor *in[] = {x, z}, *out;
    const float *y;

    for (int i = 0; i < 16 * 4; i++)
        ((float *)x->data)[i] = i < 4 ? 3 : 0; /* the first channel */
    for (int i = 0; i < 16 * 16; i++)
        ((float *)z->data)[i] = 10;
    assert_ok(sb_model_parse(
        test_ctx(),
        "graph g(x: f32[1,16,2,2], z: f32[1,16,4,4]) -> (y: f32[1,16,4,4]) {\n"
        "  w: f32[16,16,1,1] = 2\n"
        "  b: f32[16] = -1\n"
        "  n = Neg(z)\n  m = Neg(n)\n"
        "  c = Conv(x, w, b) {pads=[1,1,1,1]}\n"
        "  r = Relu(c)\n"
        "  y = Add(r, m)\n}\n",
        &model));
    assert_ok(sb_session_create(model, NULL, &session));
    assert_ok(test_session_run(session, in, &out));
    y = out->data;
    for (int i = 0; i < 16 * 16; i++) {
        int row = i / 4 % 4, col = i % 4;
        bool inside = row > 0 && row < 3 && col > 0 && col < 3;
        assert_close("y", y[i], inside ? 15 : 10, 1e-6);
    }
    sb_session_free(session);
    sb_model_free(model);
}

static void test_empty_batch(void **state)
{
    (void)state;
    sb_tensor *y;
    test_node node = {.op = "Conv",
                      .n_in = 2,
                      .n_out = 1,
                      .in = {test_tensor(SB_DTYPE_F32, "0x4x5x5", NULL),
                             test_random(SB_DTYPE_F32, "6x4x3x3", 2)}};

    test_node_run(&node, &y);
    assert_int_equal(y->dims[0], 0);
    assert_int_equal(y->dims[1], 6);
    assert_int_equal(y->dims[2], 3);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv_is_the_naive_sum),
        cmocka_unit_test(test_conv_transpose),
        cmocka_unit_test(test_depthwise_and_large),
        cmocka_unit_test(test_bad_models),
        cmocka_unit_test(test_attributes_of_inputs_of_any_rank),
        cmocka_unit_test(test_frame_with_sum),
        cmocka_unit_test(test_empty_batch),
    };
    int rc = test_every_isa(argc, argv);

    return rc >= 0 ? rc
                   : cmocka_run_group_tests_name("conv", tests, NULL, NULL);
}
