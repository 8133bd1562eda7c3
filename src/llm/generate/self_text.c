/* Many texts are written at once, token by token: weights are read once for all
 * of them.  Each has random numbers of its own. */
#include "llm/generate/self_text.h"

#include "llm/generate/sampler.h"
#include "llm/kv_cache.h"

enum { SELF_BATCH = 32 };

typedef struct self_text {
    sb_ctx *ctx;
    const sb_tokenizer *tokenizer;
    sb_kv_cache cache;
    sb_sampler sampler;
    sb_rng rng[SELF_BATCH];
    int64_t next[SELF_BATCH];
    sb_ids begin; /* the tokens that begin a text; none: any token may */
    size_t window;
    int64_t *ids; /* [batch, window] of these texts */
} self_text;

/* The first token of a row. */
static int64_t self_first(self_text *s, size_t row, size_t tokens)
{
    return s->begin.n > 0 ? s->begin.v[0]
                          : (int64_t)sb_rng_below(&s->rng[row], tokens);
}

/* What follows in a row: a text that has ended is followed by another. */
static sb_status self_pick(self_text *s, size_t row, const float *logits,
                           size_t n, int64_t last, int64_t *next)
{
    uint32_t id = 0;

    if (s->begin.n > 0 && last != s->begin.v[0] &&
        sb_tokenizer_is_end(s->tokenizer, (uint32_t)last)) {
        *next = s->begin.v[0];
        return SB_OK;
    }
    s->sampler.rng = s->rng[row];
    SB_TRY(sb_sampler_pick(s->ctx, &s->sampler, logits, n, &id));
    s->rng[row] = s->sampler.rng;
    *next = id;
    return SB_OK;
}

/* Rows [first, first + count) of all. */
static sb_status self_rows(self_text *s, size_t first, size_t count,
                           uint64_t seed)
{
    sb_kv_cache_rewind(&s->cache, 0);
    for (size_t r = 0; r < SELF_BATCH; r++) {
        sb_rng_init(&s->rng[r], seed + first + r);
        s->next[r] = self_first(s, r, s->tokenizer->n_real);
    }
    for (size_t at = 0; at < s->window; at++) {
        const sb_tensor *logits = NULL;

        for (size_t r = 0; r < count; r++)
            s->ids[(first + r) * s->window + at] = s->next[r];
        if (at + 1 == s->window)
            break;
        SB_TRY(sb_kv_cache_step(&s->cache, s->next, &logits));
        size_t n = (size_t)logits->dims[logits->rank - 1];
        for (size_t r = 0; r < SELF_BATCH; r++)
            SB_TRY(self_pick(s, r, (const float *)logits->data + r * n, n,
                             s->next[r], &s->next[r]));
    }
    return SB_OK;
}

sb_status sb_self_text(const sb_graph *graph, const sb_tokenizer *tokenizer,
                       size_t n, size_t window, uint64_t seed, int64_t *ids)
{
    self_text s = {.ctx = graph->ctx,
                   .tokenizer = tokenizer,
                   .sampler = {.temperature = 1, .top_p = 1},
                   .window = window,
                   .ids = ids};
    sb_status status = sb_tokenize(tokenizer, "", 0, true, &s.begin);

    if (status == SB_OK)
        status =
            sb_kv_cache_create(graph, (int64_t)window, SELF_BATCH, &s.cache);
    for (size_t i = 0; i < n && status == SB_OK; i += SELF_BATCH) {
        status = sb_progress(s.ctx, "writing", i, n);
        if (status == SB_OK)
            status =
                self_rows(&s, i, n - i < SELF_BATCH ? n - i : SELF_BATCH, seed);
    }
    sb_kv_cache_free(&s.cache);
    sb_sampler_free(s.ctx, &s.sampler);
    sb_free(s.ctx, s.begin.v);
    return status;
}
