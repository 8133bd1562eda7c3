/* Observer "mse" against trying all 80 ranges in double: exact on weights,
 * within one bin in root mean square error on activations. */
#include "obstest.h"

#include <math.h>

static double x[300000];

/* Root mean square error of a range. */
static double error_of(int64_t n, sb_range range, const sb_quant_spec *spec)
{
    float s, z;
    double qmin = sb_qmin(spec->bits, spec->symmetric);
    double qmax = sb_qmax(spec->bits, spec->symmetric);
    double sum = 0;

    sb_qparams_from_range(range, spec->bits, spec->symmetric, &s, &z);
    for (int64_t i = 0; i < n; i++) {
        double q = nearbyint(x[i] / s) + z;
        q = q < qmin ? qmin : q > qmax ? qmax : q;
        double d = x[i] - (q - z) * s;
        sum += d * d;
    }
    return sqrt(sum / (double)n);
}

/* The best of the 80, and how far the observer's choice is from it. */
static void check(const sb_obs_view *view, const sb_quant_spec *spec,
                  const sb_range *got, double bins, const char *what)
{
    for (int64_t c = 0; c < view->channels; c++) {
        int64_t n = obs_channel(view, c, x);
        double lo = x[0], hi = x[0], best = INFINITY;
        bool among = false;
        for (int64_t i = 1; i < n; i++) {
            lo = fmin(lo, x[i]);
            hi = fmax(hi, x[i]);
        }
        for (int k = 0; k < 80; k++) {
            float by = (float)(1.0 - 0.01 * k);
            sb_range r = {(float)lo * by, (float)hi * by};
            best = fmin(best, error_of(n, r, spec));
            among |= r.lo == got[c].lo && r.hi == got[c].hi;
        }
        assert_true(among);
        double top = fmax(-lo, hi), bound = bins > 0 ? 4 * top / bins : 0;
        assert_close(what, fmax(error_of(n, got[c], spec) - best, 0), 0,
                     bound + 1e-6 * best + 1e-7 * top);
    }
}

static void test_ranges_have_the_least_error(void **state)
{
    static const int bits[] = {8, 4, 2, 8, 6};
    sb_range got[256];

    (void)state;
    for (size_t i = 0; i < obs_n_shapes; i++)
        for (int k = 0; k < OBS_KINDS; k++) {
            const obs_shape *s = &obs_shapes[i];
            int64_t n = s->samples * s->outer * s->channels * s->inner;
            sb_obs_view view = {obs_make((obs_kind)k, n, i), s->samples,
                                s->outer, s->channels, s->inner};
            sb_quant_spec spec = obs_spec("mse");
            if (k == OBS_HUGE)
                continue; /* its squares are the next test's matter */
            spec.bits = bits[((size_t)k + i) % 5];
            spec.symmetric = (k + (int)i) % 2;
            obs_ranges(&spec, &view, 1, got);
            check(&view, &spec, got, s->channels > 1 ? 2048 : 65536, s->what);
            spec.kind = SB_QUANT_WEIGHT;
            obs_ranges(&spec, &view, s->samples, got);
            check(&view, &spec, got, 0, s->what);
        }
}

static void test_huge_and_tiny_values_have_a_range(void **state)
{
    sb_quant_spec spec = obs_spec("mse");
    sb_obs_view view = {obs_make(OBS_HUGE, 1000, 1), 1, 1, 1, 1000};
    const float small[] = {1e-7F, -1e-7F, 0.0F};
    sb_range got;

    (void)state;
    obs_ranges(&spec, &view, 1, &got);
    assert_true(got.lo < -1e30F && got.hi > 1e30F);
    /* All candidates have the least scale: the first wins. */
    view = (sb_obs_view){small, 1, 1, 1, 3};
    obs_ranges(&spec, &view, 1, &got);
    assert_true(got.lo == -1e-7F && got.hi == 1e-7F);
    spec.bits = 16;
    obs_ranges(&spec, &view, 1, &got);
    assert_true(got.hi <= 1e-7F);
}

/* Values that lie on the grid of the full range: no error at all there. */
static void test_values_on_the_grid_keep_their_range(void **state)
{
    float grid[256];
    sb_quant_spec spec = obs_spec("mse");
    sb_obs_view view = {grid, 1, 1, 1, 256};
    sb_range got;

    (void)state;
    for (int i = 0; i < 256; i++)
        grid[i] = (float)(i - 128) / 32.0F;
    for (int weight = 0; weight < 2; weight++) {
        spec.kind = weight ? SB_QUANT_WEIGHT : SB_QUANT_ACTIVATION;
        obs_ranges(&spec, &view, 1, &got);
        assert_close("lo", got.lo, -4, 0);
        assert_close("hi", got.hi, 127.0 / 32, 0);
    }
}

/* Two outliers in many values: at four bits the range lets them go. */
static void test_outliers_are_let_go_at_four_bits(void **state)
{
    sb_quant_spec spec = obs_spec("mse");
    float *data = obs_make(OBS_UNIFORM, 100000, 2);
    sb_obs_view view = {data, 1, 1, 1, 100000};
    sb_range got;

    (void)state;
    data[10] = 4.0F;
    data[20] = -4.0F;
    spec.bits = 4;
    obs_ranges(&spec, &view, 1, &got);
    assert_close("hi", got.hi, 1, 0.15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_have_the_least_error),
        cmocka_unit_test(test_huge_and_tiny_values_have_a_range),
        cmocka_unit_test(test_values_on_the_grid_keep_their_range),
        cmocka_unit_test(test_outliers_are_let_go_at_four_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
