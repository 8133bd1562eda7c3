/* Pass fuse_rounded: the integers' products are those of the rounded floats. */
#include "passtest.h"

#define ROUNDED_X "q = sparsebit::FakeQuant(x, s, z) {qmin=0, qmax=15}\n"
#define ROUNDED_W \
    "p = sparsebit::FakeQuant(w, t, u) {axis=1, qmin=-8, qmax=7}\n"
#define SCALES                                       \
    "w: f32[37,21] = random(1)\n"                    \
    "s: f32[] = 0.07\nz: f32[] = 5.3\n"              \
    "t: f32[21] = random(2)\nu: f32[21] = zeros()\n" \
    "b: f32[21] = random(3)\n"

#define BODY(product) SCALES ROUNDED_X ROUNDED_W product

static const struct {
    const char *what, *text;
} same[] = {
    {"a product", TEST_GRAPH("x: f32[3,17,37]", "y: f32[3,17,21]",
                             BODY("y = MatMul(q, p)\n"))},
    {"more rows than are made bytes at once",
     TEST_GRAPH("x: f32[130,37]", "y: f32[130,21]",
                BODY("y = MatMul(q, p)\n"))},
    {"no rows at all", TEST_GRAPH("x: f32[0,17,37]", "y: f32[0,17,21]",
                                  BODY("y = MatMul(q, p)\n"))},
    {"zero points that the learning moved out of the range",
     TEST_GRAPH(
         "x: f32[20,37]", "y: f32[20,21]",
         SCALES
         "far: f32[] = 700\n"
         "q = sparsebit::FakeQuant(x, s, far) {qmin=0, qmax=255}\n" ROUNDED_W
         "y = MatMul(q, p)\n")},
    {"weights that are no signed bytes",
     TEST_GRAPH("x: f32[20,37]", "y: f32[20,21]",
                SCALES ROUNDED_X
                "p = sparsebit::FakeQuant(w, t, u) {axis=1, qmin=0, "
                "qmax=255}\n"
                "y = MatMul(q, p)\n")},
    {"a Gemm with turned weights",
     TEST_GRAPH("x: f32[20,37]", "y: f32[20,21]",
                "v: f32[21,37] = random(5)\n" SCALES ROUNDED_X
                "p = sparsebit::FakeQuant(v, t, u) {axis=0, qmin=-128, "
                "qmax=127}\n"
                "y = Gemm(q, p, b) {transB=1}\n")},
    {"bias, sum and activation",
     TEST_GRAPH("x: f32[3,17,37], a: f32[3,17,21]", "y: f32[3,17,21]",
                BODY("m = MatMul(q, p)\nn = Add(m, b)\no = Add(n, a)\n"
                     "y = Relu(o)\n"))},
};

#define SMALL                                                    \
    "w: f32[2,2] = [1, 2, 3, 4]\ns: f32[] = 0.1\nz: f32[] = 0\n" \
    "t: f32[2] = [0.5, 0.25]\nu: f32[2] = [0, 0]\n"

static const pass_case cases[] = {
    {"what the product is told",
     TEST_GRAPH("x: f32[3,2]", "y: f32[3,2]",
                SMALL ROUNDED_X ROUNDED_W "y = MatMul(q, p)\n"),
     SMALL ROUNDED_X ROUNDED_W
     "y = sparsebit::FusedMatMul(q, p, _, _, s, z, t, u) {a_qmin=0, "
     "a_qmax=15, b_qmin=-8, b_qmax=7}\n",
     false},
    {"scales along the rows of the weights",
     TEST_GRAPH("x: f32[3,2]", "y: f32[3,2]",
                SMALL ROUNDED_X
                "p = sparsebit::FakeQuant(w, t, u) {axis=0, qmin=-8, qmax=7}\n"
                "y = MatMul(q, p)\n"),
     NULL, false},
    {"a scale for each column of the input",
     TEST_GRAPH("x: f32[3,2]", "y: f32[3,2]",
                "w: f32[2,2] = [1, 2, 3, 4]\nt: f32[2] = [0.5, 0.25]\n"
                "u: f32[2] = [0, 0]\n" ROUNDED_W
                "q = sparsebit::FakeQuant(x, t, u) {axis=1, qmin=0, qmax=15}\n"
                "y = MatMul(q, p)\n"),
     NULL, false},
    {"16 bits",
     TEST_GRAPH("x: f32[3,2]", "y: f32[3,2]",
                SMALL ROUNDED_W
                "q = sparsebit::FakeQuant(x, s, z) {qmin=0, qmax=65535}\n"
                "y = MatMul(q, p)\n"),
     NULL, false},
    {"one bias for all columns",
     TEST_GRAPH("x: f32[3,2]", "y: f32[3,2]",
                SMALL "b: f32[1] = 1\n" ROUNDED_X ROUNDED_W
                      "y = Gemm(q, p, b)\n"),
     NULL, false},
    {"factors",
     TEST_GRAPH("x: f32[3,2]", "y: f32[3,2]",
                SMALL ROUNDED_X ROUNDED_W "y = Gemm(q, p) {alpha=2.0}\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("fuse_rounded", cases, SB_COUNT(cases));
}

static void test_integers_give_what_floats_give(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(same); i++)
        test_pass_removes("fuse_linear,fuse_rounded", same[i].what,
                          same[i].text, "MatMul");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
        cmocka_unit_test(test_integers_give_what_floats_give),
    };
    return cmocka_run_group_tests_name("fuse_rounded", tests, NULL, NULL);
}
