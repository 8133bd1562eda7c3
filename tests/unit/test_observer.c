/* What all observers share: whatever way the data come (in batches, on
 * threads, in several observers, through a file) the state is the same; bad
 * data is refused and leaves no trace; memory is bounded. */
#include "obstest.h"

#include <math.h>
#include <stdlib.h>

#include "quant/obs_hist.h"
#include "quant/observer_def.h"

/* Every observer and, for aciq, both distributions. */
enum { VARIANTS = 7 };

static sb_quant_spec variant(int i)
{
    static const char *const names[VARIANTS] = {
        "minmax",       "moving_average", "percentile", "mse",
        "kl_histogram", "aciq",           "ACIQ",
    };
    sb_quant_spec spec = obs_spec(names[i]);

    spec.aciq_laplace = i == 6;
    return spec;
}

static char *state_text(sb_observer *obs)
{
    sb_str text;
    char *out = NULL;

    sb_str_init(&text, test_ctx());
    assert_ok(sb_observer_save(obs, &text));
    assert_ok(sb_str_take(&text, &out));
    return out;
}

static sb_status load_text(sb_observer *obs, const char *text, const char *file)
{
    sb_json_doc *doc;

    assert_ok(sb_json_read(test_ctx(), file, text, strlen(text), &doc));
    sb_status status = sb_observer_load(obs, doc, doc->root);
    sb_json_free(doc);
    return status;
}

static void assert_same_state(sb_observer *a, sb_observer *b)
{
    char *x = state_text(a), *y = state_text(b);

    assert_string_equal(x, y);
    sb_free(test_ctx(), x);
    sb_free(test_ctx(), y);
}

static void test_list(void **state)
{
    size_t n = 0;

    (void)state;
    for (; sb_observer_at(n); n++) {
        const sb_observer_def *def = sb_observer_at(n);
        assert_true(def->name[0] && def->summary[0] && def->bound[0]);
        assert_non_null(def->params);
        assert_non_null(def->range);
        assert_true(def->flags & (SB_OBS_FEATURE | SB_OBS_WEIGHT));
        assert_true(!(def->flags & SB_OBS_TAILS) ||
                    (def->flags & SB_OBS_HISTOGRAM));
        assert_ptr_equal(sb_observer_find(def->name), def);
        if (n > 0)
            assert_true(
                strcmp(sb_observer_name(sb_observer_at(n - 1)), def->name) < 0);
        if (def->own_size)
            assert_true(def->own_update && def->own_merge && def->own_save &&
                        def->own_load && def->own_numbers > 0);
    }
    assert_int_equal(n, 7);
    assert_non_null(sb_observer_find("MINMAX"));
    assert_null(sb_observer_find("minma"));
}

static void test_unknown(void **state)
{
    sb_quant_spec spec = obs_spec("best");
    sb_observer *obs;

    (void)state;
    assert_status(sb_observer_create(test_ctx(), &spec, 1, &obs),
                  SB_BAD_CONFIG);
    assert_error_has("'best'");
}

static void test_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < VARIANTS; i++) {
        sb_quant_spec spec = variant(i);
        const float x[] = {1};
        sb_obs_view none = {x, 0, 1, 1, 4}, flat = {x, 3, 1, 1, 0};
        sb_observer *obs = obs_feed(&spec, &none, 1);
        sb_range range;
        assert_ok(sb_observer_update(obs, &flat, "x", 0));
        assert_status(sb_observer_ranges(obs, &range), SB_BAD_DATA);
        assert_int_equal(sb_observer_elements(obs), 0);
        sb_obs_view wrong = {x, 1, 1, 2, 1};
        assert_status(sb_observer_update(obs, &wrong, "x", 0), SB_BAD_ARG);
        char *text = state_text(obs);
        assert_non_null(strstr(text, "\"elements\":0"));
        free(text);
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

static void test_batches(void **state)
{
    static const obs_shape shapes[] = {
        {"tensor", 20, 1, 1, 20011},
        {"small tensor", 20, 1, 1, 2011},
        {"first", 20, 1, 5, 211},
        {"last", 20, 101, 21, 1},
    };
    static const int64_t batches[] = {1, 3, 8, 13};

    (void)state;
    for (size_t k = 0; k < SB_COUNT(shapes); k++) {
        const obs_shape *s = &shapes[k];
        int64_t each = s->outer * s->channels * s->inner;
        sb_obs_view view = {growing(s->samples, each, k), s->samples, s->outer,
                            s->channels, s->inner};
        for (int i = 0; i < 2 * VARIANTS; i++) {
            sb_quant_spec spec = variant(i % VARIANTS);
            spec.all_values = i >= VARIANTS;
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

/* Shown piece by piece by whoever makes the tensors, in one room: several at a
 * time, larger than the room, and one that is never finished. */
static void test_rooms(void **state)
{
    enum { MANY = 3 };
    static const int64_t each[MANY] = {20011, 4001, 400000};
    sb_obs_room room = {0};
    sb_observer *shown[MANY], *left;
    sb_tap tap;

    (void)state;
    for (int i = 0; i < VARIANTS; i++) {
        sb_quant_spec spec = variant(i);
        for (int k = 0; k < MANY; k++) {
            assert_ok(sb_observer_create(test_ctx(), &spec, 1, &shown[k]));
            sb_observer_share(shown[k], &room);
        }
        assert_ok(sb_observer_create(test_ctx(), &spec, 1, &left));
        sb_observer_share(left, &room);
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
                tap.look(tap.arg, 0, part.data, (size_t)cut);
                assert_ok(sb_observer_update(shown[k], &part, "x", s));
                sb_observer *want = NULL;
                if (s == 8 && k != 1)
                    sb_obs_room_settle(test_ctx(), &room);
                if (s == 8) {
                    want = obs_feed(&spec, &view, 12);
                    assert_same_state(want, shown[k]);
                }
                sb_observer_free(want);
            }
        sb_observer_free(left);
        for (int k = 0; k < MANY; k++)
            sb_observer_free(shown[k]);
        assert_int_equal(room.n_waiting, 0);
        assert_int_equal(room.n_looking, 0);
    }
    sb_obs_room_free(test_ctx(), &room);
}

static void test_threads(void **state)
{
    sb_obs_view views[] = {{growing(4, 100000, 1), 4, 1, 1, 100000},
                           {growing(4, 30000, 2), 4, 1, 100, 300},
                           {growing(4, 30000, 3), 4, 300, 100, 1}};
    int threads = sb_ctx_threads(test_ctx());

    (void)state;
    for (size_t k = 0; k < SB_COUNT(views); k++)
        for (int i = 0; i < VARIANTS; i++) {
            sb_quant_spec spec = variant(i);
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

/* Merged, and through a file: the state of all data, if all were counted.
 * (Moving averages round; they have a test of their own.  Of percentiles the
 * lists may go down to other bars; the answers are the same.) */
static void test_merge(void **state)
{
    sb_obs_view views[] = {{growing(9, 20011, 1), 9, 1, 1, 20011},
                           {growing(9, 500, 2), 9, 1, 5, 100}};

    (void)state;
    for (size_t k = 0; k < SB_COUNT(views); k++)
        for (int i = 0; i < 2 * VARIANTS; i++) {
            sb_quant_spec spec = variant(i % VARIANTS);
            spec.all_values = i >= VARIANTS;
            bool all = spec.all_values || k == 1;
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
            assert_ok(sb_observer_ranges(whole, want));
            assert_ok(sb_observer_ranges(into, got));
            if (all && i % VARIANTS != 1 && i % VARIANTS != 2)
                assert_same_state(whole, into);
            if (all && i % VARIANTS == 2)
                assert_memory_equal(want, got,
                                    (size_t)views[k].channels * sizeof *want);
            assert_int_equal(sb_observer_elements(into),
                             sb_observer_elements(whole));
            char *text = state_text(whole);
            assert_ok(sb_observer_create(test_ctx(), &spec, views[k].channels,
                                         &file));
            assert_ok(load_text(file, text, "x"));
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

static void test_weights(void **state)
{
    sb_obs_view view = {obs_make(OBS_NORMAL, 600, 1), 1, 1, 6, 100};

    (void)state;
    for (int i = 0; i < VARIANTS; i++) {
        sb_quant_spec spec = variant(i);
        sb_observer *obs, *file;
        sb_range want[6], got[6];
        if (i == 1)
            continue; /* not for weights */
        spec.kind = SB_QUANT_WEIGHT;
        obs = obs_feed(&spec, &view, 1);
        assert_status(sb_observer_update(obs, &view, "w", 0), SB_BAD_ARG);
        assert_error_has("twice");
        assert_ok(sb_observer_ranges(obs, want));
        char *text = state_text(obs);
        assert_ok(sb_observer_create(test_ctx(), &spec, 6, &file));
        assert_ok(load_text(file, text, "w"));
        assert_ok(sb_observer_ranges(file, got));
        assert_memory_equal(want, got, sizeof want);
        assert_ok(sb_observer_merge(file, obs)); /* the same weights again */
        sb_observer_free(file);
        spec.bits = 4;
        assert_ok(sb_observer_create(test_ctx(), &spec, 6, &file));
        assert_status(load_text(file, text, "w"), SB_BAD_DATA);
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

    (void)state;
    for (size_t k = 0; k < SB_COUNT(shapes); k++)
        for (int i = 0; i < VARIANTS; i++) {
            const obs_shape *s = &shapes[k];
            int64_t each = s->outer * s->channels * s->inner;
            float *x = obs_make(OBS_NORMAL, s->samples * each, 4);
            sb_obs_view view = {x, s->samples, s->outer, s->channels, s->inner};
            sb_quant_spec spec = variant(i);
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
    sb_quant_spec spec = obs_spec("minmax");
    sb_obs_view one = {bad, 1, 1, 1, 1};
    sb_observer *obs;
    spec.kind = SB_QUANT_WEIGHT;
    assert_ok(sb_observer_create(test_ctx(), &spec, 1, &obs));
    assert_status(sb_observer_update(obs, &one, "w", 0), SB_BAD_DATA);
    assert_error_has("weight 'w'");
    sb_observer_free(obs);
}

/* Ten times the data in batches of one size, the same state. */
static void test_bounded(void **state)
{
    sb_obs_view view = {obs_make(OBS_NORMAL, 8 * 40000, 1), 8, 1, 1, 40000};

    (void)state;
    for (int i = 0; i < VARIANTS; i++) {
        sb_quant_spec spec = variant(i);
        sb_observer *obs = obs_feed(&spec, &view, 8);
        size_t bytes = sb_observer_bytes(obs);
        for (int k = 1; k < 10; k++)
            assert_ok(sb_observer_update(obs, &view, "x", 8 * k));
        assert_int_equal(sb_observer_bytes(obs), bytes);
        assert_int_equal(sb_observer_samples(obs), 80);
        assert_int_equal(sb_observer_elements(obs), 3200000);
        assert_true(bytes < ((size_t)4 << 20));
        sb_observer_free(obs);
    }
}

/* Counts beyond 32 bits go on; here the room is made small by hand. */
/* Large tensors have coarser histograms.  Merged with those of small ones, in
 * whichever order, counts are the same. */
static void test_coarse(void **state)
{
    float *x = growing(6, 30000, 3);
    sb_obs_view large = {x, 6, 1, 1, 30000}, small = {x, 60, 1, 1, 3000};
    sb_quant_spec spec = obs_spec("mse");
    sb_observer *a[2], *b[2];
    sb_range want, got;

    (void)state;
    for (int i = 0; i < 2; i++) {
        a[i] = obs_feed(&spec, &large, 6);
        b[i] = obs_feed(&spec, &small, 60);
    }
    assert_ok(sb_observer_merge(a[0], b[0]));
    assert_ok(sb_observer_merge(b[1], a[1]));
    assert_ok(sb_observer_update(b[0], &large, "x", 60));
    assert_same_state(a[0], b[1]);
    assert_ok(sb_observer_ranges(b[1], &want));
    assert_ok(sb_observer_ranges(b[0], &got));
    assert_close("small, then large", got.hi, want.hi, 0.03 * want.hi);
    for (int i = 0; i < 2; i++) {
        sb_observer_free(a[i]);
        sb_observer_free(b[i]);
    }
}

static void test_carry(void **state)
{
    sb_hist a, b;
    float *x = obs_make(OBS_RELU, 5000, 1);
    uint64_t *u = calloc(SB_HIST_BINS, sizeof *u);
    uint64_t *v = calloc(SB_HIST_BINS, sizeof *v), zu, zv;

    (void)state;
    assert_true(u && v);
    assert_ok(sb_hist_init(test_ctx(), &a, 1));
    assert_ok(sb_hist_init(test_ctx(), &b, 1));
    for (int i = 0; i < 10; i++) {
        sb_obs_keys keys = sb_obs_scan(x + i * 500, 500, SB_OBS_KEYS_EMPTY);
        assert_ok(sb_hist_reserve(test_ctx(), &a, 1, 500));
        assert_ok(sb_hist_reserve(test_ctx(), &b, 1, 500));
        sb_hist_fit(&a, 0, keys);
        sb_hist_fit(&b, 0, keys);
        sb_hist_add(&a, 0, x + i * 500, 500);
        sb_hist_add(&b, 0, x + i * 500, 500);
        b.room = 100;
    }
    assert_non_null(b.carry);
    sb_hist_counts(&a, 0, u, &zu);
    sb_hist_counts(&b, 0, v, &zv);
    assert_memory_equal(u, v, SB_HIST_BINS * sizeof *u);
    assert_true(zu == zv && zu > 2000);
    assert_int_equal(sb_hist_bar(&a, 0, false, 100),
                     sb_hist_bar(&b, 0, false, 100));
    assert_status(sb_hist_reserve(test_ctx(), &a, 1, (uint64_t)1 << 33),
                  SB_UNSUPPORTED);
    sb_hist_free(test_ctx(), &a);
    sb_hist_free(test_ctx(), &b);
    free(u);
    free(v);
}

/* ---- states that are not ---------------------------------------------------- */

/* A change to the state of a percentile observer over {-1, 0, 2}, and a word
 * of the message. */
static const struct {
    const char *from, *to, *word;
} edits[] = {
    {"\"percentile\"", "\"mse\"", "observer"},
    {"\"feature\"", "\"weight\"", "target"},
    {"\"channels\":1", "\"channels\":2", "channels"},
    {"\"samples\":1", "\"samples\":0", "elements"},
    {"\"samples\":1", "\"samples\":1.5", "samples"},
    {"\"elements\":3", "\"elements\":-3", "elements"},
    {"\"elements\":3", "\"elements\":4", "add up"},
    {"\"lo\":[-1]", "\"lo\":[-1,1]", "lo"},
    {"\"lo\":[-1]", "\"lo\":[3]", "upper"},
    {"\"lo\":[-1]", "\"lo\":[1e39]", "finite"},
    {"\"hi\":[2]", "\"hi\":[100]", "outside"},
    {"\"bins\":65536", "\"bins\":64", "bins"},
    {"\"exponent\":[2]", "\"exponent\":[400]", "exponent"},
    {"\"zeros\":[1]", "\"zeros\":[2]", "add up"},
    {"\"zeros\":[1]", "\"zeros\":[-1]", "zeros"},
    {"-16384", "-99999", "counts"},
    {"-16384", "-", "counts"},
    {"-16384", "-16384,", "counts"},
    {"-16384", "99999999999999999999", "counts"},
    {"40000000", "4000000", "tails"},
    {"40000000", "4000000g", "tails"},
    {"40000000", "ff800000", "tails"},
    {"\"tails\"", "\"tales\"", "tails"},
    {"\"histogram\"", "\"hist\"", "histogram"},
};

static void test_bad_states(void **state)
{
    const float x[] = {-1, 0, 2};
    sb_obs_view view = {x, 1, 1, 1, 3};
    sb_quant_spec spec = obs_spec("percentile");
    sb_observer *obs = obs_feed(&spec, &view, 1);
    char *good = state_text(obs), bad[1000];

    (void)state;
    for (size_t i = 0; i < SB_COUNT(edits); i++) {
        size_t at = 0, n = strlen(edits[i].from);
        while (good[at] && strncmp(good + at, edits[i].from, n) != 0)
            at++;
        assert_true(good[at] != '\0');
        (void)snprintf(bad, sizeof bad, "%.*s%s%s", (int)at, good, edits[i].to,
                       good + at + n);
        assert_status(load_text(obs, bad, "conv1"), SB_BAD_DATA);
        assert_error_has("conv1:1:");
        assert_error_has(edits[i].word);
    }
    char *after = state_text(obs);
    assert_string_equal(good, after);
    sb_free(test_ctx(), good);
    sb_free(test_ctx(), after);
    sb_observer_free(obs);
    spec = obs_spec("moving_average");
    assert_ok(sb_observer_create(test_ctx(), &spec, 1, &obs));
    assert_status(load_text(obs,
                            "{\"observer\":\"moving_average\",\"target\":"
                            "\"feature\",\"channels\":1,\"samples\":1,"
                            "\"elements\":3,\"lo\":[0],\"hi\":[1],"
                            "\"own\":[[0,1,0,1,-1]]}",
                            "x"),
                  SB_BAD_DATA);
    sb_observer_free(obs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_nothing),     cmocka_unit_test(test_batches),
        cmocka_unit_test(test_threads),     cmocka_unit_test(test_merge),
        cmocka_unit_test(test_merge_other), cmocka_unit_test(test_weights),
        cmocka_unit_test(test_not_finite),  cmocka_unit_test(test_bounded),
        cmocka_unit_test(test_carry),       cmocka_unit_test(test_bad_states),
        cmocka_unit_test(test_rooms),       cmocka_unit_test(test_coarse),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
