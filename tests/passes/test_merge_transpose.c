/* Pass merge_transpose: consecutive ones, and those that move nothing. */
#include "passtest.h"

static const pass_case cases[] = {
    {"inverses cancel",
     TEST_GRAPH("x: f32[2,3,4]", "y: f32[2,3,4]",
                "a = Transpose(x) {perm=[0,2,1]}\n"
                "b = Transpose(a) {perm=[0,2,1]}\n"
                "y = Neg(b)\n"),

     "y = Neg(x)\n", false},
    {"two become one",
     TEST_GRAPH("x: f32[2,3,4]", "y: f32[4,2,3]",
                "a = Transpose(x) {perm=[0,2,1]}\n"
                "y = Transpose(a) {perm=[1,0,2]}\n"),

     "y = Transpose(x) {perm=[2,0,1]}\n", false},
    {"also when the first is used",
     TEST_GRAPH("x: f32[2,3,4]", "y: f32[4,2,3], z: f32[2,4,3]",
                "a = Transpose(x) {perm=[0,2,1]}\n"
                "z = Neg(a)\n"
                "y = Transpose(a) {perm=[1,0,2]}\n"),

     "a = Transpose(x) {perm=[0,2,1]}\n"
     "z = Neg(a)\n"
     "y = Transpose(x) {perm=[2,0,1]}\n",
     false},
    {"from input to output it stays a copy",
     TEST_GRAPH("x: f32[2,3]", "y: f32[2,3]",
                "a = Transpose(x)\n"
                "y = Transpose(a)\n"),

     "y = Transpose(x) {perm=[0,1]}\n", false},
    {"only a dimension of 1 moves",
     TEST_GRAPH("x: f32[2,3,1]", "y: f32[1,2,3]",
                "y = Transpose(x) {perm=[2,0,1]}\n"),
     "shape_0: i64[3] = [1, 2, 3]\n"
     "y = Reshape(x, shape_0)\n",
     false},
    {"with a symbol",
     TEST_GRAPH("x: f32[N,3,1]", "y: f32[N,1,3]",
                "y = Transpose(x) {perm=[0,2,1]}\n"),
     "shape_0: i64[3] = [0, 1, 3]\n"
     "y = Reshape(x, shape_0)\n",
     false},
    {"a real transpose stays",
     TEST_GRAPH("x: f32[2,3,1]", "y: f32[3,2,1]",
                "y = Transpose(x) {perm=[1,0,2]}\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("merge_transpose", cases, SB_COUNT(cases));
}

static void test_ten_thousand_in_a_row_become_one(void **state)
{
    (void)state;
    assert_int_equal(test_pass_chain("merge_transpose", "f32[2,2]", "",
                                     "v%o = Transpose(v%i)\n", 9999),
                     1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
        cmocka_unit_test(test_ten_thousand_in_a_row_become_one),
    };
    return cmocka_run_group_tests_name("merge_transpose", tests, NULL, NULL);
}
