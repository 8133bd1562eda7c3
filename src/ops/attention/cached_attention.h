/* cached_attention.h - attention over a cache of which only a part is filled.
 *
 * The cache has room for many positions, and how many count is known at the
 * run.  So that the work is in proportion to those, each query walks over the
 * keys that it sees, instead of products over the whole cache. */
#ifndef SB_OPS_ATTENTION_CACHED_ATTENTION_H
#define SB_OPS_ATTENTION_CACHED_ATTENTION_H

#include "ops/attention/attention_util.h"

typedef struct sb_cached_args {
    const float *q, *k, *v;
    float *y;
    float *scratch; /* k_len floats for each of `lanes` threads */
    size_t lanes;
    const int64_t *lens; /* positions that count, by batch; the last q_len of
                            them are those of the queries */
    int64_t left;        /* positions before its own that a query sees; -1:
                            all */
} sb_cached_args;

/* Causal; a query that sees nothing gives zeros. */
void sb_cached_attention(sb_ctx *ctx, const sb_attention *a,
                         const sb_cached_args *args);

#endif
