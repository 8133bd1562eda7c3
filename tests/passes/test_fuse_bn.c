/* Pass fuse_bn: the weights that come out are checked by running both graphs;
 * the texts show that the normalization is gone. */
#include "passtest.h"

#define BN                            \
    "g: f32[4] = [1, -2, 0.5, 3]\n"   \
    "h: f32[4] = [0.25, 0, -1, 2]\n"  \
    "m: f32[4] = [0.5, -0.5, 1, 0]\n" \
    "v: f32[4] = [1, 4, 0.25, 9]\n"

static const pass_case cases[] = {
    {"convolution",
     TEST_GRAPH("x: f32[1,3,5,5]", "y: f32[1,4,3,3]",
                "w: f32[4,3,3,3] = random(1)\n" BN "c = Conv(x, w)\n"
                "y = BatchNormalization(c, g, h, m, v)\n"),
     "w_0: f32[4,3,3,3] = {...}\n"
     /* 0.25 - 0.5 * 1 / sqrt(1.00001), and so on, in float by NumPy */
     "w_1: f32[4] = [-0.2499975, -0.4999994, -1.99998, 2]\n"
     "y = Conv(x, w_0, w_1)\n",
     false},
    {"the convolution has another consumer",
     TEST_GRAPH("x: f32[1,3,5,5]", "y: f32[1,4,3,3], z: f32[1,4,3,3]",
                "w: f32[4,3,3,3] = random(1)\n" BN "c = Conv(x, w)\n"
                "y = BatchNormalization(c, g, h, m, v)\n"
                "z = Neg(c)\n"),
     NULL, false},
    {"the convolution is an output",
     TEST_GRAPH("x: f32[1,3,5,5]", "y: f32[1,4,3,3], c: f32[1,4,3,3]",
                "w: f32[4,3,3,3] = random(1)\n" BN "c = Conv(x, w)\n"
                "y = BatchNormalization(c, g, h, m, v)\n"),
     NULL, false},
    {"weights are not constant",
     TEST_GRAPH("x: f32[1,3,5,5], w: f32[4,3,3,3]", "y: f32[1,4,3,3]",
                BN "c = Conv(x, w)\n"
                   "y = BatchNormalization(c, g, h, m, v)\n"),
     NULL, false},
    {"training",
     TEST_GRAPH("x: f32[1,3,5,5]", "y: f32[1,4,3,3]",
                "w: f32[4,3,3,3] = random(1)\n" BN "c = Conv(x, w)\n"
                "y = BatchNormalization(c, g, h, m, v) {training_mode=1}\n"),
     NULL, false},
};

/* These differ in the layout of weights; what they compute is the test. */
static const struct {
    const char *what, *text;
} layers[] = {
    {"convolution with bias and groups",
     TEST_GRAPH("x: f32[2,6,5]", "y: f32[2,4,4]",
                "w: f32[4,3,2] = random(2)\n b: f32[4] = random(3)\n" BN
                "c = Conv(x, w, b) {group=2}\n"
                "y = BatchNormalization(c, g, h, m, v)\n")},
    {"transposed convolution with groups",
     TEST_GRAPH("x: f32[1,6,3,3]", "y: f32[1,4,5,5]",
                "w: f32[6,2,3,3] = random(2)\n b: f32[4] = random(3)\n" BN
                "c = ConvTranspose(x, w, b) {group=2}\n"
                "y = BatchNormalization(c, g, h, m, v)\n")},
    {"linear", TEST_GRAPH("x: f32[3,5]", "y: f32[3,4]",
                          "w: f32[4,5] = random(2)\n b: f32[4] = random(3)\n" BN
                          "c = Gemm(x, w, b) {transB=1, alpha=0.5, beta=3.0}\n"
                          "y = BatchNormalization(c, g, h, m, v)\n")},
    {"matrix product",
     TEST_GRAPH("x: f32[3,5]", "y: f32[3,4]",
                "w: f32[5,4] = random(2)\n" BN "c = MatMul(x, w)\n"
                "y = BatchNormalization(c, g, h, m, v)\n")},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("fuse_bn", cases, SB_COUNT(cases));
}

static void test_every_layer_computes_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(layers); i++)
        test_pass_removes("fuse_bn", layers[i].what, layers[i].text,
                          "BatchNormalization");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
        cmocka_unit_test(test_every_layer_computes_the_same),
    };
    return cmocka_run_group_tests_name("fuse_bn", tests, NULL, NULL);
}
