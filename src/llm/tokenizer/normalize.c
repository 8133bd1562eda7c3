/* Rewriting a text before it is cut. */
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "llm/tokenizer/tokenizer.h"

sb_status sb_tokenizer_add_norm(sb_tokenizer *t, const sb_norm_step *step)
{
    if (t->n_norms == SB_STEPS_MOST)
        return sb_fail(t->ctx, SB_UNSUPPORTED, "more than %d normalizers",
                       SB_STEPS_MOST);
    t->norms[t->n_norms++] = *step;
    return SB_OK;
}

sb_status sb_tokenizer_metaspace(sb_tokenizer *t, bool prefix, bool squeeze)
{
    static const char space[] = "\xe2\x96\x81"; /* U+2581 */
    const sb_norm_step steps[] = {
        {.kind = SB_NORM_SQUEEZE},
        {.kind = SB_NORM_PREPEND, .text = " ", .text_len = 1},
        {.kind = SB_NORM_REPLACE,
         .find = " ",
         .find_len = 1,
         .text = space,
         .text_len = 3},
    };

    t->strip_decoded = prefix;
    if (squeeze)
        SB_TRY(sb_tokenizer_add_norm(t, &steps[0]));
    if (prefix)
        SB_TRY(sb_tokenizer_add_norm(t, &steps[1]));
    return sb_tokenizer_add_norm(t, &steps[2]);
}

/* ---- steps: from `in` to `out`, which is empty -------------------------- */

static void norm_prepend(const sb_norm_step *s, const sb_str *in, bool at_start,
                         sb_str *out)
{
    bool there = s->unless_there && in->len >= s->text_len &&
                 memcmp(in->data, s->text, s->text_len) == 0;

    if (in->len && !there && (at_start || !s->first_only))
        sb_str_addn(out, s->text, s->text_len);
    sb_str_addn(out, sb_str_text(in), in->len);
}

static void norm_replace(const sb_norm_step *s, const sb_str *in, sb_str *out)
{
    const char *p = sb_str_text(in);

    for (size_t at = 0; at < in->len;) {
        if (s->find_len && in->len - at >= s->find_len &&
            memcmp(p + at, s->find, s->find_len) == 0) {
            sb_str_addn(out, s->text, s->text_len);
            at += s->find_len;
        } else {
            sb_str_addn(out, p + at++, 1);
        }
    }
}

static sb_status norm_unicode(sb_ctx *ctx, int how, const sb_str *in,
                              sb_str *out)
{
    utf8proc_uint8_t *text = NULL;
    utf8proc_ssize_t n =
        utf8proc_map((const utf8proc_uint8_t *)sb_str_text(in),
                     (utf8proc_ssize_t)in->len, &text, (utf8proc_option_t)how);

    if (n < 0)
        return sb_fail(ctx,
                       n == UTF8PROC_ERROR_NOMEM ? SB_NO_MEMORY : SB_BAD_DATA,
                       "the text cannot be normalized: %s", utf8proc_errmsg(n));
    sb_str_addn(out, (const char *)text, (size_t)n);
    free(text); /* the library's own */
    return SB_OK;
}

sb_status sb_next_char(const sb_str *in, size_t at, int32_t *c, size_t *bytes)
{
    utf8proc_ssize_t n =
        utf8proc_iterate((const utf8proc_uint8_t *)sb_str_text(in) + at,
                         (utf8proc_ssize_t)(in->len - at), c);

    if (n <= 0)
        return sb_fail(in->ctx, SB_BAD_DATA, "the text is not UTF-8");
    *bytes = (size_t)n;
    return SB_OK;
}

static sb_status norm_lower(const sb_str *in, sb_str *out)
{
    size_t n = 0;

    for (size_t at = 0; at < in->len; at += n) {
        int32_t c = 0;
        utf8proc_uint8_t bytes[4];

        SB_TRY(sb_next_char(in, at, &c, &n));
        utf8proc_ssize_t m = utf8proc_encode_char(utf8proc_tolower(c), bytes);
        if (c == 0x130) /* the only letter that becomes two: a dot remains */
            sb_str_addn(out, "i\xcc\x87", 3);
        else
            sb_str_addn(out, (const char *)bytes, (size_t)m);
    }
    return SB_OK;
}

static sb_status norm_unmark(const sb_str *in, sb_str *out)
{
    size_t n = 0;

    for (size_t at = 0; at < in->len; at += n) {
        int32_t c = 0;

        SB_TRY(sb_next_char(in, at, &c, &n));
        if (utf8proc_category(c) != UTF8PROC_CATEGORY_MN)
            sb_str_addn(out, sb_str_text(in) + at, n);
    }
    return SB_OK;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void norm_strip(const sb_norm_step *s, const sb_str *in, sb_str *out)
{
    const char *p = sb_str_text(in);
    size_t begin = 0, end = in->len;

    while ((s->how & 1) && begin < end && is_blank(p[begin]))
        begin++;
    while ((s->how & 2) && begin < end && is_blank(p[end - 1]))
        end--;
    sb_str_addn(out, p + begin, end - begin);
}

static void norm_squeeze(const sb_str *in, sb_str *out)
{
    const char *p = sb_str_text(in);
    bool space = false;

    for (size_t at = 0; at < in->len; at++) {
        if (p[at] == ' ') {
            space = out->len > 0;
            continue;
        }
        if (space)
            sb_str_addn(out, " ", 1);
        space = false;
        sb_str_addn(out, p + at, 1);
    }
}

/* SentencePiece's table: a double array over the bytes of what is replaced,
 * whose leaves are places of zero-terminated texts behind it.  The file is not
 * trusted: every step stays inside. */
typedef struct charsmap {
    const uint8_t *units;
    size_t n_units;
    const char *texts;
    size_t n_texts;
} charsmap;

static uint32_t charsmap_unit(const charsmap *m, size_t i)
{
    const uint8_t *p = m->units + 4 * i;

    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
           (uint32_t)p[3] << 24;
}

static size_t charsmap_offset(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 512) >> 6);
}

/* The longest beginning of the text that is replaced; 0: none. */
static size_t charsmap_find(const charsmap *m, const char *text, size_t len,
                            size_t *value)
{
    size_t node = 0, best = 0;

    if (m->n_units == 0)
        return 0;
    node ^= charsmap_offset(charsmap_unit(m, 0));
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];

        node ^= c;
        if (node >= m->n_units)
            return best;
        uint32_t unit = charsmap_unit(m, node);
        if ((unit & (0x80000000u | 0xff)) != c)
            return best;
        node ^= charsmap_offset(unit);
        if ((unit >> 8 & 1) && node < m->n_units) {
            best = i + 1;
            *value = charsmap_unit(m, node) & 0x7fffffffu;
        }
    }
    return best;
}

static void norm_charsmap(const sb_norm_step *s, const sb_str *in, sb_str *out)
{
    const uint8_t *p = (const uint8_t *)s->text;
    const char *text = sb_str_text(in);
    size_t size = 0;

    if (s->text_len >= 4)
        size = (size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 |
               (size_t)p[3] << 24;
    if (s->text_len < 4 || size > s->text_len - 4)
        size = 0;
    const charsmap m = {p + 4, size / 4, (const char *)p + 4 + size,
                        s->text_len < 4 ? 0 : s->text_len - 4 - size};
    for (size_t at = 0; at < in->len;) {
        size_t value = 0;
        size_t n = charsmap_find(&m, text + at, in->len - at, &value);

        if (n && value < m.n_texts) {
            size_t most = m.n_texts - value;
            const char *end = memchr(m.texts + value, '\0', most);
            sb_str_addn(out, m.texts + value,
                        end ? (size_t)(end - m.texts) - value : most);
        } else {
            n = sb_utf8_size(text + at, in->len - at);
            n = n ? n : 1;
            sb_str_addn(out, text + at, n);
        }
        at += n;
    }
}

static sb_status norm_step(const sb_norm_step *s, const sb_str *in,
                           bool at_start, sb_str *out)
{
    switch (s->kind) {
    case SB_NORM_PREPEND:
        norm_prepend(s, in, at_start, out);
        return SB_OK;
    case SB_NORM_REPLACE:
        norm_replace(s, in, out);
        return SB_OK;
    case SB_NORM_UNICODE:
        return norm_unicode(in->ctx, s->how, in, out);
    case SB_NORM_LOWER:
        return norm_lower(in, out);
    case SB_NORM_STRIP:
        norm_strip(s, in, out);
        return SB_OK;
    case SB_NORM_SQUEEZE:
        norm_squeeze(in, out);
        return SB_OK;
    case SB_NORM_CHARSMAP:
        norm_charsmap(s, in, out);
        return SB_OK;
    case SB_NORM_BERT:
        return sb_norm_bert(s->how, in, out);
    case SB_NORM_UNMARK:
        return norm_unmark(in, out);
    }
    return SB_OK;
}

sb_status sb_normalize(const sb_tokenizer *t, const char *text, size_t len,
                       bool at_start, sb_str *out, sb_str *spare)
{
    sb_str_clear(out);
    sb_str_addn(out, text, len);
    for (size_t i = 0; i < t->n_norms; i++) {
        sb_str_clear(spare);
        SB_TRY(norm_step(&t->norms[i], out, at_start, spare));
        sb_str swap = *out;
        *out = *spare;
        *spare = swap;
    }
    SB_TRY(sb_str_status(spare));
    return sb_str_status(out);
}
