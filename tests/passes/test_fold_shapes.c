/* Pass fold_shapes: arithmetic on shapes, done as far as they are known. */
#include "passtest.h"

static const pass_case cases[] = {
    {"shape of a known tensor",
     TEST_GRAPH("x: f32[2,4]", "y: i64[2]",
                "a = Relu(x)\n"
                "s = Shape(a)\n"
                "o: i64[1] = [1]\n"
                "y = Add(s, o)\n"),
     "y_0: i64[2] = [3, 5]\n"
     "y = Identity(y_0)\n",
     false},
    {"flatten by shape arithmetic",
     TEST_GRAPH("x: f32[2,3,4]", "y: f32[2,12]",
                "s = Shape(x)\n"
                "i: i64[] = 0\n"
                "b = Gather(s, i)\n"
                "ax: i64[1] = [0]\n"
                "u = Unsqueeze(b, ax)\n"
                "m: i64[1] = [-1]\n"
                "t = Concat(u, m) {axis=0}\n"
                "y = Reshape(x, t)\n"),

     "t: i64[2] = [2, -1]\n"
     "y = Reshape(x, t)\n",
     false},
    {"one symbol that keeps its place",
     TEST_GRAPH("x: f32[N,3,4]", "y: f32[N,12]",
                "s = Shape(x)\n"
                "i: i64[] = 0\n"
                "b = Gather(s, i)\n"
                "ax: i64[1] = [0]\n"
                "u = Unsqueeze(b, ax)\n"
                "m: i64[1] = [-1]\n"
                "t = Concat(u, m) {axis=0}\n"
                "y = Reshape(x, t)\n"),
     "target_0: i64[2] = [0, -1]\n"
     "y = Reshape(x, target_0)\n",
     false},
    {"one symbol that moves",
     TEST_GRAPH("x: f32[N,3,4]", "y: f32[3,N,4]",
                "s = Shape(x)\n"
                "i: i64[] = 0\n"
                "b = Gather(s, i)\n"
                "ax: i64[1] = [0]\n"
                "u = Unsqueeze(b, ax)\n"
                "h: i64[1] = [3]\n"
                "k: i64[1] = [4]\n"
                "t = Concat(h, u, k) {axis=0}\n"
                "y = Reshape(x, t)\n"),
     "target_0: i64[3] = [3, -1, 4]\n"
     "y = Reshape(x, target_0)\n",
     false},
    {"two symbols that move stay",
     TEST_GRAPH("x: f32[N,M,4]", "y: f32[4,N,M]",
                "s = Shape(x) {start=0, end=2}\n"
                "h: i64[1] = [4]\n"
                "t = Concat(h, s) {axis=0}\n"
                "y = Reshape(x, t)\n"),
     NULL, false},
    {"expand keeps a symbol",
     TEST_GRAPH("x: f32[N,1,4]", "y: f32[N,5,4]",
                "s = Shape(x) {start=0, end=1}\n"
                "h: i64[2] = [5, 4]\n"
                "t = Concat(s, h) {axis=0}\n"
                "y = Expand(x, t)\n"),
     "target_0: i64[3] = [1, 5, 4]\n"
     "y = Expand(x, target_0)\n",
     false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("fold_shapes", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("fold_shapes", tests, NULL, NULL);
}
