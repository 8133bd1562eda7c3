/* Observers: every allocation fails once, and nothing leaks. */
#include "obstest.h"

/* Feeds, merges, saves, loads and asks one observer; frees all in any case. */
static sb_status observe(sb_ctx *ctx, const sb_quant_spec *spec,
                         int64_t channels)
{
    static float x[600];
    sb_obs_view view = {x, 2, 1, channels, 300 / channels};
    sb_obs_view last = {x, 1, 300 / channels, channels, 1};
    sb_observer *a = NULL, *b = NULL;
    sb_json_doc *doc = NULL;
    sb_str text;
    sb_range ranges[4];

    for (int i = 0; i < 600; i++)
        x[i] = (float)((i * 37) % 101 - 50) * 0.1F;
    sb_str_init(&text, ctx);
    sb_status status = sb_observer_create(ctx, spec, channels, &a);
    if (status == SB_OK)
        status = sb_observer_create(ctx, spec, channels, &b);
    if (status == SB_OK)
        status = sb_observer_update(a, &view, "x", 0);
    if (status == SB_OK)
        status = sb_observer_update(b, &last, "x", 0);
    if (status == SB_OK)
        status = sb_observer_merge(a, b);
    if (status == SB_OK)
        status = sb_observer_save(a, &text);
    if (status == SB_OK)
        status = sb_json_read(ctx, "x", text.data, text.len, &doc);
    if (status == SB_OK)
        status = sb_observer_load(b, doc, doc->root);
    if (status == SB_OK)
        status = sb_observer_ranges(b, ranges);
    sb_json_free(doc);
    sb_str_free(&text);
    sb_observer_free(a);
    sb_observer_free(b);
    return status;
}

static sb_status observe_activation(sb_ctx *ctx, const char *name,
                                    int64_t channels)
{
    sb_quant_spec spec = obs_spec(name);

    spec.bits = 4;
    return observe(ctx, &spec, channels);
}

static sb_status weight(sb_ctx *ctx, const char *name)
{
    sb_quant_spec spec = obs_spec(name);

    spec.kind = SB_QUANT_WEIGHT;
    spec.bits = 4;
    return observe(ctx, &spec, 3);
}

static sb_status scenario_own(sb_ctx *ctx)
{
    return observe_activation(ctx, "moving_average", 1);
}

static sb_status scenario_extremes(sb_ctx *ctx)
{
    return observe_activation(ctx, "percentile", 1);
}

static sb_status scenario_channels(sb_ctx *ctx)
{
    return observe_activation(ctx, "percentile", 3);
}

static sb_status scenario_histogram(sb_ctx *ctx)
{
    return observe_activation(ctx, "mse", 1);
}

enum { LARGE = 40000 };

/* A tensor that several threads count, shown piece by piece while it is
 * produced. */
static sb_status scenario_large(sb_ctx *ctx)
{
    sb_quant_spec spec = obs_spec("percentile");
    static float x[2 * LARGE];
    sb_obs_view view = {x, 2, 1, 1, LARGE};
    sb_observer_slots slots = {0};
    sb_observer *obs = NULL;
    sb_range range;

    for (int i = 0; i < 2 * LARGE; i++)
        x[i] = (float)(i * 7919 % 10007) - 5000.0F;
    sb_status status = sb_observer_create(ctx, &spec, 1, &obs);
    for (int i = 0; status == SB_OK && i < 6; i++) {
        sb_tap tap = {0};
        if (i == 0)
            sb_observer_share(obs, &slots);
        status = sb_observer_tap(obs, &view, &tap);
        if (status == SB_OK && tap.look) {
            tap.look(tap.arg, 0, x, LARGE + 100);
            tap.look(tap.arg, 0, x + LARGE + 100, LARGE - 100);
        }
        if (status == SB_OK)
            status = sb_observer_update(obs, &view, "x", 2 * i);
    }
    if (status == SB_OK)
        status = sb_observers_prepare(ctx, &obs, 1);
    if (status == SB_OK)
        status = sb_observer_ranges(obs, &range);
    sb_observer_free(obs);
    sb_observer_slots_free(ctx, &slots);
    return status;
}

static sb_status scenario_weight(sb_ctx *ctx)
{
    return weight(ctx, "mse");
}

static void test_every_failed_allocation_is_reported(void **state)
{
    (void)state;
    test_every_allocation("moving average", scenario_own);
    test_every_allocation("extremes", scenario_extremes);
    test_every_allocation("channels", scenario_channels);
    test_every_allocation("histogram", scenario_histogram);
    test_every_allocation("large", scenario_large);
    test_every_allocation("weight", scenario_weight);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_failed_allocation_is_reported)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
