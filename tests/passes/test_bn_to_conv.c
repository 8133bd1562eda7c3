/* Pass bn_to_conv. */
#include "passtest.h"

#define BN(c)                       \
    "g: f32[" c "] = [1, -2]\n"     \
    "h: f32[" c "] = [0.25, 0]\n"   \
    "m: f32[" c "] = [0.5, -0.5]\n" \
    "v: f32[" c "] = [0.99999, 3.99999]\n"

static const pass_case cases[] = {
    /* 1 / sqrt(1) and 1 / sqrt(4), by hand */
    {"before an activation",
     TEST_GRAPH("x: f32[N,2,3,3]", "y: f32[N,2,3,3]",
                BN("2") "b = BatchNormalization(x, g, h, m, v)\n"
                        "y = Relu(b)\n"),
     "g_0: f32[2,1,1,1] = [1, -1]\n"
     "h_1: f32[2] = [-0.25, -0.5]\n"
     "b = Conv(x, g_0, h_1) {kernel_shape=[1,1], group=2}\n"
     "y = Relu(b)\n",
     false},
    {"of rows",
     TEST_GRAPH("x: f32[N,2]", "y: f32[N,2]",
                BN("2") "y = BatchNormalization(x, g, h, m, v)\n"),
     NULL, false},
    {"training",
     TEST_GRAPH("x: f32[1,2,3,3]", "y: f32[1,2,3,3]",
                BN("2") "y = BatchNormalization(x, g, h, m, v) "
                        "{training_mode=1}\n"),
     NULL, false},
    {"a variance below 0",
     TEST_GRAPH("x: f32[1,1,2,2]", "y: f32[1,1,2,2]",
                "g: f32[1] = [1]\nv: f32[1] = [-1]\n"
                "y = BatchNormalization(x, g, g, g, v)\n"),
     NULL, true},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("bn_to_conv", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("bn_to_conv", tests, NULL, NULL);
}
