/* Cutting a text into words, by the patterns that a tokenizer's file has. */
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "llm/tokenizer/tokenizer.h"

const char sb_gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
    "\\s+(?!\\S)|\\s+";
const char sb_punctuation_pattern[] = "\\p{P}|[$+<=>^`|~]";

struct sb_regex {
    pcre2_code *code;
    pcre2_match_data *match;
};

/* A pattern comes from a stranger: matching gives up after so many steps. */
enum { STEPS_MOST = 10 * 1000 * 1000, PATTERN_MOST = 1 << 16 };

void sb_regex_free(sb_ctx *ctx, struct sb_regex *regex)
{
    if (!regex)
        return;
    pcre2_match_data_free(regex->match);
    pcre2_code_free(regex->code);
    sb_free(ctx, regex);
}

static sb_status regex_compile(sb_ctx *ctx, const char *file,
                               const char *pattern, struct sb_regex *out)
{
    char why[128] = "";
    int error = 0;
    PCRE2_SIZE at = 0;

    if (strlen(pattern) > PATTERN_MOST)
        return sb_fail(ctx, SB_BAD_DATA, "%s: a pattern of %zu bytes", file,
                       strlen(pattern));
    out->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                              PCRE2_UTF | PCRE2_UCP, &error, &at, NULL);
    if (!out->code) {
        (void)pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
        return sb_fail(ctx, SB_BAD_DATA, "%s: pattern '%.64s': %s", file,
                       pattern, why);
    }
    (void)pcre2_jit_compile(out->code, PCRE2_JIT_COMPLETE);
    out->match = pcre2_match_data_create_from_pattern(out->code, NULL);
    return out->match ? SB_OK : sb_fail(ctx, SB_NO_MEMORY, "out of memory");
}

sb_status sb_tokenizer_add_cut(sb_tokenizer *t, const char *file,
                               const char *pattern, sb_cut_keep keep,
                               bool invert)
{
    if (t->n_cuts == SB_STEPS_MOST)
        return sb_fail(t->ctx, SB_UNSUPPORTED,
                       "%s: more than %d pre-tokenizers", file, SB_STEPS_MOST);
    const char *copy = sb_arena_str(&t->arena, pattern);
    struct sb_regex *regex = sb_alloc(t->ctx, 1, sizeof *regex);
    if (!regex || !copy) {
        sb_free(t->ctx, regex);
        return SB_NO_MEMORY;
    }
    sb_status status = regex_compile(t->ctx, file, pattern, regex);
    if (status != SB_OK) {
        sb_regex_free(t->ctx, regex);
        return status;
    }
    t->cuts[t->n_cuts++] = (sb_cut_step){regex, copy, keep, invert};
    return SB_OK;
}

/* ---- cutting ------------------------------------------------------------ */

static sb_status words_add(sb_ctx *ctx, sb_words *w, size_t begin, size_t end)
{
    if (begin == end)
        return SB_OK;
    SB_TRY(sb_grow(ctx, &w->begin, &w->cap_begin, w->n + 1, sizeof *w->begin));
    SB_TRY(sb_grow(ctx, &w->end, &w->cap_end, w->n + 1, sizeof *w->end));
    w->begin[w->n] = begin;
    w->end[w->n++] = end;
    return SB_OK;
}

void sb_words_free(sb_ctx *ctx, sb_words *w)
{
    sb_free(ctx, w->begin);
    sb_free(ctx, w->end);
    *w = (sb_words){0};
}

typedef struct cutter {
    sb_ctx *ctx;
    const sb_cut_step *step;
    pcre2_match_context *limits;
    sb_words *out;
    size_t base;    /* where the word begins */
    size_t pending; /* in it, what is not written yet */
} cutter;

static sb_status cut_put(cutter *c, size_t begin, size_t end)
{
    return words_add(c->ctx, c->out, c->base + begin, c->base + end);
}

/* The next match in [at, end) of a word, not empty; begin == end: none. */
static sb_status next_match(const cutter *c, const char *word, size_t at,
                            size_t end, size_t found[2])
{
    const struct sb_regex *r = c->step->regex;
    uint32_t how = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;

    found[0] = found[1] = end;
    int n = pcre2_match(r->code, (PCRE2_SPTR)word, end, at, how, r->match,
                        c->limits);
    if (n == PCRE2_ERROR_JIT_STACKLIMIT)
        n = pcre2_match(r->code, (PCRE2_SPTR)word, end, at, how | PCRE2_NO_JIT,
                        r->match, c->limits);
    if (n == PCRE2_ERROR_NOMATCH)
        return SB_OK;
    if (n < 0)
        return sb_fail(c->ctx,
                       n == PCRE2_ERROR_NOMEMORY ? SB_NO_MEMORY : SB_BAD_DATA,
                       "the tokenizer's pattern takes too long for this text");
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(r->match);
    found[0] = v[0];
    found[1] = v[1];
    return SB_OK;
}

/* A gap [gap, begin) and the match [begin, end) behind it. */
static sb_status cut_at(cutter *c, size_t gap, size_t begin, size_t end)
{
    size_t pending = c->pending;

    switch (c->step->keep) {
    case SB_CUT_WITH_PREVIOUS:
        c->pending = end;
        return cut_put(c, pending, end);
    case SB_CUT_WITH_NEXT:
        c->pending = begin;
        return cut_put(c, pending, begin);
    case SB_CUT_REMOVED:
        c->pending = end;
        return c->step->invert ? cut_put(c, begin, end)
                               : cut_put(c, gap, begin);
    default:
        c->pending = end;
        SB_TRY(cut_put(c, gap, begin));
        return cut_put(c, begin, end);
    }
}

/* Patterns look ahead, but not beyond their word. */
static sb_status cut_word(cutter *c, const char *word, size_t len)
{
    size_t gap = 0;

    c->pending = 0;
    while (gap < len) {
        size_t m[2];

        SB_TRY(next_match(c, word, gap, len, m));
        if (m[0] == m[1])
            break;
        SB_TRY(cut_at(c, gap, m[0], m[1]));
        gap = m[1];
    }
    if (c->step->invert && c->step->keep == SB_CUT_REMOVED)
        return SB_OK;
    return cut_put(c, c->pending, len);
}

static sb_status cut_all(cutter *c, const char *text, const sb_words *in)
{
    c->out->n = 0;
    for (size_t i = 0; i < in->n; i++) {
        if (i % 4096 == 0)
            SB_TRY(sb_ctx_poll(c->ctx));
        c->base = in->begin[i];
        SB_TRY(cut_word(c, text + c->base, in->end[i] - c->base));
    }
    return SB_OK;
}

sb_status sb_pretokenize(const sb_tokenizer *t, const char *text, size_t len,
                         sb_words *out)
{
    sb_words other = {0};
    cutter c = {.ctx = t->ctx, .limits = pcre2_match_context_create(NULL)};

    if (!c.limits)
        return sb_fail(t->ctx, SB_NO_MEMORY, "out of memory");
    (void)pcre2_set_match_limit(c.limits, STEPS_MOST);
    out->n = 0;
    sb_status status = words_add(t->ctx, out, 0, len);
    for (size_t i = 0; i < t->n_cuts && status == SB_OK; i++) {
        c.step = &t->cuts[i];
        c.out = &other;
        status = cut_all(&c, text, out);
        sb_words swap = *out;
        *out = other;
        other = swap;
    }
    pcre2_match_context_free(c.limits);
    sb_words_free(t->ctx, &other);
    return status;
}
