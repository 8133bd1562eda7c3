/* bench/observers: nanoseconds per element of every observer.
 *
 *     observers [MILLION_ELEMENTS [THREADS]]
 *
 * Feeds eight batches like the activations of a large network (normal, half of
 * them cut to zero) to each observer, one channel and many, and a weight of
 * many channels once; prints the processor time (of all threads) of an update
 * per element, of asking for the ranges, and the state's size.  Target
 * `bench_observers`. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "quant/observe/observer_def.h"

enum { BATCHES = 8, SAMPLES = 8, CHANNELS = 256 };

static double now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct bench_case {
    const char *what;
    sb_quant_kind kind;
    int64_t channels;
    bool last; /* channels-last */
} bench_case;

static const bench_case cases[] = {
    {"one channel", SB_QUANT_ACTIVATION, 1, false},
    {"256 channels, first", SB_QUANT_ACTIVATION, CHANNELS, false},
    {"256 channels, last", SB_QUANT_ACTIVATION, CHANNELS, true},
    {"weight, 256 channels", SB_QUANT_WEIGHT, CHANNELS, false},
};

static sb_status run(sb_ctx *ctx, const bench_case *b, sb_quant_spec *spec,
                     const float *data, int64_t n)
{
    sb_observer *obs;
    sb_range ranges[CHANNELS];
    bool weight = b->kind == SB_QUANT_WEIGHT;
    int64_t samples = weight ? 1 : SAMPLES, batches = weight ? 1 : BATCHES;
    int64_t pixels = n / b->channels / samples;
    sb_obs_view view = {data, samples, b->last ? pixels : 1, b->channels,
                        b->last ? 1 : pixels};

    spec->kind = b->kind;
    SB_TRY(sb_observer_create(ctx, spec, b->channels, &obs));
    double start = now();
    for (int64_t i = 0; i < batches; i++)
        SB_TRY(sb_observer_update(obs, &view, "x", i * SAMPLES));
    double middle = now();
    SB_TRY(sb_observer_ranges(obs, ranges));
    double end = now();
    printf("%-15s %-21s %7.3f ns/element, ranges %8.3f ms, state %7.1f KB\n",
           spec->observer->name, b->what,
           (middle - start) * 1e9 /
               (double)(batches * pixels * samples * b->channels),
           (end - middle) * 1e3, (double)sb_observer_bytes(obs) / 1024.0);
    sb_observer_free(obs);
    return SB_OK;
}

static sb_status run_all(sb_ctx *ctx, const float *data, int64_t n)
{
    char text[400];

    for (size_t i = 0; sb_observer_at(NULL, i); i++)
        for (size_t k = 0; k < SB_COUNT(cases); k++) {
            const sb_observer_def *def = sb_observer_at(NULL, i);
            bool weight = cases[k].kind == SB_QUANT_WEIGHT;
            sb_quant_config *cfg = NULL;
            sb_quant_spec spec;

            if (!(def->flags & (weight ? SB_OBS_WEIGHT : SB_OBS_ACTIVATION)))
                continue;
            (void)snprintf(text, sizeof text,
                           "W: {QSCHEME: per-channel-affine, QUANTIZER: {BIT: "
                           "8}, OBSERVER: {TYPE: %s}}\n"
                           "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: "
                           "8}, OBSERVER: {TYPE: %s, ACIQ: {DISTRIBUTION: "
                           "LAPLACE}}}\n",
                           weight ? def->name : "minmax",
                           weight ? "minmax" : def->name);
            SB_TRY(sb_quant_config_load_memory(ctx, "bench", text, strlen(text),
                                               SB_QUANT_CONFIG_QUANT, &cfg));
            sb_quant_config_spec(cfg, cases[k].kind, NULL, &spec);
            sb_status status = run(ctx, &cases[k], &spec, data, n);
            sb_quant_config_free(cfg);
            SB_TRY(status);
        }
    return SB_OK;
}

int main(int argc, char **argv)
{
    int64_t n = (argc > 1 ? atoll(argv[1]) : 6) << 20;
    sb_ctx *ctx;
    sb_rng rng;

    if (n <= 0 || sb_ctx_create(NULL, &ctx) != SB_OK)
        return 2;
    sb_ctx_set_threads(ctx, argc > 2 ? atoi(argv[2]) : 1);
    float *data = malloc((size_t)n * sizeof *data);
    if (!data)
        return 1;
    sb_rng_init(&rng, 1);
    for (int64_t i = 0; i < n; i++) {
        double x = sb_rng_normal(&rng);
        data[i] = x < 0.0 ? 0.0F : (float)x;
    }
    sb_status status = run_all(ctx, data, n);
    if (status != SB_OK)
        fprintf(stderr, "observers: %s\n", sb_ctx_error(ctx));
    free(data);
    sb_ctx_free(ctx);
    return status != SB_OK;
}
