/* Counting a tensor into a histogram (obs_count.h). */
#include "quant/obs_count.h"

#include "base/threads.h"

enum { GROUPS = 32 }; /* lines that are gathered and counted at a time */

static uint32_t draw(size_t sample, size_t group, size_t n)
{
    uint64_t h = (uint64_t)sample * 0x9e3779b97f4a7c15U + group + 1;

    h *= 0xbf58476d1ce4e5b9U;
    h ^= h >> 31;
    h *= 0x94d049bb133111ebU;
    return (uint32_t)((h >> 40) % n);
}

/* Copies what is not above the bars; returns how many. */
static size_t copy_below(const sb_observer *obs, const float *x, size_t n,
                         float *to)
{
    size_t m = 0;

    for (size_t i = 0; i < n; i++) {
        int32_t key = sb_obs_key(x[i]);
        to[m] = x[i];
        m += !(key > obs->bar_high || ~key > obs->bar_low);
    }
    return m;
}

#if defined(__GNUC__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) (void)(address)
#endif

/* Items are GROUPS groups of lines of a sample. */
static void count_item(void *arg, size_t lane, size_t item)
{
    const sb_obs_count *job = arg;
    size_t sample = item / job->items, group = item % job->items * GROUPS;
    size_t lines = (job->per_sample + SB_OBS_LINE - 1) / SB_OBS_LINE, last = 0,
           m = 0;
    const float *x = job->data + sample * job->per_sample, *line[GROUPS];
    float values[GROUPS * SB_OBS_LINE];
    size_t n = 0;

    for (; n < GROUPS && group < job->groups; n++, group++) {
        size_t left = lines - group * job->stride;
        size_t of = left < job->stride ? left : job->stride;
        size_t at = group * job->stride + draw(job->first + sample, group, of);
        if (of < job->stride)
            last = of; /* the last group, which is smaller, counts for less */
        line[n] = x + at * SB_OBS_LINE;
        PREFETCH(line[n]);
    }
    for (size_t i = 0; i < n; i++) {
        size_t left = job->per_sample - (size_t)(line[i] - x);
        left = left < SB_OBS_LINE ? left : SB_OBS_LINE;
        if (last && i == n - 1) {
            sb_hist_add_weighted(&job->obs->hist, (int)lane, values, m,
                                 (uint32_t)job->stride);
            m = 0;
        }
        if (job->below) {
            m += copy_below(job->obs, line[i], left, values + m);
        } else {
            memcpy(values + m, line[i], left * sizeof *values);
            m += left;
        }
    }
    sb_hist_add_weighted(&job->obs->hist, (int)lane, values, m,
                         (uint32_t)(last ? last : job->stride));
}

static void count_all_item(void *arg, size_t lane, size_t item)
{
    const sb_obs_count *job = arg;
    size_t at = item * SB_OBS_ITEM;

    sb_hist_add(&job->obs->hist, (int)lane, job->data + at,
                job->n - at < SB_OBS_ITEM ? job->n - at : SB_OBS_ITEM);
}

/* As many threads as are worth while for so many values. */
size_t sb_obs_lanes(const sb_observer *obs, size_t values)
{
    size_t lanes = values / SB_OBS_ITEM + 1;
    size_t most = (size_t)sb_ctx_threads(obs->ctx);

    most = most < SB_HIST_PARTS ? most : SB_HIST_PARTS;
    return lanes < most ? lanes : most;
}

void sb_obs_count_stride(sb_obs_count *c, size_t stride)
{
    size_t lines = (c->per_sample + SB_OBS_LINE - 1) / SB_OBS_LINE;

    c->stride = stride;
    c->groups = (lines + stride - 1) / stride;
    c->items = (c->groups + GROUPS - 1) / GROUPS;
}

/* No more lanes than tables. */
static size_t count_lanes(const sb_observer *obs, size_t values)
{
    size_t lanes = sb_obs_lanes(obs, values), most = 1;

    while (most < lanes && obs->hist.tables[most])
        most++;
    return most;
}

void sb_obs_count_all(sb_obs_count *c)
{
    sb_parallel_lanes(c->obs->ctx, (c->n - 1) / SB_OBS_ITEM + 1,
                      count_lanes(c->obs, c->n), count_all_item, c);
}

void sb_obs_count_some(sb_obs_count *c)
{
    c->obs->sampled = true;
    sb_parallel_lanes(c->obs->ctx, c->n / c->per_sample * c->items,
                      count_lanes(c->obs, c->n / c->stride), count_item, c);
}
