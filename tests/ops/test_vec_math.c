/* Our vector mathematics against the C library's double functions: a dense
 * sweep over all floats, in units in the last place. */
#include "sbtest.h"

#include <float.h>
#include <math.h>

#include "dnn/vec_math.h"

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static const struct {
    const char *name;
    float (*f)(float x);
    double (*want)(double x);
    float lo, hi;
    double ulps; /* that must not be exceeded */
} cases[] = {
    {"exp", sb_vec_expf, exp, -INFINITY, INFINITY, 1.5},
    {"expm1", sb_vec_expm1f_neg, expm1, -INFINITY, 0, 2},
    {"sigmoid", sb_vec_sigmoidf, sigmoid, -80, INFINITY, 3},
    {"tanh", sb_vec_tanhf, tanh, -INFINITY, INFINITY, 2},
    {"erf", sb_vec_erff, erf, -INFINITY, INFINITY, 2},
    {"log", sb_vec_logf, log, 0, INFINITY, 1.5},
    {"log1p", sb_vec_log1pf_unit, log1p, 0, 1, 2},
};

/* Distance of two neighboring floats at `want`. */
static double ulp_at(double want)
{
    int e = 0;

    (void)frexp(want, &e);
    return ldexp(1, e - 24 < -149 ? -149 : e - 24);
}

static void test_all_floats_within_units_in_the_last_place(void **state)
{
    (void)state;
    for (size_t c = 0; c < SB_COUNT(cases); c++) {
        double worst = 0;
        float at = 0;

        /* A stride that is odd, so all exponents and mantissas take part. */
        for (uint64_t u = 0; u <= UINT32_MAX; u += 997) {
            float x = sb_float_of((uint32_t)u);

            if (!(x >= cases[c].lo && x <= cases[c].hi))
                continue;
            double want = cases[c].want((double)x);
            double got = (double)cases[c].f(x);
            if (fabs(want) > (double)FLT_MAX) {
                /* Rounding decides at the edge itself. */
                assert_true(got == want || got == copysign(INFINITY, want));
                continue;
            }
            double error = fabs(got - want) / ulp_at(want);
            if (!(error <= worst)) {
                worst = error;
                at = x;
            }
        }
        if (!(worst <= cases[c].ulps))
            print_error("%s: %g units at %.9g\n", cases[c].name, worst,
                        (double)at);
        else
            print_message("%s: at most %.3g units\n", cases[c].name, worst);
        assert_true(worst <= cases[c].ulps);
    }
}

static void test_not_a_number(void **state)
{
    (void)state;
    for (size_t c = 0; c < SB_COUNT(cases); c++)
        assert_true(isnan(cases[c].f(NAN)));
    assert_true(isnan(sb_vec_logf(-1)));
    assert_true(signbit(sb_vec_tanhf(-0.0f)));
    assert_true(signbit(sb_vec_erff(-0.0f)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_floats_within_units_in_the_last_place),
        cmocka_unit_test(test_not_a_number),
    };
    return cmocka_run_group_tests_name("vec_math", tests, NULL, NULL);
}
