/* Pass merge_reshape: only the last of a chain matters. */
#include "passtest.h"

static const pass_case cases[] = {
    {"two reshapes",
     TEST_GRAPH("x: f32[2,3,4]", "y: f32[4,6]",
                "s: i64[2] = [6, 4]\n"
                "t: i64[2] = [4, -1]\n"
                "a = Reshape(x, s)\n"
                "y = Reshape(a, t)\n"),

     "t: i64[2] = [4, -1]\n"
     "y = Reshape(x, t)\n",
     false},
    {"a target with 0 speaks of what is between",
     TEST_GRAPH("x: f32[2,3,4]", "y: f32[6,2,2]",
                "s: i64[2] = [6, 4]\n"
                "t: i64[3] = [0, 2, 2]\n"
                "a = Reshape(x, s)\n"
                "y = Reshape(a, t)\n"),
     "shape_0: i64[3] = [6, 2, 2]\n"
     "y = Reshape(x, shape_0)\n",
     false},
    {"squeeze of unsqueeze",
     TEST_GRAPH("x: f32[N,3]", "y: f32[N,3,1]",
                "p: i64[1] = [1]\n"
                "q: i64[2] = [1, 3]\n"
                "a = Unsqueeze(x, q)\n"
                "y = Squeeze(a, p)\n"),
     "shape_0: i64[3] = [0, 3, 1]\n"
     "y = Reshape(x, shape_0)\n",
     false},
    {"flatten of reshape",
     TEST_GRAPH("x: f32[2,3,4]", "y: f32[6,4]",
                "s: i64[3] = [6, 2, 2]\n"
                "a = Reshape(x, s)\n"
                "y = Flatten(a)\n"),
     "shape_0: i64[2] = [6, 4]\n"
     "y = Reshape(x, shape_0)\n",
     false},
    {"the one in between may be used",
     TEST_GRAPH("x: f32[2,3,4]", "y: f32[4,6], z: f32[6,4]",
                "s: i64[2] = [6, 4]\n"
                "t: i64[2] = [4, -1]\n"
                "a = Reshape(x, s)\n"
                "z = Neg(a)\n"
                "y = Reshape(a, t)\n"),

     "s: i64[2] = [6, 4]\n"
     "t: i64[2] = [4, -1]\n"
     "a = Reshape(x, s)\n"
     "z = Neg(a)\n"
     "y = Reshape(x, t)\n",
     false},
    {"a gather of everything",
     TEST_GRAPH("x: f32[N,4,2]", "y: f32[N,1,4,1,2]",
                "i: i64[1,4,1] = [0, 1, 2, 3]\n"
                "y = Gather(x, i) {axis=-2}\n"),
     "shape_0: i64[5] = [0, 1, 4, 1, 2]\n"
     "y = Reshape(x, shape_0)\n",
     false},
    {"a gather in another order, or of a part, stays",
     TEST_GRAPH("x: f32[5,4]", "y: f32[5,2,2], z: f32[4,4]",
                "i: i64[2,2] = [0, 2, 1, 3]\n"
                "k: i64[4] = [0, 1, 2, 3]\n"
                "y = Gather(x, i) {axis=1}\n"
                "z = Gather(x, k)\n"),
     NULL, true},
    {"a target that is computed by reshaping is none of ours",
     TEST_GRAPH("x: f32[2,3], s: i64[1,2]", "y: f32[*]",
                "ax: i64[1] = [0]\n"
                "t = Squeeze(s, ax)\n"
                "y = Reshape(x, t)\n"),
     NULL, true},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("merge_reshape", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("merge_reshape", tests, NULL, NULL);
}
