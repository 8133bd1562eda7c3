/* States of observers that come from a file: what is wrong with them is said,
 * and leaves no trace. */
#include "obstest.h"

/* A change to the state of a percentile observer over {-1, 0, 2}, and a word
 * of the message. */
static const struct {
    const char *from, *to, *word;
} edits[] = {
    {"\"percentile\"", "\"mse\"", "observer"},
    {"\"activation\"", "\"weight\"", "target"},
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
    {"40000000", "4000000", "extremes"},
    {"40000000", "4000000g", "extremes"},
    {"40000000", "ff800000", "extremes"},
    {"\"extremes\"", "\"extreme\"", "extremes"},
    {"\"histogram\"", "\"hist\"", "histogram"},
};

static void test_bad_states(void **state)
{
    const float x[] = {-1, 0, 2};
    sb_obs_view view = {x, 1, 1, 1, 3};
    sb_quant_spec spec = obs_spec("percentile");
    sb_observer *obs = obs_feed(&spec, &view, 1);
    char *good = obs_state(obs), bad[1000];

    (void)state;
    for (size_t i = 0; i < SB_COUNT(edits); i++) {
        size_t at = 0, n = strlen(edits[i].from);
        while (good[at] && strncmp(good + at, edits[i].from, n) != 0)
            at++;
        assert_true(good[at] != '\0');
        (void)snprintf(bad, sizeof bad, "%.*s%s%s", (int)at, good, edits[i].to,
                       good + at + n);
        assert_status(obs_load(obs, bad, "conv1"), SB_BAD_DATA);
        assert_error_has("conv1:1:");
        assert_error_has(edits[i].word);
    }
    char *after = obs_state(obs);
    assert_string_equal(good, after);
    sb_free(test_ctx(), good);
    sb_free(test_ctx(), after);
    sb_observer_free(obs);
}

/* The same for a row's own state and for parameters, which are part of it. */
static void test_bad_own_states(void **state)
{
    static const struct {
        const char *params, *own, *word;
    } bad[] = {
        {"{\"EMA_RATIO\":0.9}", "[[0,1,0]]", "own"},
        {"{\"EMA_RATIO\":0.9}", "[[0,1,0,1,1]]", "own"},
        {"{\"EMA_RATIO\":0.9}", "[[0,1,0,1e39]]", "own"},
        {"{\"EMA_RATIO\":0.9}", "[[0,1,0,\"1\"]]", "own"},
        {"{\"EMA_RATIO\":0.9}", "[0,1,0,1]", "own"},
        {"{\"EMA_RATIO\":0.8}", "[[0,1,0,1]]", "EMA_RATIO: another value"},
        {"{\"EMA_RATIO\":\"0.9\"}", "[[0,1,0,1]]", "EMA_RATIO"},
        {"{}", "[[0,1,0,1]]", "EMA_RATIO: missing"},
        {"{\"EMA_RATIO\":0.9,\"B\":1}", "[[0,1,0,1]]", "2 parameters, want 1"},
        {"0.9", "[[0,1,0,1]]", "parameters"},
        {"{\"EMA_RATIO\":0.9}", "[[0,1,0,1]]", NULL}, /* this one is right */
    };
    sb_quant_spec spec = obs_spec("moving_average");
    sb_observer *obs;
    char text[400];

    (void)state;
    for (size_t i = 0; i < SB_COUNT(bad); i++) {
        (void)snprintf(text, sizeof text,
                       "{\"observer\":\"moving_average\",\"target\":"
                       "\"activation\",\"channels\":1,\"samples\":1,"
                       "\"elements\":3,\"parameters\":%s,\"lo\":[0],"
                       "\"hi\":[1],\"own\":%s}",
                       bad[i].params, bad[i].own);
        assert_ok(sb_observer_create(test_ctx(), &spec, 1, &obs));
        sb_status status = obs_load(obs, text, "x");
        assert_int_equal(status, bad[i].word ? SB_BAD_DATA : SB_OK);
        if (bad[i].word) {
            assert_error_has("x:1:");
            assert_error_has(bad[i].word);
        }
        sb_observer_free(obs);
    }
}

/* Counts of activations answer for every parameter; results of weights, and
 * averages, are those of one. */
static void test_parameters_of_a_state(void **state)
{
    sb_obs_view view = {obs_make(OBS_NORMAL, 600, 1), 1, 1, 1, 600};
    static const struct {
        const char *observer, *params;
        sb_quant_kind kind;
        bool merges;
    } cases[] = {
        {"percentile", "{ALPHA: 0.01}", SB_QUANT_ACTIVATION, true},
        {"percentile", "{ALPHA: 0.01}", SB_QUANT_WEIGHT, false},
        {"aciq", "{DISTRIBUTION: LAPLACE}", SB_QUANT_WEIGHT, false},
        {"moving_average", "{EMA_RATIO: 0.5}", SB_QUANT_ACTIVATION, false},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_quant_spec one = obs_spec(cases[i].observer), other = one;
        one.kind = other.kind = cases[i].kind;
        obs_set(&other, "%s", cases[i].params);
        sb_observer *a = obs_feed(&one, &view, 1), *b, *file;
        b = obs_feed(&other, &view, 1);
        char *text = obs_state(a);
        assert_ok(sb_observer_create(test_ctx(), &other, 1, &file));
        assert_int_equal(sb_observer_merge(b, a),
                         cases[i].merges ? SB_OK : SB_BAD_ARG);
        assert_int_equal(obs_load(file, text, "x"),
                         cases[i].merges ? SB_OK : SB_BAD_DATA);
        sb_free(test_ctx(), text);
        sb_observer_free(a);
        sb_observer_free(b);
        sb_observer_free(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_states),
        cmocka_unit_test(test_bad_own_states),
        cmocka_unit_test(test_parameters_of_a_state),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
