/* Pass recognize_clip. */
#include "passtest.h"

static const pass_case cases[] = {
    {"Max, a number of the same rank",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "c: f32[1,1] = [-0.4]\n"
                "y = Max(x, c)\n"),
     "limit_0: f32[] = -0.4\n"
     "y = Clip(x, limit_0)\n",
     false},
    {"Min, the number first",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "c: f32[] = 6\n"
                "y = Min(c, x)\n"),
     "limit_0: f32[] = 6\n"
     "y = Clip(x, _, limit_0)\n",
     false},
    {"the constant widens",
     TEST_GRAPH("x: f32[8]", "y: f32[1,8]",
                "c: f32[1,1] = [6]\n"
                "y = Min(c, x)\n"),
     NULL, false},
    {"a number for each channel",
     TEST_GRAPH("x: f32[3,2]", "y: f32[3,2]",
                "c: f32[2] = [6, 5]\n"
                "y = Min(c, x)\n"),
     NULL, false},
    {"three arguments",
     TEST_GRAPH("x: f32[3,2]", "y: f32[3,2]",
                "c: f32[] = 6\n"
                "d: f32[] = 5\n"
                "y = Min(c, x, d)\n"),
     NULL, false},
    {"double precision, which runtimes lack",
     TEST_GRAPH("x: f64[2,8]", "y: f64[2,8]",
                "c: f64[] = 6\n"
                "y = Min(x, c)\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("recognize_clip", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("recognize_clip", tests, NULL, NULL);
}
