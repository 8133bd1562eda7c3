/* Byte pair encoding: of all neighbors that may be merged those with the lowest
 * priority, leftmost first, become one, until none are left.
 *
 * Symbols are a linked list, candidates a heap; a candidate whose symbols have
 * changed since is dropped when it comes up.  Where no merge joins two bytes
 * that are neighbors, what is before is merged first: so the heap stays small
 * also where a whole text is one word, as in SentencePiece, and n characters
 * take n log n at most. */
#include <stdlib.h>
#include <string.h>

#include "llm/tokenizer/tokenizer.h"

/* ---- merges ------------------------------------------------------------- */

struct sb_merges {
    sb_merge *slots;
    size_t cap, n;
    bool joins[256][256]; /* the last byte of a left token, the first of a right
                             one */
};

static sb_merge *merge_slot(const struct sb_merges *m, uint32_t left,
                            uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(h >> 20) & (m->cap - 1);

    while (m->slots[i].into != SB_TOKEN_NONE &&
           (m->slots[i].left != left || m->slots[i].right != right))
        i = (i + 1) & (m->cap - 1);
    return &m->slots[i];
}

static sb_status merges_enlarge(sb_ctx *ctx, struct sb_merges *m)
{
    sb_merge *was = m->slots;
    size_t n = m->cap, cap = n ? 2 * n : 1024;
    sb_merge *slots = sb_alloc_raw(ctx, cap, sizeof *slots);

    if (!slots)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < cap; i++)
        slots[i].into = SB_TOKEN_NONE;
    m->slots = slots;
    m->cap = cap;
    for (size_t i = 0; i < n; i++)
        if (was[i].into != SB_TOKEN_NONE)
            *merge_slot(m, was[i].left, was[i].right) = was[i];
    sb_free(ctx, was);
    return SB_OK;
}

/* Is there a merge of a token that ends as `left` does with one that begins as
 * `right` does? */
static bool *merge_joins(const sb_tokenizer *t, uint32_t left, uint32_t right)
{
    const sb_token *a = &t->tokens[left], *b = &t->tokens[right];

    return &t->merges->joins[(unsigned char)a->text[a->len - 1]]
                            [(unsigned char)b->text[0]];
}

static sb_status merges_put(sb_tokenizer *t, const sb_merge *add)
{
    if (!t->merges) {
        t->merges = sb_alloc(t->ctx, 1, sizeof *t->merges);
        if (!t->merges)
            return SB_NO_MEMORY;
    }
    struct sb_merges *m = t->merges;
    if (2 * (m->n + 1) > m->cap)
        SB_TRY(merges_enlarge(t->ctx, m));
    sb_merge *slot = merge_slot(m, add->left, add->right);
    if (slot->into == SB_TOKEN_NONE) {
        *slot = *add;
        *merge_joins(t, add->left, add->right) = true;
        m->n++;
    }
    return SB_OK;
}

void sb_merges_free(sb_ctx *ctx, struct sb_merges *m)
{
    if (m)
        sb_free(ctx, m->slots);
    sb_free(ctx, m);
}

sb_status sb_merges_add(sb_tokenizer *t, uint32_t left, uint32_t right,
                        double priority, bool *known)
{
    *known = left != SB_TOKEN_NONE && right != SB_TOKEN_NONE;
    if (!*known)
        return SB_OK;
    const sb_token *a = &t->tokens[left], *b = &t->tokens[right];
    char small[256], *text = small;
    size_t n = (size_t)a->len + b->len;

    if (a->len == 0 || b->len == 0)
        return SB_OK; /* no symbol is empty */
    if (n > sizeof small)
        text = sb_alloc_raw(t->ctx, n, 1);
    if (!text)
        return SB_NO_MEMORY;
    memcpy(text, a->text, a->len);
    memcpy(text + a->len, b->text, b->len);
    sb_merge m = {left, right, sb_tokenizer_find(t, text, n), priority};
    if (text != small)
        sb_free(t->ctx, text);
    *known = m.into != SB_TOKEN_NONE;
    return *known ? merges_put(t, &m) : SB_OK;
}

/* By priority; of equals those of lower tokens first, so that there is one
 * order. */
static int merge_order(const void *a, const void *b)
{
    const sb_merge *x = a, *y = b;

    if (x->priority < y->priority || x->priority > y->priority)
        return x->priority < y->priority ? -1 : 1;
    if (x->into != y->into)
        return x->into < y->into ? -1 : 1;
    if (x->left != y->left)
        return x->left < y->left ? -1 : 1;
    return x->right < y->right ? -1 : x->right > y->right;
}

sb_status sb_merges_list(const sb_tokenizer *t, sb_merge **out, size_t *n)
{
    size_t cap = t->merges ? t->merges->cap : 0, used = 0;
    sb_merge *list =
        sb_alloc_raw(t->ctx, t->merges ? t->merges->n + 1 : 1, sizeof *list);

    if (!list)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < cap; i++)
        if (t->merges->slots[i].into != SB_TOKEN_NONE)
            list[used++] = t->merges->slots[i];
    qsort(list, used, sizeof *list, merge_order);
    *out = list;
    *n = used;
    return SB_OK;
}

/* The token of `text`; a character that is none becomes a virtual one. */
static sb_status part_of(sb_tokenizer *t, const char *text, size_t len,
                         uint32_t *out)
{
    *out = sb_tokenizer_find(t, text, len);
    if (*out != SB_TOKEN_NONE || sb_utf8_size(text, len) != len)
        return SB_OK;
    if (2 * (t->n + 1) > t->n_slots)
        return SB_OK; /* more characters than tokens: not a real vocabulary */
    SB_TRY(sb_tokenizer_add(t, text, len, SB_TOKEN_VIRTUAL, 0));
    *out = (uint32_t)t->n - 1;
    sb_tokenizer_index_one(t, *out);
    return SB_OK;
}

static bool takes_part(const sb_token *k)
{
    return k->kind == SB_TOKEN_NORMAL || k->kind == SB_TOKEN_USER ||
           k->kind == SB_TOKEN_UNUSED;
}

/* Every way to cut a token into two that exist. */
sb_status sb_merges_from_scores(sb_tokenizer *t)
{
    for (uint32_t id = 0; id < t->n_real; id++) {
        const sb_token k = t->tokens[id];
        size_t step = 0;

        if (id % 4096 == 0)
            SB_TRY(sb_ctx_poll(t->ctx));
        if (k.kind != SB_TOKEN_NORMAL && k.kind != SB_TOKEN_USER)
            continue;
        for (size_t at = 0; at < k.len; at += step) {
            uint32_t left = SB_TOKEN_NONE, right = SB_TOKEN_NONE;

            step = sb_utf8_size(k.text + at, k.len - at);
            step = step ? step : 1;
            if (at == 0)
                continue;
            SB_TRY(part_of(t, k.text, at, &left));
            if (left != SB_TOKEN_NONE)
                SB_TRY(part_of(t, k.text + at, k.len - at, &right));
            if (right != SB_TOKEN_NONE) {
                const sb_merge m = {left, right, id, -k.score};
                SB_TRY(merges_put(t, &m));
            }
        }
    }
    return SB_OK;
}

/* ---- one word ----------------------------------------------------------- */

enum { LIST_END = -1 };

typedef struct symbol {
    int64_t previous, next;
    uint32_t id; /* SB_TOKEN_NONE: an unknown character */
    uint32_t at, len;
} symbol;

typedef struct candidate {
    double priority;
    int64_t at; /* of the left symbol */
    uint32_t left, right, into;
} candidate;

typedef struct word_state {
    const sb_tokenizer *t;
    symbol *symbols;
    int64_t n;
    candidate *heap;
    size_t n_heap, cap_heap;
} word_state;

static bool comes_before(const candidate *a, const candidate *b)
{
    return a->priority < b->priority ||
           (!(b->priority < a->priority) && a->at < b->at);
}

static sb_status heap_push(word_state *w, const candidate *c)
{
    SB_TRY(sb_grow(w->t->ctx, &w->heap, &w->cap_heap, w->n_heap + 1,
                   sizeof *w->heap));
    size_t i = w->n_heap++;
    for (; i > 0 && comes_before(c, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = *c;
    return SB_OK;
}

static candidate heap_pop(word_state *w)
{
    candidate top = w->heap[0], last = w->heap[--w->n_heap];
    size_t i = 0;

    for (size_t k = 1; k < w->n_heap; k = 2 * i + 1) {
        if (k + 1 < w->n_heap && comes_before(&w->heap[k + 1], &w->heap[k]))
            k++;
        if (!comes_before(&w->heap[k], &last))
            break;
        w->heap[i] = w->heap[k];
        i = k;
    }
    w->heap[i] = last;
    return top;
}

/* The merge of symbol `i` with the one behind it, if there is one. */
static sb_status offer_merge(word_state *w, int64_t i)
{
    int64_t next = i == LIST_END ? LIST_END : w->symbols[i].next;

    if (next == LIST_END || w->symbols[i].id == SB_TOKEN_NONE ||
        w->symbols[next].id == SB_TOKEN_NONE)
        return SB_OK;
    const sb_merge *m =
        merge_slot(w->t->merges, w->symbols[i].id, w->symbols[next].id);
    if (m->into == SB_TOKEN_NONE)
        return SB_OK;
    return heap_push(w,
                     &(candidate){m->priority, i, m->left, m->right, m->into});
}

/* Until none are left of those that were offered, and those that follow. */
static sb_status merge_offered(word_state *w)
{
    while (w->n_heap > 0) {
        candidate c = heap_pop(w);
        symbol *s = &w->symbols[c.at];

        if (s->id != c.left || s->next == LIST_END ||
            w->symbols[s->next].id != c.right)
            continue;
        symbol *gone = &w->symbols[s->next];
        s->id = c.into;
        s->len += gone->len;
        gone->id = SB_TOKEN_NONE;
        s->next = gone->next;
        if (s->next != LIST_END)
            w->symbols[s->next].previous = c.at;
        SB_TRY(offer_merge(w, s->previous));
        SB_TRY(offer_merge(w, c.at));
    }
    return SB_OK;
}

static sb_status merge_all(word_state *w)
{
    for (int64_t i = 0; i < w->n; i++) {
        uint32_t id = w->symbols[i].id;
        uint32_t next = i + 1 < w->n ? w->symbols[i + 1].id : SB_TOKEN_NONE;

        SB_TRY(offer_merge(w, i));
        if (id == SB_TOKEN_NONE || next == SB_TOKEN_NONE ||
            !*merge_joins(w->t, id, next))
            SB_TRY(merge_offered(w));
    }
    return SB_OK;
}

/* Characters, or bytes where tokens are made of bytes. */
static void word_split(word_state *w, const char *word, size_t len)
{
    const sb_tokenizer *t = w->t;

    for (size_t at = 0; at < len;) {
        size_t step = t->byte_level ? 1 : sb_utf8_size(word + at, len - at);
        step = step ? step : 1;
        uint32_t id = t->byte_level ? t->bytes[(unsigned char)word[at]]
                                    : sb_tokenizer_find(t, word + at, step);
        if (id != SB_TOKEN_NONE && !t->byte_level &&
            !takes_part(&t->tokens[id]) &&
            t->tokens[id].kind != SB_TOKEN_VIRTUAL)
            id = SB_TOKEN_NONE;
        w->symbols[w->n] =
            (symbol){w->n - 1, w->n + 1, id, (uint32_t)at, (uint32_t)step};
        w->n++;
        at += step;
    }
    w->symbols[w->n - 1].next = LIST_END;
}

static sb_status word_put(const word_state *w, const char *word, sb_ids *out)
{
    for (int64_t i = 0; i != LIST_END; i = w->symbols[i].next) {
        const symbol *s = &w->symbols[i];

        if (s->id < w->t->n_real && w->t->tokens[s->id].kind != SB_TOKEN_UNUSED)
            SB_TRY(sb_ids_add(w->t->ctx, out, s->id));
        else
            SB_TRY(sb_tokenizer_put_unknown(w->t, word + s->at, s->len, out));
    }
    return SB_OK;
}

/* The token that is the whole word, as the vocabulary writes it. */
static sb_status whole_word(const sb_tokenizer *t, const char *word, size_t len,
                            uint32_t *out)
{
    sb_str text;

    if (!t->byte_level) {
        *out = sb_tokenizer_find(t, word, len);
        return SB_OK;
    }
    sb_str_init(&text, t->ctx);
    for (size_t i = 0; i < len && len <= t->longest; i++) {
        char c[4];
        sb_str_addn(&text, c, sb_byte_to_char((uint8_t)word[i], c));
    }
    *out = text.len ? sb_tokenizer_find(t, text.data, text.len) : SB_TOKEN_NONE;
    sb_status status = sb_str_status(&text);
    sb_str_free(&text);
    return status;
}

sb_status sb_bpe_encode(const sb_tokenizer *t, const char *word, size_t len,
                        sb_ids *out)
{
    word_state w = {.t = t};
    uint32_t whole = SB_TOKEN_NONE;

    if (len == 0)
        return SB_OK;
    if (t->whole_words)
        SB_TRY(whole_word(t, word, len, &whole));
    if (whole != SB_TOKEN_NONE)
        return sb_ids_add(t->ctx, out, whole);
    if (len > UINT32_MAX / 2)
        return sb_fail(t->ctx, SB_BAD_DATA, "a text of %zu bytes is too long",
                       len);
    w.symbols = sb_alloc_raw(t->ctx, len, sizeof *w.symbols);
    if (!w.symbols)
        return SB_NO_MEMORY;
    word_split(&w, word, len);
    sb_status status = t->merges ? merge_all(&w) : SB_OK;
    if (status == SB_OK)
        status = word_put(&w, word, out);
    sb_free(t->ctx, w.symbols);
    sb_free(t->ctx, w.heap);
    return status;
}
