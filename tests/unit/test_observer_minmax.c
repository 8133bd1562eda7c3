/* Observer "minmax" against the definition: every distribution, every layout,
 * activations and weights. */
#include "obstest.h"

static void check(const sb_obs_view *view, const sb_range *got,
                  const char *what)
{
    static double x[300000];

    for (int64_t c = 0; c < view->channels; c++) {
        int64_t n = obs_channel(view, c, x);
        double lo = x[0], hi = x[0];
        for (int64_t i = 1; i < n; i++) {
            lo = x[i] < lo ? x[i] : lo;
            hi = x[i] > hi ? x[i] : hi;
        }
        assert_close(what, got[c].lo, lo, 0);
        assert_close(what, got[c].hi, hi, 0);
    }
}

static void test_ranges_are_the_extremes(void **state)
{
    sb_quant_spec spec = obs_spec("minmax");
    sb_range got[256];

    (void)state;
    for (size_t i = 0; i < obs_n_shapes; i++)
        for (int k = 0; k < OBS_KINDS; k++) {
            const obs_shape *s = &obs_shapes[i];
            int64_t n = s->samples * s->outer * s->channels * s->inner;
            sb_obs_view view = {obs_make((obs_kind)k, n, i), s->samples,
                                s->outer, s->channels, s->inner};
            spec.kind = SB_QUANT_ACTIVATION;
            obs_ranges(&spec, &view, 2, got);
            check(&view, got, s->what);
            spec.kind = SB_QUANT_WEIGHT;
            obs_ranges(&spec, &view, s->samples, got);
            check(&view, got, s->what);
        }
}

static void test_signed_zero(void **state)
{
    sb_quant_spec spec = obs_spec("minmax");
    const float x[] = {-0.0F, 0.0F, -0.0F};
    sb_obs_view view = {x, 1, 1, 1, 3};
    sb_range got;

    (void)state;
    obs_ranges(&spec, &view, 1, &got);
    assert_true(got.lo == 0.0F && got.hi == 0.0F);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_are_the_extremes),
        cmocka_unit_test(test_signed_zero),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
