/* str.h - a growing string.
 *
 * Appending never fails at the call: a failed allocation is remembered and
 * reported once by sb_str_status(), so code that prints stays readable. */
#ifndef SB_BASE_STR_H
#define SB_BASE_STR_H

#include "base/alloc.h"

typedef struct sb_str {
    sb_ctx *ctx;
    char *data; /* NUL-terminated; NULL while empty */
    size_t len;
    size_t cap;
    bool failed;
} sb_str;

void sb_str_init(sb_str *s, sb_ctx *ctx);
void sb_str_free(sb_str *s);
void sb_str_clear(sb_str *s);
void sb_str_addn(sb_str *s, const char *text, size_t len);
void sb_str_add(sb_str *s, const char *text);
void sb_str_addf(sb_str *s, const char *fmt, ...) SB_PRINTF(2, 3);
/* The text between double quotes, escaped as JSON wants it.  A byte that is not
 * UTF-8 becomes \udc80 to \udcff. */
void sb_str_add_json(sb_str *s, const char *text);
SB_MUST_USE sb_status sb_str_status(const sb_str *s);
/* The text; "" while empty.  Borrowed. */
const char *sb_str_text(const sb_str *s);
/* Hands the buffer to the caller, who frees it with sb_free(). */
SB_MUST_USE sb_status sb_str_take(sb_str *s, char **out);

/* A copy for the caller of the library, who frees it with sb_memory_free(). */
SB_MUST_USE sb_status sb_str_copy_out(const sb_str *s, char **out);
/* Bytes of the UTF-8 character at the start of `text`; 0 if there is none. */
size_t sb_utf8_size(const char *text, size_t size);
/* The same if a terminal shows it as a part of one line, else 0. */
size_t sb_printable_size(const char *text, size_t size);
/* Puts '?' for everything else: names come from files, and nothing in them may
 * move a cursor or look like another line. */
void sb_text_make_printable(char *text);

bool sb_text_ends_with(const char *text, const char *end);
/* Length of `text` without the first of `tails` (NULL after the last) that it
 * ends with and is longer than. */
size_t sb_text_before(const char *text, const char *const *tails);

#endif
