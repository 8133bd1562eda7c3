/* Pass split_to_slice: picking one part. */
#include "passtest.h"

static const pass_case cases[] = {
    {"one output of a split",
     TEST_GRAPH("x: f32[2,6]", "y: f32[2,3]",
                "s: i64[3] = [1, 3, 2]\n"
                "a, b, c = Split(x, s) {axis=1}\n"
                "y = Neg(b)\n"),
     "starts_0: i64[1] = [1]\n"
     "ends_1: i64[1] = [4]\n"
     "axes_2: i64[1] = [1]\n"
     "b = Slice(x, starts_0, ends_1, axes_2)\n"
     "y = Neg(b)\n",
     false},
    {"in equal parts, the last one",
     TEST_GRAPH("x: f32[2,5]", "y: f32[2,2]",
                "a, b = Split(x) {axis=-1, num_outputs=2}\n"
                "y = Neg(b)\n"),
     "starts_0: i64[1] = [3]\n"
     "ends_1: i64[1] = [5]\n"
     "axes_2: i64[1] = [1]\n"
     "b = Slice(x, starts_0, ends_1, axes_2)\n"
     "y = Neg(b)\n",
     false},
    {"no such part: an error when it runs, not an empty slice",
     TEST_GRAPH("x: f32[3,2]", "y: f32[*]",
                "k: i64 = 3\n"
                "s = SplitToSequence(x) {axis=0}\n"
                "y = SequenceAt(s, k)\n"),
     NULL, true},
    {"no part at all",
     TEST_GRAPH("x: f32[0,2]", "y: f32[*]",
                "k: i64 = -1\n"
                "s = SplitToSequence(x) {axis=0}\n"
                "y = SequenceAt(s, k)\n"),
     NULL, true},
    {"two outputs stay",
     TEST_GRAPH("x: f32[2,6]", "y: f32[2,3]",
                "a, b = Split(x) {axis=1, num_outputs=2}\n"
                "y = Add(a, b)\n"),
     NULL, false},
    {"unbind",
     TEST_GRAPH("x: f32[2,6]", "y: f32[6]",
                "ax: i64[1] = [0]\n"
                "a, b = Split(x) {axis=0, num_outputs=2}\n"
                "c = Squeeze(a, ax)\n"
                "d = Squeeze(b, ax)\n"
                "y = Sub(c, d)\n"),
     "index_0: i64[] = 0\n"
     "index_1: i64[] = 1\n"
     "c = Gather(x, index_0) {axis=0}\n"
     "d = Gather(x, index_1) {axis=0}\n"
     "y = Sub(c, d)\n",
     false},
    {"unbind that is also read unsqueezed stays",
     TEST_GRAPH("x: f32[2,6]", "y: f32[6], z: f32[1,6]",
                "ax: i64[1] = [0]\n"
                "a, b = Split(x) {axis=0, num_outputs=2}\n"
                "z = Neg(a)\n"
                "c = Squeeze(a, ax)\n"
                "d = Squeeze(b, ax)\n"
                "y = Sub(c, d)\n"),
     NULL, false},
    {"unbind by a sequence",
     TEST_GRAPH("x: f32[2,6]", "y: f32[*]",
                "i: i64[] = -1\n"
                "s = SplitToSequence(x) {axis=0, keepdims=0}\n"
                "a = SequenceAt(s, i)\n"
                "y = Neg(a)\n"),
     "index_0: i64[] = -1\n"
     "a = Gather(x, index_0) {axis=0}\n"
     "y = Neg(a)\n",
     true},
    {"chunk by a sequence",
     TEST_GRAPH("x: f32[2,6]", "y: f32[*]",
                "i: i64[] = 1\n"
                "n: i64[] = 4\n"
                "s = SplitToSequence(x, n) {axis=1}\n"
                "a = SequenceAt(s, i)\n"
                "y = Neg(a)\n"),
     "starts_0: i64[1] = [4]\n"
     "ends_1: i64[1] = [8]\n"
     "axes_2: i64[1] = [1]\n"
     "a = Slice(x, starts_0, ends_1, axes_2)\n"
     "y = Neg(a)\n",
     true},
    {"an element of a list",
     TEST_GRAPH("x: f32[2,6]", "y: f32[*]",
                "i: i64[] = 1\n"
                "a = Relu(x)\n"
                "b = Abs(x)\n"
                "s = SequenceConstruct(a, b)\n"
                "c = SequenceAt(s, i)\n"
                "y = Neg(c)\n"),

     "b = Abs(x)\n"
     "y = Neg(b)\n",
     true},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("split_to_slice", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("split_to_slice", tests, NULL, NULL);
}
