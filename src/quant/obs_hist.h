/* obs_hist.h - histograms that grow their range, one for each channel.
 *
 * The bins cut (-2^e, 2^e) evenly: half of them count values above zero by
 * their magnitude, half those below, and zero itself is counted apart.  When a
 * value does not fit, e grows, and neighbouring bins are added together until
 * it does.  Edges are powers of two times whole numbers, so the larger bins
 * hold whole smaller ones: the counts are those that would be there had the
 * final range been known from the start, whatever the order of the data.
 *
 * A histogram of a single channel has a table for each part of the work that
 * runs at a time; their sum counts.  More channels have one table each, and
 * the channels are the parts. */
#ifndef SB_QUANT_OBS_HIST_H
#define SB_QUANT_OBS_HIST_H

#include "quant/obs_scan.h"

enum {
    SB_HIST_BINS = 1 << 16,        /* of a single channel, both signs */
    SB_HIST_BINS_COARSE = 1 << 14, /* the same, where few values count */
    SB_HIST_BINS_MOST = 1 << 14,   /* of one of several channels */
    SB_HIST_BINS_LEAST = 1 << 11,  /* the same */
    SB_HIST_BINS_BUDGET = 1 << 20, /* together, as long as that is possible */
    SB_HIST_ZEROS = 16, /* slots for zeros: no two in a row collide */
    SB_HIST_PARTS = 8,  /* tables of a single channel, at most */
};

typedef struct sb_hist {
    sb_ctx *ctx;
    int64_t channels;
    uint32_t half; /* bins on each side of zero */
    int *exponent; /* [channels] e; SB_HIST_UNSET before the first value */
    /* Tables of 2 * half + SB_HIST_ZEROS counters for each channel, made when
     * needed: one for each part that counts, of a single channel; one for
     * all, of several.  The lower 16 bits of all counters lie together, the
     * higher after them, so that what is touched at random is small.  Counts
     * that would overflow are moved to `carry`, made when needed. */
    uint16_t *tables[SB_HIST_PARTS];
    bool wide[SB_HIST_PARTS]; /* some higher bits are not zero */
    bool has_low;             /* some value was below zero */
    uint64_t *carry;
    uint64_t room; /* elements that surely still fit the tables */
} sb_hist;

enum { SB_HIST_UNSET = INT32_MIN };

SB_MUST_USE sb_status sb_hist_init(sb_ctx *ctx, sb_hist *h, int64_t channels);
void sb_hist_free(sb_ctx *ctx, sb_hist *h);
size_t sb_hist_bytes(const sb_hist *h);

/* Makes sure that `parts` tables are there and that `elements` more can be
 * counted.  After this counting does not fail. */
SB_MUST_USE sb_status sb_hist_reserve(sb_ctx *ctx, sb_hist *h, int parts,
                                      uint64_t elements);

/* Makes do with SB_HIST_BINS_COARSE bins, of a single channel. */
SB_MUST_USE sb_status sb_hist_coarsen(sb_ctx *ctx, sb_hist *h);

/* Widens channel c until values in `keys` fit. */
void sb_hist_fit(sb_hist *h, int64_t c, sb_obs_keys keys);
/* Do they fit already? */
bool sb_hist_fits(const sb_hist *h, int64_t c, sb_obs_keys keys);

/* Counts n values that fit into the table of this part of a single channel. */
void sb_hist_add(sb_hist *h, int part, const float *x, size_t n);
/* The same into the first table, each of them `weight` times, at most 65535;
 * without those above zero whose key is above `high` and those below it whose
 * magnitude's key is above `low`. */
void sb_hist_add_below(sb_hist *h, const float *x, size_t n, uint32_t weight,
                       int32_t high, int32_t low);
/* Counts n values that fit into channel c of several. */
void sb_hist_add_channel(sb_hist *h, int64_t c, const float *x, size_t n);
/* Counts rows of n_channel (at most SB_OBS_BLOCK) channels from c on. */
void sb_hist_add_block(sb_hist *h, int64_t c, const float *x, size_t n_row,
                       size_t stride, size_t n_channel);

/* Counts of channel c summed over its tables, [2 * half] (above zero, then
 * below, both by magnitude), and of zeros. */
void sb_hist_counts(const sb_hist *h, int64_t c, uint64_t *out,
                    uint64_t *zeros);
/* Adds counts made with exponent e, of `from_half` bins a side (at least as
 * many as here), to channel c. */
SB_MUST_USE sb_status sb_hist_add_counts(sb_ctx *ctx, sb_hist *h, int64_t c,
                                         int e, uint32_t from_half,
                                         const uint64_t *counts,
                                         uint64_t zeros);

/* The key below which, or at which, no value of this side of channel c is among
 * the `keep` outermost: a value's magnitude must be above it, as bits.  At the
 * start of the side (-1, or 0 below zero) if there are not so many. */
int32_t sb_hist_bar(const sb_hist *h, int64_t c, bool low, uint64_t keep);

/* Width of the bins of channel c; 0 while it has none. */
double sb_hist_width(const sb_hist *h, int64_t c);
/* Centres and counts of the bins that are not empty, ascending, centres kept
 * within `range`; returns how many.  Room for 2 * half + 2 is needed. */
int64_t sb_hist_values(const sb_hist *h, int64_t c, sb_range range, float *x,
                       double *count);

#endif
