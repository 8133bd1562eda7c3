/* Observer "percentile" against sorting: exact while the answer is among the
 * values that are kept, within half a bin of the histogram beyond. */
#include "obstest.h"

#include <math.h>
#include <stdlib.h>

#include "quant/observe/extremes.h"

static double sorted[1000000];

static int ascending(const void *a, const void *b)
{
    double x, y;

    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* The definition; halves to even. */
static sb_range reference(const sb_obs_view *view, int64_t c, double alpha,
                          double *top)
{
    int64_t n = obs_channel(view, c, sorted), below = 0;
    sb_range want = {0, 0};

    for (int64_t i = 0; i < n; i++)
        below += sorted[i] < 0;
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    *top = fmax(-sorted[0], sorted[n - 1]);
    int64_t cut_hi = (int64_t)nearbyint((double)(n - below) * alpha);
    int64_t cut_lo = (int64_t)nearbyint((double)below * alpha);
    if (n - below > 0)
        want.hi = (float)sorted[n - 1 - cut_hi];
    if (below > 0)
        want.lo = (float)sorted[(cut_lo > 1 ? cut_lo : 1) - 1];
    return want;
}

static void check(const sb_obs_view *view, double alpha, const sb_range *got,
                  double tol, const char *what)
{
    for (int64_t c = 0; c < view->channels; c++) {
        double top;
        sb_range want = reference(view, c, alpha, &top);
        assert_close(what, got[c].lo, want.lo, tol * top);
        assert_close(what, got[c].hi, want.hi, tol * top);
    }
}

static void test_kept_values_give_the_exact_rank(void **state)
{
    static const double alphas[] = {0.0, 0.0001, 0.001, 0.02, 0.032};
    sb_range got[256];

    (void)state;
    for (size_t i = 0; i < obs_n_shapes; i++)
        for (int k = 0; k < OBS_KINDS; k++) {
            const obs_shape *s = &obs_shapes[i];
            int64_t n = s->samples * s->outer * s->channels * s->inner;
            sb_obs_view view = {obs_make((obs_kind)k, n, i), s->samples,
                                s->outer, s->channels, s->inner};
            sb_quant_spec spec = obs_spec("percentile");
            double alpha = alphas[((size_t)k + i) % 5];
            obs_set(&spec, "{ALPHA: %.17g}", alpha);
            obs_ranges(&spec, &view, 1, got);
            check(&view, alpha, got, 0, s->what);
            spec.kind = SB_QUANT_WEIGHT;
            obs_ranges(&spec, &view, s->samples, got);
            check(&view, alpha, got, 0, s->what);
        }
}

/* Samples that grow, shrink, and repeat: the lists are cut again and again,
 * always before the final rank is known. */
static void test_order_of_samples_does_not_matter(void **state)
{
    enum { SAMPLES = 16, EACH = 16000 };
    static const int order[3][SAMPLES] = {
        {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
        {15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0},
        {7, 7, 7, 7, 0, 0, 9, 9, 9, 9, 9, 9, 1, 1, 1, 1},
    };
    sb_quant_spec spec = obs_spec("percentile");

    (void)state;
    for (int k = 0; k < 3; k++) {
        float *x = obs_make(OBS_LAPLACE, SAMPLES * EACH, 5);
        sb_obs_view view = {x, SAMPLES, 1, 1, EACH};
        sb_range got;
        for (int s = 0; s < SAMPLES; s++)
            for (int i = 0; i < EACH; i++)
                x[s * EACH + i] *= (float)(1 + order[k][s]);
        obs_set(&spec, "{ALPHA: 0.06}"); /* 7680 of 128000 a side */
        obs_ranges(&spec, &view, 1, &got);
        check(&view, 0.06, &got, 0, "order");
        obs_ranges(&spec, &view, 5, &got);
        check(&view, 0.06, &got, 0, "order, by fives");
    }
}

/* Large tensors, whose values stay, grow or shrink: as exact. */
static void test_large_tensors_are_as_exact(void **state)
{
    enum { SAMPLES = 18, EACH = 50000 };
    sb_quant_spec spec = obs_spec("percentile");

    (void)state;
    for (int k = 0; k < 4; k++) {
        float *x = obs_make(OBS_LAPLACE, SAMPLES * EACH, 6);
        sb_obs_view view = {x, SAMPLES, 1, 1, EACH};
        sb_range got, same;
        for (int s = 0; s < SAMPLES; s++)
            for (int i = 0; i < EACH; i++)
                x[s * EACH + i] *= k == 0   ? 1
                                   : k == 1 ? (float)(1 + s)
                                   : k == 2 ? (s < 9 ? 1.0F : 0.5F)
                                            : (s < 2 ? 1000.0F : 1.0F);
        obs_set(&spec, "{ALPHA: 0.001}");
        obs_ranges(&spec, &view, 1, &got);
        check(&view, 0.001, &got, 0, "large");
        obs_ranges(&spec, &view, 7, &same);
        assert_memory_equal(&got, &same, sizeof got);
    }
}

/* More are cut than are kept: half a bin, that is absmax / 32768. */
static void test_beyond_that_half_a_bin(void **state)
{
    static const obs_kind kinds[] = {OBS_UNIFORM, OBS_NORMAL,   OBS_LAPLACE,
                                     OBS_RELU,    OBS_OUTLIERS, OBS_LEVELS};
    sb_quant_spec spec = obs_spec("percentile");

    (void)state;
    obs_set(&spec, "{ALPHA: 0.3}");
    for (size_t k = 0; k < SB_COUNT(kinds); k++) {
        sb_obs_view view = {obs_make(kinds[k], 4 * 200000, k), 4, 1, 1, 200000};
        sb_range got;
        obs_ranges(&spec, &view, 1, &got);
        check(&view, 0.3, &got, 1.0 / 32768, obs_kind_name(kinds[k]));
    }
}

/* The same for several channels: 2048 bins at least, absmax / 1024. */
static void test_bound_channels(void **state)
{
    enum { CHANNELS = 600, EACH = 3000 };
    sb_quant_spec spec = obs_spec("percentile");
    static sb_range got[CHANNELS];

    (void)state;
    obs_set(&spec, "{ALPHA: 0.3}"); /* 450 a side: exact still */
    sb_obs_view view = {obs_make(OBS_NORMAL, (int64_t)CHANNELS * EACH, 1), 1,
                        EACH, CHANNELS, 1};
    obs_ranges(&spec, &view, 1, got);
    check(&view, 0.3, got, 0, "channels");
    assert_true(sb_extremes_keep(CHANNELS) == SB_EXTREMES_KEEP_LEAST);
    view = (sb_obs_view){view.data, 1, 1, CHANNELS / 3, EACH * 3};
    obs_set(&spec, "{ALPHA: 0.4}"); /* 1800 a side: beyond what is kept */
    obs_ranges(&spec, &view, 1, got);
    check(&view, 0.4, got, 1.0 / 1024, "channels, beyond");
}

static void test_select_finds_each_rank(void **state)
{
    const float x[] = {3, -1, 0, -0.0F, 7, -5, 3, 1e-40F};
    static const float high[] = {7, 3, 3, 1e-40F, 0, 0}, low[] = {5, 1};

    (void)state;
    for (size_t r = 1; r <= 6; r++)
        assert_true(sb_extremes_select(x, 8, false, r) == high[r - 1]);
    for (size_t r = 1; r <= 2; r++)
        assert_true(sb_extremes_select(x, 8, true, r) == low[r - 1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept_values_give_the_exact_rank),
        cmocka_unit_test(test_order_of_samples_does_not_matter),
        cmocka_unit_test(test_beyond_that_half_a_bin),
        cmocka_unit_test(test_bound_channels),
        cmocka_unit_test(test_select_finds_each_rank),
        cmocka_unit_test(test_large_tensors_are_as_exact),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
