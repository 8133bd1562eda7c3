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

/* Parameters live in documents, which are freed at exit. */
typedef struct kept_doc {
    sb_yaml_doc *doc;
    struct kept_doc *next;
} kept_doc;

static kept_doc *docs;

static void free_docs(void)
{
    while (docs) {
        kept_doc *next = docs->next;

        sb_yaml_free(docs->doc);
        free(docs);
        docs = next;
    }
}

void obs_set(sb_quant_spec *spec, const char *fmt, ...)
{
    const sb_observer_def *def = spec->observer;
    kept_doc *kept = malloc(sizeof *kept);
    char text[200];
    va_list args;

    assert_non_null(kept);
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    assert_ok(sb_yaml_load_memory(test_ctx(), "params", text, strlen(text),
                                  &kept->doc));
    if (!docs)
        assert_int_equal(atexit(free_docs), 0);
    kept->next = docs;
    docs = kept;
    void *params = sb_arena_alloc(&kept->doc->arena, 1, def->params_size);
    assert_non_null(params);
    assert_ok(
        sb_params_read(kept->doc, kept->doc->root, "", def->params, params));
    spec->observer_params = params;
}

sb_quant_spec obs_spec(const char *observer)
{
    sb_quant_spec spec = {
        .kind = SB_QUANT_ACTIVATION,
        .bits = 8,
        .observer = sb_observer_find(NULL, observer),
    };

    assert_non_null(spec.observer);
    if (spec.observer->params)
        obs_set(&spec, "{}");
    return spec;
}

bool obs_variant(size_t i, sb_quant_kind kind, sb_quant_spec *out)
{
    unsigned need = kind == SB_QUANT_WEIGHT ? SB_OBS_WEIGHT : SB_OBS_ACTIVATION;
    const sb_observer_def *def;

    for (size_t row = 0; (def = sb_observer_at(NULL, row)) != NULL; row++) {
        if (!(def->flags & need))
            continue;
        *out = obs_spec(def->name);
        out->kind = kind;
        if (i-- == 0)
            return true;
        for (const sb_param_def *p = def->params; p && p->name; p++)
            for (int k = 0; p->type == SB_PARAM_ENUM && p->names[k]; k++)
                if (strcmp(p->names[k], p->preset) != 0 && i-- == 0) {
                    obs_set(out, "{%s: %s}", p->name, p->names[k]);
                    return true;
                }
    }
    return false;
}

char *obs_state(const sb_observer *obs)
{
    sb_str text;
    char *out = NULL;

    sb_str_init(&text, test_ctx());
    assert_ok(sb_observer_save(obs, &text));
    assert_ok(sb_str_take(&text, &out));
    return out;
}

sb_status obs_load(sb_observer *obs, const char *text, const char *file)
{
    sb_json_doc *doc;

    assert_ok(sb_json_read(test_ctx(), file, text, strlen(text), &doc));
    sb_status status = sb_observer_load(obs, doc, doc->root);
    sb_json_free(doc);
    return status;
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
