/* DropoutTrain: which elements are dropped depends on counter, stream and place
 * alone; the gradient drops the same ones. */
#include "sbtest.h"

#include "graph/text.h"
#include "ops/grad/grad.h"

enum { N = 20000 };

#define GRAPH(attrs)                                          \
    "graph g(x: f32[20000], c: i64[]) -> (y: f32[20000]) {\n" \
    "  y = sparsebit::DropoutTrain(x, c) {" attrs "}\n}\n"

static sb_tensor *ones(void)
{
    sb_tensor *t = test_tensor(SB_DTYPE_F32, "20000", NULL);

    for (int i = 0; i < N; i++)
        ((float *)t->data)[i] = 1;
    return t;
}

static sb_tensor *drop(const char *text, int64_t counter)
{
    return test_run1(
        text, (const sb_tensor *[]){ones(), test_i64("", (double)counter)});
}

static int count_kept(const sb_tensor *t, float want)
{
    int n = 0;

    for (int i = 0; i < N; i++) {
        float v = ((const float *)t->data)[i];
        assert_true(v == 0 || v == want);
        n += v != 0;
    }
    return n;
}

/* A share of 3/4 is kept, within five deviations, and grows by 4/3. */
static void test_share_of_elements(void **state)
{
    (void)state;
    int kept = count_kept(drop(GRAPH("ratio=0.25"), 7), 1.0f / 0.75f);

    assert_in_range(kept, 15000 - 306, 15000 + 306);
    assert_int_equal(count_kept(drop(GRAPH("ratio=0.0"), 7), 1), N);
}

/* Of two independent choices a half agrees. */
static int agreement(const sb_tensor *a, const sb_tensor *b)
{
    int n = 0;

    for (int i = 0; i < N; i++)
        n += (((const float *)a->data)[i] != 0) ==
             (((const float *)b->data)[i] != 0);
    return n;
}

static void test_counter_and_stream_choose(void **state)
{
    (void)state;
    const sb_tensor *a = drop(GRAPH("ratio=0.5, stream=1"), 3);

    for (int threads = 1; threads <= 4; threads++) {
        sb_ctx_set_threads(test_ctx(), threads);
        assert_tensor("again", drop(GRAPH("ratio=0.5, stream=1"), 3), a, 0);
    }
    sb_ctx_set_threads(test_ctx(), 0);
    assert_in_range(agreement(a, drop(GRAPH("ratio=0.5, stream=1"), 4)), 9646,
                    10354);
    assert_in_range(agreement(a, drop(GRAPH("ratio=0.5, stream=2"), 3)), 9646,
                    10354);
}

static void test_gradient_drops_the_same(void **state)
{
    (void)state;
    sb_tensor *out[2];

    test_run(
        "graph g(x: f32[20000], c: i64[]) -> (y: f32[20000], z: f32[20000])"
        " {\n  y = sparsebit::DropoutTrain(x, c) {ratio=0.5, stream=9}\n"
        "  z = sparsebit::DropoutTrain(x, c) {ratio=0.5, stream=9}\n}\n",
        (const sb_tensor *[]){ones(), test_i64("", 1)}, out, 2);
    assert_tensor("mask", out[0], out[1], 0);

    sb_graph *g = NULL;
    sb_value_id grad = SB_NONE;
    assert_ok(sb_graph_parse(
        test_ctx(),
        "graph g(x: f32[5], c: i64[]) -> (loss: f32[]) {\n"
        "  y = sparsebit::DropoutTrain(x, c) {ratio=0.5, stream=9}\n"
        "  loss = ReduceSum(y) {keepdims=0}\n}\n",
        &g));
    assert_ok(sb_graph_gradient(g, g->outputs[0], g->inputs, 1, &grad));
    const sb_node *node = sb_graph_producer(g, grad);
    assert_string_equal(node->op, "DropoutTrain");
    assert_int_equal(sb_node_int(node, "stream", 0), 9);
    assert_int_equal(node->inputs[1], g->inputs[1]);
    sb_graph_free(g);
}

static void test_refusals(void **state)
{
    (void)state;
    const sb_tensor *in[] = {ones(), test_i64("", 0)};

    assert_status(test_try_run(GRAPH("ratio=1.0"), in), SB_BAD_MODEL);
    assert_error_has("ratio is 1, want 0 to less than 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share_of_elements),
        cmocka_unit_test(test_counter_and_stream_choose),
        cmocka_unit_test(test_gradient_drops_the_same),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("dropout_train", tests, NULL, NULL);
}
