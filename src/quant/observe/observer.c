/* Observers: making, feeding, merging, asking (observer.h). */
#include <assert.h>
#include <math.h>

#include "base/ranks/comm.h"
#include "base/threads.h"
#include "quant/observe/observer_state.h"

#define SB_OBSERVER(id) extern const sb_observer_def sb_observer_##id;
#include "quant/observe/observers.def"
#undef SB_OBSERVER

static const sb_observer_def *const observers[] = {
#define SB_OBSERVER(id) &sb_observer_##id,
#include "quant/observe/observers.def"
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

const sb_observer_def *sb_observer_find(const sb_ctx *ctx, const char *name)
{
    const sb_observer_def *row;

    for (size_t i = 0; (row = sb_observer_at(ctx, i)) != NULL; i++)
        if (same_name(name, row->name))
            return row;
    return NULL;
}

const sb_observer_def *sb_observer_at(const sb_ctx *ctx, size_t i)
{
    if (i < SB_COUNT(observers))
        return observers[i];
    return ctx ? sb_ctx_row(ctx, SB_ROW_OBSERVER, i - SB_COUNT(observers))
               : NULL;
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

    obs->minmax = sb_alloc(ctx, channels, sizeof *obs->minmax);
    if (!obs->minmax)
        return SB_NO_MEMORY;
    for (size_t c = 0; c < channels; c++)
        obs->minmax[c] = SB_MINMAX_EMPTY;
    if (obs->spec.kind == SB_QUANT_WEIGHT) {
        obs->done = sb_alloc(ctx, channels, sizeof *obs->done);
        return obs->done ? SB_OK : SB_NO_MEMORY;
    }
    if (obs->needs & SB_OBS_HISTOGRAM)
        SB_TRY(sb_histogram_init(ctx, &obs->hist, obs->channels));
    if (obs->needs & SB_OBS_EXTREMES) {
        obs->extremes = sb_alloc(ctx, channels, sizeof *obs->extremes);
        if (!obs->extremes)
            return SB_NO_MEMORY;
        for (size_t c = 0; c < channels; c++)
            sb_extremes_init(&obs->extremes[c],
                             sb_extremes_keep(obs->channels));
    }
    if (obs->def->state_size) {
        obs->state =
            sb_alloc(ctx, channels, obs->def->state_size * sizeof *obs->state);
        if (!obs->state)
            return SB_NO_MEMORY;
    }
    return SB_OK;
}

sb_status sb_observer_create(sb_ctx *ctx, const sb_quant_spec *spec,
                             int64_t channels, sb_observer **out)
{
    const sb_observer_def *def = spec->observer;
    bool weight = spec->kind == SB_QUANT_WEIGHT;

    assert(channels >= 1);
    if (!(def->flags & (weight ? SB_OBS_WEIGHT : SB_OBS_ACTIVATION)))
        return sb_fail(ctx, SB_BAD_CONFIG, "observer '%s' cannot watch %s",
                       def->name, weight ? "weights" : "activations");
    sb_observer *obs = sb_alloc(ctx, 1, sizeof *obs);
    if (!obs)
        return SB_NO_MEMORY;
    obs->ctx = ctx;
    obs->def = def;
    obs->spec = *spec;
    obs->spec.pattern = NULL;
    obs->channels = channels;
    obs->slots = &obs->own_slots;
    obs->needs = def->needs ? def->needs(spec) : def->flags;
    obs->logs = def->state_size > 0 && sb_ctx_ranks(ctx) > 1;
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
    for (int64_t c = 0; obs->extremes && c < obs->channels; c++)
        sb_extremes_free(ctx, &obs->extremes[c]);
    sb_free(ctx, obs->scan.slots);
    sb_observer_slots_free(ctx, &obs->own_slots);
    sb_histogram_free(ctx, &obs->hist);
    sb_free(ctx, obs->extremes);
    sb_free(ctx, obs->minmax);
    sb_free(ctx, obs->state);
    sb_free(ctx, obs->log);
    sb_free(ctx, obs->done);
    sb_free(ctx, obs);
}

int64_t sb_observer_elements(const sb_observer *obs)
{
    return obs->elements;
}

size_t sb_observer_bytes(const sb_observer *obs)
{
    size_t channels = (size_t)obs->channels;
    size_t n = sizeof *obs + channels * sizeof *obs->minmax;

    if (obs->done)
        return n + channels * sizeof *obs->done;
    n += channels * obs->def->state_size * sizeof *obs->state;
    if (obs->needs & SB_OBS_HISTOGRAM)
        n += sb_histogram_bytes(&obs->hist);
    for (size_t c = 0; obs->extremes && c < channels; c++)
        n += sizeof *obs->extremes + sb_extremes_bytes(&obs->extremes[c]);
    return n;
}

/* ---- feeding ------------------------------------------------------------- */

/* Names the first sample that is not finite. */
static sb_status check_finite(const sb_observer *obs, const sb_minmax *found,
                              int64_t samples, const char *what, int64_t first)
{
    for (int64_t i = 0; i < samples * obs->channels; i++) {
        if (sb_minmax_finite(found[i]))
            continue;
        bool nan = found[i].hi > 0x7f800000 || found[i].lo < ~0x7f800000;
        const char *kind = nan ? "NaN" : "an infinity";
        if (obs->spec.kind == SB_QUANT_WEIGHT)
            return sb_fail(obs->ctx, SB_BAD_DATA,
                           "weight '%s' holds %s, want finite numbers", what,
                           kind);
        return sb_fail(obs->ctx, SB_BAD_DATA,
                       "'%s' holds %s in sample %lld, want finite numbers",
                       what, kind, (long long)(first + i / obs->channels));
    }
    return SB_OK;
}

/* A list that is too short for the rank of the answer will never be long enough
 * again: counts only grow. */
static void drop_short_extremes(sb_observer *obs)
{
    double alpha = obs->def->extremes_fraction(&obs->spec);

    for (int64_t c = 0; c < obs->channels; c++) {
        sb_extremes *e = &obs->extremes[c];
        double keep = (double)e->keep + 1.0;
        if ((double)obs->elements * alpha <= keep)
            continue; /* surely long enough */
        if (alpha * (double)sb_histogram_side(&obs->hist, c, false) > keep)
            sb_extremes_drop(obs->ctx, &e->high);
        if (alpha * (double)sb_histogram_side(&obs->hist, c, true) > keep)
            sb_extremes_drop(obs->ctx, &e->low);
    }
}

/* Notes what was seen: the last step, which cannot fail. */
static void take_minmax(sb_observer *obs, const sb_obs_view *view,
                        const sb_minmax *found)
{
    for (int64_t s = 0; s < view->samples; s++)
        for (int64_t c = 0; c < obs->channels; c++) {
            sb_minmax k = found[s * obs->channels + c];
            obs->minmax[c] = sb_minmax_join(obs->minmax[c], k);
            if (obs->state)
                obs->def->state_update(&obs->spec, sb_observer_state(obs, c),
                                       obs->samples + s, sb_minmax_range(k));
            if (obs->logs)
                obs->log[obs->n_log++] = sb_minmax_range(k);
        }
    obs->samples += view->samples;
    obs->elements += view->samples * view->outer * view->channels * view->inner;
    if (obs->extremes)
        drop_short_extremes(obs);
}

static sb_status observer_update(sb_observer *obs, const sb_obs_view *view,
                                 sb_minmax *found, const char *what,
                                 int64_t first)
{
    if (obs->channels == 1 && !obs->done) {
        SB_TRY(sb_observer_scan(obs, view, found));
        SB_TRY(check_finite(obs, found, view->samples, what, first));
        SB_TRY(sb_observer_count(obs, view, found));
    } else {
        sb_scan_channels(obs->ctx, view, found);
        SB_TRY(check_finite(obs, found, view->samples, what, first));
        if (obs->done)
            SB_TRY(sb_observer_weight(obs, view, found));
        else
            SB_TRY(sb_observer_count_channels(obs, view, found));
    }
    take_minmax(obs, view, found);
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
    if (obs->logs)
        SB_TRY(sb_grow(ctx, &obs->log, &obs->cap_log, obs->n_log + n,
                       sizeof *obs->log));
    sb_minmax *found = sb_alloc_raw(ctx, n, sizeof *found);
    if (!found)
        return SB_NO_MEMORY;
    sb_status status = observer_update(obs, &v, found, what, first_sample);
    sb_free(ctx, found);
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
    if (sb_observer_keeps_params(a) &&
        !sb_params_equal(a->def->params, x->observer_params,
                         y->observer_params))
        return false;
    return x->kind == SB_QUANT_ACTIVATION ||
           (x->bits == y->bits && x->symmetric == y->symmetric);
}

static sb_status merge_hist(sb_observer *into, const sb_observer *from)
{
    sb_ctx *ctx = into->ctx;
    size_t bins = 2 * (size_t)from->hist.half;
    uint64_t *counts = sb_alloc_raw(ctx, bins, sizeof *counts), zeros;
    sb_status status = counts ? SB_OK : SB_NO_MEMORY;

    for (int64_t c = 0; c < from->channels && status == SB_OK; c++) {
        sb_histogram_counts(&from->hist, c, counts, &zeros);
        status = sb_histogram_add_counts(ctx, &into->hist, c,
                                         from->hist.exponent[c], counts, zeros);
    }
    sb_free(ctx, counts);
    return status;
}

static void merge_state(sb_observer *into, const sb_observer *from, int64_t c)
{
    double *to = sb_observer_state(into, c);
    const double *more = sb_observer_state(from, c);

    if (from->n_log > 0)
        for (int64_t s = 0; s < from->samples; s++)
            into->def->state_update(&into->spec, to, into->samples + s,
                                    from->log[s * from->channels + c]);
    else if (into->samples == 0)
        memcpy(to, more, into->def->state_size * sizeof *to);
    else
        into->def->state_merge(&into->spec, to, more, from->samples);
}

sb_status sb_observer_merge(sb_observer *into, const sb_observer *from)
{
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
    for (int64_t c = 0; into->extremes && c < into->channels; c++)
        SB_TRY(sb_extremes_reserve(into->ctx, &into->extremes[c],
                                   from->extremes[c].high.n +
                                       from->extremes[c].low.n));
    if (!into->done && (into->needs & SB_OBS_HISTOGRAM))
        SB_TRY(merge_hist(into, from));
    for (int64_t c = 0; c < into->channels; c++) {
        if (into->extremes)
            sb_extremes_merge(&into->extremes[c], &from->extremes[c]);
        if (into->state)
            merge_state(into, from, c);
        into->minmax[c] = sb_minmax_join(into->minmax[c], from->minmax[c]);
    }
    into->samples += from->samples;
    into->elements += from->elements;
    if (into->extremes)
        drop_short_extremes(into);
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
        .range = sb_minmax_range(obs->minmax[c]),
        .non_negative = job->non_negative,
        .per_sample = (double)obs->elements / (double)obs->samples,
        .extremes = obs->extremes ? &obs->extremes[c] : NULL,
        .state = sb_observer_state(obs, c),
    };

    if (obs->needs & SB_OBS_HISTOGRAM) {
        v.x = job->x + at;
        v.count = job->count + at;
        v.width = sb_histogram_width(&obs->hist, c);
        v.n = sb_histogram_values(&obs->hist, c, v.range, job->x + at,
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
        job.non_negative &= sb_minmax_range(obs->minmax[c]).lo >= 0.0F;
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

static sb_status observer_ask(const sb_observer *obs, sb_range *out)
{
    sb_ctx *ctx = obs->ctx;
    ask_job job = ask_of(obs, out);
    sb_status status = ask_memory(ctx, job.parts * job.bins, &job);

    if (status == SB_OK)
        sb_parallel_for(ctx, job.parts, sb_observer_grain(obs, job.parts),
                        ask_part, &job);
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

    if (!obs || obs->done || obs->channels != 1 || obs->elements == 0 ||
        (obs->def->flags & SB_OBS_SERIAL))
        return;
    ask_job job = ask_of(obs, &obs->answer);
    job.x = many->memory[lane].x;
    job.count = many->memory[lane].count;
    job.alone = false;
    ask_channel(&job, 0, 0);
    obs->answered = obs->elements;
}

void sb_observer_share(sb_observer *obs, sb_observer_slots *slots)
{
    obs->slots = slots;
}

sb_status sb_observers_prepare(sb_ctx *ctx, sb_observer *const *list, size_t n)
{
    many_job job = {.list = list};
    size_t lanes = (size_t)sb_ctx_threads(ctx);
    sb_status status = SB_OK;

    lanes = lanes < ASK_PARTS ? lanes : ASK_PARTS;
    for (size_t i = 0; i < lanes && status == SB_OK; i++)
        status = ask_memory(ctx, SB_HISTOGRAM_BINS + 2, &job.memory[i]);
    if (status == SB_OK)
        sb_parallel_lanes(ctx, n, lanes, ask_one, &job);
    for (size_t i = 0; i < lanes; i++)
        ask_free(ctx, &job.memory[i]);
    return status;
}

static sb_status observer_ranges(sb_observer *obs, sb_range *out)
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
    return observer_ask(obs, out);
}

sb_status sb_observer_whole_ranges(const sb_observer *obs, sb_range *out)
{
    if (obs->elements == 0)
        return sb_fail(obs->ctx, SB_BAD_DATA, "nothing was observed");
    for (int64_t c = 0; c < obs->channels; c++)
        out[c] = sb_minmax_range(obs->minmax[c]);
    return SB_OK;
}

sb_status sb_observer_ranges(sb_observer *obs, sb_range *out)
{
    SB_TRY(observer_ranges(obs, out));
    for (int64_t c = 0; c < obs->channels; c++)
        if (!(out[c].lo <= out[c].hi) || !isfinite(out[c].hi - out[c].lo))
            return sb_fail(obs->ctx, SB_BAD_DATA,
                           "observer '%s' gives no range for channel %lld",
                           obs->def->name, (long long)c);
    return SB_OK;
}
