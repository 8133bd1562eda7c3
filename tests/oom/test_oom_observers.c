/* Observers: every allocation fails once, and nothing leaks. */
#include "sbtest.h"

#include "quant/observer.h"

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

static sb_status feature(sb_ctx *ctx, const char *name, int64_t channels)
{
    sb_quant_spec spec = {
        .kind = SB_QUANT_FEATURE,
        .bits = 4,
        .observer = name,
        .percentile_alpha = 0.01,
        .aciq_laplace = true,
        .ema_ratio = 0.9,
    };

    return observe(ctx, &spec, channels);
}

static sb_status weight(sb_ctx *ctx, const char *name)
{
    sb_quant_spec spec = {
        .kind = SB_QUANT_WEIGHT,
        .bits = 4,
        .observer = name,
        .percentile_alpha = 0.01,
    };

    return observe(ctx, &spec, 3);
}

static sb_status scenario_own(sb_ctx *ctx)
{
    return feature(ctx, "moving_average", 1);
}

static sb_status scenario_tails(sb_ctx *ctx)
{
    return feature(ctx, "percentile", 1);
}

static sb_status scenario_channels(sb_ctx *ctx)
{
    return feature(ctx, "percentile", 3);
}

static sb_status scenario_histogram(sb_ctx *ctx)
{
    return feature(ctx, "mse", 1);
}

static sb_status scenario_weight(sb_ctx *ctx)
{
    return weight(ctx, "mse");
}

static void test_observers(void **state)
{
    (void)state;
    test_every_allocation("moving average", scenario_own);
    test_every_allocation("tails", scenario_tails);
    test_every_allocation("channels", scenario_channels);
    test_every_allocation("histogram", scenario_histogram);
    test_every_allocation("weight", scenario_weight);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_observers)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
