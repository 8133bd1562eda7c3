/* Pass fuse_conv. */
#include "passtest.h"

#define X  "x: f32[1,3,5,5]"
#define XZ "x: f32[1,3,5,5], z: f32[1,4,3,3]"
#define Y  "y: f32[1,4,3,3]"
#define W  "w: f32[4,3,3,3] = random(1)\n"

static const pass_case cases[] = {
    {"activation", TEST_GRAPH(X, Y, W "c = Conv(x, w)\ny = Relu(c)\n"),
     "w: f32[4,3,3,3] = {...}\n"
     "y = sparsebit::FusedConv(x, w, _) {activation=\"Relu\"}\n",
     false},
    {"activation with bounds",
     TEST_GRAPH(X, Y,
                W "lo: f32 = -0.5\nhi: f32 = 0.5\n"
                  "c = Conv(x, w) {strides=[1,1]}\ny = Clip(c, lo, hi)\n"),
     "w: f32[4,3,3,3] = {...}\n"
     "y = sparsebit::FusedConv(x, w, _) {strides=[1,1], activation=\"Clip\", "
     "activation_params=[-0.5,0.5]}\n",
     false},
    {"sum, then activation",
     TEST_GRAPH(XZ, Y, W "c = Conv(x, w)\ns = Add(z, c)\ny = Relu(s)\n"),
     "w: f32[4,3,3,3] = {...}\n"
     "y = sparsebit::FusedConv(x, w, _, z) {activation=\"Relu\"}\n",
     false},
    {"activation, then sum",
     TEST_GRAPH(XZ, Y, W "c = Conv(x, w)\nr = Swish(c)\ny = Add(r, z)\n"),
     "w: f32[4,3,3,3] = {...}\n"
     "y = sparsebit::FusedConv(x, w, _, z) {activation=\"Swish\", "
     "activation_params=[1.0], sum_last=1}\n",
     false},
    {"no second activation",
     TEST_GRAPH(X, Y, W "c = Conv(x, w)\nr = Relu(c)\ny = Sigmoid(r)\n"),
     "w: f32[4,3,3,3] = {...}\n"
     "r = sparsebit::FusedConv(x, w, _) {activation=\"Relu\"}\n"
     "y = Sigmoid(r)\n",
     false},
    {"a sum that broadcasts",
     TEST_GRAPH("x: f32[1,3,5,5], z: f32[4,1,1]", Y,
                W "c = Conv(x, w)\ny = Add(c, z)\n"),
     NULL, false},
    {"with itself", TEST_GRAPH(X, Y, W "c = Conv(x, w)\ny = Add(c, c)\n"), NULL,
     false},
    {"read elsewhere",
     TEST_GRAPH(X, Y ", q: f32[1,4,3,3]",
                W "c = Conv(x, w)\ny = Relu(c)\nq = Neg(c)\n"),
     NULL, false},
    {"an output",
     TEST_GRAPH(X, Y ", c: f32[1,4,3,3]", W "c = Conv(x, w)\ny = Relu(c)\n"),
     NULL, false},
    {"bounds that are computed",
     TEST_GRAPH("x: f32[1,3,5,5], lo: f32", Y,
                W "c = Conv(x, w)\ny = Clip(c, lo)\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("fuse_conv", cases, SB_COUNT(cases));
}

/* The addend is also the convolution's input: the sum must not be written over
 * it before it is read. */
static void test_residual_of_the_input(void **state)
{
    (void)state;
    test_pass_removes("fuse_conv", "residual",
                      TEST_GRAPH("x: f32[1,4,6,6]", "y: f32[1,4,6,6]",
                                 "w: f32[4,4,3,3] = random(1)\n"
                                 "a = Neg(x)\n"
                                 "c = Conv(a, w) {pads=[1,1,1,1]}\n"
                                 "y = Add(c, a)\n"),
                      "Add");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
        cmocka_unit_test(test_residual_of_the_input),
    };
    return cmocka_run_group_tests_name("fuse_conv", tests, NULL, NULL);
}
