/* Pass channels_last. */
#include "passtest.h"

#define X "x: f32[2,3,4,5]"
#define C "w: f32[6,3,1,1] = random(1)\nc = Conv(x, w)\n"
#define W "w: f32[6,3,1,1] = {...}\n"

static const pass_case cases[] = {
    {"a head: channels cut, all to the end",
     TEST_GRAPH(X, "y: f32[2,4,5,2,3]",
                C "s: i64[5] = [2,2,3,4,5]\nr = Reshape(c, s)\n"
                  "y = Transpose(r) {perm=[0,3,4,1,2]}\n"),
     W "shape_1: i64[5] = [2, 4, 5, 2, 3]\nc = Conv(x, w)\n"
       "y_0 = Transpose(c) {perm=[0,2,3,1]}\ny = Reshape(y_0, shape_1)\n",
     false},
    {"a part of them in front of the places",
     TEST_GRAPH(X, "y: f32[2,2,4,5,3]",
                C "s: i64[5] = [2,2,3,4,5]\nr = Reshape(c, s)\n"
                  "y = Transpose(r) {perm=[0,1,3,4,2]}\n"),
     W "shape_1: i64[5] = [2, 4, 5, 2, 3]\nc = Conv(x, w)\n"
       "y_0 = Transpose(c) {perm=[0,2,3,1]}\ny_2 = Reshape(y_0, shape_1)\n"
       "y = Transpose(y_2) {perm=[0,3,1,2,4]}\n",
     false},
    {"places merged, through an activation",
     TEST_GRAPH(X, "y: f32[2,20,6]",
                C "s: i64[3] = [2,6,20]\na = Sigmoid(c)\nr = Reshape(a, s)\n"
                  "y = Transpose(r) {perm=[0,2,1]}\n"),
     W "shape_1: i64[3] = [2, 20, 6]\nc = Conv(x, w)\na = Sigmoid(c)\n"
       "y_0 = Transpose(a) {perm=[0,2,3,1]}\ny = Reshape(y_0, shape_1)\n",
     false},
    {"one image without a dimension of its own",
     TEST_GRAPH("x: f32[1,3,4,5]", "y: f32[20,6]",
                C "s: i64[2] = [6,20]\nr = Reshape(c, s)\n"
                  "y = Transpose(r) {perm=[1,0]}\n"),
     W "shape_1: i64[2] = [20, 6]\nc = Conv(x, w)\n"
       "y_0 = Transpose(c) {perm=[0,2,3,1]}\ny = Reshape(y_0, shape_1)\n",
     false},
    {"any batch",
     TEST_GRAPH("x: f32[N,3,4,5]", "y: f32[N,4,5,2,3]",
                C "s: i64[5] = [0,2,3,4,5]\nr = Reshape(c, s)\n"
                  "y = Transpose(r) {perm=[0,3,4,1,2]}\n"),
     W "shape_1: i64[5] = [0, 4, 5, 2, 3]\nc = Conv(x, w)\n"
       "y_0 = Transpose(c) {perm=[0,2,3,1]}\ny = Reshape(y_0, shape_1)\n",
     false},
    {"images cut, too",
     TEST_GRAPH("x: f32[4,3,4,5]", "y: f32[2,2,20,6]",
                C "s: i64[4] = [2,2,6,20]\nr = Reshape(c, s)\n"
                  "y = Transpose(r) {perm=[0,1,3,2]}\n"),
     W "shape_1: i64[4] = [2, 2, 20, 6]\nc = Conv(x, w)\n"
       "y_0 = Transpose(c) {perm=[0,2,3,1]}\ny = Reshape(y_0, shape_1)\n",
     false},
    {"rows of places: softmax over a part of the channels",
     TEST_GRAPH(X, "y: f32[2,3,2,20]",
                C "t: i64[3] = [2,6,20]\ns: i64[4] = [2,2,3,20]\n"
                  "q = Reshape(c, t)\nd = Concat(q) {axis=2}\n"
                  "r = Reshape(d, s)\ny = Transpose(r) {perm=[0,2,1,3]}\n"),
     W "t: i64[3] = [2, 6, 20]\nshape_1: i64[4] = [2, 20, 2, 3]\n"
       "c = Conv(x, w)\nq = Reshape(c, t)\nd = Concat(q) {axis=2}\n"
       "y_0 = Transpose(d) {perm=[0,2,1]}\ny_2 = Reshape(y_0, shape_1)\n"
       "y = Transpose(y_2) {perm=[0,3,2,1]}\n",
     false},
    {"not behind a convolution",
     TEST_GRAPH("c: f32[2,6,4,5]", "y: f32[2,20,6]",
                "s: i64[3] = [2,6,20]\nr = Reshape(c, s)\n"
                "y = Transpose(r) {perm=[0,2,1]}\n"),
     NULL, false},
    {"channels and places in one dimension",
     TEST_GRAPH(X, "y: f32[2,10,12]",
                C "s: i64[3] = [2,12,10]\nr = Reshape(c, s)\n"
                  "y = Transpose(r) {perm=[0,2,1]}\n"),
     NULL, false},
    {"images and channels in one dimension",
     TEST_GRAPH(X, "y: f32[20,12]",
                C "s: i64[2] = [12,20]\nr = Reshape(c, s)\n"
                  "y = Transpose(r) {perm=[1,0]}\n"),
     NULL, false},
    {"a single place",
     TEST_GRAPH("x: f32[2,3,1,1]", "y: f32[2,3,2,1,1]",
                C "s: i64[5] = [2,2,3,1,1]\nr = Reshape(c, s)\n"
                  "y = Transpose(r) {perm=[0,2,1,3,4]}\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("channels_last", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("channels_last", tests, NULL, NULL);
}
