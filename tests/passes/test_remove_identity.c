/* Pass remove_identity: what hands its input through, and what does not. */
#include "passtest.h"

static const pass_case cases[] = {
    {"identity in the middle",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "a = Relu(x)\n"
                "b = Identity(a)\n"
                "y = Neg(b)\n"),

     "a = Relu(x)\n"
     "y = Neg(a)\n",
     false},
    {"an output keeps its name",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "a = Relu(x)\n"
                "y = Identity(a)\n"),

     "y = Relu(x)\n", false},
    {"from input to output it stays",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]", "y = Identity(x)\n"), NULL,
     false},
    {"two outputs of one value stay two",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4], z: f32[2,4]",
                "y = Relu(x)\n"
                "z = Identity(y)\n"),
     NULL, false},
    {"dropout",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "a = Dropout(x)\n"
                "y = Neg(a)\n"),

     "y = Neg(x)\n", false},
    {"dropout without training",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "r: f32[] = 0.5\n"
                "t: bool[] = 0\n"
                "a, m = Dropout(x, r, t)\n"
                "y = Neg(a)\n"),

     "y = Neg(x)\n", false},
    {"dropout whose mask is read",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4], m: bool[2,4]",
                "a, m = Dropout(x)\n"
                "y = Neg(a)\n"),
     NULL, false},
    {"cast to the same type",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "a = Cast(x) {to=1}\n"
                "y = Neg(a)\n"),

     "y = Neg(x)\n", false},
    {"cast to another type stays",
     TEST_GRAPH("x: f32[2,4]", "y: f64[2,4]",
                "a = Cast(x) {to=11}\n"
                "y = Neg(a)\n"),
     NULL, false},
    {"reshape to what is declared, by a target that nobody knows, stays",
     TEST_GRAPH("x: f32[2,4], s: i64[2]", "y: f32[2,4]",
                "zero: i64[1] = [0]\n"
                "sizes: i64[2] = [2, 4]\n"
                "p = Mul(s, zero)\n"
                "t = Add(sizes, p)\n"
                "a = Relu(x)\n"
                "y = Reshape(a, t)\n"),
     NULL, false},
    {"and so does a slice",
     TEST_GRAPH("x: f32[2,4], s: i64[1]", "y: f32[2,4]",
                "zero: i64[1] = [0]\n"
                "end: i64[1] = [2]\n"
                "p = Mul(s, zero)\n"
                "e = Add(end, p)\n"
                "a = Relu(x)\n"
                "y = Slice(a, zero, e)\n"),
     NULL, false},
    {"and a sum over axes",
     TEST_GRAPH("x: f32[1,4], s: i64[1]", "y: f32[1,4]",
                "zero: i64[1] = [0]\n"
                "p = Mul(s, zero)\n"
                "a = Relu(x)\n"
                "y = ReduceSum(a, p)\n"),
     NULL, false},
    {"reshape to the same shape",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "s: i64[2] = [2, -1]\n"
                "a = Reshape(x, s)\n"
                "y = Neg(a)\n"),

     "y = Neg(x)\n", false},
    {"reshape to another stays",
     TEST_GRAPH("x: f32[2,4]", "y: f32[4,2]",
                "s: i64[2] = [4, 2]\n"
                "a = Reshape(x, s)\n"
                "y = Neg(a)\n"),
     NULL, false},
    {"transpose that moves nothing",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "a = Transpose(x) {perm=[0,1]}\n"
                "y = Neg(a)\n"),

     "y = Neg(x)\n", false},
    {"transpose of the default",
     TEST_GRAPH("x: f32[2,4]", "y: f32[4,2]",
                "a = Transpose(x)\n"
                "y = Neg(a)\n"),
     NULL, false},
    {"pad by nothing",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "p: i64[4] = [0, 0, 0, 0]\n"
                "a = Pad(x, p)\n"
                "y = Neg(a)\n"),

     "y = Neg(x)\n", false},
    {"pad by one stays",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,5]",
                "p: i64[4] = [0, 0, 0, 1]\n"
                "a = Pad(x, p)\n"
                "y = Neg(a)\n"),
     NULL, false},
    {"slice of everything",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "s: i64[1] = [0]\n"
                "e: i64[1] = [9223372036854775807]\n"
                "ax: i64[1] = [1]\n"
                "a = Slice(x, s, e, ax)\n"
                "y = Neg(a)\n"),

     "y = Neg(x)\n", false},
    {"slice backwards stays",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "s: i64[1] = [3]\n"
                "e: i64[1] = [-9]\n"
                "ax: i64[1] = [1]\n"
                "st: i64[1] = [-1]\n"
                "a = Slice(x, s, e, ax, st)\n"
                "y = Neg(a)\n"),
     NULL, false},
    {"concat of one",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "a = Concat(x) {axis=0}\n"
                "y = Neg(a)\n"),

     "y = Neg(x)\n", false},
    {"expand to the same shape",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "s: i64[2] = [1, 4]\n"
                "a = Expand(x, s)\n"
                "y = Neg(a)\n"),

     "y = Neg(x)\n", false},
    {"tile once",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "s: i64[2] = [1, 1]\n"
                "a = Tile(x, s)\n"
                "y = Neg(a)\n"),

     "y = Neg(x)\n", false},
    {"resize by 1",
     TEST_GRAPH("x: f32[1,1,2,4]", "y: f32[1,1,2,4]",
                "s: f32[4] = [1, 1, 1, 1]\n"
                "a = Resize(x, _, s) {mode=\"linear\"}\n"
                "y = Neg(a)\n"),

     "y = Neg(x)\n", false},
    {"resize by 1.1 keeps the size but not the samples",
     TEST_GRAPH("x: f32[1,1,2,4]", "y: f32[1,1,2,4]",
                "s: f32[4] = [1, 1, 1, 1.1]\n"
                "a = Resize(x, _, s) {mode=\"linear\"}\n"
                "y = Neg(a)\n"),
     NULL, false},
    {"add 0",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "z: f32[] = 0\n"
                "a = Add(x, z)\n"
                "y = Neg(a)\n"),

     "y = Neg(x)\n", false},
    {"add 0 from the left",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "z: f32[4] = [0, 0, 0, 0]\n"
                "a = Add(z, x)\n"
                "y = Neg(a)\n"),

     "y = Neg(x)\n", false},
    {"add 0 that widens stays",
     TEST_GRAPH("x: f32[2,4]", "y: f32[3,2,4]",
                "z: f32[3,1,1] = [0, 0, 0]\n"
                "a = Add(x, z)\n"
                "y = Neg(a)\n"),
     NULL, false},
    {"subtract 0",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "z: f32[] = 0\n"
                "a = Sub(x, z)\n"
                "y = Neg(a)\n"),

     "y = Neg(x)\n", false},
    {"subtract from 0 stays",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "z: f32[] = 0\n"
                "a = Sub(z, x)\n"
                "y = Neg(a)\n"),
     NULL, false},
    {"times 1, by 1, to the power of 1",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "o: f32[1] = [1]\n"
                "a = Mul(o, x)\n"
                "b = Div(a, o)\n"
                "c = Pow(b, o)\n"
                "y = Neg(c)\n"),

     "y = Neg(x)\n", false},
    {"1 divided by x stays",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "o: f32[] = 1\n"
                "a = Div(o, x)\n"
                "y = Neg(a)\n"),
     NULL, false},
    {"clip without limits",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "a = Clip(x)\n"
                "y = Neg(a)\n"),

     "y = Neg(x)\n", false},
    {"mean over a dimension of 1",
     TEST_GRAPH("x: f32[2,1]", "y: f32[2,1]",
                "ax: i64[1] = [1]\n"
                "a = ReduceMean(x, ax)\n"
                "y = Neg(a)\n"),

     "y = Neg(x)\n", false},
    {"a sum of one",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "a = Sum(x)\n"
                "y = Neg(a)\n"),

     "y = Neg(x)\n", false},
    {"behind a DequantizeLinear it stays",
     TEST_GRAPH("x: u8[2,4]", "y: f32[4,2], z: f32[2,4]",
                "s: f32[] = 0.5\n"
                "o: u8[] = 3\n"
                "a = DequantizeLinear(x, s, o)\n"
                "b = Sum(a)\n"
                "z = Neg(b)\n"
                "t = Transpose(a) {perm=[1, 0]}\n"
                "c = Sum(t)\n"
                "y = Neg(c)\n"),
     NULL, false},
    {"symbols count as sizes",
     TEST_GRAPH("x: f32[N,4]", "y: f32[N,4]",
                "s: i64[2] = [0, 4]\n"
                "a = Reshape(x, s)\n"
                "y = Neg(a)\n"),

     "y = Neg(x)\n", false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("remove_identity", cases, SB_COUNT(cases));
}

static void test_ten_thousand_in_a_row_become_one(void **state)
{
    (void)state;
    assert_int_equal(test_pass_chain("remove_identity", "f32[2,4]", "",
                                     "v%o = Identity(v%i)\n", 10000),
                     1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
        cmocka_unit_test(test_ten_thousand_in_a_row_become_one),
    };
    return cmocka_run_group_tests_name("remove_identity", tests, NULL, NULL);
}
