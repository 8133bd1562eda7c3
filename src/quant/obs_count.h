/* obs_count.h - counts a tensor, or a sample of it, into a histogram; for
 * observer_tensor.c, which says why and when. */
#ifndef SB_QUANT_OBS_COUNT_H
#define SB_QUANT_OBS_COUNT_H

#include "quant/observer_state.h"

enum {
    SB_OBS_LINE = 16,
    /* values */ SB_OBS_ITEM = 1 << 15 /* for a thread */
};

typedef struct sb_obs_count {
    sb_observer *obs;
    const float *data; /* of the first sample */
    size_t first;      /* its number among all ever seen */
    size_t per_sample;
    size_t stride;
    size_t groups; /* of `stride` lines in a sample */
    size_t items;  /* of a sample */
    size_t n;      /* values */
    bool below;    /* count only what is not above the bars */
} sb_obs_count;

/* As many threads as are worth while for so many values. */
size_t sb_obs_lanes(const sb_observer *obs, size_t values);
/* Sets the stride and what follows from it. */
void sb_obs_count_stride(sb_obs_count *c, size_t stride);
/* Counts all values; or a line of each group, and with `below` only what is
 * not above the observer's bars. */
void sb_obs_count_all(sb_obs_count *c);
void sb_obs_count_some(sb_obs_count *c);

#endif
