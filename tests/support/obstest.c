/* Data for tests of observers (obstest.h). */
#include "obstest.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"

const obs_shape obs_shapes[] = {
    {"one channel", 5, 1, 1, 3001},
    {"one channel, large", 3, 2, 1, 40000},
    {"one value", 1, 1, 1, 1},
    {"channels first", 4, 1, 7, 500},
    {"channels last", 4, 300, 37, 1},
    {"channels in the middle", 2, 9, 16, 33},
    {"many channels, few values", 2, 1, 200, 3},
};
const size_t obs_n_shapes = SB_COUNT(obs_shapes);

static const char *const names[OBS_KINDS] = {
    "uniform", "normal", "laplace",  "relu",     "outliers", "levels",
    "tiny",    "huge",   "negative", "positive", "constant", "zero",
};

const char *obs_kind_name(obs_kind kind)
{
    return names[kind];
}

/* Everything that was made, to be freed at exit. */
static void *blocks[256];
static size_t n_blocks;

static void free_blocks(void)
{
    while (n_blocks > 0)
        free(blocks[--n_blocks]);
}

static double draw(obs_kind kind, sb_rng *rng)
{
    double u = sb_rng_uniform(rng), g = sb_rng_normal(rng);

    switch (kind) {
    case OBS_UNIFORM:
        return 2.0 * u - 1.0;
    case OBS_LAPLACE:
        return u < 0.5 ? log(2.0 * u + 1e-300) : -log(2.0 - 2.0 * u);
    case OBS_RELU:
        return g > 0.0 ? g : 0.0;
    case OBS_OUTLIERS:
        return u < 1.0 / 4096.0 ? 100.0 * g : g;
    case OBS_LEVELS:
        return (floor(u * 256.0) / 255.0 - 0.485) / 0.229;
    case OBS_TINY:
        return g * 1e-30;
    case OBS_HUGE:
        return g * 1e30;
    case OBS_NEGATIVE:
        return -1.0 - fabs(g);
    case OBS_POSITIVE:
        return 1.0 + fabs(g);
    case OBS_CONSTANT:
        return 3.25;
    case OBS_ZERO:
        return 0.0;
    default:
        return g;
    }
}

float *obs_make(obs_kind kind, int64_t n, uint64_t seed)
{
    float *x = malloc((size_t)n * sizeof *x);
    sb_rng rng;

    assert_non_null(x);
    assert_true(n_blocks < SB_COUNT(blocks));
    if (n_blocks == 0)
        assert_int_equal(atexit(free_blocks), 0);
    blocks[n_blocks++] = x;
    sb_rng_init(&rng, seed);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)draw(kind, &rng);
    return x;
}

sb_quant_spec obs_spec(const char *observer)
{
    return (sb_quant_spec){
        .kind = SB_QUANT_FEATURE,
        .bits = 8,
        .observer = observer,
        .percentile_alpha = 0.001,
        .ema_ratio = 0.9,
    };
}

sb_obs_view obs_part(const sb_obs_view *view, int64_t from, int64_t to)
{
    sb_obs_view part = *view;

    part.data += from * view->outer * view->channels * view->inner;
    part.samples = to - from;
    return part;
}

sb_observer *obs_feed(const sb_quant_spec *spec, const sb_obs_view *view,
                      int64_t batch)
{
    sb_observer *obs;

    assert_ok(sb_observer_create(test_ctx(), spec, view->channels, &obs));
    for (int64_t s = 0; s < view->samples; s += batch) {
        int64_t end = s + batch < view->samples ? s + batch : view->samples;
        sb_obs_view part = obs_part(view, s, end);
        assert_ok(sb_observer_update(obs, &part, "x", s));
    }
    return obs;
}

void obs_ranges(const sb_quant_spec *spec, const sb_obs_view *view,
                int64_t batch, sb_range *out)
{
    sb_observer *obs = obs_feed(spec, view, batch);

    assert_ok(sb_observer_ranges(obs, out));
    sb_observer_free(obs);
}

int64_t obs_channel(const sb_obs_view *v, int64_t c, double *out)
{
    int64_t n = 0;

    for (int64_t r = 0; r < v->samples * v->outer; r++)
        for (int64_t i = 0; i < v->inner; i++)
            out[n++] = (double)v->data[(r * v->channels + c) * v->inner + i];
    return n;
}
