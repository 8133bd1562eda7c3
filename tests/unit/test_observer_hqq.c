/* Observer "hqq": never worse than "mse" in the sum that it minimizes, never
 * far from it in mean square; finds a grid that an outlier hides. */
#include "obstest.h"

#include <math.h>

static double x[300000];

/* Mean of |error|^p when the range is used. */
static double error_of(int64_t n, sb_range range, const sb_quant_spec *spec,
                       double p)
{
    float s, z;
    double qmin = sb_qmin(spec->bits, spec->symmetric);
    double qmax = sb_qmax(spec->bits, spec->symmetric);
    double sum = 0;

    sb_qparams_from_range(range, spec->bits, spec->symmetric, &s, &z);
    assert_true(z == rintf(z));
    assert_true((double)z >= qmin && (double)z <= qmax);
    for (int64_t i = 0; i < n; i++) {
        double q = nearbyint((double)((float)x[i] / s)) + (double)z;
        q = q < qmin ? qmin : q > qmax ? qmax : q;
        sum += pow(fabs(x[i] - (q - (double)z) * (double)s), p);
    }
    return sum / (double)n;
}

static void test_never_worse(void **state)
{
    static const int bits[] = {8, 4, 2, 3, 6};
    static sb_range got[256], mse[256];

    (void)state;
    for (size_t i = 0; i < obs_n_shapes; i++)
        for (int k = 0; k < OBS_KINDS; k++) {
            const obs_shape *s = &obs_shapes[i];
            int64_t n = s->samples * s->outer * s->channels * s->inner;
            sb_obs_view view = {obs_make((obs_kind)k, n, i), s->samples,
                                s->outer, s->channels, s->inner};
            sb_quant_spec spec = obs_spec("hqq");
            if (k == OBS_HUGE || k == OBS_TINY)
                continue; /* what squares cannot hold */
            spec.kind = SB_QUANT_WEIGHT;
            spec.bits = bits[((size_t)k + i) % 5];
            spec.symmetric = (k + (int)i) % 2;
            obs_ranges(&spec, &view, s->samples, got);
            spec.observer = sb_observer_find(NULL, "mse");
            obs_ranges(&spec, &view, s->samples, mse);
            for (int64_t c = 0; c < s->channels; c++) {
                int64_t m = obs_channel(&view, c, x);
                double mine = error_of(m, got[c], &spec, 0.75);
                double from = error_of(m, mse[c], &spec, 0.75);
                /* Scales go through a range, so they lose their last bit, and
                 * values on a border between two codes change sides. */
                assert_true(mine <= from * (1 + 1e-4) + 1e-6);
            }
        }
}

static void test_gains_on_normal_weights(void **state)
{
    sb_quant_spec spec = obs_spec("hqq");
    sb_obs_view view = {obs_make(OBS_LAPLACE, 1 << 15, 3), 1, 1, 256, 128};
    static sb_range got[256], mse[256], all[256];
    double mine = 0, from = 0, plain = 0, square = 0, least = 0;

    (void)state;
    spec.kind = SB_QUANT_WEIGHT;
    spec.bits = 4;
    obs_ranges(&spec, &view, 1, got);
    spec.observer = sb_observer_find(NULL, "mse");
    obs_ranges(&spec, &view, 1, mse);
    spec.observer = sb_observer_find(NULL, "minmax");
    obs_ranges(&spec, &view, 1, all);
    for (int64_t c = 0; c < 256; c++) {
        int64_t m = obs_channel(&view, c, x);
        mine += error_of(m, got[c], &spec, 1);
        from += error_of(m, mse[c], &spec, 1);
        plain += error_of(m, all[c], &spec, 1);
        square += error_of(m, got[c], &spec, 2);
        least += error_of(m, mse[c], &spec, 2);
    }
    assert_true(mine < 0.99 * from && from < plain);
    assert_true(square < 1.1 * least);
}

/* Multiples of 0.1, all codes of 4 bits, and two values farther out: "mse",
 * which tries hundredths, comes near, and the steps find the rest, since the
 * sum forgives those two. */
static void test_finds_the_grid(void **state)
{
    float w[128];
    float s, z;
    sb_range got;

    (void)state;
    for (int symmetric = 0; symmetric < 2; symmetric++) {
        sb_quant_spec spec = obs_spec("hqq");
        sb_obs_view view = {w, 1, 1, 1, 128};

        spec.kind = SB_QUANT_WEIGHT;
        spec.bits = 4;
        spec.symmetric = symmetric;
        for (int i = 0; i < 128; i++)
            w[i] = (float)(i % 16 - (symmetric ? 8 : 5)) * 0.1F;
        w[76] = symmetric ? -0.97F : -0.607F;
        w[77] = symmetric ? 0.85F : 1.214F;
        obs_ranges(&spec, &view, 1, &got);
        sb_qparams_from_range(got, 4, symmetric, &s, &z);
        assert_close("scale", s, 0.1, 1e-4);
        assert_close("zero point", z, symmetric ? 0 : 5, 0);
    }
}

static void test_equal_values_have_a_range(void **state)
{
    static const float zeros[20], one[] = {2.5F}, equal[] = {-3, -3, -3};
    static const sb_obs_view views[] = {
        {zeros, 1, 1, 1, 20}, {one, 1, 1, 1, 1}, {equal, 1, 1, 1, 3}};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(views); i++)
        for (int bits = 1; bits <= 16; bits++) {
            sb_quant_spec spec = obs_spec("hqq");
            sb_range got;

            spec.kind = SB_QUANT_WEIGHT;
            spec.bits = bits;
            spec.symmetric = bits % 2;
            obs_ranges(&spec, &views[i], 1, &got);
            assert_true(isfinite(got.lo) && isfinite(got.hi));
            assert_true(got.lo <= 0 && got.hi >= 0);
        }
}

static void test_activations_are_refused(void **state)
{
    sb_quant_spec spec = obs_spec("hqq");
    sb_observer *obs = NULL;

    (void)state;
    assert_status(sb_observer_create(test_ctx(), &spec, 1, &obs),
                  SB_BAD_CONFIG);
    assert_error_has("cannot watch activations");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never_worse),
        cmocka_unit_test(test_gains_on_normal_weights),
        cmocka_unit_test(test_finds_the_grid),
        cmocka_unit_test(test_equal_values_have_a_range),
        cmocka_unit_test(test_activations_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
