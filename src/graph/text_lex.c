/* Characters to words, strings and numbers for the graph parser. */
#include "graph/text_lex.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "graph/text_common.h"

enum { NUMBER_MOST = 64 };

void sb_lex_init(sb_lex *lex, sb_ctx *ctx, const char *text)
{
    *lex = (sb_lex){.ctx = ctx, .at = text, .line = 1};
    sb_str_init(&lex->word, ctx);
}

void sb_lex_free(sb_lex *lex)
{
    sb_str_free(&lex->word);
}

sb_status sb_lex_fail(sb_lex *lex, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return sb_fail(lex->ctx, SB_BAD_MODEL, "line %zu: %s", lex->line, text);
}

sb_status sb_lex_unexpected(sb_lex *lex, const char *want)
{
    if (sb_lex_peek(lex) == '\0')
        return sb_lex_fail(lex, "the text ends, want %s", want);
    return sb_lex_fail(lex, "found '%.16s', want %s", lex->at, want);
}

char sb_lex_peek(sb_lex *lex)
{
    for (;; lex->at++) {
        if (*lex->at == '#')
            while (*lex->at && *lex->at != '\n')
                lex->at++;
        if (*lex->at == '\n')
            lex->line++;
        else if (*lex->at != ' ' && *lex->at != '\t' && *lex->at != '\r')
            return *lex->at;
    }
}

bool sb_lex_accept(sb_lex *lex, const char *text)
{
    (void)sb_lex_peek(lex);
    if (strncmp(lex->at, text, strlen(text)) != 0)
        return false;
    lex->at += strlen(text);
    return true;
}

sb_status sb_lex_expect(sb_lex *lex, const char *text)
{
    char want[32];

    if (sb_lex_accept(lex, text))
        return SB_OK;
    (void)snprintf(want, sizeof want, "'%s'", text);
    return sb_lex_unexpected(lex, want);
}

bool sb_lex_at_word(sb_lex *lex, const char *word)
{
    size_t len = strlen(word);

    (void)sb_lex_peek(lex);
    return strncmp(lex->at, word, len) == 0 && !sb_text_word_char(lex->at[len]);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* One escaped character; lex->at is behind the backslash. */
static sb_status read_escape(sb_lex *lex, char *out)
{
    char c = *lex->at;

    if (c == 'x') {
        int hi = hex_digit(lex->at[1]);
        int lo = hi < 0 ? -1 : hex_digit(lex->at[2]);
        if (lo < 0)
            return sb_lex_fail(lex, "found a bad \\x escape, want two digits");
        lex->at += 3;
        *out = (char)(unsigned char)(hi * 16 + lo);
        return SB_OK;
    }
    if (c != '\\' && c != '"' && c != '`' && c != 'n' && c != 't')
        return sb_lex_fail(lex, "found an escape '\\%c' that is not known",
                           isprint((unsigned char)c) ? c : '?');
    lex->at++;
    *out = c == 'n' ? '\n' : c == 't' ? '\t' : c;
    return SB_OK;
}

static sb_status read_quoted(sb_lex *lex, char quote)
{
    sb_str_clear(&lex->word);
    sb_str_add(&lex->word, "");
    lex->at++;
    while (*lex->at != quote) {
        char c = *lex->at;
        if (c == '\0' || c == '\n')
            return sb_lex_fail(lex, "a quote (%c) is not closed", quote);
        lex->at++;
        if (c == '\\')
            SB_TRY(read_escape(lex, &c));
        sb_str_addn(&lex->word, &c, 1);
    }
    lex->at++;
    return sb_str_status(&lex->word);
}

sb_status sb_lex_name(sb_lex *lex)
{
    if (sb_lex_peek(lex) == '`') {
        SB_TRY(read_quoted(lex, '`'));
        if (strlen(sb_str_text(&lex->word)) != lex->word.len)
            return sb_lex_fail(lex, "a name holds a zero byte");
        return SB_OK;
    }
    const char *begin = lex->at;
    while (sb_text_word_char(*lex->at))
        lex->at++;
    if (lex->at == begin)
        return sb_lex_unexpected(lex, "a name");
    sb_str_clear(&lex->word);
    sb_str_addn(&lex->word, begin, (size_t)(lex->at - begin));
    return sb_str_status(&lex->word);
}

sb_status sb_lex_string(sb_lex *lex)
{
    if (sb_lex_peek(lex) != '"')
        return sb_lex_unexpected(lex, "a string");
    return read_quoted(lex, '"');
}

/* The characters of a number into `text`; empty if there is none. */
static size_t number_text(sb_lex *lex, char *text)
{
    size_t n = 0;

    (void)sb_lex_peek(lex);
    while (n < NUMBER_MOST - 1 &&
           (isalnum((unsigned char)*lex->at) || *lex->at == '.' ||
            *lex->at == '-' || *lex->at == '+'))
        text[n++] = *lex->at++;
    text[n] = '\0';
    return n;
}

sb_status sb_lex_number_read(sb_lex *lex, sb_lex_number *out)
{
    char text[NUMBER_MOST];
    char *end = NULL;
    size_t n = number_text(lex, text);

    if (n == 0)
        return sb_lex_unexpected(lex, "a number");
    *out = (sb_lex_number){.is_negative = text[0] == '-'};
    bool digits = text[strspn(text, "+-0123456789")] == '\0';
    out->is_float = !digits;
    if (!digits) {
        /* strtod also knows hexadecimal and nan(...): not here. */
        const char *word = text + strspn(text, "+-");
        bool known = strcmp(word, "inf") == 0 || strcmp(word, "nan") == 0 ||
                     text[strspn(text, "+-.eE0123456789")] == '\0';
        if (!known || !sb_number_read(text, &out->f))
            return sb_lex_fail(lex, "found '%s', want a number", text);
        return SB_OK;
    }
    errno = 0;
    if (out->is_negative)
        out->i = strtoll(text, &end, 10);
    else
        out->i = (int64_t)strtoull(text, &end, 10);
    if (errno || *end || end == text)
        return sb_lex_fail(lex, "found '%s', want a number of 64 bits", text);
    out->f = out->is_negative ? (double)out->i : (double)(uint64_t)out->i;
    if (out->is_negative && out->i == 0)
        out->f = -0.0;
    return SB_OK;
}
