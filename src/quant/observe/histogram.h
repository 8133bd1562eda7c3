/* histogram.h - histograms whose range grows, one for each channel.
 *
 * The bins divide (-2^e, 2^e) evenly: half of them count values above zero by
 * their magnitude, half those below, and zeros are counted apart.  When a
 * value does not fit, e grows, and neighboring bins are added together until
 * it does.  Edges are whole multiples of powers of two, so the larger bins
 * hold whole smaller ones: the counts are those that would be there had the
 * final range been known from the start, whatever the order of the data.
 *
 * Every value is counted.  Several threads count one channel into tables of
 * their own, which are added up afterwards. */
#ifndef SB_QUANT_OBSERVE_HISTOGRAM_H
#define SB_QUANT_OBSERVE_HISTOGRAM_H

#include "quant/observe/scan.h"

enum {
    SB_HISTOGRAM_BINS = 1 << 16,        /* of a single channel, both signs */
    SB_HISTOGRAM_BINS_MOST = 1 << 14,   /* of one of several channels */
    SB_HISTOGRAM_BINS_LEAST = 1 << 11,  /* the same */
    SB_HISTOGRAM_BINS_BUDGET = 1 << 20, /* of all channels, if possible */
    SB_HISTOGRAM_ZEROS = 16, /* slots for zeros: no two in a row collide */
    SB_HISTOGRAM_UNSET = INT32_MIN,
};

typedef struct sb_histogram {
    int64_t channels;
    uint32_t half; /* bins on each side of zero */
    int *exponent; /* [channels] e; SB_HISTOGRAM_UNSET: no value yet */
    /* [channels, 2 * half + SB_HISTOGRAM_ZEROS], pages that are taken when
     * touched.  Counts that might overflow are moved to `carry`, made when
     * needed. */
    uint32_t *counts;
    uint64_t *carry;
    uint64_t unused; /* elements that surely still fit `counts` */
} sb_histogram;

SB_MUST_USE sb_status sb_histogram_init(sb_ctx *ctx, sb_histogram *h,
                                        int64_t channels);
void sb_histogram_free(sb_ctx *ctx, sb_histogram *h);
size_t sb_histogram_bytes(const sb_histogram *h);

/* ---- counting ------------------------------------------------------------ */

/* Makes sure that `elements` more of a channel can be counted.  After this
 * counting does not fail. */
SB_MUST_USE sb_status sb_histogram_reserve(sb_ctx *ctx, sb_histogram *h,
                                           uint64_t elements);
/* Widens channel c until values within `m` fit. */
void sb_histogram_fit(sb_histogram *h, int64_t c, sb_minmax m);
/* Do they fit already? */
bool sb_histogram_fits(const sb_histogram *h, int64_t c, sb_minmax m);

/* Where values of a channel are counted: in the histogram, or in a table of
 * sb_histogram_table_size() zeros, to be added to it by
 * sb_histogram_add_table(). */
typedef struct sb_histogram_table {
    uint32_t *counts;
    uint32_t half;
    float factor; /* bins per unit */
} sb_histogram_table;

sb_histogram_table sb_histogram_table_of(const sb_histogram *h, int64_t c);
size_t sb_histogram_table_size(const sb_histogram *h);
/* Counts n values that fit. */
void sb_histogram_count(const sb_histogram_table *t, const float *x, size_t n);
/* Counts rows of n_channel (at most SB_SCAN_BLOCK) channels, `stride` apart,
 * each into its own table. */
void sb_histogram_count_rows(const sb_histogram_table *t, const float *x,
                             size_t n_row, size_t stride, size_t n_channel);
/* Adds a table of values within `m` to channel c and makes it zeros again. */
void sb_histogram_add_table(sb_histogram *h, int64_t c, uint32_t *table,
                            sb_minmax m);

/* ---- results ------------------------------------------------------------- */

/* Counts of channel c, [2 * half] (above zero, then below, both by magnitude),
 * and of zeros. */
void sb_histogram_counts(const sb_histogram *h, int64_t c, uint64_t *out,
                         uint64_t *zeros);
/* Adds such counts, made with exponent e, to channel c. */
SB_MUST_USE sb_status sb_histogram_add_counts(sb_ctx *ctx, sb_histogram *h,
                                              int64_t c, int e,
                                              const uint64_t *counts,
                                              uint64_t zeros);
/* How many values of channel c are not below zero, or are (`low`). */
uint64_t sb_histogram_side(const sb_histogram *h, int64_t c, bool low);
/* Width of the bins of channel c; 0 while it has none. */
double sb_histogram_width(const sb_histogram *h, int64_t c);
/* Centers and counts of the bins that are not empty, ascending, centers kept
 * within `range`; returns how many.  Memory for 2 * half + 2 is needed. */
int64_t sb_histogram_values(const sb_histogram *h, int64_t c, sb_range range,
                            float *x, double *count);

#endif
