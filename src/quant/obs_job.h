/* obs_job.h - a view of activations that have one range, while an observer
 * looks at it; for observer_tensor.c, which says what happens when.
 *
 * Looking (obs_look.c) finds least and greatest values, takes what is above
 * the observer's bars, and keeps the lines that are to be counted.  Counting
 * (obs_count.c) is another step, which does not need the view any more. */
#ifndef SB_QUANT_OBS_JOB_H
#define SB_QUANT_OBS_JOB_H

#include "quant/observer_state.h"

enum {
    SB_OBS_LINE = 16,      /* values */
    SB_OBS_ITEM = 1 << 15, /* values for a thread */
    SB_OBS_LANES_MOST = 64,
};

/* What one thread found of a sample. */
typedef struct sb_obs_found {
    sb_obs_keys keys;
    size_t taken; /* values above the bars */
    size_t below; /* values below zero, if that is of interest */
} sb_obs_found;

typedef struct sb_obs_lane {
    sb_obs_found *found; /* [samples] */
    uint64_t seen;       /* values */
    sb_obs_tails tails;  /* above the bars */
    /* While bars are guessed: what they are, and the samples of the values. */
    bool guessed;
    int32_t guess_high, guess_low;
    uint16_t *from_high, *from_low;
    char apart[64]; /* from the next, which another thread writes */
} sb_obs_lane;

/* Memory that is kept from one view to the next. */
typedef struct sb_obs_memory {
    void *data;
    size_t size;
} sb_obs_memory;

struct sb_obs_job {
    sb_observer *obs;
    const float *data;
    size_t first; /* number of the first sample among all ever seen */
    size_t samples, per_sample, elements;
    bool tapped; /* looked at by whoever makes the view */
    bool bars;   /* take what is above them */
    bool guess;  /* the same, but each thread guesses them */
    /* Of each group of `stride` lines of a sample one is drawn and kept. */
    size_t stride, groups;
    float *lines;     /* [samples, groups, SB_OBS_LINE]; NULL: none are kept */
    bool in_room;     /* the room keeps them */
    bool listed;      /* among those that wait there */
    size_t take_each; /* values above the bars that a sample may have */
    /* Samples [wait, wait_end) were looked at and wait to be counted; all are
     * in this range. */
    size_t wait, wait_end;
    sb_obs_keys wait_keys;
    sb_obs_memory found_memory, list_memory, line_memory, from_memory;
    size_t n_lanes;
    sb_obs_lane lanes[SB_OBS_LANES_MOST];
};

/* ---- looking ---------------------------------------------------------------
 */

/* Begins with a view: room for all that looking and counting need. */
SB_MUST_USE sb_status sb_obs_job_begin(sb_observer *obs,
                                       const sb_obs_view *view, size_t lanes);
/* Sets `stride` and what follows from it. */
void sb_obs_job_stride(sb_obs_job *job, size_t stride);
/* The stride of the lines that tell the bars of the first samples. */
size_t sb_obs_first_stride(const sb_obs_job *job);
/* Forgets what was looked at. */
void sb_obs_job_clear(sb_obs_job *job);
/* Looks at n values of the view; an sb_tap's. */
void sb_obs_look(void *job, size_t lane, const float *x, size_t n);
/* Looks at samples [begin, end), on all threads. */
void sb_obs_look_all(sb_obs_job *job, size_t begin, size_t end);
/* Looking is over: others may come. */
void sb_obs_job_end(sb_obs_job *job);
/* Keeps what of the drawn lines lies in n values of a sample from `at` on. */
void sb_obs_keep_lines(const sb_obs_job *job, size_t sample, size_t at,
                       size_t n);
/* Of a sample: values that are kept, and how many of them count `stride` times;
 * the others count *last times. */
size_t sb_obs_kept(const sb_obs_job *job, size_t sample, size_t *whole,
                   uint32_t *last);
/* How many of n values are below zero. */
size_t sb_obs_below(const float *x, size_t n);
/* The bar above which the `rank` outermost of n values on a side are; 0 if
 * there are not so many, or zeros among them. */
int32_t sb_obs_bar(const float *x, size_t n, bool low, double rank);
/* Guesses the bars of a thread that is about to look at n values. */
void sb_obs_guess(const sb_obs_job *job, sb_obs_lane *lane, const float *x,
                  size_t n);
/* After guessing: leaves what is above the observer's bars, of this many first
 * samples.  False if something is missing. */
bool sb_obs_guessed(sb_obs_job *job, size_t samples);

/* ---- the room -------------------------------------------------------------- */

float *sb_obs_room_lines(sb_observer *obs, size_t n);
/* This observer has something to count. */
void sb_obs_room_wait(sb_observer *obs);
/* This observer will not be there any more. */
void sb_obs_room_leave(sb_observer *obs);

/* ---- counting --------------------------------------------------------------
 */

/* The fraction of values that is outermost on a side (observer_tensor.c). */
double sb_obs_fraction(const sb_observer *obs);
/* How many of n values on a side shall pass the bar (observer_tensor.c). */
double sb_obs_want(const sb_observer *obs, double n, bool whole);
/* One line in how many of such samples is counted. */
size_t sb_obs_stride(const sb_observer *obs, size_t per_sample);
/* As many threads as are worth while for so many values. */
size_t sb_obs_lanes(const sb_observer *obs, size_t values);
/* Counts what waits: the lines, and the values above the bars. */
void sb_obs_count_waiting(sb_obs_job *job);
/* Counts all values of samples [begin, end) of the view. */
void sb_obs_count_all(const sb_obs_job *job, size_t begin, size_t end);

#endif
