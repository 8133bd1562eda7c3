/* Quantizer "adaround" against the best of all ways to round, found by trying
 * each. */
#include <math.h>
#include <string.h>

#include "roundtest.h"

typedef struct adaround_test_params { /* as in quantizer_adaround.c */
    int64_t steps;
    double rate, lambda;
} adaround_test_params;

enum { N = ROUND_COLS };

/* One of the two numbers beside w that the scales represent. */
static float beside(const test_rounding *t, int row, int col, bool up)
{
    int at = row * 3 + col / 4;
    float steps = floorf(t->before[row * N + col] / t->scale[at]) + (float)up;
    float lo = -8 - t->zero[at], hi = 7 - t->zero[at];

    return fminf(fmaxf(steps, lo), hi) * t->scale[at];
}

static double row_error(const test_rounding *t, int row, const float *w)
{
    double sum = 0;

    for (int i = 0; i < N * N; i++)
        sum += (double)(w[i / N] - t->before[row * N + i / N]) *
               (double)t->gram[i] *
               (double)(w[i % N] - t->before[row * N + i % N]);
    return sum;
}

static double best_error(const test_rounding *t, int row)
{
    double best = INFINITY;

    for (unsigned way = 0; way < 1u << N; way++) {
        float w[N];
        for (int i = 0; i < N; i++)
            w[i] = beside(t, row, i, way >> i & 1);
        best = fmin(best, row_error(t, row, w));
    }
    return best;
}

static void test_near_the_best(void **state)
{
    const adaround_test_params params = {4000, 0.01, 0.001};
    const sb_quantizer_def *def = sb_quantizer_find(NULL, "adaround");
    static test_rounding t;
    double got = 0, nearest = 0, best = 0;

    (void)state;
    for (uint64_t seed = 1; seed < 4; seed++) {
        float all[ROUND_ROWS * N];

        test_rounding_make(&t, 100 * seed);
        t.r.params = &params;
        memcpy(all, t.before, sizeof all);
        t.r.w = all;
        sb_rounding_all_nearest(&t.r);
        t.r.w = t.w;
        assert_int_equal(def->round(&t.r), SB_OK);
        for (int row = 0; row < ROUND_ROWS; row++) {
            for (int i = 0; i < N; i++) {
                float w = t.w[row * N + i];
                assert_true(fabsf(w - beside(&t, row, i, false)) < 1e-6F ||
                            fabsf(w - beside(&t, row, i, true)) < 1e-6F);
            }
            got += row_error(&t, row, t.w + row * N);
            nearest += row_error(&t, row, all + row * N);
            best += best_error(&t, row);
        }
    }
    assert_true(got >= best - 1e-6);
    assert_true(got < 0.6 * nearest);
    assert_true(got < 1.5 * best);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_near_the_best),
    };

    return cmocka_run_group_tests_name("quantizer_adaround", tests, NULL, NULL);
}
