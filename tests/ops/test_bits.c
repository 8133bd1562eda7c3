/* BitCast, CastLike, IsInf: values by IEEE 754. */
#include "sbtest.h"

#include <math.h>

#define INPUTS(...) ((const sb_tensor *[]){__VA_ARGS__})
#define VALUES(...) ((const double[]){__VA_ARGS__})

static void test_bit_cast_keeps_the_bits(void **state)
{
    (void)state;
    sb_tensor *x = test_f32("4", 1, -2, 0.5, 0);
    sb_tensor *bits = test_tensor(
        SB_DTYPE_I32, "4", VALUES(0x3f800000, -0x40000000, 0x3f000000, 0));

    assert_tensor("to int32",
                  test_run1("graph g(x: f32[4]) -> (y: i32[4]) {\n"
                            "  y = BitCast(x) {to=6}\n}\n",
                            INPUTS(x)),
                  bits, 0);
    assert_tensor("and back",
                  test_run1("graph g(x: i32[4]) -> (y: f32[4]) {\n"
                            "  y = BitCast(x) {to=1}\n}\n",
                            INPUTS(bits)),
                  x, 0);
    assert_tensor(
        "unsigned bytes as signed",
        test_run1("graph g(x: u8[3]) -> (y: i8[3]) {\n"
                  "  y = BitCast(x) {to=3}\n}\n",
                  INPUTS(test_tensor(SB_DTYPE_U8, "3", VALUES(1, 128, 255)))),
        test_tensor(SB_DTYPE_I8, "3", VALUES(1, -128, -1)), 0);
    assert_int_not_equal(test_try_run("graph g(x: f32[4]) -> (y) {\n"
                                      "  y = BitCast(x) {to=7}\n}\n",
                                      INPUTS(x)),
                         SB_OK);
}

static void test_cast_like_takes_the_type_of_its_second_input(void **state)
{
    (void)state;
    sb_tensor *x = test_f32("4", 1.75, -1.75, 0, 300);

    assert_tensor("to int32: towards zero",
                  test_run1("graph g(x: f32[4], t: i32[1]) -> (y: i32[4]) {\n"
                            "  y = CastLike(x, t)\n}\n",
                            INPUTS(x, test_tensor(SB_DTYPE_I32, "1", NULL))),
                  test_tensor(SB_DTYPE_I32, "4", VALUES(1, -1, 0, 300)), 0);
    assert_tensor("to bool: what is not 0",
                  test_run1("graph g(x: f32[4], t: bool[]) -> (y: bool[4]) {\n"
                            "  y = CastLike(x, t)\n}\n",
                            INPUTS(x, test_tensor(SB_DTYPE_BOOL, "", NULL))),
                  test_tensor(SB_DTYPE_BOOL, "4", VALUES(1, 1, 0, 1)), 0);
}

static void test_is_inf_tells_the_signs_apart(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double want[5];
    } cases[] = {
        {"y = IsInf(x)", {1, 1, 0, 0, 0}},
        {"y = IsInf(x) {detect_negative=0}", {1, 0, 0, 0, 0}},
        {"y = IsInf(x) {detect_positive=0}", {0, 1, 0, 0, 0}},
        {"y = IsInf(x) {detect_positive=0, detect_negative=0}",
         {0, 0, 0, 0, 0}},
    };
    sb_tensor *x = test_f32("5", INFINITY, -INFINITY, NAN, 3e38, 0);

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[160];
        (void)snprintf(text, sizeof text,
                       "graph g(x: f32[5]) -> (y: bool[5]) {\n  %s\n}\n",
                       cases[i].text);
        assert_tensor(cases[i].text, test_run1(text, INPUTS(x)),
                      test_tensor(SB_DTYPE_BOOL, "5", cases[i].want), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bit_cast_keeps_the_bits),
        cmocka_unit_test(test_cast_like_takes_the_type_of_its_second_input),
        cmocka_unit_test(test_is_inf_tells_the_signs_apart),
    };
    return cmocka_run_group_tests_name("bits", tests, NULL, NULL);
}
