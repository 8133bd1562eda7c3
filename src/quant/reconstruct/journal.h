/* journal.h - a folder of what rounding has decided so far, so that a run that
 * was ended goes on where it was, and so that weights need not stay in memory.
 *
 * It holds one file for each finished layer, which has its name only when it is
 * complete, and one that says of which run they are: other weights, samples or
 * settings make another one.  A run whose products of matrices would be made
 * another way than before (bfloat16, on processors that have it; --exact) does
 * not go on. */
#ifndef SB_QUANT_RECONSTRUCT_JOURNAL_H
#define SB_QUANT_RECONSTRUCT_JOURNAL_H

#include "quant/reconstruct/reconstruct.h"

typedef struct sb_journal {
    sb_quant_model *qm;
    const char *folder; /* NULL: none is kept */
    size_t found;       /* layers of an earlier run */
} sb_journal;

/* Makes the folder; files of another run in it are removed.  SB_UNSUPPORTED if
 * they are of this run, but computed another way. */
SB_MUST_USE sb_status sb_journal_open(sb_quant_model *qm,
                                      const sb_round_layer *layers, size_t n,
                                      sb_journal *j);
/* The weight and scales of layer `at`, if they are there. */
SB_MUST_USE sb_status sb_journal_get(sb_journal *j, const sb_round_layer *l,
                                     size_t at, bool *there);
/* Writes those that a layer has now; the weight then lies in the file. */
SB_MUST_USE sb_status sb_journal_put(const sb_journal *j,
                                     const sb_round_layer *l, size_t at);

#endif
