/* Pass fuse_shuffle. */
#include "passtest.h"

#define X "x: f32[2,6,3,5]"
#define Y "y: f32[2,6,3,5]"
#define S "s: i64[5] = [2,3,2,3,5]\n"
#define B "b: i64[4] = [2,6,3,5]\n"

static const pass_case cases[] = {
    {"five dimensions",
     TEST_GRAPH(X, Y,
                S B "r = Reshape(x, s)\n"
                    "t = Transpose(r) {perm=[0,2,1,3,4]}\n"
                    "y = Reshape(t, b)\n"),
     "y = sparsebit::ChannelShuffle(x) {groups=3}\n", false},
    {"four dimensions",
     TEST_GRAPH(X, Y,
                "m: i64[4] = [2,3,2,15]\n" B "r = Reshape(x, m)\n"
                "t = Transpose(r) {perm=[0,2,1,3]}\n"
                "y = Reshape(t, b)\n"),
     "y = sparsebit::ChannelShuffle(x) {groups=3}\n", false},
    {"any batch",
     TEST_GRAPH("x: f32[N,6,4]", "y: f32[N,6,4]",
                "s: i64[4] = [0,2,3,4]\nb: i64[3] = [0,6,4]\n"
                "r = Reshape(x, s)\nt = Transpose(r) {perm=[0,2,1,3]}\n"
                "y = Reshape(t, b)\n"),
     "y = sparsebit::ChannelShuffle(x) {groups=2}\n", false},
    {"places take part",
     TEST_GRAPH(X, Y,
                S B "r = Reshape(x, s)\n"
                    "t = Transpose(r) {perm=[0,2,1,4,3]}\n"
                    "y = Reshape(t, b)\n"),
     NULL, false},
    {"not only the channels are cut",
     TEST_GRAPH(X, Y,
                "s: i64[3] = [2,9,10]\n" B
                "r = Reshape(x, s)\nt = Transpose(r) {perm=[0,2,1]}\n"
                "y = Reshape(t, b)\n"),
     NULL, false},
    {"images change places",
     TEST_GRAPH(X, Y,
                "s: i64[4] = [1,2,6,15]\n" B
                "r = Reshape(x, s)\nt = Transpose(r) {perm=[0,2,1,3]}\n"
                "y = Reshape(t, b)\n"),
     NULL, false},
    {"another shape in the end",
     TEST_GRAPH(X, "y: f32[2,6,15]",
                S "c: i64[3] = [2,6,15]\nr = Reshape(x, s)\n"
                  "t = Transpose(r) {perm=[0,2,1,3,4]}\n"
                  "y = Reshape(t, c)\n"),
     NULL, false},
    {"read in between",
     TEST_GRAPH(X, Y ", q: f32[2,2,3,3,5]",
                S B "r = Reshape(x, s)\n"
                    "t = Transpose(r) {perm=[0,2,1,3,4]}\n"
                    "y = Reshape(t, b)\nq = Neg(t)\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("fuse_shuffle", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("fuse_shuffle", tests, NULL, NULL);
}
