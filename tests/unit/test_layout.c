/* Memory layouts: an operator between two convolutions works in channels-last
 * order and must give what it gives in plain order.
 *
 * Plain order is what a run that dumps uses; it is checked against the ONNX
 * suite elsewhere.  Here the same graph runs both ways. */
#include "sbtest.h"

#include "exec/plan.h"
#include "graph/text.h"

/* What stands between: makes `m` from `c`, [2,6,5,7]. */
typedef struct test_case {
    const char *what, *body;
} test_case;

/* These work in channels-last order, so nothing is reordered on the way. */
static const test_case cases[] = {
    {"nothing", "m = Identity(c)"},
    {"unary", "m = Sigmoid(c)"},
    {"with itself", "m = Mul(c, c)"},
    {"two branches", "n = Neg(c)\n m = Add(c, n)"},
    {"scalar", "k: f32 = 2\n m = Mul(c, k)"},
    {"per channel", "k: f32[6,1,1] = random(3)\n m = Add(c, k)"},
    {"per image and channel", "g = GlobalAveragePool(c)\n m = Mul(c, g)"},
    {"per place", "k: f32[1,1,5,7] = random(4)\n m = Mul(c, k)"},
    {"full constant", "k: f32[2,6,5,7] = random(5)\n m = Sub(c, k)"},
    {"slopes", "k: f32[6,1,1] = random(7)\n m = PRelu(c, k)"},
    {"batch norm", "a: f32[6] = random(1)\n v: f32[6] = [1, 2, 3, 4, 5, 6]\n"
                   "m = BatchNormalization(c, a, a, a, v)"},
    {"instance norm", "a: f32[6] = random(1)\n"
                      "m = InstanceNormalization(c, a, a)"},
    {"max pool", "m = MaxPool(c) {kernel_shape=[3,2], pads=[1,0,1,1]}"},
    {"dilated max pool",
     "m = MaxPool(c) {kernel_shape=[2,2], dilations=[2,3], strides=[2,1]}"},
    {"average pool", "m = AveragePool(c) {kernel_shape=[3,3], pads=[1,1,1,1]}"},
    {"average pool with pads",
     "m = AveragePool(c) {kernel_shape=[3,3], pads=[1,1,1,1], "
     "count_include_pad=1, ceil_mode=1, strides=[2,2]}"},
    {"global max", "g = GlobalMaxPool(c)\n m = Add(c, g)"},
    {"concat channels", "n = Neg(c)\n k = Concat(c, n) {axis=1}\n"
                        "i: i64[3] = [7, 1, 4]\n m = Gather(k, i) {axis=1}"},
    {"concat width", "n = Neg(c)\n m = Concat(c, n) {axis=3}"},
    {"concat with plain", "k: f32[2,2,5,7] = random(9)\n"
                          "m = Concat(c, k) {axis=-3}"},
    {"split", "p, q = Split(c) {axis=1, num_outputs=2}\n"
              "m = Concat(q, p) {axis=1}"},
    {"slice channels", "a: i64[1] = [1]\n b: i64[1] = [5]\n x1: i64[1] = [1]\n"
                       "s: i64[1] = [2]\n m = Slice(c, a, b, x1, s)"},
    {"slice backwards",
     "a: i64[2] = [-1, 0]\n b: i64[2] = [-99, 9]\n x1: i64[2] = [1, 3]\n"
     "s: i64[2] = [-1, 2]\n m = Slice(c, a, b, x1, s)"},
    {"shuffled by the channel", "m = sparsebit::ChannelShuffle(c) {groups=2}"},
    {"pad", "a: i64[8] = [0,1,1,0,0,0,1,2]\n m = Pad(c, a)"},
    {"reflect", "a: i64[8] = [0,0,1,2,0,0,1,2]\n"
                "m = Pad(c, a) {mode=\"reflect\"}"},
    {"resize nearest", "s: f32[4] = [1, 1, 2, 3]\n m = Resize(c, _, s)"},
    {"resize linear",
     "s: f32[4] = [1, 1, 1.5, 2]\n m = Resize(c, _, s) {mode=\"linear\"}"},
    {"mean over places", "a: i64[2] = [2, 3]\n g = ReduceMean(c, a)\n"
                         "m = Mul(c, g)"},
    {"softmax over channels", "m = Softmax(c) {axis=1}"},
    {"transpose and back", "t = Transpose(c) {perm=[0,2,3,1]}\n n = Neg(t)\n"
                           "m = Transpose(n) {perm=[0,3,1,2]}"},
    {"mean of channels", "a: i64[1] = [1]\n g = ReduceMean(c, a)\n"
                         "m = Mul(c, g)"},
    {"greatest of channels, dropped",
     "a: i64[1] = [1]\n m = ReduceMax(c, a) {keepdims=0}"},
    {"sum of a column, dropped",
     "a: i64[1] = [2]\n m = ReduceSum(c, a) {keepdims=0}"},
    {"mean of places, dropped",
     "a: i64[2] = [-1, -2]\n m = ReduceMean(c, a) {keepdims=0}"},
    {"log sum of all", "m = ReduceLogSumExp(c)"},
    {"softmax over a row", "m = Softmax(c)"},
    {"best channel", "m = ArgMax(c) {axis=1}"},
    {"best channel, dropped", "m = ArgMax(c) {axis=1, keepdims=0}"},
    {"least row", "m = ArgMin(c) {axis=2, keepdims=0}"},
    {"gather channels", "i: i64[4] = [5, -1, 0, 2]\n"
                        "m = Gather(c, i) {axis=1}"},
    {"gather a channel", "i: i64 = -2\n m = Gather(c, i) {axis=1}"},
    {"gather a row", "i: i64 = 3\n m = Gather(c, i) {axis=2}"},
    {"gather columns", "i: i64[3] = [6, 0, 1]\n m = Gather(c, i) {axis=-1}"},
    {"resize cubic", "s: i64[4] = [2, 6, 4, 11]\n"
                     "m = Resize(c, _, _, s) {mode=\"cubic\"}"},
    {"resize channels", "s: f32[4] = [1, 1.5, 2, 1]\n"
                        "m = Resize(c, _, s) {mode=\"linear\"}"},
    {"resize a region",
     "r: f32[8] = [0, 0, 0.2, -0.3, 1, 1, 0.8, 1.2]\n"
     "s: i64[4] = [2, 6, 3, 8]\n"
     "m = Resize(c, r, _, s) {mode=\"linear\", extrapolation_value=9.0, "
     "coordinate_transformation_mode=\"tf_crop_and_resize\"}"},
    {"pad by a value and cut", "a: i64[8] = [0,0,-1,2,0,1,1,-3]\n"
                               "v: f32 = 3\n m = Pad(c, a, v)"},
    {"edge", "a: i64[8] = [0,1,2,0,0,0,1,3]\n m = Pad(c, a) {mode=\"edge\"}"},
    {"group norm", "a: f32[6] = random(1)\n"
                   "m = GroupNormalization(c, a, a) {num_groups=2}"},
    {"local response", "m = LRN(c) {size=3, alpha=0.5}"},
    {"local response of more than there are", "m = LRN(c) {size=20}"},
    {"depth to space, columns first",
     "k: f32[2,2,5,7] = random(8)\n d = Concat(c, k) {axis=1}\n"
     "m = DepthToSpace(d) {blocksize=2, mode=\"CRD\"}"},
    {"space to depth",
     "a: i64[2] = [1, 1]\n b: i64[2] = [5, 7]\n x2: i64[2] = [2, 3]\n"
     "s = Slice(c, a, b, x2)\n m = SpaceToDepth(s) {blocksize=2}"},
    {"quantize and back", "s: f32 = 0.1\n z: u8 = 100\n"
                          "q = QuantizeLinear(c, s, z)\n"
                          "m = DequantizeLinear(q, s, z)"},
    {"quantize channels",
     "s: f32[6] = [1, 2, 3, 4, 5, 6]\n z: i8[6] = [1, 2, 3, 4, 5, 6]\n"
     "q = QuantizeLinear(c, s, z) {axis=1}\n"
     "m = DequantizeLinear(q, s, z) {axis=1}"},
    {"grouped transposed convolution",
     "w2: f32[6,2,2,2] = random(11)\n"
     "m = ConvTranspose(c, w2) {strides=[2,1], group=3, "
     "output_padding=[1,0]}"},
    {"transpose of a pixel and back",
     "t = Transpose(c) {perm=[0,3,2,1]}\n n = Neg(t)\n"
     "m = Transpose(n) {perm=[0,3,2,1]}"},
    {"rows of places, channels cut",
     "s: i64[3] = [0,0,-1]\n r = Reshape(c, s)\n"
     "t = Transpose(r) {perm=[0,2,1]}\n u: i64[4] = [2,35,2,3]\n"
     "v = Reshape(t, u)\n p = Transpose(v) {perm=[0,3,2,1]}\n"
     "q = Softmax(p) {axis=1}\n w2: f32[1,3,1,1] = random(7)\n"
     "m = Conv(q, w2)"},
    {"transpose of images", "m = Transpose(c) {perm=[1,0,2,3]}"},
    {"rows of pixels",
     "s: i64[3] = [0,0,-1]\n r = Reshape(c, s)\n n = Neg(r)\n"
     "t = Transpose(n) {perm=[0,2,1]}\n w2: f32[6,4] = random(21)\n"
     "p = MatMul(t, w2)\n q = Transpose(p) {perm=[0,2,1]}\n"
     "u: i64[4] = [2,4,5,7]\n z = Reshape(q, u)\n"
     "w3: f32[2,4,3,3] = random(22)\n m = Conv(z, w3)"},
    {"squeeze a side",
     "a: i64[1] = [0]\n b: i64[1] = [1]\n x2: i64[1] = [2]\n"
     "s = Slice(c, a, b, x2)\n q = Squeeze(s, x2)\n n = Neg(q)\n"
     "m = Unsqueeze(n, x2)"},
    {"view of a view read by others",
     "t = Transpose(c) {perm=[0,2,3,1]}\n e = Exp(c)\n f = Exp(t)\n"
     "g = Transpose(f) {perm=[0,3,1,2]}\n m = Sub(e, g)"},
    {"comparison and choice by place",
     "k: f32[1,1,5,7] = random(4)\n n = Neg(c)\n q = Less(c, k)\n"
     "m = Where(q, n, c)"},
    {"cast there and back", "i = Cast(c) {to=7}\n m = Cast(i) {to=1}"},
    {"depth to space", "k: f32[2,2,5,7] = random(8)\n"
                       "d = Concat(c, k) {axis=1}\n"
                       "m = DepthToSpace(d) {blocksize=2}"},
    {"clip", "a: f32 = -0.5\n b: f32 = 0.5\n m = Clip(c, a, b)"},
    {"where", "n = Neg(c)\n q = Less(c, n)\n m = Where(q, c, n)"},
    {"sum of three", "n = Neg(c)\n p = Abs(c)\n m = Sum(c, n, p)"},
    {"transposed convolution", "w2: f32[6,4,3,3] = random(11)\n"
                               "m = ConvTranspose(c, w2) {strides=[2,2]}"},
    {"depthwise", "w2: f32[6,1,3,3] = random(12)\n"
                  "m = Conv(c, w2) {group=6, pads=[1,1,1,1]}"},
    {"odd padding", "w2: f32[5,6,3,3] = random(13)\n"
                    "m = Conv(c, w2) {auto_pad=\"SAME_LOWER\", "
                    "strides=[2,3]}"},
};

/* These need a reorder: the channels do not stay together. */
static const test_case others[] = {
    {"constant without images", "k: f32[6,5,7] = random(6)\n m = Sub(c, k)"},
    {"sum of images, dropped",
     "a: i64[1] = [0]\n m = ReduceSum(c, a) {keepdims=0}"},
    {"best image", "m = ArgMax(c) {axis=0}"},
    {"gather an image", "i: i64 = 1\n m = Gather(c, i) {axis=0}"},
    {"gather a table", "i: i64[2,1] = [2, 0]\n m = Gather(c, i) {axis=1}"},
    {"quantize to four bits", "s: f32 = 0.5\n z: u4 = [3]\n"
                              "q = QuantizeLinear(c, s, z)\n"
                              "m = DequantizeLinear(q, s, z)"},
    {"reshape over channels", "s: i64[3] = [2,3,70]\n m = Reshape(c, s)"},
    {"flatten", "m = Flatten(c)"},
    {"plain copy read again after a view was overwritten",
     "s: i64[3] = [2,3,70]\n r = Reshape(c, s)\n p = Neg(r)\n"
     "q = Exp(p)\n r2 = Reshape(c, s)\n m = Add(q, r2)"},
    {"shuffle", "s: i64[5] = [2,2,3,5,7]\n r = Reshape(c, s)\n"
                "t = Transpose(r) {perm=[0,2,1,3,4]}\n"
                "u: i64[4] = [2,6,5,7]\n m = Reshape(t, u)"},
};

/* The same in one dimension, as speech has it: `c` is [2,6,9]. */
static const test_case lines[] = {
    {"conv behind conv", "w2: f32[5,6,3] = random(2)\n"
                         "m = Conv(c, w2) {pads=[2,2], dilations=[2]}"},
    {"depthwise line", "w2: f32[6,1,5] = random(3)\n"
                       "m = Conv(c, w2) {group=6, pads=[2,2], strides=[2]}"},
    {"unary line", "m = Sigmoid(c)"},
    {"residual", "w2: f32[6,6,3] = random(4)\n"
                 "d = Conv(c, w2) {pads=[1,1]}\n e = Relu(d)\n"
                 "m = Add(c, e)"},
    {"batch norm line",
     "a: f32[6] = random(1)\n v: f32[6] = [1, 2, 3, 4, 5, 6]\n"
     "m = BatchNormalization(c, a, a, a, v)"},
    {"max pool line", "m = MaxPool(c) {kernel_shape=[3], pads=[1,1]}"},
    {"average pool line",
     "m = AveragePool(c) {kernel_shape=[4], strides=[2], ceil_mode=1}"},
    {"gate", "g = GlobalAveragePool(c)\n m = Mul(c, g)"},
    {"gated halves", "p, q = Split(c) {axis=1, num_outputs=2}\n"
                     "r = Sigmoid(q)\n m = Mul(p, r)"},
    {"concat channels of lines", "n = Neg(c)\n m = Concat(c, n) {axis=1}"},
};

/* What cannot stay in that order. */
static const test_case other_lines[] = {
    {"concat in time", "n = Neg(c)\n m = Concat(n, c) {axis=2}"},
    {"pad line", "a: i64[6] = [0,0,3,0,0,1]\n m = Pad(c, a)"},
    {"reflected line", "a: i64[6] = [0,0,3,0,0,2]\n"
                       "m = Pad(c, a) {mode=\"reflect\"}"},
    {"resized line", "s: f32[3] = [1, 1, 2]\n m = Resize(c, _, s)"},
    {"linear line",
     "s: f32[3] = [1, 1, 1.5]\n m = Resize(c, _, s) {mode=\"linear\"}"},
    {"transposed conv", "w2: f32[6,4,4] = random(5)\n"
                        "m = ConvTranspose(c, w2) {strides=[2], pads=[1,1]}"},
    {"transpose", "m = Transpose(c) {perm=[0,2,1]}"},
    {"time in front", "m = Transpose(c) {perm=[2,0,1]}"},
    {"matmul", "k: f32[9,4] = random(6)\n m = MatMul(c, k)"},
    {"transposed matmul", "t = Transpose(c) {perm=[0,2,1]}\n"
                          "k: f32[6,4] = random(6)\n m = MatMul(t, k)"},
    {"softmax over channels", "m = Softmax(c) {axis=1}"},
    {"softmax over time", "m = Softmax(c)"},
    {"layer norm", "k: f32[9] = random(7)\n m = LayerNormalization(c, k, k)"},
    {"mean over time", "a: i64[1] = [2]\n m = ReduceMean(c, a) {keepdims=0}"},
    {"mean over channels", "a: i64[1] = [1]\n m = ReduceMean(c, a)"},
    {"last step", "i: i64 = -1\n m = Gather(c, i) {axis=2}"},
    {"a channel", "i: i64 = 4\n m = Gather(c, i) {axis=1}"},
    {"an image", "i: i64 = 1\n m = Gather(c, i) {axis=0}"},
    {"slice of time", "a: i64[1] = [1]\n b: i64[1] = [8]\n x1: i64[1] = [2]\n"
                      "s: i64[1] = [3]\n m = Slice(c, a, b, x1, s)"},
    {"picture", "s: i64[4] = [2,6,3,3]\n r = Reshape(c, s)\n"
                "w2: f32[4,6,3,3] = random(8)\n m = Conv(r, w2)"},
    {"squeezed", "x1: i64[1] = [2]\n u = Unsqueeze(c, x1)\n"
                 "w2: f32[4,6,1,3] = random(8)\n m = Conv(u, w2)"},
    {"line times constant", "k: f32[9] = random(9)\n m = Mul(c, k)"},
    {"slopes of channels", "k: f32[6,1] = random(9)\n m = PRelu(c, k)"},
    {"recurrent", "t = Transpose(c) {perm=[2,0,1]}\n"
                  "w2: f32[1,12,6] = random(3)\n r2: f32[1,12,4] = random(4)\n"
                  "m, h = GRU(t, w2, r2) {hidden_size=4}"},
    {"best channel", "m = ArgMax(c) {axis=1}"},
    {"flat line", "m = Flatten(c)"},
    {"expanded", "s: i64[4] = [3,2,6,9]\n m = Expand(c, s)"},
    {"summed up", "k: i64 = 2\n m = CumSum(c, k)"},
    {"normed line", "a: f32[6] = random(1)\n"
                    "m = InstanceNormalization(c, a, a)"},
};

static sb_status ignore(void *user, const char *name, const sb_tensor *t)
{
    (void)user, (void)name, (void)t;
    return SB_OK;
}

/* Reorders of a run, but for that of the image and that of the result. */
static size_t count_reorders(const sb_exec *exec)
{
    const sb_plan *plan = exec->last;
    size_t n = 0;

    for (size_t i = 0; i < plan->n_steps; i++) {
        const sb_step *st = plan->steps[i];
        for (size_t j = 0; j < st->n_before; j++)
            n += st->before[j].from->kind != SLOT_GIVEN &&
                 st->before[j].from->t.layout != st->before[j].to->t.layout;
    }
    return n;
}

static void run_both_ways(const test_case *c, bool line, bool free_of_reorders)
{
    const sb_exec_options plain = {.dump = ignore}, free_choice = {0};
    const sb_tensor *x =
        test_random(SB_DTYPE_F32, line ? "2x3x9" : "2x3x5x7", 17);
    const sb_tensor *a = NULL, *b = NULL;
    sb_exec *first = NULL, *second = NULL;
    sb_graph *g = NULL;
    char text[2048];

    (void)snprintf(text, sizeof text,
                   "graph g(x: f32[2,3,%s]) -> (y: f32[*]) {\n"
                   "  w: f32[6,3,%s] = random(1)\n"
                   "  c = Conv(x, w)\n  %s\n  y = Neg(m)\n}\n",
                   line ? "9" : "5,7", line ? "1" : "1,1", c->body);
    assert_ok(sb_graph_parse(test_ctx(), text, &g));
    assert_ok(sb_graph_infer(g));
    assert_ok(sb_exec_create(test_ctx(), g, &plain, &first));
    assert_ok(sb_exec_create(test_ctx(), g, &free_choice, &second));
    assert_ok(sb_exec_run(first, &x, NULL, &a));
    assert_ok(sb_exec_run(second, &x, NULL, &b));
    assert_tensor(c->what, b, a, 1e-5);
    /* The convolution itself: in oneDNN, plain order takes OpenMP's threads,
     * which wait for each other whatever else the machine has to do. */
    assert_int_equal(second->last->steps[0]->k.out[0]->layout,
                     SB_LAYOUT_CHANNELS_LAST);
    if (free_of_reorders && count_reorders(second) > 0)
        fail_msg("%s: %zu reorders", c->what, count_reorders(second));
    sb_exec_free(first);
    sb_exec_free(second);
    sb_graph_free(g);
}

static void test_channels_last_gives_the_plain_result(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++)
        run_both_ways(&cases[i], false, true);
    for (size_t i = 0; i < SB_COUNT(others); i++)
        run_both_ways(&others[i], false, false);
    for (size_t i = 0; i < SB_COUNT(lines); i++)
        run_both_ways(&lines[i], true, true);
    for (size_t i = 0; i < SB_COUNT(other_lines); i++)
        run_both_ways(&other_lines[i], true, false);
}

/* ---- the reorder itself ------------------------------------------------- */

static void test_reorder_there_and_back(void **state)
{
    static const char *const shapes[] = {
        "1x1x1x1",   "2x3x5x7", "1x17x33x2", "3x64x1x1", "2x5x3",
        "1x3x2x3x4", "2x9x3x3", "1x8x4x4",   "2x31x5x5", "1x32x1x3",
        "1x2x5x5",   "3x5x2x2", "1x4x7x1",   "2x47x3x5", "1x16x16x1",
    };
    (void)state;
    for (size_t i = 0; i < SB_COUNT(shapes); i++) {
        sb_tensor *x = test_random(SB_DTYPE_F32, shapes[i], i);
        sb_tensor *last = test_random(SB_DTYPE_F32, shapes[i], 99);
        sb_tensor *back = test_random(SB_DTYPE_F32, shapes[i], 98);
        int64_t plain[SB_MAX_RANK], moved[SB_MAX_RANK];

        last->layout = SB_LAYOUT_CHANNELS_LAST;
        sb_tensor_reorder(test_ctx(), x, last);
        sb_tensor_strides(x, plain);
        sb_tensor_strides(last, moved);
        /* Element by element, by the definition of strides. */
        for (int64_t e = 0; e < sb_tensor_count(x); e++) {
            int64_t rest = e, at = 0;
            for (int d = x->rank - 1; d >= 0; d--) {
                at += rest % x->dims[d] * moved[d];
                rest /= x->dims[d];
            }
            assert_close(shapes[i], ((float *)last->data)[at],
                         ((float *)x->data)[e], 0);
        }
        sb_tensor_reorder(test_ctx(), last, back);
        assert_tensor(shapes[i], back, x, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_channels_last_gives_the_plain_result),
        cmocka_unit_test(test_reorder_there_and_back),
    };
    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
