/* idx.h - the format of MNIST and Fashion-MNIST: a small header and bytes. */
#ifndef SB_DATA_IDX_H
#define SB_DATA_IDX_H

#include "base/file.h"

enum { SB_IDX_RANK = 4 };

typedef struct sb_idx {
    int rank;
    size_t dims[SB_IDX_RANK];
    const uint8_t *data; /* as many as the dimensions say */
    sb_mapping map;      /* the file, or */
    uint8_t *unpacked;   /* what was in it */
} sb_idx;

/* A file of unsigned bytes, also packed by gzip.  What does not have exactly
 * the size that its header announces is SB_BAD_DATA. */
SB_MUST_USE sb_status sb_idx_open(sb_ctx *ctx, const char *path, sb_idx *out);
void sb_idx_close(sb_ctx *ctx, sb_idx *idx);

#endif
