/* obs_tails.h - the largest values of either side that were ever seen.
 *
 * Above zero (zero included) and below, by magnitude: the SB_TAIL_KEEP largest
 * of each, exactly, in bounded memory.  A list takes in whatever is above its
 * bar.  Whoever knows from a histogram that enough values lie above a higher
 * bar raises it; when the list is full all the same, the largest are kept and
 * the bar is raised to the least of them.  After few batches hardly anything
 * passes. */
#ifndef SB_QUANT_OBS_TAILS_H
#define SB_QUANT_OBS_TAILS_H

#include "quant/obs_scan.h"

enum {
    SB_TAIL_KEEP = 1 << 13,        /* values a side; of several channels: */
    SB_TAIL_KEEP_LEAST = 1 << 10,  /* at least this many each */
    SB_TAIL_KEEP_BUDGET = 1 << 18, /* together, as long as that is possible */
    SB_TAIL_SLACK = 16,            /* written past the end before a decision */
    SB_TAIL_NONE = 0x7f7fffff,     /* a bar above which is nothing */
};

/* One side: bits of non-negative floats, which order like the floats. */
typedef struct sb_obs_tail {
    uint32_t *v;
    size_t n, cap;
    int32_t bar; /* what is not above it is not taken */
} sb_obs_tail;

typedef struct sb_obs_tails {
    size_t keep; /* values of each side that are surely there */
    sb_obs_tail high, low;
} sb_obs_tails;

/* How many a side are kept for each of so many channels. */
size_t sb_obs_tails_keep(int64_t channels);
/* An empty one. */
void sb_obs_tails_init(sb_obs_tails *t, size_t keep);
/* Empties it; the memory stays. */
void sb_obs_tails_clear(sb_obs_tails *t);
void sb_obs_tails_free(sb_ctx *ctx, sb_obs_tails *t);
size_t sb_obs_tails_bytes(const sb_obs_tails *t);

/* Can values of this range pass a bar? */
bool sb_obs_tails_want(const sb_obs_tails *t, sb_obs_keys keys);

/* Room for what n more values may bring.  After this taking them does not
 * fail. */
SB_MUST_USE sb_status sb_obs_tails_reserve(sb_ctx *ctx, sb_obs_tails *t,
                                           size_t n);
/* Takes what passes, of n values in a row. */
void sb_obs_tails_take(sb_obs_tails *t, const float *x, size_t n);
/* The same; returns their keys joined to `keys`. */
sb_obs_keys sb_obs_tails_look(sb_obs_tails *t, const float *x, size_t n,
                              sb_obs_keys keys);
/* Makes room for n more on either side, and SB_TAIL_SLACK, by cutting the lists
 * if need be; whether there is. */
bool sb_obs_tails_room(sb_obs_tails *t, size_t n);
/* Takes what passes of n_channel (at most SB_OBS_BLOCK) neighbouring channels,
 * each with its own list, in n_row rows that are `stride` apart. */
void sb_obs_tails_take_block(sb_obs_tails *t, const float *x, size_t n_row,
                             size_t stride, size_t n_channel);
/* Keeps what has to be kept; bars are at least where that ends. */
void sb_obs_tails_cut(sb_obs_tails *t);
/* Raises the bars; they never go down. */
void sb_obs_tails_raise(sb_obs_tails *t, int32_t high, int32_t low);
/* Puts what `from` has, which keeps at least as many, into `into`, which has
 * room for it. */
void sb_obs_tails_merge(sb_obs_tails *into, const sb_obs_tails *from);
/* The r-th largest magnitude (from 1) of the floats in x that are not below
 * zero, or that are (`low`).  There must be so many. */
float sb_obs_select(const void *x, size_t n, bool low, size_t r);

#endif
