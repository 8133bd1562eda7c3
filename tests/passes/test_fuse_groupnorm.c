/* Pass fuse_groupnorm. */
#include "passtest.h"

#define X "x: f32[2,6,3,5]"
#define Y "y: f32[2,6,3,5]"
#define REST                                        \
    "s: i64[3] = [0,2,-1]\nb: i64[4] = [2,6,3,5]\n" \
    "z: f32[2] = [0, 0]\n"                          \
    "u: f32[6,1,1] = [1, 2, 3, 4, 5, 6]\nv: f32[6,1,1] = [6, 5, 4, 3, 2, 1]\n"
#define ONES "o: f32[2] = [1, 1]\n"

static const pass_case cases[] = {
    {"as PyTorch writes it",
     TEST_GRAPH(X, Y,
                ONES REST "r = Reshape(x, s)\n"
                          "n = InstanceNormalization(r, o, z) {epsilon=0.1}\n"
                          "q = Reshape(n, b)\nm = Mul(q, u)\ny = Add(m, v)\n"),
     "u_0: f32[6] = [1, 2, 3, 4, 5, 6]\nv_1: f32[6] = [6, 5, 4, 3, 2, 1]\n"
     "y = GroupNormalization(x, u_0, v_1) {num_groups=2, epsilon=0.1}\n",
     false},
    {"without scale and bias",
     TEST_GRAPH(X, Y,
                ONES "s: i64[3] = [0,2,-1]\nb: i64[4] = [2,6,3,5]\n"
                     "z: f32[2] = [0, 0]\nr = Reshape(x, s)\n"
                     "n = InstanceNormalization(r, o, z)\ny = Reshape(n, b)\n"),
     "scale_0: f32[6] = [1, 1, 1, 1, 1, 1]\n"
     "bias_1: f32[6] = [0, 0, 0, 0, 0, 0]\n"
     "y = GroupNormalization(x, scale_0, bias_1) {num_groups=2, "
     "epsilon=1e-05}\n",
     false},
    {"another scale before",
     TEST_GRAPH(X, Y,
                "o: f32[2] = [1, 2]\n" REST "r = Reshape(x, s)\n"
                "n = InstanceNormalization(r, o, z)\n"
                "q = Reshape(n, b)\nm = Mul(q, u)\ny = Add(m, v)\n"),
     NULL, false},
    {"one number a place",
     TEST_GRAPH(X, Y,
                ONES "s: i64[3] = [0,2,-1]\nb: i64[4] = [2,6,3,5]\n"
                     "z: f32[2] = [0, 0]\n"
                     "u: f32[3,5] = random(1)\nv: f32[3,5] = random(2)\n"
                     "r = Reshape(x, s)\nn = InstanceNormalization(r, o, z)\n"
                     "q = Reshape(n, b)\nm = Mul(q, u)\ny = Add(m, v)\n"),
     NULL, false},
    {"images are grouped",
     TEST_GRAPH(X, Y,
                "o: f32[4] = [1, 1, 1, 1]\nz: f32[4] = [0, 0, 0, 0]\n"
                "s: i64[3] = [1,4,-1]\nb: i64[4] = [2,6,3,5]\n"
                "u: f32[6,1,1] = [1, 2, 3, 4, 5, 6]\nv: f32[6,1,1] = [6, 5, 4, "
                "3, 2, 1]\n"
                "r = Reshape(x, s)\nn = InstanceNormalization(r, o, z)\n"
                "q = Reshape(n, b)\nm = Mul(q, u)\ny = Add(m, v)\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("fuse_groupnorm", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("fuse_groupnorm", tests, NULL, NULL);
}
