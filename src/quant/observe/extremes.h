/* extremes.h - the largest values of either sign that were ever seen.
 *
 * Above zero (zero included) and below, by magnitude: the `keep` largest of
 * each, exactly, in bounded memory.  A list takes what is above its threshold.
 * When it is full, the largest are kept and the threshold becomes the least of
 * them, so that soon hardly anything passes.  Which values are kept does not
 * depend on the order they came in, nor on how lists were merged. */
#ifndef SB_QUANT_OBSERVE_EXTREMES_H
#define SB_QUANT_OBSERVE_EXTREMES_H

#include "quant/observe/scan.h"

enum {
    SB_EXTREMES_KEEP = 1 << 13,        /* values of each sign; for several */
    SB_EXTREMES_KEEP_LEAST = 1 << 10,  /* channels at least this many each, */
    SB_EXTREMES_KEEP_BUDGET = 1 << 18, /* and this many of all, if possible */
};

/* One sign: bits of non-negative floats, which order like the floats.  The
 * `keep` largest are there, and up to half as many more. */
typedef struct sb_extremes_side {
    uint32_t *v;
    size_t n, cap;
    int32_t threshold; /* what is not above it is not taken */
} sb_extremes_side;

typedef struct sb_extremes {
    size_t keep;
    sb_extremes_side high, low;
} sb_extremes;

/* How many of each sign are kept for each of so many channels. */
size_t sb_extremes_keep(int64_t channels);
/* An empty one. */
void sb_extremes_init(sb_extremes *e, size_t keep);
void sb_extremes_free(sb_ctx *ctx, sb_extremes *e);
size_t sb_extremes_bytes(const sb_extremes *e);

/* Memory for what n more values may bring.  After this taking them does not
 * fail. */
SB_MUST_USE sb_status sb_extremes_reserve(sb_ctx *ctx, sb_extremes *e,
                                          size_t n);
/* Can values within `m` be above a threshold? */
bool sb_extremes_wants(const sb_extremes *e, sb_minmax m);
/* Takes what is above the thresholds, of n values in a row. */
void sb_extremes_take(sb_extremes *e, const float *x, size_t n);
/* The same of n_channel (at most SB_SCAN_BLOCK) neighboring channels, each with
 * its own lists, in n_row rows that are `stride` apart. */
void sb_extremes_take_rows(sb_extremes *e, const float *x, size_t n_row,
                           size_t stride, size_t n_channel);
/* Empties `e`, for values that will be merged into `into`. */
void sb_extremes_begin(sb_extremes *e, const sb_extremes *into);
/* Takes what `from` holds. */
void sb_extremes_merge(sb_extremes *into, const sb_extremes *from);

/* Drops a list for good: nothing is above its threshold any more. */
void sb_extremes_drop(sb_ctx *ctx, sb_extremes_side *side);

/* The r-th largest magnitude (from 1) of the floats in x that are not below
 * zero, or that are (`low`).  There must be so many. */
float sb_extremes_select(const void *x, size_t n, bool low, size_t r);

#endif
