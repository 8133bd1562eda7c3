/* Observers: making, feeding, merging, asking (observer.h). */
#include <assert.h>

#include "base/threads.h"
#include "quant/observer_state.h"

#define SB_OBSERVER(id) extern const sb_observer_def sb_observer_##id;
#include "quant/observers.def"
#undef SB_OBSERVER

static const sb_observer_def *const observers[] = {
#define SB_OBSERVER(id) &sb_observer_##id,
#include "quant/observers.def"
#undef SB_OBSERVER
};

static bool same_name(const char *a, const char *b)
{
    for (;; a++, b++) {
        char x = *a >= 'A' && *a <= 'Z' ? (char)(*a - 'A' + 'a') : *a;
        if (x != *b)
            return false;
        if (x == 0)
            return true;
    }
}

const sb_observer_def *sb_observer_find(const char *name)
{
    for (size_t i = 0; i < SB_COUNT(observers); i++)
        if (same_name(name, observers[i]->name))
            return observers[i];
    return NULL;
}

const sb_observer_def *sb_observer_at(size_t i)
{
    return i < SB_COUNT(observers) ? observers[i] : NULL;
}

const char *sb_observer_name(const sb_observer_def *def)
{
    return def->name;
}

const char *sb_observer_summary(const sb_observer_def *def)
{
    return def->summary;
}

/* ---- life ---------------------------------------------------------------- */

static sb_status make_state(sb_observer *obs)
{
    sb_ctx *ctx = obs->ctx;
    size_t channels = (size_t)obs->channels;

    obs->keys = sb_alloc(ctx, channels, sizeof *obs->keys);
    if (!obs->keys)
        return SB_NO_MEMORY;
    for (size_t c = 0; c < channels; c++)
        obs->keys[c] = SB_OBS_KEYS_EMPTY;
    if (obs->spec.kind == SB_QUANT_WEIGHT) {
        obs->done = sb_alloc(ctx, channels, sizeof *obs->done);
        return obs->done ? SB_OK : SB_NO_MEMORY;
    }
    if (obs->needs & SB_OBS_HISTOGRAM)
        SB_TRY(sb_hist_init(ctx, &obs->hist, obs->channels));
    if (obs->needs & SB_OBS_TAILS) {
        obs->tails = sb_alloc(ctx, channels, sizeof *obs->tails);
        if (!obs->tails)
            return SB_NO_MEMORY;
        for (size_t c = 0; c < channels; c++)
            sb_obs_tails_init(&obs->tails[c], sb_obs_tails_keep(obs->channels));
    }
    if (obs->def->own_size) {
        obs->own = sb_alloc(ctx, channels, obs->def->own_size);
        if (!obs->own)
            return SB_NO_MEMORY;
    }
    return SB_OK;
}

sb_status sb_observer_create(sb_ctx *ctx, const sb_quant_spec *spec,
                             int64_t channels, sb_observer **out)
{
    const sb_observer_def *def = sb_observer_find(spec->observer);
    bool weight = spec->kind == SB_QUANT_WEIGHT;

    assert(channels >= 1);
    if (!def)
        return sb_fail(ctx, SB_BAD_CONFIG, "there is no observer '%s'",
                       spec->observer);
    if (!(def->flags & (weight ? SB_OBS_WEIGHT : SB_OBS_FEATURE)))
        return sb_fail(ctx, SB_BAD_CONFIG, "observer '%s' cannot watch %s",
                       def->name, weight ? "weights" : "activations");
    sb_observer *obs = sb_alloc(ctx, 1, sizeof *obs);
    if (!obs)
        return SB_NO_MEMORY;
    obs->ctx = ctx;
    obs->def = def;
    obs->spec = *spec;
    obs->spec.observer = def->name;
    obs->spec.quantizer = obs->spec.pattern = NULL;
    obs->channels = channels;
    obs->needs = def->needs ? def->needs(spec) : def->flags;
    sb_status status = make_state(obs);
    if (status != SB_OK)
        sb_observer_free(obs);
    else
        *out = obs;
    return status;
}

void sb_observer_free(sb_observer *obs)
{
    if (!obs)
        return;
    sb_ctx *ctx = obs->ctx;
    for (int64_t c = 0; obs->tails && c < obs->channels; c++)
        sb_obs_tails_free(ctx, &obs->tails[c]);
    sb_obs_job_free(obs->job);
    sb_hist_free(ctx, &obs->hist);
    sb_free(ctx, obs->tails);
    sb_free(ctx, obs->keys);
    sb_free(ctx, obs->own);
    sb_free(ctx, obs->done);
    sb_free(ctx, obs);
}

int64_t sb_observer_samples(const sb_observer *obs)
{
    return obs->samples;
}

int64_t sb_observer_elements(const sb_observer *obs)
{
    return obs->elements;
}

size_t sb_observer_bytes(const sb_observer *obs)
{
    size_t channels = (size_t)obs->channels;
    size_t n = sizeof *obs + channels * sizeof *obs->keys;

    if (obs->done)
        return n + channels * sizeof *obs->done;
    n += channels * obs->def->own_size;
    if (obs->needs & SB_OBS_HISTOGRAM)
        n += sb_hist_bytes(&obs->hist);
    for (size_t c = 0; obs->tails && c < channels; c++)
        n += sizeof *obs->tails + sb_obs_tails_bytes(&obs->tails[c]);
    return n;
}

/* ---- feeding ------------------------------------------------------------- */

/* Names the first sample that is not finite. */
static sb_status check_finite(const sb_observer *obs, const sb_obs_keys *keys,
                              int64_t samples, const char *what, int64_t first)
{
    for (int64_t i = 0; i < samples * obs->channels; i++) {
        if (sb_obs_keys_finite(keys[i]))
            continue;
        bool nan = keys[i].hi > 0x7f800000 || keys[i].lo < ~0x7f800000;
        const char *found = nan ? "NaN" : "an infinity";
        if (obs->spec.kind == SB_QUANT_WEIGHT)
            return sb_fail(obs->ctx, SB_BAD_DATA,
                           "weight '%s' holds %s, want finite numbers", what,
                           found);
        return sb_fail(obs->ctx, SB_BAD_DATA,
                       "'%s' holds %s in sample %lld, want finite numbers",
                       what, found, (long long)(first + i / obs->channels));
    }
    return SB_OK;
}

/* Notes what was seen: the last step, which cannot fail. */
static void take_keys(sb_observer *obs, const sb_obs_view *view,
                      const sb_obs_keys *keys)
{
    for (int64_t s = 0; s < view->samples; s++)
        for (int64_t c = 0; c < obs->channels; c++) {
            sb_obs_keys k = keys[s * obs->channels + c];
            obs->keys[c] = sb_obs_keys_join(obs->keys[c], k);
            if (obs->own)
                obs->def->own_update(&obs->spec, sb_observer_own(obs, c),
                                     sb_obs_keys_range(k));
        }
    obs->samples += view->samples;
    obs->elements += view->samples * view->outer * view->channels * view->inner;
}

static sb_status update(sb_observer *obs, const sb_obs_view *view,
                        sb_obs_keys *keys, const char *what, int64_t first)
{
    if (obs->channels == 1 && !obs->done) {
        /* Counts nothing if a value is not finite. */
        SB_TRY(sb_observer_tensor(obs, view, keys));
        SB_TRY(check_finite(obs, keys, view->samples, what, first));
    } else {
        sb_obs_scan_channels(obs->ctx, view, keys);
        SB_TRY(check_finite(obs, keys, view->samples, what, first));
        if (obs->done)
            SB_TRY(sb_observer_weight(obs, view, keys));
        else
            SB_TRY(sb_observer_channels(obs, view, keys));
    }
    take_keys(obs, view, keys);
    return SB_OK;
}

sb_status sb_observer_update(sb_observer *obs, const sb_obs_view *view,
                             const char *what, int64_t first_sample)
{
    sb_ctx *ctx = obs->ctx;
    sb_obs_view v = *view;
    size_t n = (size_t)v.samples;
    int64_t all;

    if (v.channels != obs->channels)
        return sb_fail(ctx, SB_BAD_ARG, "'%s': %lld channels, want %lld", what,
                       (long long)v.channels, (long long)obs->channels);
    assert(v.samples >= 0 && v.outer >= 0 && v.inner >= 0);
    if (!sb_mul_i64(v.samples, v.outer, &all) ||
        !sb_mul_i64(all, v.channels, &all) || !sb_mul_i64(all, v.inner, &all))
        return sb_fail(ctx, SB_BAD_ARG, "'%s': size overflows", what);
    if (all == 0)
        return SB_OK;
    if (obs->done) {
        if (obs->elements)
            return sb_fail(ctx, SB_BAD_ARG, "weight '%s' is observed twice",
                           what);
        v.outer *= v.samples; /* a weight has no samples */
        v.samples = 1;
        n = 1;
    }
    if (!sb_mul_size(n, (size_t)v.channels, &n))
        return sb_fail(ctx, SB_BAD_ARG, "'%s': size overflows", what);
    sb_obs_keys *keys = sb_alloc_raw(ctx, n, sizeof *keys);
    if (!keys)
        return SB_NO_MEMORY;
    sb_status status = update(obs, &v, keys, what, first_sample);
    sb_free(ctx, keys);
    return status;
}

/* ---- merging ------------------------------------------------------------- */

static bool same_kind(const sb_observer *a, const sb_observer *b)
{
    const sb_quant_spec *x = &a->spec, *y = &b->spec;

    if (a->def != b->def || a->channels != b->channels || a->needs != b->needs)
        return false;
    if (x->kind != y->kind)
        return false;
    if (x->kind == SB_QUANT_FEATURE)
        return x->ema_ratio == y->ema_ratio; /* nothing else is in the state */
    return x->bits == y->bits && x->symmetric == y->symmetric &&
           x->aciq_laplace == y->aciq_laplace &&
           x->percentile_alpha == y->percentile_alpha;
}

static sb_status merge_hist(sb_observer *into, const sb_observer *from)
{
    sb_ctx *ctx = into->ctx;
    size_t bins = 2 * (size_t)from->hist.half;
    uint64_t *counts = sb_alloc_raw(ctx, bins, sizeof *counts), zeros;
    sb_status status = counts ? SB_OK : SB_NO_MEMORY;

    if (status == SB_OK && from->hist.half < into->hist.half)
        status = sb_hist_coarsen(ctx, &into->hist);
    for (int64_t c = 0; c < from->channels && status == SB_OK; c++) {
        sb_hist_counts(&from->hist, c, counts, &zeros);
        status = sb_hist_add_counts(ctx, &into->hist, c, from->hist.exponent[c],
                                    from->hist.half, counts, zeros);
    }
    sb_free(ctx, counts);
    return status;
}

sb_status sb_observer_merge(sb_observer *into, sb_observer *from)
{
    sb_observer_settle(into);
    sb_observer_settle(from);
    if (!same_kind(into, from))
        return sb_fail(into->ctx, SB_BAD_ARG,
                       "cannot merge observers of different settings");
    if (from->elements == 0)
        return SB_OK;
    if (into->done) {
        /* Every process sees the same weights. */
        if (into->elements)
            return SB_OK;
        memcpy(into->done, from->done,
               (size_t)from->channels * sizeof *from->done);
    }
    for (int64_t c = 0; into->tails && c < into->channels; c++)
        SB_TRY(
            sb_obs_tails_reserve(into->ctx, &into->tails[c],
                                 from->tails[c].high.n + from->tails[c].low.n));
    if (!into->done && (into->needs & SB_OBS_HISTOGRAM))
        SB_TRY(merge_hist(into, from));
    for (int64_t c = 0; c < into->channels; c++) {
        if (into->tails) {
            sb_obs_tails_merge(&into->tails[c], &from->tails[c]);
            sb_obs_tails_raise(&into->tails[c], from->tails[c].high.bar,
                               from->tails[c].low.bar);
        }
        if (into->own)
            into->def->own_merge(&into->spec, sb_observer_own(into, c),
                                 sb_observer_own(from, c));
        into->keys[c] = sb_obs_keys_join(into->keys[c], from->keys[c]);
    }
    into->sampled |= from->sampled;
    into->below += from->below;
    into->bars_from = 0;
    into->samples += from->samples;
    into->elements += from->elements;
    return SB_OK;
}

/* ---- asking -------------------------------------------------------------- */

enum { ASK_PARTS = 16 };

typedef struct ask_job {
    const sb_observer *obs;
    sb_range *out;
    size_t parts, bins;
    float *x; /* [parts, bins] */
    double *count;
    bool non_negative;
    bool alone; /* nothing else is asked meanwhile */
} ask_job;

static void ask_channel(const ask_job *job, int64_t c, size_t part)
{
    const sb_observer *obs = job->obs;
    size_t at = part * job->bins;
    sb_obs_values v = {
        .ctx = obs->ctx,
        .spec = &obs->spec,
        .channel = c,
        .alone = job->alone,
        .range = sb_obs_keys_range(obs->keys[c]),
        .non_negative = job->non_negative,
        .per_sample = (double)obs->elements / (double)obs->samples,
        .elements = (double)(obs->elements / obs->channels),
        .below = obs->tails && obs->channels == 1 ? (double)obs->below : -1.0,
        .tails = obs->tails ? &obs->tails[c] : NULL,
        .own = sb_observer_own(obs, c),
    };

    if (obs->def->range_of_tails && v.tails &&
        obs->def->range_of_tails(&v, &job->out[c]))
        return;
    if (obs->needs & SB_OBS_HISTOGRAM) {
        v.x = job->x + at;
        v.count = job->count + at;
        v.width = sb_hist_width(&obs->hist, c);
        v.n = sb_hist_values(&obs->hist, c, v.range, job->x + at,
                             job->count + at);
    }
    job->out[c] = obs->def->range(&v);
}

static void ask_part(void *arg, size_t begin, size_t end)
{
    const ask_job *job = arg;

    for (size_t p = begin; p < end; p++)
        for (int64_t c = (int64_t)p; c < job->obs->channels;
             c += (int64_t)job->parts)
            ask_channel(job, c, p);
}

static ask_job ask_of(const sb_observer *obs, sb_range *out)
{
    ask_job job = {.obs = obs,
                   .out = out,
                   .parts = obs->channels < ASK_PARTS ? (size_t)obs->channels
                                                      : ASK_PARTS,
                   .bins = 1,
                   .non_negative = true,
                   .alone = obs->channels == 1};

    if (obs->needs & SB_OBS_HISTOGRAM)
        job.bins = 2 * (size_t)obs->hist.half + 2;
    for (int64_t c = 0; c < obs->channels; c++)
        job.non_negative &= sb_obs_keys_range(obs->keys[c]).lo >= 0.0F;
    return job;
}

static sb_status ask_memory(sb_ctx *ctx, size_t n, ask_job *job)
{
    job->x = sb_alloc_raw(ctx, n, sizeof *job->x);
    job->count = sb_alloc_raw(ctx, n, sizeof *job->count);
    return job->x && job->count ? SB_OK : SB_NO_MEMORY;
}

static void ask_free(sb_ctx *ctx, ask_job *job)
{
    sb_free(ctx, job->x);
    sb_free(ctx, job->count);
}

static sb_status ask(const sb_observer *obs, sb_range *out)
{
    sb_ctx *ctx = obs->ctx;
    ask_job job = ask_of(obs, out);
    sb_status status = ask_memory(ctx, job.parts * job.bins, &job);

    if (status == SB_OK)
        sb_parallel_for(ctx, job.parts, 1, ask_part, &job);
    ask_free(ctx, &job);
    return status;
}

typedef struct many_job {
    sb_observer *const *list;
    ask_job memory[ASK_PARTS]; /* of each lane */
} many_job;

static void ask_one(void *arg, size_t lane, size_t i)
{
    const many_job *many = arg;
    sb_observer *obs = many->list[i];

    if (!obs || obs->done || obs->channels != 1 || obs->elements == 0)
        return;
    sb_observer_settle(obs);
    ask_job job = ask_of(obs, &obs->answer);
    job.x = many->memory[lane].x;
    job.count = many->memory[lane].count;
    job.alone = false;
    ask_channel(&job, 0, 0);
    obs->answered = obs->elements;
}

sb_status sb_observers_prepare(sb_ctx *ctx, sb_observer *const *list, size_t n)
{
    many_job job = {.list = list};
    size_t lanes = (size_t)sb_ctx_threads(ctx);
    sb_status status = SB_OK;

    lanes = lanes < ASK_PARTS ? lanes : ASK_PARTS;
    for (size_t i = 0; i < lanes && status == SB_OK; i++)
        status = ask_memory(ctx, SB_HIST_BINS + 2, &job.memory[i]);
    if (status == SB_OK)
        sb_parallel_lanes(ctx, n, lanes, ask_one, &job);
    for (size_t i = 0; i < lanes; i++)
        ask_free(ctx, &job.memory[i]);
    return status;
}

sb_status sb_observer_ranges(sb_observer *obs, sb_range *out)
{
    if (obs->elements == 0)
        return sb_fail(obs->ctx, SB_BAD_DATA, "nothing was observed");
    if (obs->done) {
        memcpy(out, obs->done, (size_t)obs->channels * sizeof *out);
        return SB_OK;
    }
    if (obs->answered == obs->elements) {
        *out = obs->answer;
        return SB_OK;
    }
    sb_observer_settle(obs);
    return ask(obs, out);
}
