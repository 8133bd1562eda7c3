/* Pass fold_affine: what comes out is checked by running both graphs; the texts
 * show what is gone. */
#include "passtest.h"

#define W "w: f32[4,3,3,3] = random(1)\nv: f32[4] = random(2)\n"
#define BEHIND(numbers, nodes)                       \
    TEST_GRAPH("x: f32[1,3,5,5]", "y: f32[1,4,3,3]", \
               W numbers "c = Conv(x, w, v)\n" nodes)
#define BEFORE(output, attrs, numbers, nodes)               \
    TEST_GRAPH("x: f32[1,3,5,5]", "y: f32[1,4," output "]", \
               W numbers nodes "y = Conv(s, w, v) " attrs "\n")

static const struct {
    const char *what, *text, *gone;
} folded[] = {
    {"one number, product", BEHIND("a: f32[1] = [2]\n", "y = Mul(a, c)\n"),
     "Mul"},
    {"one number, sum", BEHIND("a: f32[1] = [2]\n", "y = Add(c, a)\n"), "Add"},
    {"a number for each channel",
     BEHIND("a: f32[4,1,1] = [2, -1, 0.5, 3]\n", "y = Mul(c, a)\n"), "Mul"},
    {"the sum behind a product",
     BEHIND("a: f32[1] = [2]\nb: f32[1,4,1,1] = [1, 2, 3, 4]\n",
            "m = Mul(c, a)\ny = Add(m, b)\n"),
     "Add"},
    {"no bias yet",
     TEST_GRAPH("x: f32[1,3,5,5]", "y: f32[1,4,3,3]",
                W "a: f32[1] = [2]\nc = Conv(x, w)\ny = Add(c, a)\n"),
     "Add"},
    {"product before, with pads",
     BEFORE("5,5", "{pads=[1,1,1,1]}", "a: f32[1] = [2]\n", "s = Mul(x, a)\n"),
     "Mul"},
    {"sum before, without pads",
     BEFORE("3,3", "", "a: f32[1] = [2]\n", "s = Add(x, a)\n"), "Add"},
    {"both before, without pads",
     BEFORE("3,3", "", "a: f32[1] = [2]\nb: f32[1] = [3]\n",
            "m = Mul(x, a)\ns = Add(m, b)\n"),
     "Mul"},
    {"both before, with pads: the product goes on, the sum stays",
     BEFORE("5,5", "{pads=[1,1,1,1]}", "a: f32[1] = [4]\nb: f32[1] = [3]\n",
            "m = Mul(x, a)\ns = Add(m, b)\n"),
     "Mul"},
};

static const pass_case kept[] = {
    {"the convolution has another consumer",
     TEST_GRAPH("x: f32[1,3,5,5]", "y: f32[1,4,3,3], z: f32[1,4,3,3]",
                W "a: f32[1] = [2]\nc = Conv(x, w, v)\ny = Mul(c, a)\n"
                  "z = Neg(c)\n"),
     NULL, false},
    {"a number for each column",
     BEHIND("a: f32[3] = [2, 3, 4]\n", "y = Mul(c, a)\n"), NULL, false},
    {"more dimensions come in",
     TEST_GRAPH("x: f32[1,3,5,5]", "y: f32[1,1,4,3,3]",
                W "a: f32[1,1,1,1,1] = [2]\nc = Conv(x, w, v)\n"
                  "y = Mul(c, a)\n"),
     NULL, false},
    {"sum before pads",
     BEFORE("5,5", "{pads=[1,1,1,1]}", "a: f32[1] = [2]\n", "s = Add(x, a)\n"),
     NULL, false},
    {"sum before pads of the same size",
     BEFORE("5,5", "{auto_pad=\"SAME_UPPER\"}", "a: f32[1] = [2]\n",
            "s = Add(x, a)\n"),
     NULL, false},
    {"a number for each channel before",
     BEFORE("3,3", "", "a: f32[3,1,1] = [2, 3, 4]\n", "s = Mul(x, a)\n"), NULL,
     false},
    {"nothing is left of the product",
     BEFORE("5,5", "{pads=[1,1,1,1]}", "a: f32[1] = [0]\nb: f32[1] = [3]\n",
            "m = Mul(x, a)\ns = Add(m, b)\n"),
     NULL, false},
};

static void test_what_is_folded_computes_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(folded); i++)
        test_pass_removes("fold_affine", folded[i].what, folded[i].text,
                          folded[i].gone);
}

static void test_what_is_kept(void **state)
{
    (void)state;
    test_passes("fold_affine", kept, SB_COUNT(kept));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_folded_computes_the_same),
        cmocka_unit_test(test_what_is_kept),
    };
    return cmocka_run_group_tests_name("fold_affine", tests, NULL, NULL);
}
