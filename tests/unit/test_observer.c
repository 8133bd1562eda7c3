/* What all observers share: whatever way the data come (in batches, on
 * threads, in several observers, through a file) the state is the same; bad
 * data is refused and leaves no trace; memory is bounded. */
#include "obstest.h"

#include <math.h>
#include <stdlib.h>

#include "quant/observe/observer_state.h"

static void assert_same_state(sb_observer *a, sb_observer *b)
{
    char *x = obs_state(a), *y = obs_state(b);

    assert_string_equal(x, y);
    sb_free(test_ctx(), x);
    sb_free(test_ctx(), y);
}

static void test_rows_are_complete(void **state)
{
    size_t n = 0;

    (void)state;
    for (; sb_observer_at(NULL, n); n++) {
        const sb_observer_def *def = sb_observer_at(NULL, n);
        assert_true(def->name[0] && def->summary[0] && def->bound[0]);
        assert_true(!def->params == (def->params_size == 0));
        assert_non_null(def->range);
        assert_true(def->flags & (SB_OBS_ACTIVATION | SB_OBS_WEIGHT));
        bool both =
            (def->flags & SB_OBS_ACTIVATION) && (def->flags & SB_OBS_WEIGHT);
        assert_true(both == !def->why_one);
        assert_true(
            !(def->flags & SB_OBS_EXTREMES) ||
            ((def->flags & SB_OBS_HISTOGRAM) && def->extremes_fraction));
        assert_ptr_equal(sb_observer_find(NULL, def->name), def);
        if (n > 0)
            assert_true(strcmp(sb_observer_name(sb_observer_at(NULL, n - 1)),
                               def->name) < 0);
        assert_true(!def->state_size ||
                    (def->state_update && def->state_merge));
    }
    assert_true(n > 0);
    assert_non_null(sb_observer_find(NULL, "MINMAX"));
    assert_null(sb_observer_find(NULL, "minma"));
}

static void test_no_data_is_refused(void **state)
{
    sb_quant_spec spec;

    (void)state;
    for (size_t i = 0; obs_variant(i, SB_QUANT_ACTIVATION, &spec); i++) {
        const float x[] = {1};
        sb_obs_view none = {x, 0, 1, 1, 4}, flat = {x, 3, 1, 1, 0};
        sb_observer *obs = obs_feed(&spec, &none, 1);
        sb_range range;
        assert_ok(sb_observer_update(obs, &flat, "x", 0));
        assert_status(sb_observer_ranges(obs, &range), SB_BAD_DATA);
        assert_int_equal(sb_observer_elements(obs), 0);
        sb_obs_view wrong = {x, 1, 1, 2, 1};
        assert_status(sb_observer_update(obs, &wrong, "x", 0), SB_BAD_ARG);
        char *text = obs_state(obs);
        assert_non_null(strstr(text, "\"elements\":0"));
        sb_free(test_ctx(), text);
        sb_observer_free(obs);
    }
    sb_observer_free(NULL);
}

/* Samples of growing size, so that histograms widen on the way. */
static float *growing(int64_t samples, int64_t each, uint64_t seed)
{
    float *x = obs_make(OBS_NORMAL, samples * each, seed);

    for (int64_t s = 0; s < samples; s++)
        for (int64_t i = 0; i < each; i++)
            x[s * each + i] *= ldexpf(1.0F, (int)((s * 5) % 7));
    return x;
}

static void test_batches_do_not_matter(void **state)
{
    static const obs_shape shapes[] = {
        {"tensor", 20, 1, 1, 20011},
        {"small tensor", 20, 1, 1, 2011},
        {"first", 20, 1, 5, 211},
        {"last", 20, 101, 21, 1},
    };
    static const int64_t batches[] = {1, 3, 8, 13};
    sb_quant_spec spec;

    (void)state;
    for (size_t k = 0; k < SB_COUNT(shapes); k++) {
        const obs_shape *s = &shapes[k];
        int64_t each = s->outer * s->channels * s->inner;
        sb_obs_view view = {growing(s->samples, each, k), s->samples, s->outer,
                            s->channels, s->inner};
        for (size_t i = 0; obs_variant(i, SB_QUANT_ACTIVATION, &spec); i++) {
            sb_observer *whole = obs_feed(&spec, &view, 20);
            for (size_t b = 0; b < SB_COUNT(batches); b++) {
                sb_observer *parts = obs_feed(&spec, &view, batches[b]);
                assert_same_state(whole, parts);
                sb_observer_free(parts);
            }
            sb_observer_free(whole);
        }
    }
}

/* Shown piece by piece while they are produced, several observers at a time
 * with shared memory for threads; one is never finished. */
static void test_pieces_seen_while_produced_count_once(void **state)
{
    enum { MANY = 3 };
    static const int64_t each[MANY] = {20011, 4001, 400000};
    sb_observer_slots slots = {0};
    sb_observer *shown[MANY], *left;
    sb_quant_spec spec;
    sb_tap tap;

    (void)state;
    for (size_t i = 0; obs_variant(i, SB_QUANT_ACTIVATION, &spec); i++) {
        for (int k = 0; k < MANY; k++) {
            assert_ok(sb_observer_create(test_ctx(), &spec, 1, &shown[k]));
            sb_observer_share(shown[k], &slots);
        }
        assert_ok(sb_observer_create(test_ctx(), &spec, 1, &left));
        sb_observer_share(left, &slots);
        for (int64_t s = 0; s < 12; s += 4)
            for (int k = 0; k < MANY; k++) {
                float *x = growing(12, each[k], (size_t)k);
                sb_obs_view view = {x, 12, 1, 1, each[k]};
                sb_obs_view part = obs_part(&view, s, s + 4);
                int64_t n = 4 * each[k], cut = n / 3 + 5;
                assert_ok(sb_observer_tap(left, &part, &tap));
                assert_ok(sb_observer_tap(shown[k], &part, &tap));
                assert_non_null(tap.look);
                tap.look(tap.arg, 0, part.data + cut, (size_t)(n - cut));
                if (s != 4) /* what was not shown is scanned later */
                    tap.look(tap.arg, 0, part.data, (size_t)cut);
                assert_ok(sb_observer_update(shown[k], &part, "x", s));
                if (s == 8) {
                    sb_observer *want = obs_feed(&spec, &view, 12);
                    assert_same_state(want, shown[k]);
                    sb_observer_free(want);
                }
            }
        sb_observer_free(left);
        for (int k = 0; k < MANY; k++)
            sb_observer_free(shown[k]);
    }
    sb_observer_slots_free(test_ctx(), &slots);
}

/* The histogram of channel c, counted one by one. */
static void count_naively(const sb_obs_view *view, int64_t c, int exponent,
                          uint32_t half, uint64_t *counts, uint64_t *zeros)
{
    int64_t inner = view->inner, channels = view->channels;
    double bins_per_unit = ldexp((double)half, -exponent);

    memset(counts, 0, 2 * (size_t)half * sizeof *counts);
    *zeros = 0;
    for (int64_t o = 0; o < view->samples * view->outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            double x = (double)view->data[(o * channels + c) * inner + i];
            size_t bin = (size_t)(fabs(x) * bins_per_unit);
            if (x == 0)
                ++*zeros;
            else
                counts[(x < 0 ? half : 0) + bin]++;
        }
}

/* No value is left out, whatever the layout and the number of threads: every
 * bin holds what counting one by one puts there. */
static void test_every_value_is_counted(void **state)
{
    static const obs_shape shapes[] = {
        {"large tensor", 6, 1, 1, 300007},
        {"small tensor", 6, 1, 1, 37},
        {"first", 6, 3, 21, 1009},
        {"last", 6, 3001, 21, 1},
    };
    static const char *const names[] = {"mse", "percentile", "kl_histogram"};
    static uint64_t want[SB_HISTOGRAM_BINS], got[SB_HISTOGRAM_BINS];
    int threads = sb_ctx_threads(test_ctx());
    uint64_t want_zeros, got_zeros;

    (void)state;
    for (size_t k = 0; k < SB_COUNT(shapes); k++) {
        const obs_shape *s = &shapes[k];
        int64_t each = s->outer * s->channels * s->inner;
        sb_obs_view view = {growing(s->samples, each, k), s->samples, s->outer,
                            s->channels, s->inner};
        for (int n = 1; n <= 7; n += 3) {
            sb_quant_spec spec = obs_spec(names[n % 3]);
            sb_ctx_set_threads(test_ctx(), n);
            sb_observer *obs = obs_feed(&spec, &view, 4);
            size_t bytes = 2 * (size_t)obs->hist.half * sizeof *want;
            for (int64_t c = 0; c < s->channels; c++) {
                count_naively(&view, c, obs->hist.exponent[c], obs->hist.half,
                              want, &want_zeros);
                sb_histogram_counts(&obs->hist, c, got, &got_zeros);
                assert_int_equal(got_zeros, want_zeros);
                assert_memory_equal(got, want, bytes);
            }
            sb_observer_free(obs);
        }
    }
    sb_ctx_set_threads(test_ctx(), threads);
}

static void test_threads_do_not_matter(void **state)
{
    sb_obs_view views[] = {{growing(4, 100000, 1), 4, 1, 1, 100000},
                           {growing(4, 30000, 2), 4, 1, 100, 300},
                           {growing(4, 30000, 3), 4, 300, 100, 1}};
    int threads = sb_ctx_threads(test_ctx());
    sb_quant_spec spec;

    (void)state;
    for (size_t k = 0; k < SB_COUNT(views); k++)
        for (size_t i = 0; obs_variant(i, SB_QUANT_ACTIVATION, &spec); i++) {
            sb_range one[100], more[100];
            sb_ctx_set_threads(test_ctx(), 1);
            sb_observer *a = obs_feed(&spec, &views[k], 2);
            assert_ok(sb_observer_ranges(a, one));
            for (int n = 2; n <= 11; n += 9) {
                sb_ctx_set_threads(test_ctx(), n);
                sb_observer *b = obs_feed(&spec, &views[k], 2);
                assert_same_state(a, b);
                assert_ok(sb_observer_ranges(b, more));
                assert_memory_equal(one, more,
                                    (size_t)views[k].channels * sizeof *one);
                sb_observer_free(b);
            }
            sb_observer_free(a);
        }
    sb_ctx_set_threads(test_ctx(), threads);
}

/* Merged, and through a file: the state of all data.  (States of rows' own may
 * round; they have tests of their own.) */
static void test_merged_states_are_the_state_of_all(void **state)
{
    sb_obs_view views[] = {{growing(9, 20011, 1), 9, 1, 1, 20011},
                           {growing(9, 500, 2), 9, 1, 5, 100}};
    sb_quant_spec spec;

    (void)state;
    for (size_t k = 0; k < SB_COUNT(views); k++)
        for (size_t i = 0; obs_variant(i, SB_QUANT_ACTIVATION, &spec); i++) {
            sb_observer *whole = obs_feed(&spec, &views[k], 9), *into, *file;
            sb_range want[5], got[5];
            assert_ok(sb_observer_create(test_ctx(), &spec, views[k].channels,
                                         &into));
            for (int64_t s = 0; s < 9; s += 3) {
                sb_obs_view part = obs_part(&views[k], s, s + 3);
                sb_observer *from = obs_feed(&spec, &part, 2);
                assert_ok(sb_observer_merge(into, from));
                sb_observer_free(from);
            }
            if (!spec.observer->state_size)
                assert_same_state(whole, into);
            assert_int_equal(sb_observer_elements(into),
                             sb_observer_elements(whole));
            char *text = obs_state(whole);
            assert_ok(sb_observer_create(test_ctx(), &spec, views[k].channels,
                                         &file));
            assert_ok(obs_load(file, text, "x"));
            assert_same_state(whole, file);
            assert_ok(sb_observer_ranges(whole, want));
            assert_ok(sb_observer_ranges(file, got));
            assert_memory_equal(want, got,
                                (size_t)views[k].channels * sizeof *want);
            sb_free(test_ctx(), text);
            sb_observer_free(whole);
            sb_observer_free(into);
            sb_observer_free(file);
        }
}

static void test_merge_other(void **state)
{
    sb_quant_spec a = obs_spec("mse"), b = obs_spec("percentile");
    sb_observer *x, *y, *z;

    (void)state;
    assert_ok(sb_observer_create(test_ctx(), &a, 1, &x));
    assert_ok(sb_observer_create(test_ctx(), &b, 1, &y));
    assert_ok(sb_observer_create(test_ctx(), &a, 2, &z));
    assert_status(sb_observer_merge(x, y), SB_BAD_ARG);
    assert_status(sb_observer_merge(x, z), SB_BAD_ARG);
    sb_observer_free(x);
    sb_observer_free(y);
    sb_observer_free(z);
}

static void test_weights_are_seen_at_once(void **state)
{
    sb_obs_view view = {obs_make(OBS_NORMAL, 600, 1), 1, 1, 6, 100};
    sb_quant_spec spec;

    (void)state;
    for (size_t i = 0; obs_variant(i, SB_QUANT_WEIGHT, &spec); i++) {
        sb_observer *obs, *file;
        sb_range want[6], got[6];
        obs = obs_feed(&spec, &view, 1);
        assert_status(sb_observer_update(obs, &view, "w", 0), SB_BAD_ARG);
        assert_error_has("twice");
        assert_ok(sb_observer_ranges(obs, want));
        char *text = obs_state(obs);
        assert_ok(sb_observer_create(test_ctx(), &spec, 6, &file));
        assert_ok(obs_load(file, text, "w"));
        assert_ok(sb_observer_ranges(file, got));
        assert_memory_equal(want, got, sizeof want);
        assert_ok(sb_observer_merge(file, obs)); /* the same weights again */
        sb_observer_free(file);
        spec.bits = 4;
        assert_ok(sb_observer_create(test_ctx(), &spec, 6, &file));
        assert_status(obs_load(file, text, "w"), SB_BAD_DATA);
        assert_error_has("settings");
        sb_observer_free(file);
        sb_free(test_ctx(), text);
        sb_observer_free(obs);
    }
}

static void test_not_finite(void **state)
{
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    const obs_shape shapes[] = {{"tensor", 6, 1, 1, 30000},
                                {"first", 6, 1, 3, 70},
                                {"last", 6, 70, 18, 1}};
    sb_quant_spec spec;

    (void)state;
    for (size_t k = 0; k < SB_COUNT(shapes); k++)
        for (size_t i = 0; obs_variant(i, SB_QUANT_ACTIVATION, &spec); i++) {
            const obs_shape *s = &shapes[k];
            int64_t each = s->outer * s->channels * s->inner;
            float *x = obs_make(OBS_NORMAL, s->samples * each, 4);
            sb_obs_view view = {x, s->samples, s->outer, s->channels, s->inner};
            sb_obs_view head = obs_part(&view, 0, 3);
            sb_obs_view rest = obs_part(&view, 3, 6);
            sb_observer *want = obs_feed(&spec, &view, 3);
            sb_observer *obs = obs_feed(&spec, &head, 3);
            for (size_t b = 0; b < SB_COUNT(bad); b++) {
                float *at = &x[4 * each + each / 3 + (int64_t)b], keep = *at;
                *at = bad[b];
                assert_status(sb_observer_update(obs, &rest, "conv1", 103),
                              SB_BAD_DATA);
                assert_error_has("'conv1'");
                assert_error_has("sample 104");
                assert_error_has(b < 2 ? "NaN" : "infinity");
                *at = keep;
            }
            assert_ok(sb_observer_update(obs, &rest, "conv1", 103));
            assert_same_state(want, obs); /* no trace of the failures */
            sb_observer_free(obs);
            sb_observer_free(want);
        }
    spec = obs_spec("minmax");
    sb_obs_view one = {bad, 1, 1, 1, 1};
    sb_observer *obs;
    spec.kind = SB_QUANT_WEIGHT;
    assert_ok(sb_observer_create(test_ctx(), &spec, 1, &obs));
    assert_status(sb_observer_update(obs, &one, "w", 0), SB_BAD_DATA);
    assert_error_has("weight 'w'");
    sb_observer_free(obs);
}

/* Ten times the data in batches of one size, the same state. */
static void test_state_does_not_grow_with_data(void **state)
{
    sb_obs_view view = {obs_make(OBS_NORMAL, 8 * 40000, 1), 8, 1, 1, 40000};
    sb_quant_spec spec;

    (void)state;
    for (size_t i = 0; obs_variant(i, SB_QUANT_ACTIVATION, &spec); i++) {
        sb_observer *obs = obs_feed(&spec, &view, 8);
        size_t bytes = sb_observer_bytes(obs);
        for (int k = 1; k < 10; k++)
            assert_ok(sb_observer_update(obs, &view, "x", 8 * k));
        assert_int_equal(sb_observer_bytes(obs), bytes);
        assert_int_equal(sb_observer_elements(obs), 3200000);
        assert_true(bytes < ((size_t)4 << 20));
        sb_observer_free(obs);
    }
}

/* Counts beyond 32 bits go on; here the limit is made small by hand. */
static void test_counts_beyond_32_bits_carry(void **state)
{
    sb_histogram a, b;
    float *x = obs_make(OBS_RELU, 5000, 1);
    uint64_t *u = calloc(SB_HISTOGRAM_BINS, sizeof *u);
    uint64_t *v = calloc(SB_HISTOGRAM_BINS, sizeof *v), zu, zv;

    (void)state;
    assert_true(u && v);
    assert_ok(sb_histogram_init(test_ctx(), &a, 1));
    assert_ok(sb_histogram_init(test_ctx(), &b, 1));
    for (int i = 0; i < 10; i++) {
        sb_minmax m = sb_scan(x + i * 500, 500, SB_MINMAX_EMPTY);
        assert_ok(sb_histogram_reserve(test_ctx(), &a, 500));
        assert_ok(sb_histogram_reserve(test_ctx(), &b, 500));
        sb_histogram_fit(&a, 0, m);
        sb_histogram_fit(&b, 0, m);
        sb_histogram_table to_a = sb_histogram_table_of(&a, 0);
        sb_histogram_table to_b = sb_histogram_table_of(&b, 0);
        sb_histogram_count(&to_a, x + i * 500, 500);
        sb_histogram_count(&to_b, x + i * 500, 500);
        b.unused = 100;
    }
    assert_non_null(b.carry);
    sb_histogram_counts(&a, 0, u, &zu);
    sb_histogram_counts(&b, 0, v, &zv);
    assert_memory_equal(u, v, SB_HISTOGRAM_BINS * sizeof *u);
    assert_true(zu == zv && zu > 2000);
    assert_status(sb_histogram_reserve(test_ctx(), &a, (uint64_t)1 << 33),
                  SB_UNSUPPORTED);
    sb_histogram_free(test_ctx(), &a);
    sb_histogram_free(test_ctx(), &b);
    free(u);
    free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_complete),
        cmocka_unit_test(test_no_data_is_refused),
        cmocka_unit_test(test_batches_do_not_matter),
        cmocka_unit_test(test_threads_do_not_matter),
        cmocka_unit_test(test_merged_states_are_the_state_of_all),
        cmocka_unit_test(test_merge_other),
        cmocka_unit_test(test_weights_are_seen_at_once),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_state_does_not_grow_with_data),
        cmocka_unit_test(test_counts_beyond_32_bits_carry),
        cmocka_unit_test(test_pieces_seen_while_produced_count_once),
        cmocka_unit_test(test_every_value_is_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
