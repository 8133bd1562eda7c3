/* Glob patterns: `*`, `?`, `[set]`.
 *
 * One star is remembered at a time: if what follows it fails, it swallows one
 * more character.  An earlier star never has to be taken up again, so the time
 * is at most length of pattern times length of text. */
#include "base/glob.h"

#include <stddef.h>

/* Matches one character against the set that starts behind `[`.  Returns the
 * place behind `]`, or NULL if the set is not closed: then `[` is meant. */
static const char *match_set(const char *set, unsigned char c, bool *hit)
{
    bool negated = *set == '!';
    const char *p = set + negated;
    const char *first = p;

    *hit = false;
    for (; *p && (*p != ']' || p == first); p++) {
        unsigned char lo = (unsigned char)*p, hi = lo;
        if (p[1] == '-' && p[2] && p[2] != ']') {
            hi = (unsigned char)p[2];
            p += 2;
        }
        if (lo <= c && c <= hi)
            *hit = true;
    }
    if (*p != ']')
        return NULL;
    *hit = *hit != negated;
    return p + 1;
}

/* Matches one character of the text; returns the rest of the pattern. */
static const char *match_one(const char *pattern, char c)
{
    bool hit = false;

    if (*pattern == '?')
        return pattern + 1;
    if (*pattern == '[') {
        const char *rest = match_set(pattern + 1, (unsigned char)c, &hit);
        if (rest)
            return hit ? rest : NULL;
    }
    return *pattern == c ? pattern + 1 : NULL;
}

bool sb_glob_match_dot(const char *pattern, const char *text, char dot)
{
    const char *star = NULL, *retry = NULL;

    while (*text) {
        const char *next = NULL;
        char c = *text == '.' ? dot : *text;
        if (*pattern == '*') {
            star = ++pattern;
            retry = text;
            continue;
        }
        if (*pattern && (next = match_one(pattern, c)) != NULL) {
            pattern = next;
            text++;
        } else if (star) {
            pattern = star;
            text = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

bool sb_glob_match(const char *pattern, const char *text)
{
    return sb_glob_match_dot(pattern, text, '.');
}
