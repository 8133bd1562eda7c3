/* Pass fuse_linear. */
#include "passtest.h"

#define W "w: f32[6,4] = random(1)\n"
#define B "b: f32[4] = [1, -2, 0.5, 3]\n"

static const pass_case cases[] = {
    {"bias",
     TEST_GRAPH("x: f32[2,3,6]", "y: f32[2,3,4]",
                W B "m = MatMul(x, w)\ny = Add(b, m)\n"),
     "w: f32[6,4] = {...}\n"
     "b: f32[4] = [1, -2, 0.5, 3]\n"
     "y = sparsebit::FusedMatMul(x, w, b)\n",
     false},
    {"activation",
     TEST_GRAPH("x: f32[3,6]", "y: f32[3,4]",
                W "m = MatMul(x, w)\ny = Gelu(m)\n"),
     "w: f32[6,4] = {...}\n"
     "y = sparsebit::FusedMatMul(x, w) {activation=\"Gelu\"}\n",
     false},
    {"the product has another consumer",
     TEST_GRAPH("x: f32[3,6]", "y: f32[3,4], z: f32[3,4]",
                W "m = MatMul(x, w)\ny = Relu(m)\nz = Neg(m)\n"),
     NULL, false},
    {"weights are not constant",
     TEST_GRAPH("x: f32[3,6], w: f32[6,4]", "y: f32[3,4]",
                "m = MatMul(x, w)\ny = Relu(m)\n"),
     "y = sparsebit::FusedMatMul(x, w) {activation=\"Relu\"}\n", false},
    {"a matrix for each item",
     TEST_GRAPH("x: f32[2,3,6], w: f32[2,6,4]", "y: f32[2,3,4]",
                "m = MatMul(x, w)\ny = Relu(m)\n"),
     NULL, false},
    {"a bias for each row",
     TEST_GRAPH("x: f32[4,6]", "y: f32[4,4]",
                W "b: f32[4,1] = [1, 2, 3, 4]\n"
                  "m = MatMul(x, w)\ny = Add(m, b)\n"),
     NULL, false},
    {"a bias that widens the result",
     TEST_GRAPH("x: f32[3,6]", "y: f32[1,3,4]",
                W "b: f32[1,1,4] = [1, 2, 3, 4]\n"
                  "m = MatMul(x, w)\ny = Add(m, b)\n"),
     NULL, false},
    {"factors",
     TEST_GRAPH("x: f32[3,6]", "y: f32[3,4]",
                W B "m = Gemm(x, w, b) {beta=2.0}\ny = Relu(m)\n"),
     NULL, false},
};

/* What goes in at once; the texts would only repeat the weights. */
static const struct {
    const char *what, *gone, *text;
} wholes[] = {
    {"bias, residual and activation", "Relu",
     TEST_GRAPH("x: f32[2,3,6], z: f32[2,3,4]", "y: f32[2,3,4]",
                W B "m = MatMul(x, w)\ns = Add(m, b)\nt = Add(z, s)\n"
                    "y = Relu(t)\n")},
    {"transposed weights", "Gelu",
     TEST_GRAPH("x: f32[3,6]", "y: f32[3,4]",
                "w: f32[4,6] = random(1)\n" B "m = Gemm(x, w, b) {transB=1}\n"
                "y = Gelu(m) {approximate=\"tanh\"}\n")},
    {"large enough for tiles", "Swish",
     TEST_GRAPH("x: f32[5,40,64]", "y: f32[5,40,300]",
                "w: f32[64,300] = random(1)\nb: f32[300] = random(2)\n"
                "m = MatMul(x, w)\ns = Add(m, b)\ny = Swish(s)\n")},
    {"the input is the addend", "Add",
     TEST_GRAPH("x: f32[5,40,64]", "y: f32[5,40,64]",
                "w: f32[64,64] = random(1)\n"
                "a = Neg(x)\nm = MatMul(a, w)\ny = Add(a, m)\n")},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("fuse_linear", cases, SB_COUNT(cases));
}

static void test_bias_and_shape_nodes_vanish(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(wholes); i++)
        test_pass_removes("fuse_linear", wholes[i].what, wholes[i].text,
                          wholes[i].gone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
        cmocka_unit_test(test_bias_and_shape_nodes_vanish),
    };
    return cmocka_run_group_tests_name("fuse_linear", tests, NULL, NULL);
}
