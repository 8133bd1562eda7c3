/* Counting activations (obs_job.h). */
#include "base/threads.h"
#include "quant/obs_job.h"

enum {
    FIRST = 3 << 11, /* values that tell the first bars */
};

/* How much of a sample is counted. */
typedef struct part {
    size_t whole;  /* all, if it has not more values */
    size_t least;  /* so many values at least */
    size_t stride; /* one in so many lines at least */
} part;

static const part some = {1 << 14, 1 << 10, 256};
/* Where neighbouring bins are compared. */
static const part fine = {1 << 14, 1 << 12, 64};
/* Where the answer is among the outermost values. */
static const part rare = {1 << 12, 1 << 9, 256};

/* Above this fraction too much would pass the bars. */
static const double alpha_most = 1.0 / 32;

size_t sb_obs_stride(const sb_observer *obs, size_t per_sample)
{
    const part *p = obs->needs & SB_OBS_FINE ? &fine
                    : obs->tails             ? &rare
                                             : &some;
    size_t stride = per_sample / p->least;

    if (obs->spec.all_values || per_sample <= p->whole ||
        !(obs->needs & SB_OBS_HISTOGRAM))
        return 1;
    if (obs->tails && obs->spec.percentile_alpha > alpha_most)
        return 1;
    return stride < p->stride ? stride : p->stride;
}

size_t sb_obs_first_stride(const sb_obs_job *job)
{
    return job->per_sample / FIRST + 1;
}

static void count_lines(const sb_obs_job *job, size_t sample)
{
    sb_hist *h = &job->obs->hist;
    const float *x = job->lines + sample * job->groups * SB_OBS_LINE;
    int32_t high = job->obs->bar_high, low = job->obs->bar_low;
    uint32_t last;
    size_t whole;

    if (job->stride == 1) {
        sb_hist_add(h, 0, x, job->per_sample);
        return;
    }
    size_t n = sb_obs_kept(job, sample, &whole, &last);
    sb_hist_add_below(h, x, whole, (uint32_t)job->stride, high, low);
    sb_hist_add_below(h, x + whole, n - whole, last, high, low);
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

void sb_obs_count_waiting(sb_obs_job *job)
{
    sb_observer *obs = job->obs;

    sb_hist_fit(&obs->hist, 0, job->wait_keys);
    for (size_t s = job->wait; s < job->wait_end; s++)
        count_lines(job, s);
    for (size_t i = 0; job->stride > 1 && i < job->n_lanes; i++) {
        count_tail(&obs->hist, &job->lanes[i].tails.high, false);
        count_tail(&obs->hist, &job->lanes[i].tails.low, true);
    }
}

typedef struct whole_job {
    sb_hist *hist;
    const float *x;
    size_t n;
} whole_job;

static void count_item(void *arg, size_t lane, size_t item)
{
    const whole_job *w = arg;
    size_t at = item * SB_OBS_ITEM;

    sb_hist_add(w->hist, (int)lane, w->x + at,
                w->n - at < SB_OBS_ITEM ? w->n - at : SB_OBS_ITEM);
}

void sb_obs_count_all(const sb_obs_job *job, size_t begin, size_t end)
{
    sb_observer *obs = job->obs;
    whole_job w = {&obs->hist, job->data + begin * job->per_sample,
                   (end - begin) * job->per_sample};
    size_t lanes = sb_obs_lanes(obs, w.n), most = 1;

    while (most < lanes && obs->hist.tables[most]) /* one for each */
        most++;
    sb_parallel_lanes(obs->ctx, (w.n - 1) / SB_OBS_ITEM + 1, most, count_item,
                      &w);
}
