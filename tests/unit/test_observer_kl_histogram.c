/* Observer "kl_histogram": the definition step by step on the stored values,
 * and distributions whose answer is known. */
#include "obstest.h"

#include <math.h>
#include <stdlib.h>

enum { BINS = 2048, LEVELS = 4096 };

static double x[1 << 21];

/* KL(P || Q) for h bins on either side, no shortcut taken. */
static double divergence(const double *hist, int h, int levels)
{
    double p[BINS], q[BINS], total[LEVELS] = {0}, sum_p = 0, sum_q = 0, kl = 0;
    int count[LEVELS] = {0}, first = BINS / 2 - h, n = 2 * h;

    for (int i = 0; i < n; i++)
        p[i] = hist[first + i];
    for (int i = 0; i < first; i++)
        p[0] += hist[i];
    for (int i = first + n; i < BINS; i++)
        p[n - 1] += hist[i];
    for (int i = 0; i < n; i++) {
        total[i * levels / n] += hist[first + i];
        count[i * levels / n] += p[i] > 0;
    }
    for (int i = 0; i < n; i++) {
        int l = i * levels / n;
        q[i] = p[i] > 0 ? total[l] / count[l] : 0;
        sum_p += p[i];
        sum_q += q[i];
    }
    for (int i = 0; i < n; i++) {
        double q_i = q[i] / sum_q;
        if (p[i] > 0)
            kl += p[i] / sum_p * log(p[i] / sum_p / (q_i > 0 ? q_i : 1e-9));
    }
    return 2 * sum_q >= sum_p ? kl : INFINITY;
}

static double histogram(const sb_obs_view *view, int64_t c, double *hist,
                        double *lo, double *hi)
{
    int64_t n = obs_channel(view, c, x);

    *lo = *hi = x[0];
    for (int64_t i = 1; i < n; i++) {
        *lo = fmin(*lo, x[i]);
        *hi = fmax(*hi, x[i]);
    }
    double top = fmax(-*lo, *hi);
    for (int i = 0; i < BINS; i++)
        hist[i] = 0;
    for (int64_t i = 0; i < n && top > 0; i++) {
        int bin = BINS / 2 + (int)floor(x[i] / top * (BINS / 2));
        if (x[i] != 0)
            hist[bin < BINS ? bin : BINS - 1]++;
    }
    return top;
}

/* The divergence at the observer's threshold is the least one, but for
 * `slack`, a fraction of it. */
static void check(const sb_obs_view *view, const sb_quant_spec *spec,
                  const sb_range *got, double slack, const char *what)
{
    int levels = (1 << spec->bits) - 1;
    int least = (levels + 1) / 2 < BINS / 2 ? (levels + 1) / 2 : BINS / 2;

    for (int64_t c = 0; c < view->channels; c++) {
        double hist[BINS], best = INFINITY, lo, hi;
        double top = histogram(view, c, hist, &lo, &hi);
        if (top == 0) {
            assert_true(got[c].lo == 0 && got[c].hi == 0);
            continue;
        }
        for (int h = least; h <= BINS / 2; h++)
            best = fmin(best, divergence(hist, h, levels));
        double t = fmax(-(double)got[c].lo, (double)got[c].hi);
        int at = (int)nearbyint(t / top * (BINS / 2));
        assert_true(at >= least && at <= BINS / 2);
        if (spec->symmetric)
            assert_close(what, got[c].lo, -(double)got[c].hi, 0);
        assert_close(what, divergence(hist, at, levels), best,
                     1e-9 + slack * best);
    }
}

static void test_weights_have_the_threshold_of_the_definition(void **state)
{
    static const int bits[] = {8, 4, 7, 2, 12};
    sb_range got[256];

    (void)state;
    for (size_t i = 0; i < obs_n_shapes; i++)
        for (int k = 0; k < OBS_KINDS; k += 1 + (int)i % 3) {
            const obs_shape *s = &obs_shapes[i];
            int64_t n = s->samples * s->outer * s->channels * s->inner;
            sb_obs_view view = {obs_make((obs_kind)k, n, i), s->samples,
                                s->outer, s->channels, s->inner};
            sb_quant_spec spec = obs_spec("kl_histogram");
            spec.kind = SB_QUANT_WEIGHT;
            spec.bits = bits[((size_t)k + i) % 5];
            spec.symmetric = true;
            if (s->channels > 20)
                view.channels = 4; /* the reference is slow */
            obs_ranges(&spec, &view, s->samples, got);
            check(&view, &spec, got, 0, obs_kind_name((obs_kind)k));
        }
}

/* Activations: the histogram is gathered from finer bins, so a value near an
 * edge may be on its other side. */
static void test_activations_have_it_within_a_bin(void **state)
{
    static const obs_kind kinds[] = {OBS_UNIFORM, OBS_NORMAL, OBS_LAPLACE,
                                     OBS_RELU, OBS_OUTLIERS};

    (void)state;
    for (size_t k = 0; k < SB_COUNT(kinds); k++)
        for (int bits = 4; bits <= 8; bits += 4) {
            sb_obs_view view = {obs_make(kinds[k], 1 << 20, k), 4, 1, 1,
                                1 << 18};
            sb_quant_spec spec = obs_spec("kl_histogram");
            sb_range got;
            spec.bits = bits;
            spec.symmetric = true;
            obs_ranges(&spec, &view, 1, &got);
            check(&view, &spec, &got, 0.05, obs_kind_name(kinds[k]));
        }
}

static void test_known_distributions_have_known_thresholds(void **state)
{
    enum { N = 1 << 20 };
    sb_quant_spec spec = obs_spec("kl_histogram");
    float *flat = obs_make(OBS_UNIFORM, N, 1),
          *bell = obs_make(OBS_NORMAL, N, 2);
    sb_obs_view view = {flat, 1, 1, 1, N};
    sb_range got, t4;

    (void)state;
    spec.symmetric = true;
    obs_ranges(&spec, &view, 1, &got);
    assert_close("a flat distribution is kept whole", got.hi, 1, 0.01);
    flat[77] = 6.0F;
    obs_ranges(&spec, &view, 1, &got);
    assert_close("an outlier is cut", got.hi, 1, 0.05);
    view.data = bell;
    obs_ranges(&spec, &view, 1, &got);
    spec.bits = 4;
    obs_ranges(&spec, &view, 1, &t4);
    assert_true(2 < t4.hi && t4.hi < got.hi && got.hi < 5);
    /* Never 0.75098 of the largest value whatever the distribution, as in
     * the original. */
    assert_true(fabsf(got.hi / t4.hi - 1.0F) > 0.05F);
}

/* Affine: the ends stay within the data.  Neither the peak at zero behind a
 * ReLU nor data far from zero make the range collapse. */
static void test_affine_ends_stay_within_the_data(void **state)
{
    sb_quant_spec spec = obs_spec("kl_histogram");
    sb_obs_view view = {obs_make(OBS_RELU, 100000, 2), 1, 1, 1, 100000};
    sb_range got;

    (void)state;
    obs_ranges(&spec, &view, 1, &got);
    assert_true(got.lo == 0.0F && got.hi > 3.0F);
    view.data = obs_make(OBS_NEGATIVE, 100000, 2);
    obs_ranges(&spec, &view, 1, &got);
    assert_true(got.hi < -0.99F && got.lo < -2.0F);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_have_the_threshold_of_the_definition),
        cmocka_unit_test(test_activations_have_it_within_a_bin),
        cmocka_unit_test(test_known_distributions_have_known_thresholds),
        cmocka_unit_test(test_affine_ends_stay_within_the_data),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
