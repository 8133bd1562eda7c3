/* Unigram model: of all ways to cut a word the one whose tokens have the
 * highest sum of scores (Viterbi). */
#include "llm/tokenizer/tokenizer.h"

#include <math.h>
#include <string.h>

/* SentencePiece rates unknown characters this much below the worst token. */
enum { UNKNOWN_PENALTY = 10 };

typedef struct best {
    double score;
    size_t from;
    uint32_t id; /* SB_TOKEN_NONE: unknown */
} best;

static void relax_best(best *to, double score, size_t from, uint32_t id)
{
    if (score > to->score)
        *to = (best){score, from, id};
}

static void find_best(const sb_tokenizer *t, const char *word, size_t len,
                      best *b)
{
    double unknown = t->least_score - UNKNOWN_PENALTY;

    for (size_t i = 1; i <= len; i++)
        b[i].score = (double)-INFINITY;
    b[0].score = 0;
    for (size_t at = 0, step = 0; at < len; at += step) {
        size_t most = len - at < t->longest ? len - at : t->longest;
        bool single = false;

        step = sb_utf8_size(word + at, len - at);
        step = step ? step : 1;
        for (size_t n = step; n <= most; n++) {
            uint32_t id = sb_tokenizer_find(t, word + at, n);
            if (id == SB_TOKEN_NONE || t->tokens[id].kind != SB_TOKEN_NORMAL)
                continue;
            single = single || n == step;
            relax_best(&b[at + n], b[at].score + t->tokens[id].score, at, id);
        }
        if (!single)
            relax_best(&b[at + step], b[at].score + unknown, at, SB_TOKEN_NONE);
    }
}

/* Turns the way around, so that it can be read from the start. */
static sb_status unigram_put(const sb_tokenizer *t, const char *word,
                             size_t len, best *b, sb_ids *out)
{
    size_t next = len;

    for (size_t at = len; at > 0;) {
        size_t from = b[at].from;
        b[at].from = next;
        next = at;
        at = from;
    }
    for (size_t begin = 0, at = next; begin < len;) {
        size_t then = b[at].from;

        if (b[at].id != SB_TOKEN_NONE)
            SB_TRY(sb_ids_add(t->ctx, out, b[at].id));
        else
            SB_TRY(sb_tokenizer_put_unknown(t, word + begin, at - begin, out));
        begin = at;
        at = then;
    }
    return SB_OK;
}

sb_status sb_unigram_encode(const sb_tokenizer *t, const char *word, size_t len,
                            sb_ids *out)
{
    if (len == 0)
        return SB_OK;
    best *b = sb_alloc(t->ctx, len + 1, sizeof *b);
    if (!b)
        return SB_NO_MEMORY;
    find_best(t, word, len, b);
    sb_status status = unigram_put(t, word, len, b, out);
    sb_free(t->ctx, b);
    return status;
}
