/* Tokens, and the way of a text through the stages. */
#include "llm/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- life --------------------------------------------------------------- */

sb_status sb_tokenizer_create(sb_ctx *ctx, sb_tokenizer **out)
{
    sb_tokenizer *t = sb_alloc(ctx, 1, sizeof *t);

    if (!t)
        return SB_NO_MEMORY;
    t->ctx = ctx;
    t->unknown = t->bos = SB_TOKEN_NONE;
    sb_arena_init(&t->arena, ctx);
    *out = t;
    return SB_OK;
}

void sb_tokenizer_free(sb_tokenizer *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_cuts; i++)
        sb_regex_free(t->ctx, t->cuts[i].regex);
    sb_merges_free(t->ctx, t->merges);
    sb_free(t->ctx, t->added);
    sb_free(t->ctx, t->slots);
    sb_free(t->ctx, t->tokens);
    sb_arena_free(&t->arena);
    sb_free(t->ctx, t);
}

/* ---- tokens ------------------------------------------------------------- */

static size_t text_hash(const char *text, size_t len)
{
    uint64_t h = 1469598103934665603u;

    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)text[i]) * 1099511628211u;
    return (size_t)(h ^ h >> 32);
}

static uint32_t *slot_of(const sb_tokenizer *t, const char *text, size_t len)
{
    size_t i = text_hash(text, len) & (t->n_slots - 1);

    for (; t->slots[i]; i = (i + 1) & (t->n_slots - 1)) {
        const sb_token *k = &t->tokens[t->slots[i] - 1];
        if (k->len == len && memcmp(k->text, text, len) == 0)
            break;
    }
    return &t->slots[i];
}

uint32_t sb_tokenizer_find(const sb_tokenizer *t, const char *text, size_t len)
{
    return *slot_of(t, text, len) - 1; /* SB_TOKEN_NONE if free */
}

sb_status sb_tokenizer_add(sb_tokenizer *t, const char *text, size_t len,
                           sb_token_kind kind, double score)
{
    if (t->n >= UINT32_MAX / 4 || len > UINT32_MAX / 4)
        return sb_fail(t->ctx, SB_BAD_DATA, "too many tokens");
    SB_TRY(sb_grow(t->ctx, &t->tokens, &t->cap, t->n + 1, sizeof *t->tokens));
    const char *copy = sb_arena_strn(&t->arena, text, len);
    if (!copy)
        return SB_NO_MEMORY;
    t->tokens[t->n++] = (sb_token){copy, (uint32_t)len, kind, score};
    return SB_OK;
}

void sb_tokenizer_index_one(sb_tokenizer *t, uint32_t id)
{
    const sb_token *k = &t->tokens[id];
    uint32_t *slot = slot_of(t, k->text, k->len);

    if (!*slot)
        *slot = id + 1;
    if (k->len > t->longest)
        t->longest = k->len;
}

/* <0xNN>, or in files of llama2.c the byte itself at its place. */
static void find_bytes(sb_tokenizer *t)
{
    for (int b = 0; b < 256; b++) {
        char text[16];
        size_t n = t->byte_level
                       ? sb_byte_to_char((uint8_t)b, text)
                       : (size_t)snprintf(text, sizeof text, "<0x%02X>", b);
        uint32_t id = sb_tokenizer_find(t, text, n);

        t->bytes[b] = SB_TOKEN_NONE;
        if (id != SB_TOKEN_NONE &&
            (t->byte_level || t->tokens[id].kind == SB_TOKEN_BYTE))
            t->bytes[b] = id;
    }
}

sb_status sb_tokenizer_index(sb_tokenizer *t)
{
    size_t want = 64;

    while (want < 4 * t->n) /* room for virtual tokens */
        want *= 2;
    t->n_real = t->n;
    t->n_slots = want;
    t->slots = sb_alloc(t->ctx, want, sizeof *t->slots);
    if (!t->slots)
        return SB_NO_MEMORY;
    for (uint32_t i = 0; i < t->n; i++)
        sb_tokenizer_index_one(t, i);
    find_bytes(t);
    for (size_t i = 0; i < t->n; i++)
        if (t->tokens[i].kind == SB_TOKEN_NORMAL &&
            t->tokens[i].score < t->least_score)
            t->least_score = t->tokens[i].score;
    return SB_OK;
}

sb_status sb_ids_add(sb_ctx *ctx, sb_ids *ids, uint32_t id)
{
    SB_TRY(sb_grow(ctx, &ids->v, &ids->cap, ids->n + 1, sizeof *ids->v));
    ids->v[ids->n++] = id;
    return SB_OK;
}

sb_status sb_tokenizer_put_unknown(const sb_tokenizer *t, const char *text,
                                   size_t len, sb_ids *out)
{
    bool known = true;

    for (size_t i = 0; i < len; i++)
        known = known && t->bytes[(unsigned char)text[i]] != SB_TOKEN_NONE;
    for (size_t i = 0; known && i < len; i++)
        SB_TRY(sb_ids_add(t->ctx, out, t->bytes[(unsigned char)text[i]]));
    if (known || t->unknown == SB_TOKEN_NONE ||
        (t->fuse_unknown && out->n && out->v[out->n - 1] == t->unknown))
        return SB_OK;
    return sb_ids_add(t->ctx, out, t->unknown);
}

/* ---- literal tokens ----------------------------------------------------- */

sb_status sb_tokenizer_add_literal(sb_tokenizer *t, const sb_added_token *a)
{
    if (t->tokens[a->id].len == 0)
        return SB_OK;
    SB_TRY(sb_grow(t->ctx, &t->added, &t->cap_added, t->n_added + 1,
                   sizeof *t->added));
    t->added[t->n_added++] = *a;
    return SB_OK;
}

/* Longest first, so that the first that fits is the one. */
static void insert_by_length(const sb_tokenizer *t, uint32_t *list, uint32_t n,
                             uint32_t number)
{
    uint32_t len = t->tokens[t->added[number].id].len;

    for (; n > 0 && t->tokens[t->added[list[n - 1]].id].len < len; n--)
        list[n] = list[n - 1];
    list[n] = number;
}

sb_status sb_tokenizer_sort_literals(sb_tokenizer *t)
{
    uint32_t *room = sb_arena_alloc(&t->arena, t->n_added, sizeof *room);

    if (!room)
        return SB_NO_MEMORY;
    for (int first = 0; first < 256; first++) {
        t->added_first[first] = room;
        for (uint32_t i = 0; i < t->n_added; i++)
            if ((unsigned char)t->tokens[t->added[i].id].text[0] == first)
                insert_by_length(t, room, t->n_added_first[first]++, i);
        room += t->n_added_first[first];
    }
    return SB_OK;
}

/* The literal token that the text begins with, or NULL. */
static const sb_added_token *literal_at(const sb_tokenizer *t, const char *text,
                                        size_t len)
{
    unsigned char first = (unsigned char)text[0];

    for (uint32_t i = 0; i < t->n_added_first[first]; i++) {
        const sb_added_token *a = &t->added[t->added_first[first][i]];
        const sb_token *k = &t->tokens[a->id];
        if (k->len <= len && memcmp(k->text, text, k->len) == 0)
            return a;
    }
    return NULL;
}

/* ---- encoding ----------------------------------------------------------- */

typedef struct encoder {
    const sb_tokenizer *t;
    sb_ids *out;
    sb_str text, spare, marked;
    sb_words words;
} encoder;

static sb_status check_utf8(sb_ctx *ctx, const char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        size_t n = sb_utf8_size(text + at, len - at);
        if (n == 0)
            return sb_fail(ctx, SB_BAD_DATA,
                           "the text is not UTF-8 at byte %zu", at);
        at += n;
    }
    return SB_OK;
}

static sb_status encode_word(const sb_tokenizer *t, const char *word,
                             size_t len, sb_ids *out)
{
    switch (t->model) {
    case SB_WORDS_UNIGRAM:
        return sb_unigram_encode(t, word, len, out);
    case SB_WORDS_WORDPIECE:
        return sb_wordpiece_encode(t, word, len, out);
    default:
        return sb_bpe_encode(t, word, len, out);
    }
}

/* With the mark in front that words begin with, unless it is there. */
static sb_status encode_marked(encoder *e, const char *word, size_t len)
{
    const char *mark = e->t->word_mark;
    size_t n = mark ? strlen(mark) : 0;

    if (n == 0 || (len >= n && memcmp(word, mark, n) == 0))
        return encode_word(e->t, word, len, e->out);
    sb_str_clear(&e->marked);
    sb_str_add(&e->marked, mark);
    sb_str_addn(&e->marked, word, len);
    SB_TRY(sb_str_status(&e->marked));
    return encode_word(e->t, sb_str_text(&e->marked), e->marked.len, e->out);
}

/* A normalized piece of the text. */
static sb_status encode_words(encoder *e, const char *text, size_t len)
{
    SB_TRY(check_utf8(e->t->ctx, text, len));
    SB_TRY(sb_pretokenize(e->t, text, len, &e->words));
    for (size_t i = 0; i < e->words.n; i++) {
        if (i % 4096 == 0)
            SB_TRY(sb_ctx_poll(e->t->ctx));
        SB_TRY(encode_marked(e, text + e->words.begin[i],
                             e->words.end[i] - e->words.begin[i]));
    }
    return SB_OK;
}

static sb_status encode_piece(encoder *e, const char *text, size_t len,
                              bool at_start)
{
    if (e->t->literals_inside)
        return encode_words(e, text, len);
    SB_TRY(sb_normalize(e->t, text, len, at_start, &e->text, &e->spare));
    return encode_words(e, sb_str_text(&e->text), e->text.len);
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Pieces between literal tokens. */
static sb_status encode_text(encoder *e, const char *text, size_t len)
{
    size_t begin = 0, at = 0;

    while (at < len) {
        const sb_added_token *a = literal_at(e->t, text + at, len - at);
        if (!a) {
            at++;
            continue;
        }
        size_t end = at, next = at + e->t->tokens[a->id].len;
        while (a->left && end > begin && is_space(text[end - 1]))
            end--;
        while (a->right && next < len && is_space(text[next]))
            next++;
        if (end > begin)
            SB_TRY(encode_piece(e, text + begin, end - begin, begin == 0));
        SB_TRY(sb_ids_add(e->t->ctx, e->out, a->id));
        begin = at = next;
    }
    return begin < len ? encode_piece(e, text + begin, len - begin, begin == 0)
                       : SB_OK;
}

sb_status sb_tokenize(const sb_tokenizer *t, const char *text, size_t len,
                      bool special, sb_ids *out)
{
    encoder e = {.t = t, .out = out};

    SB_TRY(check_utf8(t->ctx, text, len));
    for (size_t i = 0; special && i < t->n_before; i++)
        SB_TRY(sb_ids_add(t->ctx, out, t->before[i]));
    sb_str_init(&e.text, t->ctx);
    sb_str_init(&e.spare, t->ctx);
    sb_str_init(&e.marked, t->ctx);
    sb_status status = SB_OK;
    if (t->literals_inside) {
        status = sb_normalize(t, text, len, true, &e.text, &e.spare);
        if (status == SB_OK)
            status = encode_text(&e, sb_str_text(&e.text), e.text.len);
    } else {
        status = encode_text(&e, text, len);
    }
    sb_str_free(&e.text);
    sb_str_free(&e.spare);
    sb_str_free(&e.marked);
    sb_words_free(t->ctx, &e.words);
    SB_TRY(status);
    for (size_t i = 0; special && i < t->n_after; i++)
        SB_TRY(sb_ids_add(t->ctx, out, t->after[i]));
    return SB_OK;
}

/* ---- decoding ----------------------------------------------------------- */

static void decode_byte_level(const sb_token *k, sb_str *out)
{
    for (size_t at = 0, used = 0; at < k->len; at += used ? used : 1) {
        int byte = sb_char_to_byte(k->text + at, k->len - at, &used);

        if (byte >= 0)
            sb_str_addn(out, &(char){(char)byte}, 1);
        else
            sb_str_addn(out, k->text + at, used ? used : 1);
    }
}

static void decode_spaces(const sb_token *k, bool strip, sb_str *out)
{
    static const char space[] = "\xe2\x96\x81"; /* U+2581 */

    for (size_t at = 0; at < k->len;) {
        bool is = k->len - at >= 3 && memcmp(k->text + at, space, 3) == 0;

        if (is && !(strip && at == 0))
            sb_str_addn(out, " ", 1);
        else if (!is)
            sb_str_addn(out, k->text + at, 1);
        at += is ? 3 : 1;
    }
}

/* Tokens that begin a word have a space before them. */
static void decode_wordpiece(const sb_tokenizer *t, const sb_token *k,
                             bool first, sb_str *out)
{
    size_t n = strlen(t->mark_inside);
    bool inside = n && k->len > n && memcmp(k->text, t->mark_inside, n) == 0;

    if (n && !inside && !first)
        sb_str_addn(out, " ", 1);
    if (n)
        sb_str_addn(out, k->text + (inside ? n : 0), k->len - (inside ? n : 0));
    else
        decode_spaces(k, first, out);
}

sb_status sb_detokenize(const sb_tokenizer *t, uint32_t id, bool first,
                        sb_str *out)
{
    if (id >= t->n_real)
        return SB_OK; /* networks have more rows than there are tokens */
    const sb_token *k = &t->tokens[id];

    if (k->kind == SB_TOKEN_CONTROL)
        return SB_OK;
    if (k->kind == SB_TOKEN_BYTE) {
        for (int b = 0; b < 256; b++)
            if (t->bytes[b] == id)
                sb_str_addn(out, &(char){(char)b}, 1);
    } else if (k->kind == SB_TOKEN_USER) {
        sb_str_addn(out, k->text, k->len);
    } else if (t->model == SB_WORDS_WORDPIECE) {
        decode_wordpiece(t, k, first, out);
    } else if (t->byte_level) {
        decode_byte_level(k, out);
    } else {
        decode_spaces(k, first && t->strip_decoded, out);
    }
    return sb_str_status(out);
}

const char *sb_word_model_name(sb_word_model model)
{
    static const char *const names[] = {"BPE", "unigram", "WordPiece"};

    return names[model];
}

bool sb_tokenizer_is_end(const sb_tokenizer *t, uint32_t id)
{
    for (size_t i = 0; i < t->n_eos; i++)
        if (t->eos[i] == id)
            return true;
    return false;
}
