/* Tokenizers in GGUF files: keys tokenizer.ggml.*. */
#include <string.h>

#include "llm/gguf.h"
#include "llm/tokenizer/tokenizer.h"

/* What `tokenizer.ggml.pre` stands for: llama.cpp names the pre-tokenizer
 * instead of storing its pattern. */
#define WORDS_1 "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define WORDS_2 "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA_3 WORDS_1 "\\p{N}{1,3}" WORDS_2
#define QWEN_2  WORDS_1 "\\p{N}" WORDS_2
/* Letters with marks. */
#define QWEN_35                                                         \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]" \
    "+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"       \
    "|\\s+(?!\\S)|\\s+"
#define DIGIT    "\\p{N}"
#define LINE_END "[\\r\\n]"
/* Chinese, and what lies before it and behind it in DeepSeek's ranges. */
#define HAN "[\\x{4e00}-\\x{9fa5}\\x{0800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
/* Punctuation of ASCII, of full width, and Chinese. */
static const char marks[] =
    "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{"
    "201f}\\x{3000}-\\x{3002}]+";
/* Stands for sb_gpt2_pattern, which is no constant. */
#define GPT_2 ""

enum { CUTS_MOST = 6 };

static const struct {
    const char *name;
    const char *patterns[CUTS_MOST]; /* one after the other */
    bool whole_words;
} cuts[] = {
    {"gpt-2", {GPT_2}, false},
    {"default", {GPT_2}, false},
    {"mpt", {GPT_2}, false},
    {"olmo", {GPT_2}, false},
    {"smollm", {DIGIT, GPT_2}, false},
    {"starcoder", {DIGIT, GPT_2}, false},
    {"refact", {DIGIT, GPT_2}, false},
    {"command-r", {DIGIT, GPT_2}, false},
    {"llama-bpe", {LLAMA_3}, true},
    {"llama3", {LLAMA_3}, true},
    {"llama-v3", {LLAMA_3}, true},
    {"qwen2", {QWEN_2}, false},
    {"deepseek-r1-qwen", {QWEN_2}, false},
    {"qwen35", {QWEN_35}, false},
    {"falcon", {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT_2, "[0-9][0-9][0-9]"}, false},
    {"deepseek-coder",
     {LINE_END, "\\s?\\p{L}+", "\\s?\\p{P}+", HAN, DIGIT},
     false},
    {"deepseek-llm",
     {LINE_END, "\\s?\\p{L&}+", marks, "\\s+$", HAN, "\\p{N}+"},
     false},
};

static const char *cut_pattern(size_t row, size_t i)
{
    const char *p = i < CUTS_MOST ? cuts[row].patterns[i] : NULL;

    return p && !*p ? sb_gpt2_pattern : p;
}

static sb_status find_cut(sb_tokenizer *t, const sb_gguf *g)
{
    sb_gguf_text name = {"default", 7};
    sb_str known;

    (void)sb_gguf_string(g, "tokenizer.ggml.pre", &name);
    for (size_t i = 0; i < SB_COUNT(cuts); i++)
        if (strlen(cuts[i].name) == name.len &&
            memcmp(cuts[i].name, name.data, name.len) == 0) {
            t->whole_words = cuts[i].whole_words;
            for (size_t k = 0; cut_pattern(i, k); k++)
                SB_TRY(sb_tokenizer_add_cut(t, g->path, cut_pattern(i, k),
                                            SB_CUT_ISOLATED, false));
            return SB_OK;
        }
    sb_str_init(&known, t->ctx);
    for (size_t i = 0; i < SB_COUNT(cuts); i++)
        sb_str_addf(&known, "%s%s", i ? ", " : "", cuts[i].name);
    sb_status status = sb_fail(
        t->ctx, SB_UNSUPPORTED,
        "%s: pre-tokenizer '%.*s'; known are %s; take tokenizer.json instead",
        g->path, (int)(name.len < 64 ? name.len : 64), name.data,
        sb_str_text(&known));
    sb_str_free(&known);
    return status;
}

static bool cut_is(const sb_tokenizer *t, size_t row)
{
    size_t n = 0;

    for (; cut_pattern(row, n) && n < t->n_cuts; n++)
        if (strcmp(t->cuts[n].pattern, cut_pattern(row, n)) != 0 ||
            t->cuts[n].keep != SB_CUT_ISOLATED)
            return false;
    return n == t->n_cuts && !cut_pattern(row, n) &&
           t->whole_words == cuts[row].whole_words;
}

const char *sb_gguf_cut_name(const sb_tokenizer *t)
{
    for (size_t i = 0; i < SB_COUNT(cuts); i++)
        if (cut_is(t, i))
            return cuts[i].name;
    return NULL;
}

/* One for each token, if it is there. */
static sb_status find_numbers(const sb_tokenizer *t, const sb_gguf *g,
                              const char *key, uint64_t n,
                              const sb_gguf_value **out)
{
    *out = sb_gguf_find(g, key);
    if (*out && (!sb_gguf_is_numeric(*out) || (*out)->n != n))
        return sb_fail(t->ctx, SB_BAD_DATA,
                       "%s: key '%s' has %llu values, want a number for each "
                       "of %llu tokens",
                       g->path, key, (unsigned long long)(*out)->n,
                       (unsigned long long)n);
    return SB_OK;
}

static sb_status add_tokens(sb_tokenizer *t, sb_gguf *g)
{
    static const sb_token_kind kinds[] = {
        SB_TOKEN_NORMAL, SB_TOKEN_NORMAL, SB_TOKEN_UNKNOWN, SB_TOKEN_CONTROL,
        SB_TOKEN_USER,   SB_TOKEN_UNUSED, SB_TOKEN_BYTE};
    const sb_gguf_value *tokens = sb_gguf_find(g, "tokenizer.ggml.tokens");
    const sb_gguf_value *scores, *types;
    sb_gguf_text *texts = NULL;

    if (!tokens)
        return sb_fail(t->ctx, SB_BAD_DATA, "%s: there are no tokens", g->path);
    SB_TRY(sb_gguf_strings(g, tokens, &texts));
    SB_TRY(find_numbers(t, g, "tokenizer.ggml.scores", tokens->n, &scores));
    SB_TRY(find_numbers(t, g, "tokenizer.ggml.token_type", tokens->n, &types));
    for (uint64_t i = 0; i < tokens->n; i++) {
        double kind = types ? sb_gguf_number_at(types, i) : 1;

        SB_TRY(sb_tokenizer_add(t, texts[i].data, texts[i].len,
                                kind >= 0 && kind < SB_COUNT(kinds)
                                    ? kinds[(int)kind]
                                    : SB_TOKEN_NORMAL,
                                scores ? sb_gguf_number_at(scores, i) : 0));
    }
    return sb_tokenizer_index(t);
}

static sb_status add_merges(sb_tokenizer *t, sb_gguf *g)
{
    const sb_gguf_value *v = sb_gguf_find(g, "tokenizer.ggml.merges");
    sb_gguf_text *texts = NULL;

    if (!v)
        return sb_fail(t->ctx, SB_BAD_DATA, "%s: there are no merges", g->path);
    SB_TRY(sb_gguf_strings(g, v, &texts));
    for (uint64_t i = 0; i < v->n; i++) {
        size_t len = texts[i].len;
        const char *space =
            len ? memchr(texts[i].data + 1, ' ', len - 1) : NULL;
        if (!space)
            return sb_fail(t->ctx, SB_BAD_DATA, "%s: merge %llu has no space",
                           g->path, (unsigned long long)i);
        size_t n = (size_t)(space - texts[i].data);
        uint32_t a = sb_tokenizer_find(t, texts[i].data, n);
        uint32_t b = sb_tokenizer_find(t, space + 1, len - n - 1);
        bool known = false; /* llama.cpp does not ask either */
        SB_TRY(sb_merges_add(t, a, b, (double)i, &known));
    }
    return SB_OK;
}

static uint32_t token_under(const sb_tokenizer *t, const sb_gguf *g,
                            const char *key)
{
    double x = -1;

    (void)sb_gguf_number(g, key, &x);
    return x >= 0 && x < (double)t->n_real ? (uint32_t)x : SB_TOKEN_NONE;
}

static void add_specials(sb_tokenizer *t, const sb_gguf *g, bool add_bos)
{
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    double add = add_bos, add_eos = 0;

    t->bos = token_under(t, g, "tokenizer.ggml.bos_token_id");
    t->unknown = token_under(t, g, "tokenizer.ggml.unknown_token_id");
    (void)sb_gguf_number(g, "tokenizer.ggml.add_bos_token", &add);
    (void)sb_gguf_number(g, "tokenizer.ggml.add_eos_token", &add_eos);
    for (size_t i = 0; i < SB_COUNT(ends); i++) {
        uint32_t id = token_under(t, g, ends[i]);
        if (id != SB_TOKEN_NONE)
            t->eos[t->n_eos++] = id;
    }
    if (add > 0 && t->bos != SB_TOKEN_NONE)
        t->before[t->n_before++] = t->bos;
    if (add_eos > 0 && t->n_eos)
        t->after[t->n_after++] = t->eos[0];
}

static sb_status add_wordpiece(sb_tokenizer *t, const sb_gguf *g)
{
    uint32_t begin = token_under(t, g, "tokenizer.ggml.cls_token_id");
    /* The key is spelled so. */
    uint32_t end = token_under(t, g, "tokenizer.ggml.seperator_token_id");
    double lower = 1, accents = 1;

    (void)sb_gguf_number(g, "tokenizer.ggml.normalizer.lowercase", &lower);
    (void)sb_gguf_number(g, "tokenizer.ggml.normalizer.strip_accents",
                         &accents);
    t->model = SB_WORDS_WORDPIECE;
    t->mark_begin = "\xe2\x96\x81"; /* U+2581 */
    t->mark_inside = "";
    if (!t->n_before && begin != SB_TOKEN_NONE)
        t->before[t->n_before++] = begin;
    if (!t->n_after && end != SB_TOKEN_NONE)
        t->after[t->n_after++] = end;
    SB_TRY(sb_tokenizer_bert_norms(t, SB_BERT_CLEAN | SB_BERT_IDEOGRAPHS,
                                   lower > 0, accents > 0));
    return sb_tokenizer_bert_cuts(t, g->path);
}

static sb_status read_parts(sb_tokenizer *t, sb_gguf *g)
{
    sb_gguf_text model = {"", 0};
    double prefix = 1;

    (void)sb_gguf_string(g, "tokenizer.ggml.model", &model);
    bool spm = model.len == 5 && memcmp(model.data, "llama", 5) == 0;
    /* SentencePiece's spaces and bytes, with a list of merges. */
    bool merged = model.len == 6 && memcmp(model.data, "gemma4", 6) == 0;
    t->byte_level = model.len == 4 && memcmp(model.data, "gpt2", 4) == 0;
    bool bert = model.len == 4 && memcmp(model.data, "bert", 4) == 0;
    if (!spm && !merged && !bert && !t->byte_level)
        return sb_fail(t->ctx, SB_UNSUPPORTED,
                       "%s: tokenizer '%.*s'; known are llama, gpt2, gemma4, "
                       "bert",
                       g->path, (int)(model.len < 64 ? model.len : 64),
                       model.data);
    SB_TRY(add_tokens(t, g));
    add_specials(t, g, spm);
    for (uint32_t i = 0; i < t->n_real; i++)
        if (t->tokens[i].kind == SB_TOKEN_CONTROL ||
            t->tokens[i].kind == SB_TOKEN_USER)
            SB_TRY(sb_tokenizer_add_literal(t, &(sb_added_token){.id = i}));
    SB_TRY(sb_tokenizer_sort_literals(t));
    if (bert)
        return add_wordpiece(t, g);
    if (t->byte_level) {
        SB_TRY(find_cut(t, g));
        return add_merges(t, g);
    }
    t->fuse_unknown = true;
    if (merged) {
        SB_TRY(sb_tokenizer_metaspace(t, false, false));
        return add_merges(t, g);
    }
    (void)sb_gguf_number(g, "tokenizer.ggml.add_space_prefix", &prefix);
    SB_TRY(sb_tokenizer_metaspace(t, prefix > 0, false));
    return sb_merges_from_scores(t);
}

sb_status sb_tokenizer_read_gguf(sb_tokenizer *t, const char *path)
{
    sb_gguf g = {0};
    sb_status status = sb_gguf_open(&g, t->ctx, path);

    if (status == SB_OK)
        status = read_parts(t, &g);
    sb_gguf_free(&g);
    return status;
}
