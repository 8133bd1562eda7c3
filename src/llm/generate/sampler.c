/* Temperature, then the most likely tokens by number, then by share. */
#include "llm/generate/sampler.h"

#include <math.h>
#include <stdlib.h>

/* Less likely than the best by this factor in logarithms: never picked. */
#define NEGLIGIBLE 40.0

struct sb_candidate {
    double p;
    uint32_t id;
};

static int by_likelihood(const void *a, const void *b)
{
    const struct sb_candidate *x = a, *y = b;

    if (x->p > y->p || x->p < y->p)
        return x->p > y->p ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static uint32_t sampler_best(const float *logits, size_t n)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best] || isnan(logits[best]))
            best = i;
    return best;
}

sb_status sb_sampler_pick(sb_ctx *ctx, sb_sampler *s, const float *logits,
                          size_t n, uint32_t *out)
{
    uint32_t best = sampler_best(logits, n);
    double sum = 0, share = 0;
    size_t count = 0;

    if (n == 0 || isnan(logits[best]))
        return sb_fail(ctx, SB_BAD_MODEL,
                       "none of %zu logits is a number: a weight is NaN, or "
                       "one is too large",
                       n);
    *out = best;
    if (!(s->temperature > 0) || !isfinite(logits[best]))
        return SB_OK;
    SB_TRY(sb_grow(ctx, &s->room, &s->cap, n, sizeof *s->room));
    for (uint32_t i = 0; i < n; i++) {
        double x = ((double)logits[i] - (double)logits[best]) / s->temperature;

        if (x > -NEGLIGIBLE)
            s->room[count++] = (struct sb_candidate){exp(x), i};
    }
    if (s->top_k || s->top_p < 1)
        qsort(s->room, count, sizeof *s->room, by_likelihood);
    count = s->top_k && s->top_k < count ? s->top_k : count;
    for (size_t i = 0; i < count; i++)
        sum += s->room[i].p;
    size_t keep = 0;
    while (keep < count && (keep == 0 || share < s->top_p * sum))
        share += s->room[keep++].p;
    double at = sb_rng_uniform(&s->rng) * share;
    for (size_t i = 0; i < keep; i++) {
        *out = s->room[i].id;
        at -= s->room[i].p;
        if (at < 0)
            break;
    }
    return SB_OK;
}

void sb_sampler_free(sb_ctx *ctx, sb_sampler *s)
{
    sb_free(ctx, s->room);
    s->room = NULL;
    s->cap = 0;
}
