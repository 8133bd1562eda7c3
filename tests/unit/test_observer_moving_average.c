/* Observer "moving_average" against the definition in double. */
#include "obstest.h"

#include <math.h>

static void check(const sb_obs_view *view, double ratio, const sb_range *got,
                  double tol, const char *what)
{
    static double x[300000];

    for (int64_t c = 0; c < view->channels; c++) {
        double lo = 0, hi = 0, top = 0;
        for (int64_t s = 0; s < view->samples; s++) {
            sb_obs_view one = obs_part(view, s, s + 1);
            int64_t n = obs_channel(&one, c, x);
            double a = x[0], b = x[0];
            for (int64_t i = 1; i < n; i++) {
                a = fmin(a, x[i]);
                b = fmax(b, x[i]);
            }
            lo = s ? ratio * lo + (1 - ratio) * a : a;
            hi = s ? ratio * hi + (1 - ratio) * b : b;
            top = fmax(top, fmax(-a, b));
        }
        assert_close(what, got[c].lo, lo, tol * top);
        assert_close(what, got[c].hi, hi, tol * top);
    }
}

static void test_ranges_are_those_of_the_definition(void **state)
{
    static const double ratios[] = {0.0, 0.5, 0.9, 1.0};
    sb_range got[256];

    (void)state;
    for (size_t i = 0; i < obs_n_shapes; i++)
        for (size_t k = 0; k < SB_COUNT(ratios); k++) {
            const obs_shape *s = &obs_shapes[i];
            int64_t n = s->samples * s->outer * s->channels * s->inner;
            sb_quant_spec spec = obs_spec("moving_average");
            sb_obs_view view = {obs_make(OBS_NORMAL, n, i), s->samples,
                                s->outer, s->channels, s->inner};
            obs_set(&spec, "{EMA_RATIO: %g}", ratios[k]);
            for (int64_t batch = 1; batch <= 3; batch++) {
                obs_ranges(&spec, &view, batch, got);
                check(&view, ratios[k], got, 1e-6, s->what);
            }
        }
}

/* What PyTorch gives in float32, operation by operation. */
static void test_float_arithmetic_is_that_of_pytorch(void **state)
{
    sb_quant_spec spec = obs_spec("moving_average");
    const float x[] = {-1.1F, 2.3F, -0.7F, 3.9F, -2.2F, 0.1F};
    sb_obs_view view = {x, 3, 1, 1, 2};
    float lo = -1.1F, hi = 2.3F;
    sb_range got;

    (void)state;
    lo = 0.9F * lo + 0.1F * -0.7F;
    hi = 0.9F * hi + 0.1F * 3.9F;
    lo = 0.9F * lo + 0.1F * -2.2F;
    hi = 0.9F * hi + 0.1F * 0.1F;
    obs_ranges(&spec, &view, 2, &got);
    assert_true(got.lo == lo && got.hi == hi);
}

/* Cut anywhere and merged: the same but for rounding. */
static void test_merging_rounds_only(void **state)
{
    sb_quant_spec spec = obs_spec("moving_average");
    sb_obs_view view = {obs_make(OBS_NORMAL, 12 * 50, 3), 12, 1, 1, 50};
    sb_range got;

    (void)state;
    for (int64_t cut = 0; cut <= 12; cut++) {
        sb_obs_view head = obs_part(&view, 0, cut);
        sb_obs_view tail = obs_part(&view, cut, 12);
        sb_observer *a = obs_feed(&spec, &head, 4);
        sb_observer *b = obs_feed(&spec, &tail, 4);
        assert_ok(sb_observer_merge(a, b));
        assert_ok(sb_observer_ranges(a, &got));
        check(&view, 0.9, &got, 1e-6, "merged");
        sb_observer_free(a);
        sb_observer_free(b);
    }
}

static void test_weights_are_refused(void **state)
{
    sb_quant_spec spec = obs_spec("moving_average");
    sb_observer *obs;

    (void)state;
    spec.kind = SB_QUANT_WEIGHT;
    assert_status(sb_observer_create(test_ctx(), &spec, 1, &obs),
                  SB_BAD_CONFIG);
    assert_error_has("weights");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_are_those_of_the_definition),
        cmocka_unit_test(test_float_arithmetic_is_that_of_pytorch),
        cmocka_unit_test(test_merging_rounds_only),
        cmocka_unit_test(test_weights_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
