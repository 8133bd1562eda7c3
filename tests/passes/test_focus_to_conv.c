/* Pass focus_to_conv. */
#include "passtest.h"

#define ROWS(in, v, start) v " = Slice(" in ", " start ", end, rows, two)\n"
#define COLUMNS(in, v, start) \
    v " = Slice(" in ", " start ", end, columns, two)\n"
#define CONSTANTS                             \
    "even: i64[1] = [0]\nodd: i64[1] = [1]\n" \
    "two: i64[1] = [2]\nrows: i64[1] = [2]\n" \
    "columns: i64[1] = [3]\n"                 \
    "end: i64[1] = [9223372036854775807]\n"
#define PARTS                  \
    ROWS("x", "r0", "even")    \
    ROWS("x", "r1", "odd")     \
    COLUMNS("r0", "a", "even") \
    COLUMNS("r1", "b", "even") \
    COLUMNS("r0", "c", "odd")  \
    COLUMNS("r1", "d", "odd")

static const pass_case cases[] = {
    {"as YOLOX has it",
     TEST_GRAPH("x: f32[N,1,4,6]", "y: f32[N,1,2,3]",
                CONSTANTS "w: f32[1,4,1,1] = [1, 2, 3, 4]\n" PARTS
                          "f = Concat(a, b, c, d) {axis=1}\n"
                          "y = Conv(f, w)\n"),
     "w_0: f32[1,1,2,2] = [1, 3, 2, 4]\n"
     "y = Conv(x, w_0) {kernel_shape=[2,2], strides=[2,2], pads=[0,0,0,0]}\n",
     false},
    {"parts in another order, columns first, both axes at once, pads",
     TEST_GRAPH(
         "x: f32[1,1,4,6]", "y: f32[1,1,1,4]",
         CONSTANTS
         "w: f32[1,4,2,1] = [1, 2, 3, 4, 5, 6, 7, 8]\nb: f32[1] = [9]\n"
         "both: i64[2] = [-2, -1]\ntwos: i64[2] = [2, 2]\n"
         "ends: i64[2] = [4, 6]\none: i64[2] = [1, 1]\n" COLUMNS(
             "x", "e", "even") COLUMNS("x", "o", "odd") ROWS("e", "p", "even")
             ROWS("e", "q", "odd") ROWS(
                 "o", "r",
                 "even") "s = Slice(x, one, ends, both, twos)\n"
                         "f = Concat(s, p, q, r) {axis=1}\n"
                         "y = Conv(f, w, b) {strides=[2,1], pads=[0,0,0,1]}\n"),
     "b: f32[1] = [9]\n"
     "w_0: f32[1,1,4,2] = [3, 7, 5, 1, 4, 8, 6, 2]\n"
     "y = Conv(x, w_0, b) {strides=[4,2], pads=[0,0,0,2], "
     "kernel_shape=[4,2]}\n",
     false},
    {"one part twice",
     TEST_GRAPH(
         "x: f32[1,1,4,6]", "y: f32[1,1,2,3]",
         CONSTANTS "w: f32[1,4,1,1] = [1, 2, 3, 4]\n" ROWS("x", "r0", "even")
             COLUMNS("r0", "a", "even")
                 COLUMNS("r0", "b", "odd") "f = Concat(a, b, a, b) {axis=1}\n"
                                           "y = Conv(f, w)\n"),
     NULL, false},
    {"the parts are needed elsewhere",
     TEST_GRAPH("x: f32[1,1,4,6]", "y: f32[1,1,2,3], f: f32[1,4,2,3]",
                CONSTANTS "w: f32[1,4,1,1] = [1, 2, 3, 4]\n" PARTS
                          "f = Concat(a, b, c, d) {axis=1}\n"
                          "y = Conv(f, w)\n"),
     NULL, false},
    {"groups",
     TEST_GRAPH("x: f32[1,1,4,6]", "y: f32[1,4,2,3]",
                CONSTANTS "w: f32[4,1,1,1] = [1, 2, 3, 4]\n" PARTS
                          "f = Concat(a, b, c, d) {axis=1}\n"
                          "y = Conv(f, w) {group=4}\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("focus_to_conv", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("focus_to_conv", tests, NULL, NULL);
}
