/* Looking at activations that have one range: in two steps, on all threads.
 *
 * The first step sees every value: least and greatest of each sample and, of
 * large tensors, the values above bars that keep nearly all others out.
 * Whoever makes the tensor can do it a piece at a time, while the piece is in
 * the cache of its thread (sb_observer_tap); else it is a pass over memory.
 * Nothing of the state changes yet, so bad data leaves no trace.
 *
 * The second step counts into the histogram, whose range is known now.  Small
 * tensors are counted whole.  Of large ones (more than COUNT_ALL values a
 * sample) the values above the bars are counted one by one; of the others one
 * line of 16 out of `stride` is, `stride` times: which one is drawn, for each
 * group of lines, by a hash of the numbers of sample and group.  So it depends
 * neither on batches nor on threads, and falls into step with no layout.
 *
 * What results depend on most, the outermost values, is exact that way: a
 * percentile is among them, unless values shrink later; what is clipped is
 * counted, not estimated.  Bars follow from the counts of the samples before
 * number 1, 8, 64, ...; the first sample itself is looked at twice for them. */
#include <assert.h>

#include "base/simd.h"
#include "base/threads.h"
#include "quant/obs_count.h"

enum {
    CHUNK = 4096,          /* values: 16 KB, looked at while they are in L1 */
    COUNT_ALL = 1 << 14,   /* values of a sample that are counted whole */
    COUNT_LEAST = 1 << 10, /* values of a sample that are counted at least */
    STRIDE_MOST = 64,
    FINER = 4, /* times more lines, where neighbouring bins are compared */
    RARER = 2, /* times fewer lines, where outermost values give the answer */
    TAKE = 1 << 11,    /* outermost values of a sample, and */
    TAKE_MARGIN = 8,   /* so many times more than is to be cut */
    MARGIN = 2,        /* bars let so many times pass what is to be cut, */
    MARGIN_MORE = 256, /* and so many more; */
    MARGIN_WHOLE = 8,  /* the same if all is counted */
    MARGIN_WHOLE_MORE = 1024,
    SEGMENT = 8, /* times as many samples have the next bars */
    FIRST = 4,   /* times more lines that tell the bars of the first sample */
    LANES_MOST = 64,
};

/* The fraction of values that is outermost on a side, if none is to be cut. */
static const double fraction = 1.0 / 4096;
/* Above this fraction too much would pass the bars. */
static const double alpha_most = 1.0 / 32;

/* Of a sample. */
typedef struct job_found {
    sb_obs_keys keys;
    size_t taken; /* values above the bars */
} job_found;

typedef struct job_lane {
    job_found *found; /* [samples] */
    uint64_t seen;    /* values */
    uint64_t below;   /* of them below zero */
    sb_obs_tails tails;
    char apart[64]; /* from the next, which another thread writes */
} job_lane;

struct sb_obs_job {
    sb_observer *obs;
    const float *data;
    size_t samples, per_sample, elements;
    size_t take;      /* outermost values that lanes keep */
    size_t take_each; /* of a sample; if there are more, all are counted */
    bool bars;        /* take what is above them */
    bool direct;      /* looked at by someone else */
    job_found *found; /* [lanes, step] */
    size_t step;
    uint32_t *lists; /* of all lanes */
    bool in_room;    /* they are in the observer's room */
    size_t n_lanes;
    job_lane lanes[LANES_MOST];
};

/* One line in how many is counted. */
static size_t stride_of(const sb_observer *obs, size_t per_sample)
{
    size_t stride = per_sample / COUNT_LEAST;

    if (obs->spec.all_values || per_sample <= COUNT_ALL ||
        !(obs->needs & SB_OBS_HISTOGRAM))
        return 1;
    if (obs->tails && obs->spec.percentile_alpha > alpha_most)
        return 1;
    stride = stride < STRIDE_MOST ? stride : STRIDE_MOST;
    if (obs->needs & SB_OBS_FINE)
        return stride / FINER;
    return obs->tails ? RARER * stride : stride;
}

/* ---- the first step: looking ---------------------------------------------- */

SB_HOT static size_t count_below(const float *x, size_t n)
{
    uint32_t below = 0;

    for (size_t i = 0; i < n; i++)
        below += x[i] < 0.0F;
    return below;
}

static void look_at_chunk(sb_obs_job *job, job_lane *lane, size_t sample,
                          const float *x, size_t n)
{
    size_t had = lane->tails.high.n + lane->tails.low.n;
    sb_obs_keys keys =
        job->bars ? sb_obs_tails_look(&lane->tails, x, n) : sb_obs_scan(x, n);
    size_t has = lane->tails.high.n + lane->tails.low.n;
    job_found *found = &lane->found[sample];

    found->keys = sb_obs_keys_join(found->keys, keys);
    found->taken += has > had ? has - had : 0;
    lane->seen += n;
    if (job->obs->tails && keys.lo < -1)
        lane->below += count_below(x, n);
}

/* Backwards: what was made last is nearest. */
static void look(void *arg, size_t lane, const float *x, size_t n)
{
    sb_obs_job *job = arg;
    size_t at = (size_t)(x - job->data);

    while (n > 0) {
        size_t end = at + n, sample = (end - 1) / job->per_sample;
        size_t from = sample * job->per_sample;
        from = from > at ? from : at;
        from = end - from > CHUNK ? end - CHUNK : from;
        look_at_chunk(job, &job->lanes[lane], sample, job->data + from,
                      end - from);
        n = from - at;
    }
}

typedef struct look_range {
    sb_obs_job *job;
    size_t begin, end; /* values */
} look_range;

static void look_at_item(void *arg, size_t lane, size_t item)
{
    const look_range *r = arg;
    size_t at = r->begin + item * SB_OBS_ITEM;
    size_t end = r->end - at < SB_OBS_ITEM ? r->end : at + SB_OBS_ITEM;

    for (; at < end; at += CHUNK)
        look(r->job, lane, r->job->data + at,
             end - at < CHUNK ? end - at : CHUNK);
}

/* Forgets what was looked at. */
static void job_clear(sb_obs_job *job)
{
    for (size_t i = 0; i < job->n_lanes; i++) {
        job_lane *lane = &job->lanes[i];
        lane->found = job->found + i * job->step;
        for (size_t s = 0; s < job->samples; s++)
            lane->found[s] = (job_found){SB_OBS_KEYS_EMPTY, 0};
        lane->seen = lane->below = 0;
        sb_obs_tails_clear(&lane->tails);
        if (job->bars)
            sb_obs_tails_raise(&lane->tails, job->obs->bar_high,
                               job->obs->bar_low);
    }
}

static void job_look_all(sb_obs_job *job, size_t begin, size_t end)
{
    look_range r = {job, begin * job->per_sample, end * job->per_sample};

    job_clear(job);
    sb_parallel_lanes(job->obs->ctx, (r.end - r.begin - 1) / SB_OBS_ITEM + 1,
                      job->n_lanes, look_at_item, &r);
}

/* Joins what the lanes found of each sample; returns whether all is finite. */
static bool job_keys(const sb_obs_job *job, sb_obs_keys *keys)
{
    bool finite = true;

    for (size_t s = 0; s < job->samples; s++) {
        keys[s] = SB_OBS_KEYS_EMPTY;
        for (size_t i = 0; i < job->n_lanes; i++)
            keys[s] = sb_obs_keys_join(keys[s], job->lanes[i].found[s].keys);
        finite &= sb_obs_keys_finite(keys[s]);
    }
    return finite;
}

/* Samples [begin, end) of the view. */
static sb_obs_count count_of(const sb_obs_job *job, size_t begin, size_t end)
{
    sb_obs_count c = {
        .obs = job->obs,
        .data = job->data + begin * job->per_sample,
        .first = (size_t)job->obs->samples + begin,
        .per_sample = job->per_sample,
        .n = (end - begin) * job->per_sample,
    };

    sb_obs_count_stride(&c, stride_of(job->obs, job->per_sample));
    return c;
}

/* ---- outermost values ----------------------------------------------------- */

/* The segment of samples that share their bars. */
static int64_t segment_of(int64_t sample)
{
    int64_t first = 1;

    while (SEGMENT * first <= sample)
        first *= SEGMENT;
    return sample == 0 ? 0 : first;
}

/* The bar above which surely lies what is to be cut, unless values shrink a
 * lot.  Zeros never pass: that a rank is among them says the histogram. */
static int32_t bar_of(const sb_observer *obs, bool low, double n, bool whole)
{
    double part = obs->tails ? obs->spec.percentile_alpha : fraction;
    double want = MARGIN * part * n + MARGIN_MORE;

    if (whole) { /* then they serve lists alone */
        want = MARGIN_WHOLE * part * n + MARGIN_WHOLE_MORE;
        want = want < SB_TAIL_KEEP ? want : SB_TAIL_KEEP;
    }
    int32_t bar = sb_hist_bar(&obs->hist, 0, low, (uint64_t)want);
    return bar > 0 ? bar : 0;
}

/* After `seen` values, so many of them below zero. */
static void find_bars(sb_observer *obs, uint64_t seen, uint64_t below,
                      bool whole)
{
    /* Who does not cut does not count how many are on which side. */
    uint64_t above = obs->tails ? seen - below : seen;

    obs->bar_high = bar_of(obs, false, (double)above, whole);
    obs->bar_low =
        bar_of(obs, true, (double)(obs->tails ? below : seen), whole);
}

static void set_bars(sb_observer *obs, int64_t sample, uint64_t seen,
                     bool whole)
{
    if (obs->bars_from == segment_of(sample))
        return;
    obs->bars_from = segment_of(sample);
    find_bars(obs, seen, obs->below, whole);
}

static void count_tail(sb_hist *h, const sb_obs_tail *t, bool low)
{
    float x[512];

    for (size_t at = 0; at < t->n; at += SB_COUNT(x)) {
        size_t n = t->n - at < SB_COUNT(x) ? t->n - at : SB_COUNT(x);
        for (size_t i = 0; i < n; i++) {
            uint32_t bits = t->v[at + i] | (low ? 1U << 31 : 0);
            memcpy(&x[i], &bits, sizeof bits);
        }
        sb_hist_add(h, 0, x, n);
    }
}

/* Did so much pass the bars, in some sample, that they are of no use? */
static bool too_many(const sb_obs_job *job, size_t begin, size_t end)
{
    for (size_t s = begin; s < end; s++) {
        size_t taken = 0;
        for (size_t i = 0; i < job->n_lanes; i++)
            taken += job->lanes[i].found[s].taken;
        if (taken >= job->take_each)
            return true;
    }
    for (size_t i = 0; i < job->n_lanes; i++) /* lists that were cut */
        if (job->lanes[i].tails.high.bar != job->obs->bar_high ||
            job->lanes[i].tails.low.bar != job->obs->bar_low)
            return true;
    return false;
}

static void count_taken(sb_obs_job *job)
{
    for (size_t i = 0; i < job->n_lanes; i++) {
        count_tail(&job->obs->hist, &job->lanes[i].tails.high, false);
        count_tail(&job->obs->hist, &job->lanes[i].tails.low, true);
    }
}

static void keep_taken(sb_obs_job *job)
{
    sb_observer *obs = job->obs;

    for (size_t i = 0; i < job->n_lanes; i++) {
        const sb_obs_tails *t = &job->lanes[i].tails;
        sb_obs_tails_raise(obs->tails, t->high.bar, t->low.bar);
        sb_obs_tails_merge(obs->tails, t);
    }
}

/* ---- a view --------------------------------------------------------------- */

/* Room for n values, by preference where there was room before. */
static sb_status job_room(sb_obs_job *job, size_t n)
{
    sb_ctx *ctx = job->obs->ctx;
    sb_obs_room *room = job->obs->room;
    size_t bytes;

    if (!sb_mul_size(n, sizeof *job->lists, &bytes))
        return sb_fail(ctx, SB_NO_MEMORY, "a tensor is too large");
    if (!room || room->taken) {
        job->lists = sb_alloc_raw(ctx, bytes, 1);
        return job->lists ? SB_OK : SB_NO_MEMORY;
    }
    if (room->size < bytes) {
        sb_free(ctx, room->data);
        room->size = 0;
        room->data = sb_alloc_raw(ctx, bytes, 1);
        if (!room->data)
            return SB_NO_MEMORY;
        room->size = bytes;
    }
    room->taken = job->in_room = true;
    job->lists = room->data;
    return SB_OK;
}

static sb_status job_lists(sb_obs_job *job)
{
    const sb_observer *obs = job->obs;
    double part = obs->tails ? obs->spec.percentile_alpha : fraction;

    job->take_each =
        TAKE + (size_t)(TAKE_MARGIN * part * (double)job->per_sample);
    job->take = job->samples * job->take_each;
    if (obs->tails && job->take < obs->tails->keep)
        job->take = obs->tails->keep;
    size_t cap = job->take + job->take / 2;
    cap = (cap < job->elements ? cap : job->elements) + SB_TAIL_SLACK;
    SB_TRY(job_room(job, 2 * job->n_lanes * cap));
    for (size_t i = 0; i < job->n_lanes; i++) {
        sb_obs_tails *t = &job->lanes[i].tails;
        sb_obs_tails_init(t, job->take);
        t->high.v = job->lists + 2 * i * cap;
        t->low.v = job->lists + (2 * i + 1) * cap;
        t->high.cap = t->low.cap = cap;
    }
    return SB_OK;
}

static sb_status job_reserve(sb_obs_job *job)
{
    sb_observer *obs = job->obs;
    sb_ctx *ctx = obs->ctx;
    size_t stride = stride_of(obs, job->per_sample), values = job->elements;
    uint64_t counts = job->elements;

    if (!(obs->needs & SB_OBS_HISTOGRAM))
        return SB_OK;
    if (stride > 1)
        counts += job->elements + (uint64_t)job->samples * SB_OBS_LINE * stride;
    if (stride > 1)
        values = job->elements / stride;
    SB_TRY(sb_hist_reserve(ctx, &obs->hist, (int)sb_obs_lanes(obs, values),
                           counts));
    if (!obs->tails && stride == 1)
        return SB_OK;
    if (obs->tails)
        SB_TRY(sb_obs_tails_reserve(ctx, obs->tails, job->elements));
    return job_lists(job);
}

void sb_obs_job_free(sb_obs_job *job)
{
    if (!job)
        return;
    sb_ctx *ctx = job->obs->ctx;
    if (job->in_room)
        job->obs->room->taken = false;
    else
        sb_free(ctx, job->lists);
    sb_free(ctx, job->found);
    sb_free(ctx, job);
}

static sb_status job_create(sb_observer *obs, const sb_obs_view *view,
                            size_t lanes, sb_obs_job **out)
{
    sb_obs_job *job = sb_alloc(obs->ctx, 1, sizeof *job);

    if (!job)
        return SB_NO_MEMORY;
    job->obs = obs;
    job->data = view->data;
    job->samples = (size_t)view->samples;
    job->per_sample = (size_t)(view->outer * view->inner);
    job->elements = job->samples * job->per_sample;
    job->n_lanes = lanes;
    job->step = job->samples + 64 / sizeof *job->found;
    job->found = sb_alloc_raw(obs->ctx, lanes * job->step, sizeof *job->found);
    sb_status status = job->found ? job_reserve(job) : SB_NO_MEMORY;
    if (status == SB_OK)
        *out = job;
    else
        sb_obs_job_free(job);
    return status;
}

/* Takes in samples [begin, end), which were looked at and are finite. */
static void job_count(sb_obs_job *job, size_t begin, size_t end,
                      const sb_obs_keys *keys)
{
    sb_observer *obs = job->obs;
    sb_obs_count c = count_of(job, begin, end);

    bool full = job->bars && c.stride > 1 && too_many(job, begin, end);
    if (full && end - begin > 1) {
        /* One by one: so it does not depend on batches which are full. */
        for (size_t s = begin; s < end; s++) {
            job_look_all(job, s, s + 1);
            job_count(job, s, s + 1, keys);
        }
        return;
    }
    for (size_t s = begin; s < end; s++)
        sb_hist_fit(&obs->hist, 0, keys[s]);
    for (size_t i = 0; i < job->n_lanes; i++)
        obs->below += job->lanes[i].below;
    if (job->bars && obs->tails)
        keep_taken(job);
    c.below = job->bars;
    if (c.stride == 1 || full) {
        sb_obs_count_all(&c);
    } else {
        count_taken(job);
        sb_obs_count_some(&c);
    }
}

/* Bars for the first sample of all: from some of its lines, which are then
 * forgotten. */
static void first_bars(sb_obs_job *job, const sb_obs_keys *keys)
{
    sb_observer *obs = job->obs;
    sb_obs_count c = count_of(job, 0, 1);
    uint64_t below = 0;

    obs->bar_high = obs->bar_low = 0;
    if (c.stride == 1)
        return;
    if (obs->tails && keys[0].lo < -1)
        below = count_below(job->data, job->per_sample);
    sb_hist_fit(&obs->hist, 0, keys[0]);
    sb_obs_count_stride(&c, c.stride / FIRST);
    sb_obs_count_some(&c);
    find_bars(obs, job->per_sample, below, false);
    sb_hist_clear(&obs->hist);
}

/* In segments that share their bars, which the ones before tell. */
static void job_segments(sb_obs_job *job, const sb_obs_keys *keys)
{
    sb_observer *obs = job->obs;
    int64_t from = obs->samples;
    bool whole = stride_of(obs, job->per_sample) == 1;

    for (size_t begin = 0; begin < job->samples;) {
        int64_t sample = from + (int64_t)begin;
        int64_t next = sample == 0 ? 1 : SEGMENT * segment_of(sample);
        size_t end = (size_t)(next - from);
        end = end < job->samples ? end : job->samples;
        if (sample == 0)
            first_bars(job, keys);
        else
            set_bars(obs, sample,
                     (uint64_t)obs->elements + begin * job->per_sample, whole);
        job->bars = true;
        job_look_all(job, begin, end);
        job_count(job, begin, end, keys);
        begin = end;
    }
}

/* Are all samples of the view in one segment, for which bars can be had? */
static bool one_segment(const sb_observer *obs, int64_t samples)
{
    return obs->samples > 0 &&
           segment_of(obs->samples) == segment_of(obs->samples + samples - 1);
}

/* Are there bars for such views? */
static bool has_bars(const sb_observer *obs, size_t per_sample)
{
    return obs->tails || stride_of(obs, per_sample) > 1;
}

static void job_run(sb_obs_job *job, sb_obs_keys *keys)
{
    sb_observer *obs = job->obs;
    bool by_bars = has_bars(obs, job->per_sample);

    if (!job->direct) {
        job->bars = by_bars && one_segment(obs, (int64_t)job->samples);
        if (job->bars)
            set_bars(obs, obs->samples, (uint64_t)obs->elements,
                     stride_of(obs, job->per_sample) == 1);
        job_look_all(job, 0, job->samples);
    }
    if (!job_keys(job, keys) || !(obs->needs & SB_OBS_HISTOGRAM))
        return; /* the caller sees it in the keys */
    if (by_bars && !job->bars)
        job_segments(job, keys);
    else
        job_count(job, 0, job->samples, keys);
}

sb_status sb_observer_tensor(sb_observer *obs, const sb_obs_view *view,
                             sb_obs_keys *keys)
{
    size_t elements = (size_t)(view->samples * view->outer * view->inner);
    sb_obs_job *job = obs->job;
    uint64_t seen = 0;

    obs->job = NULL;
    for (size_t i = 0; job && i < job->n_lanes; i++)
        seen += job->lanes[i].seen;
    /* Looked at already, as it was made? */
    if (job && (job->data != view->data || seen != elements ||
                job->samples != (size_t)view->samples)) {
        sb_obs_job_free(job);
        job = NULL;
    }
    if (!job)
        SB_TRY(job_create(obs, view, sb_obs_lanes(obs, elements), &job));
    job_run(job, keys);
    sb_obs_job_free(job);
    return SB_OK;
}

void sb_observer_share(sb_observer *obs, sb_obs_room *room)
{
    obs->room = room;
}

sb_status sb_observer_tap(sb_observer *obs, const sb_obs_view *view,
                          sb_tap *tap)
{
    size_t lanes = (size_t)sb_ctx_threads(obs->ctx);
    size_t per_sample = (size_t)(view->outer * view->inner);
    bool by_bars = has_bars(obs, per_sample);

    *tap = (sb_tap){0};
    sb_obs_job_free(obs->job);
    obs->job = NULL;
    if (obs->channels != 1 || view->channels != 1 || obs->done ||
        view->samples < 1 || per_sample < 1 || lanes > LANES_MOST)
        return SB_OK;
    SB_TRY(job_create(obs, view, lanes, &obs->job));
    obs->job->direct = true;
    obs->job->bars = by_bars && one_segment(obs, view->samples);
    if (obs->job->bars)
        set_bars(obs, obs->samples, (uint64_t)obs->elements,
                 stride_of(obs, per_sample) == 1);
    job_clear(obs->job);
    *tap = (sb_tap){.look = look, .arg = obs->job};
    return SB_OK;
}
