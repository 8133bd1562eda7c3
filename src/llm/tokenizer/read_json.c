/* tokenizer.json of Hugging Face: tokens, and the stages by their types. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <utf8proc.h>

#include "base/file.h"
#include "llm/tokenizer/read_json.h"

enum { ID_MOST = 1 << 24 };

static sb_status unknown_type(const sb_json_doc *doc, const sb_json *node,
                              const char *what, const char *known)
{
    const char *type = sb_json_text(sb_json_get(node, "type"));

    (void)sb_json_fail(doc, node, "%s '%.64s'; known are %s", what,
                       type ? type : "", known);
    doc->ctx->status = SB_UNSUPPORTED;
    return SB_UNSUPPORTED;
}

bool sb_json_type_is(const sb_json *node, const char *type)
{
    const char *own = sb_json_text(sb_json_get(node, "type"));

    return own && strcmp(own, type) == 0;
}

bool sb_json_flag(const sb_json *node, const char *key, bool absent)
{
    const sb_json *v = sb_json_get(node, key);

    return v && v->kind == SB_JSON_BOOL ? v->number > 0 : absent;
}

/* ---- tokens ------------------------------------------------------------- */

/* Tokens by ID, as vocabulary and added tokens name them. */
typedef struct id_list {
    const char **text;
    const sb_json **added; /* or NULL */
    double *score;
    size_t n;
} id_list;

static bool json_id(const sb_json *v, size_t *out)
{
    if (!sb_json_is(v, SB_JSON_NUMBER) || !(v->number >= 0) ||
        v->number >= ID_MOST || v->number > floor(v->number))
        return false;
    *out = (size_t)v->number;
    return true;
}

/* The largest ID plus one. */
static sb_status count_ids(const sb_json_doc *doc, const sb_json *vocab,
                           const sb_json *added, size_t *out)
{
    size_t id = 0, n = 0;

    for (const sb_json *v = vocab->child; v; v = v->next) {
        if (vocab->kind == SB_JSON_LIST)
            id = n;
        else if (!json_id(v, &id))
            return sb_json_fail(doc, v, "want an ID from 0 to %d", ID_MOST - 1);
        n = id >= n ? id + 1 : n;
    }
    for (const sb_json *a = added ? added->child : NULL; a; a = a->next) {
        if (!json_id(sb_json_get(a, "id"), &id))
            return sb_json_fail(doc, a, "want an ID from 0 to %d", ID_MOST - 1);
        n = id >= n ? id + 1 : n;
    }
    if (n == 0)
        return sb_json_fail(doc, vocab, "there are no tokens");
    *out = n;
    return SB_OK;
}

static sb_status fill_ids(const sb_json_doc *doc, const sb_json *vocab,
                          const sb_json *added, id_list *ids)
{
    size_t id = 0;

    for (const sb_json *v = vocab->child; v; v = v->next, id++) {
        if (vocab->kind == SB_JSON_OBJECT) {
            (void)json_id(v, &id);
            ids->text[id] = v->key;
            continue;
        }
        const sb_json *text = v->child, *score = text ? text->next : NULL;
        if (!sb_json_is(v, SB_JSON_LIST) || !sb_json_text(text) ||
            !sb_json_is(score, SB_JSON_NUMBER))
            return sb_json_fail(doc, v, "want a token and its score");
        ids->text[id] = text->text;
        ids->score[id] = score->number;
    }
    for (const sb_json *a = added ? added->child : NULL; a; a = a->next) {
        const char *text = sb_json_text(sb_json_get(a, "content"));

        (void)json_id(sb_json_get(a, "id"), &id);
        if (!text)
            return sb_json_fail(doc, a, "an added token has no content");
        ids->text[id] = text;
        ids->added[id] = a;
    }
    return SB_OK;
}

/* <0x00> to <0xFF> */
static bool is_byte_token(const char *text)
{
    return strlen(text) == 6 && memcmp(text, "<0x", 3) == 0 && text[5] == '>';
}

static sb_status add_ids(sb_tokenizer *t, const sb_json_doc *doc,
                         const sb_json *model, const id_list *ids)
{
    bool bytes = sb_json_flag(model, "byte_fallback", false);

    for (size_t i = 0; i < ids->n; i++) {
        const char *text = ids->text[i] ? ids->text[i] : "";
        sb_token_kind kind =
            !ids->text[i]   ? SB_TOKEN_UNUSED
            : ids->added[i] ? (sb_json_flag(ids->added[i], "special", false)
                                   ? SB_TOKEN_CONTROL
                                   : SB_TOKEN_USER)
            : bytes && is_byte_token(text) ? SB_TOKEN_BYTE
                                           : SB_TOKEN_NORMAL;
        SB_TRY(sb_tokenizer_add(t, text, strlen(text), kind, ids->score[i]));
    }
    SB_TRY(sb_tokenizer_index(t));
    for (uint32_t i = 0; i < t->n_real; i++) {
        const sb_json *a = ids->added[i];
        const sb_added_token add = {i, sb_json_flag(a, "lstrip", false),
                                    sb_json_flag(a, "rstrip", false)};
        if (sb_json_flag(a, "single_word", false))
            return sb_fail(t->ctx, SB_UNSUPPORTED,
                           "%s: added token '%.64s' is a single_word; known "
                           "are tokens that words may hold as well",
                           doc->file, ids->text[i]);
        if (a)
            SB_TRY(sb_tokenizer_add_literal(t, &add));
    }
    return sb_tokenizer_sort_literals(t);
}

static sb_status read_tokens(sb_tokenizer *t, const sb_json_doc *doc,
                             const sb_json *model)
{
    const sb_json *vocab = sb_json_get(model, "vocab");
    const sb_json *added = sb_json_get(doc->root, "added_tokens");
    id_list ids = {0};

    if (!sb_json_is(vocab, SB_JSON_OBJECT) && !sb_json_is(vocab, SB_JSON_LIST))
        return sb_json_fail(doc, model, "the model has no vocab");
    SB_TRY(count_ids(doc, vocab, added, &ids.n));
    ids.text = sb_alloc(t->ctx, ids.n, sizeof *ids.text);
    ids.added = sb_alloc(t->ctx, ids.n, sizeof *ids.added);
    ids.score = sb_alloc(t->ctx, ids.n, sizeof *ids.score);
    sb_status status =
        ids.text && ids.added && ids.score ? SB_OK : SB_NO_MEMORY;
    if (status == SB_OK)
        status = fill_ids(doc, vocab, added, &ids);
    if (status == SB_OK)
        status = add_ids(t, doc, model, &ids);
    sb_free(t->ctx, ids.text);
    sb_free(t->ctx, ids.added);
    sb_free(t->ctx, ids.score);
    return status;
}

/* ---- the model ---------------------------------------------------------- */

/* "a b", or ["a", "b"]. */
static sb_status read_merge(sb_tokenizer *t, const sb_json_doc *doc,
                            const sb_json *m, double rank)
{
    const char *text = sb_json_text(m), *right = NULL;
    size_t n = 0;

    if (text && text[0]) {
        right = strchr(text + 1, ' ');
        n = right ? (size_t)(right - text) : 0;
        right = right ? right + 1 : NULL;
    } else if (sb_json_is(m, SB_JSON_LIST) && m->n == 2) {
        text = sb_json_text(m->child);
        right = sb_json_text(m->child->next);
        n = text ? strlen(text) : 0;
    }
    if (!text || !right)
        return sb_json_fail(doc, m, "want a merge of two tokens");
    uint32_t a = sb_tokenizer_find(t, text, n);
    uint32_t b = sb_tokenizer_find(t, right, strlen(right));
    bool known = false;
    SB_TRY(sb_merges_add(t, a, b, rank, &known));
    return known ? SB_OK
                 : sb_json_fail(doc, m,
                                "a merge of '%.*s' and '%.32s': want tokens "
                                "that make a token",
                                (int)(n < 32 ? n : 32), text, right);
}

static sb_status read_bpe(sb_tokenizer *t, const sb_json_doc *doc,
                          const sb_json *model)
{
    static const char *const odd[] = {"continuing_subword_prefix",
                                      "end_of_word_suffix"};
    const sb_json *merges = sb_json_get(model, "merges");
    const char *unknown = sb_json_text(sb_json_get(model, "unk_token"));
    double rank = 0;

    for (size_t i = 0; i < SB_COUNT(odd); i++) {
        const char *text = sb_json_text(sb_json_get(model, odd[i]));
        if (text && text[0])
            return sb_fail(t->ctx, SB_UNSUPPORTED, "%s: a %s '%.64s'",
                           doc->file, odd[i], text);
    }
    if (unknown)
        t->unknown = sb_tokenizer_find(t, unknown, strlen(unknown));
    t->fuse_unknown = sb_json_flag(model, "fuse_unk", false);
    t->whole_words = sb_json_flag(model, "ignore_merges", false);
    if (!sb_json_is(merges, SB_JSON_LIST))
        return sb_json_fail(doc, model, "the model has no merges");
    for (const sb_json *m = merges->child; m; m = m->next)
        SB_TRY(read_merge(t, doc, m, rank++));
    return SB_OK;
}

static sb_status read_wordpiece(sb_tokenizer *t, const sb_json *model)
{
    const char *mark =
        sb_json_text(sb_json_get(model, "continuing_subword_prefix"));
    const char *unknown = sb_json_text(sb_json_get(model, "unk_token"));
    const sb_json *most = sb_json_get(model, "max_input_chars_per_word");

    t->mark_begin = "";
    t->mark_inside = sb_arena_str(&t->arena, mark ? mark : "##");
    if (!t->mark_inside)
        return SB_NO_MEMORY;
    if (!json_id(most, &t->word_most))
        t->word_most = 100; /* what the format means without it */
    if (unknown)
        t->unknown = sb_tokenizer_find(t, unknown, strlen(unknown));
    return SB_OK;
}

static sb_status read_json_model(sb_tokenizer *t, const sb_json_doc *doc)
{
    const sb_json *model = sb_json_get(doc->root, "model");
    size_t id = 0;

    if (!sb_json_is(model, SB_JSON_OBJECT))
        return sb_json_fail(doc, doc->root, "there is no model");
    bool bpe = sb_json_type_is(model, "BPE") ||
               (!sb_json_get(model, "type") && sb_json_get(model, "merges"));
    t->model = sb_json_type_is(model, "Unigram")     ? SB_WORDS_UNIGRAM
               : sb_json_type_is(model, "WordPiece") ? SB_WORDS_WORDPIECE
                                                     : SB_WORDS_BPE;
    if (t->model == SB_WORDS_BPE && !bpe)
        return unknown_type(doc, model, "model", "BPE, Unigram, WordPiece");
    SB_TRY(read_tokens(t, doc, model));
    if (t->model == SB_WORDS_BPE)
        return read_bpe(t, doc, model);
    if (t->model == SB_WORDS_WORDPIECE)
        return read_wordpiece(t, model);
    t->fuse_unknown = true;
    if (json_id(sb_json_get(model, "unk_id"), &id) && id < t->n_real)
        t->unknown = (uint32_t)id;
    return SB_OK;
}

/* ---- special tokens around a text --------------------------------------- */

static sb_status template_add(sb_tokenizer *t, const sb_json_doc *doc,
                              const sb_json *at, const char *text, bool before)
{
    uint32_t id =
        text ? sb_tokenizer_find(t, text, strlen(text)) : SB_TOKEN_NONE;
    size_t *n = before ? &t->n_before : &t->n_after;

    if (id == SB_TOKEN_NONE || *n == SB_TEMPLATE_MOST)
        return sb_json_fail(doc, at, "want one of at most %d known tokens",
                            SB_TEMPLATE_MOST);
    (before ? t->before : t->after)[(*n)++] = id;
    return SB_OK;
}

static sb_status read_template(sb_tokenizer *t, const sb_json_doc *doc,
                               const sb_json *list)
{
    bool before = true;

    for (const sb_json *i = list ? list->child : NULL; i; i = i->next) {
        const sb_json *special = sb_json_get(i, "SpecialToken");

        if (special)
            SB_TRY(template_add(
                t, doc, i, sb_json_text(sb_json_get(special, "id")), before));
        else
            before = false;
    }
    return SB_OK;
}

static sb_status read_post(sb_tokenizer *t, const sb_json_doc *doc,
                           const sb_json *post)
{
    if (!sb_json_is(post, SB_JSON_OBJECT) || sb_json_type_is(post, "ByteLevel"))
        return SB_OK;
    if (sb_json_type_is(post, "Sequence")) {
        const sb_json *list = sb_json_get(post, "processors");
        for (const sb_json *p = list ? list->child : NULL; p; p = p->next)
            if (!sb_json_type_is(p, "Sequence"))
                SB_TRY(read_post(t, doc, p));
        return SB_OK;
    }
    if (sb_json_type_is(post, "TemplateProcessing"))
        return read_template(t, doc, sb_json_get(post, "single"));
    if (!sb_json_type_is(post, "RobertaProcessing") &&
        !sb_json_type_is(post, "BertProcessing"))
        return unknown_type(doc, post, "post-processor",
                            "ByteLevel, TemplateProcessing, BertProcessing, "
                            "RobertaProcessing");
    const sb_json *cls = sb_json_get(post, "cls"),
                  *sep = sb_json_get(post, "sep");
    SB_TRY(template_add(t, doc, post, cls ? sb_json_text(cls->child) : NULL,
                        true));
    return template_add(t, doc, post, sep ? sb_json_text(sep->child) : NULL,
                        false);
}

/* A decoder takes the first space away if one was put there. */
static void read_decoder(sb_tokenizer *t, const sb_json *d, int depth)
{
    const sb_json *list = sb_json_get(d, "decoders");

    if (sb_json_type_is(d, "ByteLevel"))
        t->byte_level = true;
    if (sb_json_type_is(d, "Strip") || sb_json_type_is(d, "Metaspace"))
        t->strip_decoded = true;
    for (const sb_json *i = list && depth == 0 ? list->child : NULL; i;
         i = i->next)
        read_decoder(t, i, depth + 1);
}

static sb_status read_all(sb_tokenizer *t, const sb_json_doc *doc)
{
    read_decoder(t, sb_json_get(doc->root, "decoder"), 0);
    SB_TRY(sb_json_normalizer(t, doc, sb_json_get(doc->root, "normalizer"), 0));
    SB_TRY(sb_json_pre_tokenizer(t, doc,
                                 sb_json_get(doc->root, "pre_tokenizer"), 0));
    SB_TRY(read_json_model(t, doc));
    return read_post(t, doc, sb_json_get(doc->root, "post_processor"));
}

sb_status sb_tokenizer_read_json(sb_tokenizer *t, const char *path)
{
    sb_mapping map = {0};
    sb_json_doc *doc = NULL;

    SB_TRY(sb_file_map(t->ctx, path, &map));
    sb_status status = sb_json_read(t->ctx, path, map.data, map.size, &doc);
    if (status == SB_OK)
        status = read_all(t, doc);
    sb_json_free(doc);
    sb_file_unmap(&map);
    return status;
}
