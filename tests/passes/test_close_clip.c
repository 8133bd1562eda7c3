/* Pass close_clip. */
#include "passtest.h"

#define PARAMETERS "lo: f32[] = -0.4\ns: f32[] = 0.5\nz: u8[] = 1\n"

static const pass_case cases[] = {
    {"a lower limit alone",
     TEST_GRAPH("x: f32[2,8]", "y: u8[2,8]",
                PARAMETERS "c = Clip(x, lo)\n"
                           "y = QuantizeLinear(c, s, z)\n"),
     PARAMETERS "limit_0: f32[] = 5.368709e+08\n"
                "c = Clip(x, lo, limit_0)\n"
                "y = QuantizeLinear(c, s, z)\n",
     false},
    {"read elsewhere, too",
     TEST_GRAPH("x: f32[2,8]", "y: u8[2,8], n: f32[2,8]",
                PARAMETERS "c = Clip(x, lo)\n"
                           "n = Neg(c)\n"
                           "y = QuantizeLinear(c, s, z)\n"),
     NULL, false},
    {"both limits",
     TEST_GRAPH("x: f32[2,8]", "y: u8[2,8]",
                PARAMETERS "c = Clip(x, lo, s)\n"
                           "y = QuantizeLinear(c, s, z)\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("close_clip", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("close_clip", tests, NULL, NULL);
}
