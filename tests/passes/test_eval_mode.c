/* Pass eval_mode: batch normalization and dropout as they are in inference. */
#include "passtest.h"

#define BN                      \
    "g: f32[2] = [1, -2]\n"     \
    "h: f32[2] = [0.25, 0]\n"   \
    "m: f32[2] = [0.5, -0.5]\n" \
    "v: f32[2] = [1, 4]\n"
#define X "x: f32[2,2,3]"
#define Y "y: f32[2,2,3]"

static const pass_case eval_cases[] = {
    {"training form of a file",
     TEST_GRAPH(X, Y,
                BN "y = BatchNormalization(x, g, h, m, v) {training_mode=1, "
                   "momentum=0.5}\n"),
     BN "y = BatchNormalization(x, g, h, m, v) {epsilon=1e-05, "
        "momentum=0.5}\n",
     true},
    {"dropout of a file in training form",
     TEST_GRAPH(X, Y,
                "r: f32[] = 0.25\nt: bool[] = 1\nd = Dropout(x, r, t)\n"
                "y = Neg(d)\n"),
     "d = Identity(x)\ny = Neg(d)\n", true},
    {"nothing to do",
     TEST_GRAPH(X, Y, BN "y = BatchNormalization(x, g, h, m, v)\n"), NULL,
     false},
};

static void test_eval_mode(void **state)
{
    (void)state;
    test_passes("eval_mode", eval_cases, SB_COUNT(eval_cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eval_mode),
    };
    return cmocka_run_group_tests_name("eval_mode", tests, NULL, NULL);
}
