/* MixTrain: which elements are taken depends on counter, stream and place
 * alone, whatever the layout; gradients go to where the elements came from. */
#include "sbtest.h"

#include "graph/text.h"
#include "ops/grad/grad.h"
#include "ops/learn/mix_train.h"

enum { N = 20000 };

#define GRAPH(attrs)                                                    \
    "graph g(c: i64[], s: f32[], x: f32[2,10,1000], q: f32[2,10,1000])" \
    " -> (y: f32[2,10,1000]) {\n"                                       \
    "  y = sparsebit::MixTrain(c, s, x, q) {" attrs "}\n}\n"

/* 1, 2, 3, ... times `factor`. */
static sb_tensor *numbers(float factor)
{
    sb_tensor *t = test_tensor(SB_DTYPE_F32, "2x10x1000", NULL);

    for (int i = 0; i < N; i++)
        ((float *)t->data)[i] = (float)(i + 1) * factor;
    return t;
}

static sb_tensor *mix(const char *text, double counter, double share)
{
    return test_run1(text, (const sb_tensor *[]){test_i64("", counter),
                                                 test_f32("", share),
                                                 numbers(1), numbers(-1)});
}

/* How many are of q; all are of x or q. */
static int count_q(const sb_tensor *t)
{
    int n = 0;

    for (int i = 0; i < N; i++) {
        float v = ((const float *)t->data)[i];
        assert_true(v == (float)(i + 1) || v == -(float)(i + 1));
        n += v < 0;
    }
    return n;
}

/* Within five deviations of a binomial distribution. */
static void test_share_of_elements(void **state)
{
    (void)state;
    assert_in_range(count_q(mix(GRAPH(""), 7, 0.5)), 10000 - 354, 10000 + 354);
    assert_in_range(count_q(mix(GRAPH(""), 8, 0.25)), 5000 - 306, 5000 + 306);
    assert_int_equal(count_q(mix(GRAPH(""), 7, 0)), 0);
    assert_int_equal(count_q(mix(GRAPH(""), 7, 1)), N);
}

static int agreement(const sb_tensor *a, const sb_tensor *b)
{
    int n = 0;

    for (int i = 0; i < N; i++)
        n += (((const float *)a->data)[i] < 0) ==
             (((const float *)b->data)[i] < 0);
    return n;
}

/* Of two independent choices a half agrees; neighbors are independent, too. */
static void test_counter_and_stream_choose(void **state)
{
    (void)state;
    const sb_tensor *a = mix(GRAPH("stream=1"), 3, 0.5);
    const float *v = a->data;
    int pairs = 0;

    for (int threads = 1; threads <= 4; threads++) {
        sb_ctx_set_threads(test_ctx(), threads);
        assert_tensor("again", mix(GRAPH("stream=1"), 3, 0.5), a, 0);
    }
    sb_ctx_set_threads(test_ctx(), 0);
    assert_in_range(agreement(a, mix(GRAPH("stream=1"), 4, 0.5)), 9646, 10354);
    assert_in_range(agreement(a, mix(GRAPH("stream=2"), 3, 0.5)), 9646, 10354);
    for (int i = 1; i < N; i++)
        pairs += (v[i] < 0) == (v[i - 1] < 0);
    assert_in_range(pairs, 9646, 10354);
}

/* The function that others call chooses as the operator does. */
static void test_function(void **state)
{
    const sb_mix_choice choice = {.counter = 3, .stream = 1, .share = 0.5};
    const sb_tensor *x = numbers(1), *q = numbers(-1);
    sb_tensor *y = numbers(0);

    (void)state;
    sb_mix(test_ctx(), &choice, x->data, q->data, y->data, N);
    assert_tensor("same", y, mix(GRAPH("stream=1"), 3, 0.5), 0);
}

/* Behind a convolution values lie channels last; the identity one shows that
 * the same places are chosen. */
static void test_layouts_agree(void **state)
{
    static const char plain[] =
        "graph g(c: i64[], s: f32[], x: f32[2,8,5,7], q: f32[2,8,5,7])"
        " -> (y) {\n  y = sparsebit::MixTrain(c, s, x, q)\n}\n";
    static const char conv[] =
        "graph g(c: i64[], s: f32[], x: f32[2,8,5,7], q: f32[2,8,5,7], "
        "w: f32[8,8,1,1]) -> (z) {\n"
        "  a = Conv(x, w)\n  b = Conv(q, w)\n"
        "  y = sparsebit::MixTrain(c, s, a, b)\n  z = Conv(y, w)\n}\n";
    sb_tensor *x = test_tensor(SB_DTYPE_F32, "2x8x5x7", NULL);
    sb_tensor *q = test_tensor(SB_DTYPE_F32, "2x8x5x7", NULL);
    sb_tensor *w = test_tensor(SB_DTYPE_F32, "8x8x1x1", NULL);

    (void)state;
    for (int i = 0; i < 560; i++) {
        ((float *)x->data)[i] = (float)(i + 1);
        ((float *)q->data)[i] = (float)(-i - 1);
    }
    for (int i = 0; i < 64; i++)
        ((float *)w->data)[i] = i % 9 == 0;
    const sb_tensor *in[] = {test_i64("", 5), test_f32("", 0.5), x, q, w};
    assert_tensor("layout", test_run1(conv, in), test_run1(plain, in), 0);
}

static void test_gradients(void **state)
{
    sb_graph *g = NULL;
    sb_value_id grads[2];

    (void)state;
    assert_ok(sb_graph_parse(
        test_ctx(),
        "graph g(c: i64[], s: f32[], x: f32[5], q: f32[5]) -> (loss: f32[]) {\n"
        "  y = sparsebit::MixTrain(c, s, x, q) {stream=9}\n"
        "  loss = ReduceSum(y) {keepdims=0}\n}\n",
        &g));
    assert_ok(sb_graph_gradient(g, g->outputs[0], g->inputs + 2, 2, grads));
    for (int i = 0; i < 2; i++) {
        const sb_node *node = sb_graph_producer(g, grads[i]);

        assert_string_equal(node->op, "MixTrain");
        assert_int_equal(sb_node_int(node, "stream", 0), 9);
        assert_int_equal(sb_node_in(node, 0), g->inputs[0]);
        assert_int_equal(sb_node_in(node, 1), g->inputs[1]);
        assert_int_not_equal(sb_node_in(node, 2 + (uint32_t)i), SB_NONE);
        assert_int_equal(sb_node_in(node, 3 - (uint32_t)i), SB_NONE);
    }
    sb_graph_free(g);
    /* What one gets the other does not. */
    static const char only[] =
        "graph g(c: i64[], s: f32[], x: f32[2,10,1000], q: f32[2,10,1000])"
        " -> (y) {\n  a = sparsebit::MixTrain(c, s, x)\n"
        "  b = sparsebit::MixTrain(c, s, _, q)\n  y = Add(a, b)\n}\n";
    assert_tensor("sum", mix(only, 6, 0.5), mix(GRAPH(""), 6, 0.5), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share_of_elements),
        cmocka_unit_test(test_counter_and_stream_choose),
        cmocka_unit_test(test_function),
        cmocka_unit_test(test_layouts_agree),
        cmocka_unit_test(test_gradients),
    };
    return cmocka_run_group_tests_name("mix_train", tests, NULL, NULL);
}
