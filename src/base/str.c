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

static bool reserve(sb_str *s, size_t more)
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
    if (!reserve(s, len))
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
    if (n < 0 || !reserve(s, (size_t)n))
        return;
    va_start(args, fmt);
    (void)vsnprintf(s->data + s->len, (size_t)n + 1, fmt, args);
    va_end(args);
    s->len += (size_t)n;
}

void sb_str_add_json(sb_str *s, const char *text)
{
    sb_str_add(s, "\"");
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\')
            sb_str_addf(s, "\\%c", *p);
        else if (*p < 0x20 || *p == 0x7f)
            sb_str_addf(s, "\\u%04x", *p);
        else
            sb_str_addn(s, (const char *)p, 1);
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

sb_status sb_str_take(sb_str *s, char **out)
{
    if (!s->data)
        sb_str_add(s, "");
    SB_TRY(sb_str_status(s));
    *out = s->data;
    sb_str_init(s, s->ctx);
    return SB_OK;
}
