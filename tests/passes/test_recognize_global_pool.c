/* Pass recognize_global_pool. */
#include "passtest.h"

#define X "x: f32[N,3,4,5]"
#define A "a: i64[2] = [2,3]\n"

static const pass_case cases[] = {
    {"as torch.export writes it",
     TEST_GRAPH(X, "y: f32[N,3,1,1]", A "y = ReduceMean(x, a)\n"),
     "y = GlobalAveragePool(x)\n", false},
    {"from the end, in another order",
     TEST_GRAPH(X, "y: f32[N,3,1,1]",
                "a: i64[2] = [-1,2]\ny = ReduceMean(x, a) {keepdims=1}\n"),
     "y = GlobalAveragePool(x)\n", false},
    {"without the axes",
     TEST_GRAPH(X, "y: f32[N,3]", A "y = ReduceMean(x, a) {keepdims=0}\n"),
     "y_0 = GlobalAveragePool(x)\ny = Flatten(y_0)\n", false},
    {"three dimensions",
     TEST_GRAPH("x: f32[1,2,3,2,2]", "y: f32[1,2,1,1,1]",
                "a: i64[3] = [3,2,4]\ny = ReduceMean(x, a)\n"),
     "y = GlobalAveragePool(x)\n", false},
    {"one, behind a convolution and its activation",
     TEST_GRAPH("x: f32[1,2,6]", "y: f32[1,3,1]",
                "w: f32[3,2,3] = random(1)\na: i64[1] = [2]\nc = Conv(x, w)\n"
                "r = Relu(c)\ny = ReduceMean(r, a)\n"),
     "w: f32[3,2,3] = {...}\nc = Conv(x, w)\nr = Relu(c)\n"
     "y = GlobalAveragePool(r)\n",
     false},
    {"one, perhaps of a sequence",
     TEST_GRAPH("x: f32[1,2,6]", "y: f32[1,2,1]",
                "a: i64[1] = [2]\ny = ReduceMean(x, a)\n"),
     NULL, false},
    {"one of two",
     TEST_GRAPH(X, "y: f32[N,3,4,1]",
                "a: i64[1] = [3]\ny = ReduceMean(x, a)\n"),
     NULL, false},
    {"channels, too",
     TEST_GRAPH(X, "y: f32[N,1,1,1]",
                "a: i64[3] = [1,2,3]\ny = ReduceMean(x, a)\n"),
     NULL, false},
    {"one twice",
     TEST_GRAPH(X, "y: f32[N,3,4,1]",
                "a: i64[2] = [3,-1]\ny = ReduceMean(x, a)\n"),
     NULL, true},
    {"what a normalization subtracts",
     TEST_GRAPH(X, "y: f32[N,3,4,5]",
                A "m = ReduceMean(x, a)\ny = Sub(x, m)\n"),
     NULL, false},
    {"another type",
     TEST_GRAPH("x: f64[1,3,4,5]", "y: f64[1,3,1,1]",
                A "y = ReduceMean(x, a)\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("recognize_global_pool", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("recognize_global_pool", tests, NULL,
                                       NULL);
}
