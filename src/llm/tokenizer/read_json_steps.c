/* Normalizers and pre-tokenizers of tokenizer.json. */
#include <string.h>

#include <utf8proc.h>

#include "llm/tokenizer/read_json.h"

enum { DEPTH_MOST = 4 };

static sb_status step_unknown(sb_tokenizer *t, const sb_json_doc *doc,
                              const sb_json *node, const char *what,
                              const char *known)
{
    const char *type = sb_json_text(sb_json_get(node, "type"));

    return sb_fail(t->ctx, SB_UNSUPPORTED, "%s: %s '%.64s'; known are %s",
                   doc->file, what, type ? type : "", known);
}

static sb_status step_text(sb_tokenizer *t, const sb_json_doc *doc,
                           const sb_json *node, const char *key,
                           const char **out)
{
    const sb_json *v = sb_json_get(node, key);

    if (!sb_json_text(v))
        return sb_json_fail(doc, node, "there is no %s", key);
    *out = sb_arena_str(&t->arena, v->text);
    return *out ? SB_OK : SB_NO_MEMORY;
}

/* ---- normalizers -------------------------------------------------------- */

static const struct {
    const char *name;
    int how;
} unicode_forms[] = {
    {"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
    {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
    {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
    {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
};

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "abcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *p = c ? strchr(digits, c) : NULL;

    return p ? (int)(p - digits) : -1;
}

static sb_status read_charsmap(sb_tokenizer *t, const sb_json_doc *doc,
                               const sb_json *n)
{
    const char *text = sb_json_text(sb_json_get(n, "precompiled_charsmap"));
    uint32_t bits = 0;
    int have = 0;
    size_t len = 0;

    if (!text)
        return SB_OK; /* null: nothing is replaced */
    char *out = sb_arena_alloc(&t->arena, strlen(text) + 1, 1);
    if (!out)
        return SB_NO_MEMORY;
    for (; *text && *text != '='; text++) {
        int d = base64_digit(*text);

        if (d < 0)
            return sb_json_fail(doc, n, "precompiled_charsmap is no base64");
        bits = bits << 6 | (uint32_t)d;
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[len++] = (char)(bits >> have);
        }
    }
    return sb_tokenizer_add_norm(t, &(sb_norm_step){.kind = SB_NORM_CHARSMAP,
                                                    .text = out,
                                                    .text_len = len});
}

static sb_status read_replace(sb_tokenizer *t, const sb_json_doc *doc,
                              const sb_json *n)
{
    const sb_json *pattern = sb_json_get(n, "pattern");
    sb_norm_step step = {.kind = SB_NORM_REPLACE};

    if (sb_json_get(pattern, "Regex"))
        return sb_fail(t->ctx, SB_UNSUPPORTED,
                       "%s: a normalizer that replaces by a pattern",
                       doc->file);
    SB_TRY(step_text(t, doc, pattern, "String", &step.find));
    SB_TRY(step_text(t, doc, n, "content", &step.text));
    step.find_len = strlen(step.find);
    step.text_len = strlen(step.text);
    return sb_tokenizer_add_norm(t, &step);
}

static sb_status read_simple_norm(sb_tokenizer *t, const sb_json_doc *doc,
                                  const sb_json *n)
{
    sb_norm_step step = {.kind = SB_NORM_LOWER};

    for (size_t i = 0; i < SB_COUNT(unicode_forms); i++)
        if (sb_json_type_is(n, unicode_forms[i].name)) {
            step.kind = SB_NORM_UNICODE;
            step.how = unicode_forms[i].how;
            return sb_tokenizer_add_norm(t, &step);
        }
    if (sb_json_type_is(n, "Lowercase"))
        return sb_tokenizer_add_norm(t, &step);
    if (sb_json_type_is(n, "StripAccents")) {
        step.kind = SB_NORM_UNMARK;
        return sb_tokenizer_add_norm(t, &step);
    }
    if (sb_json_type_is(n, "Strip")) {
        step.kind = SB_NORM_STRIP;
        step.how = (sb_json_flag(n, "strip_left", true) ? 1 : 0) |
                   (sb_json_flag(n, "strip_right", true) ? 2 : 0);
        return sb_tokenizer_add_norm(t, &step);
    }
    if (sb_json_type_is(n, "Prepend")) {
        step.kind = SB_NORM_PREPEND;
        SB_TRY(step_text(t, doc, n, "prepend", &step.text));
        step.text_len = strlen(step.text);
        return sb_tokenizer_add_norm(t, &step);
    }
    return step_unknown(t, doc, n, "normalizer",
                        "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Strip, "
                        "StripAccents, Prepend, Replace, Precompiled, "
                        "BertNormalizer");
}

sb_status sb_json_normalizer(sb_tokenizer *t, const sb_json_doc *doc,
                             const sb_json *n, int depth)
{
    if (!sb_json_is(n, SB_JSON_OBJECT))
        return SB_OK;
    if (sb_json_type_is(n, "Sequence") && depth < DEPTH_MOST) {
        const sb_json *list = sb_json_get(n, "normalizers");
        for (const sb_json *i = list ? list->child : NULL; i; i = i->next)
            SB_TRY(sb_json_normalizer(t, doc, i, depth + 1));
        return SB_OK;
    }
    if (sb_json_type_is(n, "BertNormalizer")) {
        bool lower = sb_json_flag(n, "lowercase", true);
        int how =
            (sb_json_flag(n, "clean_text", true) ? SB_BERT_CLEAN : 0) |
            (sb_json_flag(n, "handle_chinese_chars", true) ? SB_BERT_IDEOGRAPHS
                                                           : 0);

        return sb_tokenizer_bert_norms(t, how, lower,
                                       sb_json_flag(n, "strip_accents", lower));
    }
    if (sb_json_type_is(n, "Replace"))
        return read_replace(t, doc, n);
    if (sb_json_type_is(n, "Precompiled"))
        return read_charsmap(t, doc, n);
    return read_simple_norm(t, doc, n);
}

/* ---- pre-tokenizers ----------------------------------------------------- */

static sb_status read_split(sb_tokenizer *t, const sb_json_doc *doc,
                            const sb_json *p)
{
    static const struct {
        const char *name;
        sb_cut_keep keep;
    } ways[] = {{"Isolated", SB_CUT_ISOLATED},
                {"Removed", SB_CUT_REMOVED},
                {"MergedWithPrevious", SB_CUT_WITH_PREVIOUS},
                {"MergedWithNext", SB_CUT_WITH_NEXT}};
    const sb_json *pattern = sb_json_get(p, "pattern");
    const char *way = sb_json_text(sb_json_get(p, "behavior"));
    const char *regex = sb_json_text(sb_json_get(pattern, "Regex"));
    const char *text = sb_json_text(sb_json_get(pattern, "String"));
    bool invert = sb_json_flag(p, "invert", false);

    if (!regex && text)
        regex = sb_arena_printf(&t->arena, "\\Q%s\\E", text);
    if (!regex)
        return sb_json_fail(doc, p, "want a pattern");
    for (size_t i = 0; way && i < SB_COUNT(ways); i++)
        if (strcmp(way, ways[i].name) == 0 &&
            (!invert || ways[i].keep <= SB_CUT_REMOVED))
            return sb_tokenizer_add_cut(t, doc->file, regex, ways[i].keep,
                                        invert);
    return sb_fail(t->ctx, SB_UNSUPPORTED,
                   "%s: a Split with behavior '%.64s'%s; known are Isolated, "
                   "Removed, MergedWithPrevious, MergedWithNext",
                   doc->file, way ? way : "", invert ? ", inverted" : "");
}

/* What changes spaces does so before all cuts for us, not behind those that
 * came first. */
static sb_status check_first(sb_tokenizer *t, const sb_json_doc *doc,
                             const sb_json *p)
{
    if (t->n_cuts == 0)
        return SB_OK;
    return sb_fail(t->ctx, SB_UNSUPPORTED,
                   "%s: pre-tokenizer '%s' changes spaces behind another one; "
                   "known is only WhitespaceSplit with Metaspace (always)",
                   doc->file, sb_json_text(sb_json_get(p, "type")));
}

static sb_status read_byte_level(sb_tokenizer *t, const sb_json_doc *doc,
                                 const sb_json *p)
{
    t->byte_level = true;
    if (sb_json_flag(p, "add_prefix_space", true)) {
        SB_TRY(check_first(t, doc, p));
        SB_TRY(sb_tokenizer_add_norm(t, &(sb_norm_step){.kind = SB_NORM_PREPEND,
                                                        .text = " ",
                                                        .text_len = 1,
                                                        .unless_there = true}));
    }
    return sb_json_flag(p, "use_regex", true)
               ? sb_tokenizer_add_cut(t, doc->file, sb_gpt2_pattern,
                                      SB_CUT_ISOLATED, false)
               : SB_OK;
}

static sb_status add_space_cut(sb_tokenizer *t, const sb_json_doc *doc,
                               const sb_json *p, const char *space)
{
    if (!sb_json_flag(p, "split", true))
        return SB_OK;
    const char *regex = sb_arena_printf(&t->arena, "\\Q%s\\E", space);
    return regex ? sb_tokenizer_add_cut(t, doc->file, regex, SB_CUT_WITH_NEXT,
                                        false)
                 : SB_NO_MEMORY;
}

static sb_status read_metaspace(sb_tokenizer *t, const sb_json_doc *doc,
                                const sb_json *p)
{
    const char *scheme = sb_json_text(sb_json_get(p, "prepend_scheme"));
    sb_norm_step space = {.kind = SB_NORM_REPLACE, .find = " ", .find_len = 1};

    SB_TRY(check_first(t, doc, p));
    SB_TRY(step_text(t, doc, p, "replacement", &space.text));
    space.text_len = strlen(space.text);
    SB_TRY(sb_tokenizer_add_norm(t, &space));
    bool prepend = scheme ? strcmp(scheme, "never") != 0
                          : sb_json_flag(p, "add_prefix_space", true);
    if (prepend) {
        sb_norm_step first = space;
        first.kind = SB_NORM_PREPEND;
        first.unless_there = true;
        first.first_only = scheme && strcmp(scheme, "first") == 0;
        SB_TRY(sb_tokenizer_add_norm(t, &first));
    }
    return add_space_cut(t, doc, p, space.text);
}

/* Types that are a pattern. */
static const struct {
    const char *name, *pattern;
    sb_cut_keep keep;
    bool invert;
} patterns[] = {
    {"WhitespaceSplit", "\\s+", SB_CUT_REMOVED, false},
    {"Whitespace", "\\w+|[^\\w\\s]+", SB_CUT_REMOVED, true},
};

static sb_status read_punctuation(sb_tokenizer *t, const sb_json_doc *doc,
                                  const sb_json *p)
{
    const char *way = sb_json_text(sb_json_get(p, "behavior"));
    bool runs = way && strcmp(way, "Contiguous") == 0;

    if (way && !runs && strcmp(way, "Isolated") != 0)
        return sb_fail(t->ctx, SB_UNSUPPORTED,
                       "%s: Punctuation with behavior '%.64s'; known are "
                       "Isolated, Contiguous",
                       doc->file, way);
    const char *regex = sb_arena_printf(&t->arena, runs ? "(?:%s)+" : "%s",
                                        sb_punctuation_pattern);
    return regex ? sb_tokenizer_add_cut(t, doc->file, regex, SB_CUT_ISOLATED,
                                        false)
                 : SB_NO_MEMORY;
}

/* Each word gets the mark of a space, and no space is left to become one. */
static bool are_marked_words(const sb_tokenizer *t, const sb_json *p)
{
    const char *scheme = sb_json_text(sb_json_get(p->next, "prepend_scheme"));

    return t->n_cuts == 0 && sb_json_type_is(p, "WhitespaceSplit") && p->next &&
           sb_json_type_is(p->next, "Metaspace") &&
           (scheme ? strcmp(scheme, "always") == 0
                   : sb_json_flag(p->next, "add_prefix_space", true));
}

static sb_status read_marked_words(sb_tokenizer *t, const sb_json_doc *doc,
                                   const sb_json *metaspace)
{
    const char *mark = NULL;

    SB_TRY(step_text(t, doc, metaspace, "replacement", &mark));
    t->word_mark = mark;
    SB_TRY(sb_tokenizer_add_cut(t, doc->file, "\\s+", SB_CUT_REMOVED, false));
    return add_space_cut(t, doc, metaspace, mark);
}

static sb_status read_sequence(sb_tokenizer *t, const sb_json_doc *doc,
                               const sb_json *p, int depth)
{
    const sb_json *list = sb_json_get(p, "pretokenizers");

    for (const sb_json *i = list ? list->child : NULL; i; i = i->next) {
        bool marked = are_marked_words(t, i);

        SB_TRY(marked ? read_marked_words(t, doc, i->next)
                      : sb_json_pre_tokenizer(t, doc, i, depth));
        i = marked ? i->next : i;
    }
    return SB_OK;
}

sb_status sb_json_pre_tokenizer(sb_tokenizer *t, const sb_json_doc *doc,
                                const sb_json *p, int depth)
{
    if (!sb_json_is(p, SB_JSON_OBJECT))
        return SB_OK;
    if (sb_json_type_is(p, "Sequence") && depth < DEPTH_MOST)
        return read_sequence(t, doc, p, depth + 1);
    if (sb_json_type_is(p, "ByteLevel"))
        return read_byte_level(t, doc, p);
    if (sb_json_type_is(p, "Split"))
        return read_split(t, doc, p);
    if (sb_json_type_is(p, "Metaspace"))
        return read_metaspace(t, doc, p);
    if (sb_json_type_is(p, "Digits"))
        return sb_tokenizer_add_cut(
            t, doc->file,
            sb_json_flag(p, "individual_digits", false) ? "\\p{N}" : "\\p{N}+",
            SB_CUT_ISOLATED, false);
    if (sb_json_type_is(p, "Punctuation"))
        return read_punctuation(t, doc, p);
    if (sb_json_type_is(p, "BertPreTokenizer"))
        return sb_tokenizer_bert_cuts(t, doc->file);
    for (size_t i = 0; i < SB_COUNT(patterns); i++)
        if (sb_json_type_is(p, patterns[i].name))
            return sb_tokenizer_add_cut(t, doc->file, patterns[i].pattern,
                                        patterns[i].keep, patterns[i].invert);
    return step_unknown(t, doc, p, "pre-tokenizer",
                        "Sequence, ByteLevel, Split, Metaspace, Digits, "
                        "Whitespace, WhitespaceSplit, Punctuation, "
                        "BertPreTokenizer");
}
