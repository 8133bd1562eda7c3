/* Pass train_mode: batch normalization and dropout as they are in training. */
#include "passtest.h"

#define BN                      \
    "g: f32[2] = [1, -2]\n"     \
    "h: f32[2] = [0.25, 0]\n"   \
    "m: f32[2] = [0.5, -0.5]\n" \
    "v: f32[2] = [1, 4]\n"
#define X "x: f32[2,2,3]"
#define Y "y: f32[2,2,3]"

static const pass_case train_cases[] = {
    {"statistics are constants: they stay",
     TEST_GRAPH(X, Y, BN "y = BatchNormalization(x, g, h, m, v)\n"), NULL,
     false},
    {"the file is in training form, but the statistics are constants",
     TEST_GRAPH(X, Y,
                BN "y = BatchNormalization(x, g, h, m, v) {training_mode=1, "
                   "epsilon=0.5}\n"),
     BN "y = BatchNormalization(x, g, h, m, v) {epsilon=0.5, momentum=0.9}\n",
     true},
    {"statistics that the network computes",
     TEST_GRAPH(X, Y,
                "g: f32[2] = [1, -2]\nh: f32[2] = [0.25, 0]\n"
                "a: i64[2] = [0, 2]\nm = ReduceMean(x, a) {keepdims=0}\n"
                "y = BatchNormalization(x, g, h, m, m) {training_mode=1, "
                "epsilon=0.5}\n"),
     "g: f32[2] = [1, -2]\nh: f32[2] = [0.25, 0]\na: i64[2] = [0, 2]\n"
     "m = ReduceMean(x, a) {keepdims=0}\n"
     "y, y_0, y_1, y_2, y_3 = sparsebit::BatchNormTrain(x, g, h, m, m) "
     "{epsilon=0.5, momentum=0.9}\n",
     true},
    {"dropout follows a counter",
     TEST_GRAPH(X, Y, "r: f32[] = 0.25\nd = Dropout(x, r)\ny = Neg(d)\n"),
     "d = sparsebit::DropoutTrain(x, sparsebit.counter) {ratio=0.25, "
     "stream=0}\ny = Neg(d)\n",
     true},
    {"dropout of nothing",
     TEST_GRAPH(X, Y, "r: f32[] = 0\nd = Dropout(x, r)\ny = Neg(d)\n"),
     "d = Identity(x)\ny = Neg(d)\n", false},
    {"a mask that is read",
     TEST_GRAPH(X, Y ", k: bool[2,2,3]",
                "r: f32[] = 0.25\ny, k = Dropout(x, r)\n"),
     NULL, false},
};

static void test_train_mode(void **state)
{
    (void)state;
    test_passes("train_mode", train_cases, SB_COUNT(train_cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_train_mode),
    };
    return cmocka_run_group_tests_name("train_mode", tests, NULL, NULL);
}
