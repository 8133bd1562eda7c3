/* A growing string. */
#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void sb_str_init(sb_str *s, sb_ctx *ctx)
{
    *s = (sb_str){.ctx = ctx};
}

void sb_str_free(sb_str *s)
{
    sb_free(s->ctx, s->data);
    sb_str_init(s, s->ctx);
}

void sb_str_clear(sb_str *s)
{
    s->len = 0;
    if (s->data)
        s->data[0] = '\0';
}

static bool str_reserve(sb_str *s, size_t more)
{
    size_t want = 0;

    if (s->failed || !sb_add_size(s->len, more, &want) ||
        !sb_add_size(want, 1, &want) ||
        sb_grow(s->ctx, &s->data, &s->cap, want, 1) != SB_OK) {
        s->failed = true;
        return false;
    }
    return true;
}

void sb_str_addn(sb_str *s, const char *text, size_t len)
{
    if (!str_reserve(s, len))
        return;
    if (len)
        memcpy(s->data + s->len, text, len);
    s->len += len;
    s->data[s->len] = '\0';
}

void sb_str_add(sb_str *s, const char *text)
{
    sb_str_addn(s, text, strlen(text));
}

void sb_str_addf(sb_str *s, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0 || !str_reserve(s, (size_t)n))
        return;
    va_start(args, fmt);
    (void)vsnprintf(s->data + s->len, (size_t)n + 1, fmt, args);
    va_end(args);
    s->len += (size_t)n;
}

/* By the table of well-formed sequences: no long forms, no surrogates, nothing
 * above U+10FFFF. */
size_t sb_utf8_size(const char *text, size_t size)
{
    const unsigned char *s = (const unsigned char *)text;

    if (size == 0)
        return 0;
    if (s[0] < 0x80)
        return 1;
    size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || size < n)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    unsigned second = s[1];
    if ((s[0] == 0xe0 && second < 0xa0) || (s[0] == 0xed && second > 0x9f) ||
        (s[0] == 0xf0 && second < 0x90) || (s[0] == 0xf4 && second > 0x8f))
        return 0;
    return n;
}

/* Not shown are control characters, of both halves of Latin-1, those that
 * change the direction of text or break lines: U+200E, U+200F, U+2028 to
 * U+202E, U+2066 to U+2069, and what is no character or a mark of byte order:
 * U+FEFF, U+FFFE, U+FFFF, which YAML does not take. */
size_t sb_printable_size(const char *text, size_t size)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t n = sb_utf8_size(text, size);

    if (n == 1 && (s[0] < 0x20 || s[0] == 0x7f))
        return 0;
    if (n == 2 && s[0] == 0xc2 && s[1] < 0xa0)
        return 0;
    if (n == 3 && s[0] == 0xe2 && s[1] == 0x80 &&
        (s[2] == 0x8e || s[2] == 0x8f || (s[2] >= 0xa8 && s[2] <= 0xae)))
        return 0;
    if (n == 3 && s[0] == 0xe2 && s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9)
        return 0;
    if (n == 3 && s[0] == 0xef &&
        ((s[1] == 0xbb && s[2] == 0xbf) || (s[1] == 0xbf && s[2] >= 0xbe)))
        return 0;
    return n;
}

void sb_text_make_printable(char *text)
{
    size_t size = strlen(text);

    for (size_t i = 0; i < size;) {
        size_t n = sb_printable_size(text + i, size - i);
        if (n == 0)
            text[i] = '?';
        i += n ? n : 1;
    }
}

void sb_str_add_json(sb_str *s, const char *text)
{
    size_t size = strlen(text);

    sb_str_add(s, "\"");
    for (size_t i = 0; i < size;) {
        unsigned char c = (unsigned char)text[i];
        size_t n = sb_utf8_size(text + i, size - i);
        if (n == 0)
            sb_str_addf(s, "\\udc%02x", c);
        else if (c == '"' || c == '\\')
            sb_str_addf(s, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            sb_str_addf(s, "\\u%04x", c);
        else
            sb_str_addn(s, text + i, n);
        i += n ? n : 1;
    }
    sb_str_add(s, "\"");
}

sb_status sb_str_status(const sb_str *s)
{
    return s->failed ? SB_NO_MEMORY : SB_OK;
}

const char *sb_str_text(const sb_str *s)
{
    return s->data ? s->data : "";
}

sb_status sb_str_copy_out(const sb_str *s, char **out)
{
    SB_TRY(sb_str_status(s));
    return sb_memory_create(s->ctx, sb_str_text(s), s->len, out);
}

sb_status sb_str_take(sb_str *s, char **out)
{
    if (!s->data)
        sb_str_add(s, "");
    SB_TRY(sb_str_status(s));
    *out = s->data;
    sb_str_init(s, s->ctx);
    return SB_OK;
}

bool sb_text_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);

    return n >= k && strcmp(text + n - k, end) == 0;
}

size_t sb_text_before(const char *text, const char *const *tails)
{
    size_t len = strlen(text);

    for (; *tails; tails++) {
        size_t n = strlen(*tails);
        if (len > n && strcmp(text + len - n, *tails) == 0)
            return len - n;
    }
    return len;
}
