/* WordPiece model, and the rewriting of texts that comes with it (BERT): a word
 * is cut from the left into the longest tokens there are; a word with a part
 * that is none is unknown as a whole.  Tokens that begin a word and those that
 * go on with it are told apart by a mark: "##" before the latter in files of
 * Hugging Face, U+2581 before the former in GGUF. */
#include "llm/tokenizer/tokenizer.h"

#include <string.h>

#include <utf8proc.h>

/* Longest token that the rest of the word begins with; 0 bytes: none. */
static size_t longest_piece(const sb_tokenizer *t, const char *word, size_t len,
                            const char *mark, sb_str *key, uint32_t *id)
{
    size_t marked = strlen(mark);
    size_t most = t->longest > marked ? t->longest - marked : 0;

    sb_str_clear(key);
    sb_str_addn(key, mark, marked);
    sb_str_addn(key, word, len < most ? len : most);
    if (sb_str_status(key) != SB_OK)
        return 0;
    for (size_t n = key->len - marked; n > 0; n--) {
        *id = sb_tokenizer_find(t, key->data, marked + n);
        if (*id != SB_TOKEN_NONE)
            return n;
    }
    return 0;
}

static size_t count_characters(const char *word, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++)
        n += (word[i] & 0xc0) != 0x80;
    return n;
}

sb_status sb_wordpiece_encode(const sb_tokenizer *t, const char *word,
                              size_t len, sb_ids *out)
{
    size_t before = out->n, at = 0;
    sb_status status = SB_OK;
    sb_str key;

    sb_str_init(&key, t->ctx);
    if (t->word_most && count_characters(word, len) > t->word_most)
        at = len + 1;
    while (at < len && status == SB_OK) {
        uint32_t id = SB_TOKEN_NONE;
        size_t n =
            longest_piece(t, word + at, len - at,
                          at ? t->mark_inside : t->mark_begin, &key, &id);

        status = n ? sb_ids_add(t->ctx, out, id) : sb_str_status(&key);
        at = n ? at + n : len + 1;
    }
    sb_str_free(&key);
    if (status == SB_OK && at > len) {
        out->n = before;
        if (t->unknown != SB_TOKEN_NONE)
            status = sb_ids_add(t->ctx, out, t->unknown);
    }
    return status;
}

/* ---- rewriting ---------------------------------------------------------- */

/* Ideographs that BERT takes for words of their own.  One range begins 256
 * characters later than its block of Unicode does, as in both programs whose
 * tokens are wanted here. */
static bool is_ideograph(utf8proc_int32_t c)
{
    static const utf8proc_int32_t ranges[][2] = {
        {0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},
        {0x20000, 0x2a6df}, {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f},
        {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f},
    };

    for (size_t i = 0; i < SB_COUNT(ranges); i++)
        if (c >= ranges[i][0] && c <= ranges[i][1])
            return true;
    return false;
}

static bool is_white(utf8proc_int32_t c, utf8proc_category_t kind)
{
    return c == '\t' || c == '\n' || c == '\r' ||
           (kind >= UTF8PROC_CATEGORY_ZS && kind <= UTF8PROC_CATEGORY_ZP);
}

/* Characters that show nothing. */
static bool is_hidden(utf8proc_int32_t c, utf8proc_category_t kind)
{
    return c == 0xfffd || kind == UTF8PROC_CATEGORY_CC ||
           kind == UTF8PROC_CATEGORY_CF || kind == UTF8PROC_CATEGORY_CO;
}

sb_status sb_norm_bert(int how, const sb_str *in, sb_str *out)
{
    size_t n = 0;

    for (size_t at = 0; at < in->len; at += n) {
        int32_t c = 0;

        SB_TRY(sb_next_char(in, at, &c, &n));
        utf8proc_category_t kind = utf8proc_category(c);
        bool apart = (how & SB_BERT_IDEOGRAPHS) && is_ideograph(c);
        bool white = (how & SB_BERT_CLEAN) && is_white(c, kind);
        if (white) {
            sb_str_addn(out, " ", 1);
        } else if (!(how & SB_BERT_CLEAN) || !is_hidden(c, kind)) {
            sb_str_addn(out, " ", apart);
            sb_str_addn(out, sb_str_text(in) + at, n);
            sb_str_addn(out, " ", apart);
        }
    }
    return SB_OK;
}

sb_status sb_tokenizer_bert_norms(sb_tokenizer *t, int how, bool lower,
                                  bool accents)
{
    const sb_norm_step steps[] = {
        {.kind = SB_NORM_BERT, .how = how},
        {.kind = SB_NORM_UNICODE, .how = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
        {.kind = SB_NORM_UNMARK},
        {.kind = SB_NORM_LOWER},
    };

    if (how)
        SB_TRY(sb_tokenizer_add_norm(t, &steps[0]));
    if (accents) {
        SB_TRY(sb_tokenizer_add_norm(t, &steps[1]));
        SB_TRY(sb_tokenizer_add_norm(t, &steps[2]));
    }
    return lower ? sb_tokenizer_add_norm(t, &steps[3]) : SB_OK;
}

sb_status sb_tokenizer_bert_cuts(sb_tokenizer *t, const char *file)
{
    SB_TRY(sb_tokenizer_add_cut(t, file, "\\s+", SB_CUT_REMOVED, false));
    return sb_tokenizer_add_cut(t, file, sb_punctuation_pattern,
                                SB_CUT_ISOLATED, false);
}
