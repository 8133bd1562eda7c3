/* sampler.h - choosing the next token. */
#ifndef SB_LLM_SAMPLER_H
#define SB_LLM_SAMPLER_H

#include "base/alloc.h"
#include "base/rng.h"

typedef struct sb_sampler {
    double temperature; /* 0: always the most likely token */
    size_t top_k;       /* the most likely ones only; 0: all */
    double top_p;       /* those that make up this share; 1: all */
    sb_rng rng;
    struct sb_candidate *room; /* grows with the vocabulary */
    size_t cap;
} sb_sampler;

/* Picks a token by its logit; NaN never is, and SB_BAD_MODEL if all are. */
SB_MUST_USE sb_status sb_sampler_pick(sb_ctx *ctx, sb_sampler *s,
                                      const float *logits, size_t n,
                                      uint32_t *out);
void sb_sampler_free(sb_ctx *ctx, sb_sampler *s);

#endif
