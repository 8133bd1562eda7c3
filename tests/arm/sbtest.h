/* What test_nbits_int8.c and test_int_pixels.c need of cmocka and of
 * tests/support, so that they can be built for a processor whose libraries are
 * not here: see run. */
#ifndef SB_TESTS_ARM_SBTEST_H
#define SB_TESTS_ARM_SBTEST_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ctx.h"

struct CMUnitTest {
    void (*fn)(void **state);
};
#define cmocka_unit_test(f) \
    {                       \
        f                   \
    }

static inline int cmocka_run_group_tests_of(const struct CMUnitTest *t,
                                            size_t n)
{
    for (size_t i = 0; i < n; i++)
        t[i].fn(NULL);
    return 0;
}
#define cmocka_run_group_tests(t, setup, teardown) \
    cmocka_run_group_tests_of(t, sizeof(t) / sizeof *(t))

static inline void test_demand(int ok, const char *what)
{
    if (!ok) {
        printf("FAIL %s\n", what);
        exit(1);
    }
}
#define cmocka_run_group_tests_name(name, t, setup, teardown) \
    cmocka_run_group_tests(t, setup, teardown)
#define assert_true(c)         test_demand((c), #c)
#define assert_int_equal(a, b) test_demand((a) == (b), #a)
#define assert_non_null(p)     test_demand((p) != NULL, #p)
#define assert_close(what, got, want, tol) \
    test_demand(fabs((double)(got) - (want)) <= (tol), what)

static inline sb_ctx *test_ctx(void)
{
    return NULL;
}

#endif
