/* Looking at activations (obs_job.h).
 *
 * Which line of a group is kept is drawn by a hash of the numbers of sample and
 * group: so it depends neither on batches nor on threads, and falls into step
 * with no layout. */
#include "base/simd.h"
#include "base/threads.h"
#include "quant/obs_job.h"

enum {
    CHUNK = 4096,    /* values: 16 KB, looked at while they are in L1 */
    COPY = 1 << 17,  /* values that are copied if all are to be counted */
    TAKE = 1 << 11,  /* values above the bars that any sample may have, and */
    TAKE_MARGIN = 8, /* so many times more than is to be cut */
};

size_t sb_obs_lanes(const sb_observer *obs, size_t values)
{
    size_t lanes = values / SB_OBS_ITEM + 1;
    size_t most = (size_t)sb_ctx_threads(obs->ctx);

    most = most < SB_HIST_PARTS ? most : SB_HIST_PARTS;
    return lanes < most ? lanes : most;
}

/* ---- lines ---------------------------------------------------------------- */

static size_t lines_of(const sb_obs_job *job)
{
    return (job->per_sample + SB_OBS_LINE - 1) / SB_OBS_LINE;
}

void sb_obs_job_stride(sb_obs_job *job, size_t stride)
{
    job->stride = stride;
    job->groups = (lines_of(job) + stride - 1) / stride;
}

/* Lines of a group: the last may have fewer. */
static size_t group_lines(const sb_obs_job *job, size_t group)
{
    size_t left = lines_of(job) - group * job->stride;

    return left < job->stride ? left : job->stride;
}

/* Where the drawn line of a group begins. */
static size_t drawn(const sb_obs_job *job, size_t sample, size_t group)
{
    uint64_t h = (uint64_t)(job->first + sample) * 0x9e3779b97f4a7c15U;

    h = (h + group + 1) * 0xbf58476d1ce4e5b9U;
    h ^= h >> 31;
    h *= 0x94d049bb133111ebU;
    size_t line = (size_t)((h >> 40) * group_lines(job, group) >> 24);
    return (group * job->stride + line) * SB_OBS_LINE;
}

void sb_obs_keep_lines(const sb_obs_job *job, size_t sample, size_t at,
                       size_t n)
{
    const float *x = job->data + sample * job->per_sample;
    float *to = job->lines + sample * job->groups * SB_OBS_LINE;
    size_t wide = job->stride * SB_OBS_LINE;

    if (job->stride == 1) {
        memcpy(to + at, x + at, n * sizeof *to);
        return;
    }
    for (size_t g = at / wide; g * wide < at + n; g++) {
        size_t line = drawn(job, sample, g);
        size_t from = line > at ? line : at, end = line + SB_OBS_LINE;
        end = end < at + n ? end : at + n;
        if (from < end)
            memcpy(to + g * SB_OBS_LINE + (from - line), x + from,
                   (end - from) * sizeof *to);
    }
}

size_t sb_obs_kept(const sb_obs_job *job, size_t sample, size_t *whole,
                   uint32_t *last)
{
    size_t line = drawn(job, sample, job->groups - 1);
    size_t left = job->per_sample - line;

    *whole = (job->groups - 1) * SB_OBS_LINE;
    *last = (uint32_t)group_lines(job, job->groups - 1);
    return *whole + (left < SB_OBS_LINE ? left : SB_OBS_LINE);
}

/* ---- looking -------------------------------------------------------------- */

SB_HOT static uint32_t count_below(const float *x, size_t n)
{
    uint32_t below = 0;

    for (size_t i = 0; i < n; i++)
        below += x[i] < 0.0F;
    return below;
}

size_t sb_obs_below(const float *x, size_t n)
{
    size_t below = 0;

    for (size_t at = 0; at < n; at += SB_OBS_ITEM)
        below +=
            count_below(x + at, n - at < SB_OBS_ITEM ? n - at : SB_OBS_ITEM);
    return below;
}

static void look_at_chunk(sb_obs_job *job, sb_obs_lane *lane, size_t sample,
                          const float *x, size_t n)
{
    size_t high = lane->tails.high.n, low = lane->tails.low.n;
    bool take = job->bars || job->guess;
    sb_obs_found *found = &lane->found[sample];

    found->keys = take ? sb_obs_tails_look(&lane->tails, x, n, found->keys)
                       : sb_obs_scan(x, n, found->keys);
    lane->seen += n;
    if (job->obs->tails && found->keys.lo < -1)
        found->below += count_below(x, n);
    for (size_t i = high; i < lane->tails.high.n; i++, found->taken++)
        if (job->guess)
            lane->from_high[i] = (uint16_t)sample;
    for (size_t i = low; i < lane->tails.low.n; i++, found->taken++)
        if (job->guess)
            lane->from_low[i] = (uint16_t)sample;
    if (job->lines)
        sb_obs_keep_lines(
            job, sample, (size_t)(x - job->data) - sample * job->per_sample, n);
}

/* Backwards: what was made last is nearest. */
void sb_obs_look(void *arg, size_t lane, const float *x, size_t n)
{
    sb_obs_job *job = arg;
    size_t at = (size_t)(x - job->data);

    if (job->guess && !job->lanes[lane].guessed)
        sb_obs_guess(job, &job->lanes[lane], x, n);
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
        sb_obs_look(r->job, lane, r->job->data + at,
                    end - at < CHUNK ? end - at : CHUNK);
}

void sb_obs_job_clear(sb_obs_job *job)
{
    for (size_t i = 0; i < job->n_lanes; i++) {
        sb_obs_lane *lane = &job->lanes[i];
        for (size_t s = 0; s < job->samples; s++)
            lane->found[s] = (sb_obs_found){.keys = SB_OBS_KEYS_EMPTY};
        lane->seen = 0;
        lane->guessed = false;
        sb_obs_tails_clear(&lane->tails);
        if (job->bars)
            sb_obs_tails_raise(&lane->tails, job->obs->bar_high,
                               job->obs->bar_low);
    }
}

void sb_obs_look_all(sb_obs_job *job, size_t begin, size_t end)
{
    look_range r = {job, begin * job->per_sample, end * job->per_sample};

    sb_obs_job_clear(job);
    sb_parallel_lanes(job->obs->ctx, (r.end - r.begin - 1) / SB_OBS_ITEM + 1,
                      job->n_lanes, look_at_item, &r);
}

/* ---- memory --------------------------------------------------------------- */

static sb_status need(sb_ctx *ctx, sb_obs_memory *m, size_t n, size_t each)
{
    size_t size;

    if (!sb_mul_size(n, each, &size))
        return sb_fail(ctx, SB_NO_MEMORY, "a tensor is too large");
    if (m->size >= size)
        return SB_OK;
    sb_free(ctx, m->data);
    *m = (sb_obs_memory){sb_alloc_raw(ctx, size, 1), size};
    if (m->data)
        return SB_OK;
    m->size = 0;
    return SB_NO_MEMORY;
}

static sb_status need_lists(sb_obs_job *job)
{
    const sb_observer *obs = job->obs;

    job->take_each = TAKE + (size_t)(TAKE_MARGIN * sb_obs_fraction(obs) *
                                     (double)job->per_sample);
    size_t take = job->samples * job->take_each;
    if (obs->tails && take < obs->tails->keep)
        take = obs->tails->keep;
    size_t cap = take + take / 2;
    cap = (cap < job->elements ? cap : job->elements) + SB_TAIL_SLACK;
    SB_TRY(need(obs->ctx, &job->list_memory, 2 * job->n_lanes,
                cap * sizeof(uint32_t)));
    uint32_t *lists = job->list_memory.data;
    for (size_t i = 0; i < job->n_lanes; i++) {
        sb_obs_tails *t = &job->lanes[i].tails;
        sb_obs_tails_init(t, take);
        t->high.v = lists + 2 * i * cap;
        t->low.v = lists + (2 * i + 1) * cap;
        t->high.cap = t->low.cap = cap;
    }
    if (!job->guess)
        return SB_OK;
    SB_TRY(need(obs->ctx, &job->from_memory, 2 * job->n_lanes,
                cap * sizeof(uint16_t)));
    uint16_t *from = job->from_memory.data;
    for (size_t i = 0; i < job->n_lanes; i++) {
        job->lanes[i].from_high = from + 2 * i * cap;
        job->lanes[i].from_low = from + (2 * i + 1) * cap;
    }
    return SB_OK;
}

static sb_status need_lines(sb_obs_job *job)
{
    size_t stride = job->stride, lines = job->samples * job->groups;

    job->lines = NULL;
    if (stride == 1 && job->elements > COPY)
        return SB_OK;
    if (stride > 1 && job->first == 0) /* for bars */
        lines += job->groups * stride / sb_obs_first_stride(job) + 1;
    job->lines = sb_obs_room_lines(job->obs, lines * SB_OBS_LINE);
    job->in_room = job->lines != NULL;
    if (job->in_room)
        return SB_OK;
    SB_TRY(need(job->obs->ctx, &job->line_memory, lines,
                SB_OBS_LINE * sizeof *job->lines));
    job->lines = job->line_memory.data;
    return SB_OK;
}

/* Of the histogram, and of the lists that looking fills. */
static sb_status need_counts(sb_obs_job *job)
{
    sb_observer *obs = job->obs;
    uint64_t counts = job->elements;
    size_t parts = 1;

    if (!(obs->needs & SB_OBS_HISTOGRAM))
        return SB_OK;
    SB_TRY(need_lines(job));
    if (job->stride > 1 && !(obs->needs & SB_OBS_FINE))
        SB_TRY(sb_hist_coarsen(obs->ctx, &obs->hist));
    if (job->stride > 1)
        counts +=
            job->elements + (uint64_t)job->samples * SB_OBS_LINE * job->stride;
    if (!job->lines)
        parts = sb_obs_lanes(obs, job->elements);
    SB_TRY(sb_hist_reserve(obs->ctx, &obs->hist, (int)parts, counts));
    if (!obs->tails && job->stride == 1)
        return SB_OK;
    if (obs->tails)
        SB_TRY(sb_obs_tails_reserve(obs->ctx, obs->tails, job->elements));
    return need_lists(job);
}

static sb_status need_found(sb_obs_job *job)
{
    size_t step = job->samples + 64 / sizeof(sb_obs_found);

    SB_TRY(need(job->obs->ctx, &job->found_memory, job->n_lanes,
                step * sizeof(sb_obs_found)));
    for (size_t i = 0; i < job->n_lanes; i++)
        job->lanes[i].found = (sb_obs_found *)job->found_memory.data + i * step;
    return SB_OK;
}

sb_status sb_obs_job_begin(sb_observer *obs, const sb_obs_view *view,
                           size_t lanes)
{
    if (!obs->job)
        obs->job = sb_alloc(obs->ctx, 1, sizeof *obs->job);
    sb_obs_job *job = obs->job;
    if (!job)
        return SB_NO_MEMORY;
    sb_obs_job_end(job);
    job->obs = obs;
    job->data = view->data;
    job->first = (size_t)obs->samples;
    job->samples = (size_t)view->samples;
    job->per_sample = (size_t)(view->outer * view->inner);
    job->elements = job->samples * job->per_sample;
    job->tapped = job->bars = false;
    job->n_lanes = lanes;
    sb_obs_job_stride(job, sb_obs_stride(obs, job->per_sample));
    job->guess =
        obs->samples == 0 && job->stride > 1 && job->samples <= UINT16_MAX;
    SB_TRY(need_found(job));
    return need_counts(job);
}

void sb_obs_job_end(sb_obs_job *job)
{
    if (job->in_room)
        job->obs->room->n_looking--;
    job->in_room = false;
}

void sb_obs_job_free(sb_obs_job *job)
{
    if (!job)
        return;
    sb_obs_job_end(job);
    sb_obs_room_leave(job->obs);
    sb_ctx *ctx = job->obs->ctx;
    sb_free(ctx, job->found_memory.data);
    sb_free(ctx, job->list_memory.data);
    sb_free(ctx, job->line_memory.data);
    sb_free(ctx, job->from_memory.data);
    sb_free(ctx, job);
}
