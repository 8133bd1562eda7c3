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
    float *scratch;      /* of sb_cached_bytes() */
    size_t lanes;        /* threads at most */
    const int64_t *lens; /* positions that count, by batch */
    /* (optional) That of the first query, by batch.  Without it the queries
     * are at the last q_len positions that count. */
    const int64_t *first;
    int64_t left; /* positions before its own that a query sees; -1: all */
    bool all;     /* and all behind it */
    bool sink;    /* weights sum to one with that of a score more, the head's
                     in `sinks`, or 0 */
    const float *sinks;
    /* (optional) Adds to the scores of a query with the keys from `begin`. */
    void (*bias)(const void *arg, int64_t batch, int64_t head, int64_t query,
                 int64_t begin, float *row, int64_t n);
    const void *bias_arg;
} sb_cached_args;

size_t sb_cached_bytes(const sb_attention *a, size_t lanes);
/* A query that sees nothing gives zeros. */
void sb_cached_attention(sb_ctx *ctx, const sb_attention *a,
                         const sb_cached_args *args);

#endif
