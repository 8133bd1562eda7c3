/* Observer "aciq" against the formulas in double, its tables against the
 * equations they come from. */
#include "obstest.h"

#include <math.h>

static double x[300000];

static const double gaus[] = {1.24, 1.71, 2.15, 2.55, 2.93, 3.28, 3.61, 3.92};
static const double gaus_one[] = {1.71, 2.15, 2.55, 2.93,
                                  3.28, 3.61, 3.92, 4.2};
static const double laplace[] = {1.86, 2.83, 3.89, 5.03, 6.2, 7.41, 8.64, 9.89};
static const double laplace_one[] = {2.83, 3.89, 5.02, 6.2,
                                     7.41, 8.64, 9.89, 11.16};

static bool all_positive(const sb_obs_view *v)
{
    for (int64_t i = 0; i < v->samples * v->outer * v->channels * v->inner; i++)
        if (v->data[i] < 0)
            return false;
    return true;
}

static void set_laplace(sb_quant_spec *spec, bool on)
{
    obs_set(spec, "{DISTRIBUTION: %s}", on ? "LAPLACE" : "GAUS");
}

static void check(const sb_obs_view *v, const sb_quant_spec *spec,
                  bool is_laplace, const sb_range *got, double bins,
                  const char *what)
{
    bool one = !spec->symmetric && all_positive(v);
    bool weight = spec->kind == SB_QUANT_WEIGHT;
    double each = (double)(v->outer * v->channels * v->inner);
    const double *table =
        is_laplace ? (one ? laplace_one : laplace) : (one ? gaus_one : gaus);

    if (weight)
        each *= (double)v->samples;
    for (int64_t c = 0; c < v->channels; c++) {
        int64_t n = obs_channel(v, c, x);
        double lo = x[0], hi = x[0], mean = 0, spread = 0, bound = 0;
        for (int64_t i = 0; i < n; i++) {
            lo = fmin(lo, x[i]);
            hi = fmax(hi, x[i]);
            mean += x[i] / (double)n;
        }
        if (is_laplace) {
            for (int64_t i = 0; i < n; i++)
                spread += fabs(x[i] - mean) / (double)n;
            if (bins > 0)
                bound = 4 * fmax(-lo, hi) / bins;
        } else {
            spread = (hi - lo) * 0.175 * (1 + sqrt(3.14159265358979 * log(4))) /
                     sqrt(2 * log(each));
        }
        double clip = table[spec->bits - 1] * spread;
        double tol = 1e-6 * clip + table[spec->bits - 1] * bound;
        if (lo == hi || each < 2) { /* no spread: the data's own range */
            assert_close(what, got[c].lo, lo, 0);
            assert_close(what, got[c].hi, hi, 0);
            continue;
        }
        assert_close(what, got[c].hi, clip, tol);
        assert_close(what, got[c].lo, one ? 0 : -clip, tol);
    }
}

static void test_ranges_are_those_of_the_formulas(void **state)
{
    sb_range got[256];

    (void)state;
    for (size_t i = 0; i < obs_n_shapes; i++)
        for (int k = 0; k < OBS_KINDS; k++)
            for (int l = 0; l < 2; l++) {
                const obs_shape *s = &obs_shapes[i];
                int64_t n = s->samples * s->outer * s->channels * s->inner;
                sb_obs_view view = {obs_make((obs_kind)k, n, i), s->samples,
                                    s->outer, s->channels, s->inner};
                sb_quant_spec spec = obs_spec("aciq");
                set_laplace(&spec, l);
                spec.bits = 1 + (k + (int)i) % 8;
                spec.symmetric = (k / 2 + (int)i) % 2;
                obs_ranges(&spec, &view, 1, got);
                check(&view, &spec, l, got, s->channels > 1 ? 2048 : 65536,
                      obs_kind_name((obs_kind)k));
                spec.kind = SB_QUANT_WEIGHT;
                obs_ranges(&spec, &view, s->samples, got);
                check(&view, &spec, l, got, 0, obs_kind_name((obs_kind)k));
            }
}

/* Every number of the tables: width, distribution, one side or two. */
static void test_tables_solve_their_equations(void **state)
{
    float data[64];
    sb_obs_view view = {data, 1, 1, 1, 64};

    (void)state;
    for (int i = 0; i < 64; i++)
        data[i] = (float)(i * i % 61);
    for (int k = 0; k < 8 * 2 * 2 * 2; k++) {
        sb_quant_spec spec = obs_spec("aciq");
        sb_range got;

        spec.bits = 1 + k % 8;
        set_laplace(&spec, k / 8 % 2);
        spec.symmetric = k / 16 % 2;
        if (k / 32)
            spec.kind = SB_QUANT_WEIGHT;
        obs_ranges(&spec, &view, 1, &got);
        check(&view, &spec, k / 8 % 2, &got, k / 32 ? 0 : 65536, "tables");
    }
}

/* Error of clipping at c plus that of rounding, per unit of spread, by adding
 * up the density of one side. */
static double cost(double c, int bits, bool is_laplace)
{
    double step = 1e-3, sum = 0;

    for (double t = c + step / 2; t < c + 40; t += step) {
        double density = is_laplace ? exp(-t) / 2
                                    : exp(-t * t / 2) / sqrt(2 * 3.14159265359);
        sum += 2 * (t - c) * (t - c) * density * step;
    }
    return sum + c * c / (3 * pow(4, bits));
}

/* Beyond the tables: no other clipping value costs less. */
static void test_more_bits(void **state)
{
    float *data = obs_make(OBS_LAPLACE, 100000, 7);
    sb_obs_view view = {data, 1, 1, 1, 100000};

    (void)state;
    for (int l = 0; l < 2; l++) {
        double last = 0;
        for (int bits = 7; bits <= 16; bits++) {
            sb_quant_spec spec = obs_spec("aciq");
            sb_range got, unit;
            spec.kind = SB_QUANT_WEIGHT;
            set_laplace(&spec, l);
            spec.symmetric = true;
            spec.bits = 1;
            obs_ranges(&spec, &view, 1, &unit);
            spec.bits = bits;
            obs_ranges(&spec, &view, 1, &got);
            double alpha = (double)got.hi / unit.hi * (l ? 1.86 : 1.24);
            assert_true(alpha > last);
            last = alpha;
            if (bits > 10)
                continue; /* beyond what the sums above resolve */
            assert_true(cost(alpha, bits, l) <= cost(alpha * 1.02, bits, l));
            assert_true(cost(alpha, bits, l) <= cost(alpha * 0.98, bits, l));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_are_those_of_the_formulas),
        cmocka_unit_test(test_tables_solve_their_equations),
        cmocka_unit_test(test_more_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
