/* journal.h - a folder of what rounding has decided and blocks have learned so
 * far, so that a run that was ended goes on where it was, and so that weights
 * need not stay in memory.
 *
 * It holds one file for each finished layer or block, which has its name only
 * when it is complete, and one that says of which run they are: other weights,
 * samples or settings make another one.  A run whose products of matrices would
 * be made another way than before (bfloat16, on processors that have it;
 * --exact) does not go on. */
#ifndef SB_QUANT_RECONSTRUCT_JOURNAL_H
#define SB_QUANT_RECONSTRUCT_JOURNAL_H

#include "quant/reconstruct/reconstruct.h"

typedef struct sb_journal {
    sb_quant_model *qm;
    const char *folder; /* NULL: none is kept */
    const char *kind;   /* of files: what their names begin with */
    size_t found;       /* layers or blocks of an earlier run */
} sb_journal;

/* A piece of a file. */
typedef struct sb_journal_part {
    void *data;
    size_t bytes;
} sb_journal_part;

/* Makes the folder; files of another run in it are removed.  SB_UNSUPPORTED if
 * they are of this run, but computed another way. */
SB_MUST_USE sb_status sb_journal_open(sb_quant_model *qm,
                                      const sb_round_layer *layers, size_t n,
                                      sb_journal *j);
/* The weight, scales and bias of layer `at`, if they are there. */
SB_MUST_USE sb_status sb_journal_get(sb_journal *j, const sb_round_layer *l,
                                     size_t at, bool *there);
/* Writes those that a layer has now; the weight then lies in the file. */
SB_MUST_USE sb_status sb_journal_put(const sb_journal *j,
                                     const sb_round_layer *l, size_t at);

/* The same for n blocks that are learned so. */
SB_MUST_USE sb_status sb_journal_open_blocks(sb_quant_model *qm,
                                             const sb_quant_blockwise *how,
                                             size_t n, sb_journal *j);
/* Fills the parts from file `at`, if it is there and as large as they are. */
SB_MUST_USE sb_status sb_journal_read(sb_journal *j, size_t at,
                                      const sb_journal_part *parts, size_t n,
                                      bool *there);
SB_MUST_USE sb_status sb_journal_write(const sb_journal *j, size_t at,
                                       const sb_journal_part *parts, size_t n);

#endif
