/* Bars before anything is known of a tensor (obs_job.h).
 *
 * The bars of the first samples follow from the first sample, and are known
 * when it has gone by.  Looking a second time would be a pass over memory.
 * Instead each thread guesses bars, from some of the first values that it sees,
 * so low that the real ones will hardly be lower, and notes of which sample
 * each value above them is.  In the end what is above the real ones stays. */
#include <math.h>

#include "quant/obs_job.h"

enum { GUESS = 2048 }; /* values */

int32_t sb_obs_bar(const float *x, size_t n, bool low, double rank)
{
    size_t below = sb_obs_below(x, n);

    if (rank < 1.0 || rank > (double)(low ? below : n - below))
        return 0;
    int32_t bar = sb_obs_key(sb_obs_select(x, n, low, (size_t)rank)) - 1;
    return bar > 0 ? bar : 0;
}

/* Of a Poisson distribution with this mean, more than ever come. */
static double at_most(double mean)
{
    return mean + 4.0 * sqrt(mean) + 3.0;
}

void sb_obs_guess(const sb_obs_job *job, sb_obs_lane *lane, const float *x,
                  size_t n)
{
    float some[GUESS];
    double each = (double)job->per_sample;
    double rank = at_most(GUESS / each * sb_obs_want(job->obs, each, false));

    for (uint32_t i = 0; i < GUESS; i++) /* from everywhere */
        some[i] = x[(uint64_t)((i + 1) * 2654435769U) * n >> 32];
    lane->guess_high = sb_obs_bar(some, GUESS, false, rank);
    lane->guess_low = sb_obs_bar(some, GUESS, true, rank);
    sb_obs_tails_raise(&lane->tails, lane->guess_high, lane->guess_low);
    lane->guessed = true;
}

/* Was a bar too high, or raised because there was no room? */
static bool is_wrong(const sb_obs_lane *lane, int32_t high, int32_t low)
{
    return lane->guessed && (lane->guess_high > high || lane->guess_low > low ||
                             lane->tails.high.bar != lane->guess_high ||
                             lane->tails.low.bar != lane->guess_low);
}

typedef struct filter_job {
    sb_obs_job *job;
    size_t samples;
} filter_job;

static void filter(sb_obs_tail *t, int32_t bar, const uint16_t *from,
                   size_t samples, sb_obs_found *found)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++) {
        bool stays = (int32_t)t->v[i] > bar && from[i] < samples;
        t->v[n] = t->v[i];
        found[from[i]].taken += stays;
        n += stays;
    }
    t->n = n;
    t->bar = bar;
}

static void filter_lanes(void *arg, size_t begin, size_t end)
{
    const filter_job *f = arg;
    const sb_observer *obs = f->job->obs;

    for (size_t i = begin; i < end; i++) {
        sb_obs_lane *lane = &f->job->lanes[i];
        for (size_t s = 0; s < f->job->samples; s++)
            lane->found[s].taken = 0;
        filter(&lane->tails.high, obs->bar_high, lane->from_high, f->samples,
               lane->found);
        filter(&lane->tails.low, obs->bar_low, lane->from_low, f->samples,
               lane->found);
    }
}

bool sb_obs_guessed(sb_obs_job *job, size_t samples)
{
    filter_job f = {job, samples};

    for (size_t i = 0; i < job->n_lanes; i++)
        if (is_wrong(&job->lanes[i], job->obs->bar_high, job->obs->bar_low))
            return false;
    sb_parallel_for(job->obs->ctx, job->n_lanes, 1, filter_lanes, &f);
    return true;
}
