/* Quantizer "adaround" against the best of all ways to round, found by trying
 * each. */
#include <math.h>
#include <string.h>

#include "roundtest.h"

typedef struct adaround_test_params { /* as in quantizer_adaround.c */
    int64_t steps;
    double rate, lambda;
} adaround_test_params;

enum { N = ROUND_COLS, ALL = ROUND_ROWS * N };

static const adaround_test_params usual = {2000, 0, 1};

static void learn(test_rounding *t, const adaround_test_params *params)
{
    t->r.params = params;
    assert_int_equal(sb_quantizer_find(NULL, "adaround")->round(&t->r), SB_OK);
}

static void nearest_of(const test_rounding *t, float *out)
{
    sb_rounding r = t->r;

    memcpy(out, t->before, sizeof t->before);
    r.w = out;
    sb_rounding_all_nearest(&r);
}

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
    static test_rounding t;
    double got = 0, nearest = 0, best = 0;

    (void)state;
    for (uint64_t seed = 1; seed < 4; seed++) {
        float all[ALL];

        test_rounding_make(&t, 100 * seed);
        nearest_of(&t, all);
        learn(&t, &usual);
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
    assert_true(got < 1.2 * best);
}

/* A layer in other units: inputs by one factor, weights by another, of some
 * rows only.  (Of two, which floats have exactly.) */
static void change_units(test_rounding *t, float input, float weight, int rows)
{
    for (int i = 0; i < N * N; i++)
        t->gram[i] *= input * input;
    for (int i = 0; i < rows * N; i++)
        t->w[i] = t->before[i] *= weight;
    for (int i = 0; i < rows * 3; i++)
        t->scale[i] *= weight;
}

static void test_units_do_not_matter(void **state)
{
    static const struct {
        float input, weight;
        int rows;
    } cases[] = {{128, 1, ROUND_ROWS},
                 {1.0F / 1024, 1, ROUND_ROWS},
                 {1, 128, ROUND_ROWS},
                 {1, 1.0F / 1024, 2},
                 {64, 512, 1}};
    static test_rounding plain, other;

    (void)state;
    test_rounding_make(&plain, 7);
    learn(&plain, &usual);
    for (size_t k = 0; k < SB_COUNT(cases); k++) {
        test_rounding_make(&other, 7);
        change_units(&other, cases[k].input, cases[k].weight, cases[k].rows);
        learn(&other, &usual);
        for (int i = 0; i < ALL; i++) {
            float unit = i / N < cases[k].rows ? cases[k].weight : 1;
            if (other.w[i] != plain.w[i] * unit)
                fail_msg("case %zu, element %d: %g, not %g", k, i,
                         (double)other.w[i], (double)(plain.w[i] * unit));
        }
    }
}

/* However badly it learns. */
static void test_no_row_worse_than_nearest(void **state)
{
    static const adaround_test_params bad[] = {
        {1, 1, 0}, {30, 1, 0}, {30, 1, 1e-3}, {30, 0.3, 1e6}};
    static test_rounding t;
    float all[ALL];

    (void)state;
    for (size_t k = 0; k < SB_COUNT(bad); k++)
        for (uint64_t seed = 1; seed < 6; seed++) {
            test_rounding_make(&t, 10 * seed);
            nearest_of(&t, all);
            learn(&t, &bad[k]);
            for (int row = 0; row < ROUND_ROWS; row++)
                assert_true(row_error(&t, row, t.w + row * N) <=
                            row_error(&t, row, all + row * N) * (1 + 1e-5));
        }
}

/* Inputs that are always zero tell nothing of their weights. */
static void test_dead_column_to_nearest(void **state)
{
    const int dead = 5;
    static test_rounding t;
    float all[ALL];

    (void)state;
    test_rounding_make(&t, 3);
    for (int i = 0; i < N; i++)
        t.gram[dead * N + i] = t.gram[i * N + dead] = 0;
    nearest_of(&t, all);
    learn(&t, &usual);
    for (int row = 0; row < ROUND_ROWS; row++)
        assert_float_equal(t.w[row * N + dead], all[row * N + dead], 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_near_the_best),
        cmocka_unit_test(test_units_do_not_matter),
        cmocka_unit_test(test_no_row_worse_than_nearest),
        cmocka_unit_test(test_dead_column_to_nearest),
    };

    return cmocka_run_group_tests_name("quantizer_adaround", tests, NULL, NULL);
}
