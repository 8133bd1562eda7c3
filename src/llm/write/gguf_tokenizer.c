/* The tokenizer as keys of a GGUF file. */
#include <string.h>

#include "llm/gguf.h"
#include "llm/tokenizer/tokenizer.h"
#include "llm/write/llm_write.h"

/* ---- from another GGUF file: its keys as they are ------------------------ */

static void copy_key(const sb_gguf_value *v, sb_str *out, uint64_t *n)
{
    sb_gguf_put_key(out, v->key, v->is_array ? SB_GGUF_ARRAY : v->type, n);
    if (v->is_array) {
        sb_gguf_put_number(out, v->type, 4);
        sb_gguf_put_number(out, v->n, 8);
    }
    sb_str_addn(out, (const char *)v->at, v->bytes);
}

static sb_status copy_keys(sb_ctx *ctx, const char *path, sb_str *out,
                           uint64_t *n)
{
    sb_gguf g = {0};
    sb_status status = sb_gguf_open(&g, ctx, path);

    for (size_t i = 0; status == SB_OK && i < g.n_values; i++)
        if (strncmp(g.values[i].key, "tokenizer.", 10) == 0)
            copy_key(&g.values[i], out, n);
    sb_gguf_free(&g);
    return status;
}

/* ---- from what was read -------------------------------------------------- */

static void put_array(sb_str *out, const char *key, uint32_t type, uint64_t n,
                      uint64_t *keys)
{
    sb_gguf_put_key(out, key, SB_GGUF_ARRAY, keys);
    sb_gguf_put_number(out, type, 4);
    sb_gguf_put_number(out, n, 8);
}

/* SentencePiece writes spaces as U+2581; the files of llama2.c do not. */
static void put_token(const sb_tokenizer *t, const sb_token *k, sb_str *spare,
                      sb_str *out)
{
    sb_str_clear(spare);
    for (size_t i = 0; i < k->len; i++)
        if (k->text[i] == ' ' && !t->byte_level && k->kind == SB_TOKEN_NORMAL)
            sb_str_add(spare, "\xe2\x96\x81");
        else
            sb_str_addn(spare, k->text + i, 1);
    sb_gguf_put_text(out, sb_str_text(spare), spare->len);
}

/* A network may know more tokens than its tokenizer has. */
static void put_tokens(const sb_tokenizer *t, size_t n, sb_str *out,
                       uint64_t *keys)
{
    static const uint8_t types[] = {1, 2, 3, 4, 5, 6, 5};
    sb_str spare;

    sb_str_init(&spare, t->ctx);
    put_array(out, "tokenizer.ggml.tokens", SB_GGUF_STRING, n, keys);
    for (size_t i = 0; i < n; i++) {
        if (i < t->n_real) {
            put_token(t, &t->tokens[i], &spare, out);
            continue;
        }
        sb_str_clear(&spare);
        sb_str_addf(&spare, "[PAD%zu]", i);
        sb_gguf_put_text(out, sb_str_text(&spare), spare.len);
    }
    put_array(out, "tokenizer.ggml.token_type", SB_GGUF_I32, n, keys);
    for (size_t i = 0; i < n; i++)
        sb_gguf_put_number(out, i < t->n_real ? types[t->tokens[i].kind] : 5,
                           4);
    sb_str_free(&spare);
}

static void put_merges(const sb_tokenizer *t, const sb_merge *merges, size_t n,
                       sb_str *out, uint64_t *keys)
{
    put_array(out, "tokenizer.ggml.merges", SB_GGUF_STRING, n, keys);
    for (size_t i = 0; i < n; i++) {
        const sb_token *a = &t->tokens[merges[i].left];
        const sb_token *b = &t->tokens[merges[i].right];

        sb_gguf_put_number(out, (uint64_t)a->len + 1 + b->len, 8);
        sb_str_addn(out, a->text, a->len);
        sb_str_addn(out, " ", 1);
        sb_str_addn(out, b->text, b->len);
    }
}

/* Where merges have ranks instead of scores, a lower rank is a higher score. */
static sb_status put_scores(const sb_tokenizer *t, const sb_merge *merges,
                            size_t n_merges, size_t n, sb_str *out,
                            uint64_t *keys)
{
    float *scores = sb_alloc(t->ctx, n, sizeof *scores);
    bool scored = false;

    if (!scores)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < t->n_real; i++) {
        scores[i] = (float)t->tokens[i].score;
        scored = scored || scores[i] < 0 || scores[i] > 0;
    }
    for (size_t i = n_merges; !scored && i-- > 0;)
        scores[merges[i].into] = -(float)merges[i].priority;
    put_array(out, "tokenizer.ggml.scores", SB_GGUF_F32, n, keys);
    for (size_t i = 0; i < n; i++) {
        uint32_t u;

        memcpy(&u, &scores[i], sizeof u);
        sb_gguf_put_number(out, u, 4);
    }
    sb_free(t->ctx, scores);
    return SB_OK;
}

static void put_specials(const sb_tokenizer *t, sb_str *out, uint64_t *keys)
{
    bool prefix = false;

    if (t->bos != SB_TOKEN_NONE)
        sb_gguf_key_u32(out, "tokenizer.ggml.bos_token_id", t->bos, keys);
    if (t->n_eos > 0)
        sb_gguf_key_u32(out, "tokenizer.ggml.eos_token_id", t->eos[0], keys);
    if (t->n_eos > 1)
        sb_gguf_key_u32(out, "tokenizer.ggml.eot_token_id", t->eos[1], keys);
    if (t->unknown != SB_TOKEN_NONE)
        sb_gguf_key_u32(out, "tokenizer.ggml.unknown_token_id", t->unknown,
                        keys);
    sb_gguf_key_bool(out, "tokenizer.ggml.add_bos_token",
                     t->n_before > 0 && t->before[0] == t->bos, keys);
    sb_gguf_key_bool(out, "tokenizer.ggml.add_eos_token", t->n_after > 0, keys);
    for (size_t i = 0; i < t->n_norms; i++)
        prefix = prefix || t->norms[i].kind == SB_NORM_PREPEND;
    if (!t->byte_level)
        sb_gguf_key_bool(out, "tokenizer.ggml.add_space_prefix", prefix, keys);
}

static sb_status check_tokenizer(const sb_tokenizer *t, const char *path,
                                 int64_t vocabulary)
{
    if (t->model != SB_WORDS_BPE)
        return sb_fail(t->ctx, SB_UNSUPPORTED,
                       "%s: a tokenizer of type %s cannot be written as GGUF, "
                       "BPE can",
                       path, sb_word_model_name(t->model));
    if (t->byte_level && !sb_gguf_cut_name(t))
        return sb_fail(t->ctx, SB_UNSUPPORTED,
                       "%s: GGUF has no name for the pattern '%.100s' of this "
                       "tokenizer",
                       path, t->n_cuts ? t->cuts[t->n_cuts - 1].pattern : "");
    if ((int64_t)t->n_real > vocabulary)
        return sb_fail(t->ctx, SB_BAD_DATA,
                       "%s: %zu tokens, the network knows %lld", path,
                       t->n_real, (long long)vocabulary);
    return SB_OK;
}

static sb_status put_tokenizer(const sb_tokenizer *t, size_t n, sb_str *out,
                               uint64_t *keys)
{
    sb_merge *merges = NULL;
    size_t n_merges = 0;

    sb_gguf_key_text(out, "tokenizer.ggml.model",
                     t->byte_level ? "gpt2" : "llama", keys);
    sb_gguf_key_text(out, "tokenizer.ggml.pre",
                     t->byte_level ? sb_gguf_cut_name(t) : "default", keys);
    put_tokens(t, n, out, keys);
    SB_TRY(sb_merges_list(t, &merges, &n_merges));
    sb_status status = SB_OK;
    if (t->byte_level)
        put_merges(t, merges, n_merges, out, keys);
    else
        status = put_scores(t, merges, n_merges, n, out, keys);
    sb_free(t->ctx, merges);
    put_specials(t, out, keys);
    return status;
}

sb_status sb_gguf_put_tokenizer(sb_ctx *ctx, const char *path,
                                int64_t vocabulary, sb_str *out, uint64_t *n)
{
    sb_tokenizer *t = NULL;
    sb_mapping map = {0};
    bool gguf = false;

    if (!sb_is_folder(path)) {
        SB_TRY(sb_file_map(ctx, path, &map));
        gguf = map.data && sb_gguf_is(map.data, map.size);
        sb_file_unmap(&map);
    }
    if (gguf)
        return copy_keys(ctx, path, out, n);
    SB_TRY(sb_tokenizer_open(ctx, path, &t));
    sb_status status = check_tokenizer(t, path, vocabulary);
    if (status == SB_OK)
        status = put_tokenizer(t, (size_t)vocabulary, out, n);
    sb_tokenizer_free(t);
    return status;
}
