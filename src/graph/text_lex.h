/* text_lex.h - the reader under the graph parser: words, strings, numbers. */
#ifndef SB_GRAPH_TEXT_LEX_H
#define SB_GRAPH_TEXT_LEX_H

#include "graph/graph.h"

typedef struct sb_lex {
    sb_ctx *ctx;
    const char *at;
    size_t line;
    sb_str word; /* the name or string read last */
} sb_lex;

/* A number as written: `is_float` if it has a point, an exponent, or is inf or
 * nan.  `i` holds the bits of integers up to UINT64_MAX. */
typedef struct sb_lex_number {
    bool is_float;
    bool is_negative;
    int64_t i;
    double f;
} sb_lex_number;

void sb_lex_init(sb_lex *lex, sb_ctx *ctx, const char *text);
void sb_lex_free(sb_lex *lex);
/* SB_BAD_MODEL with the line number in front. */
sb_status sb_lex_fail(sb_lex *lex, const char *fmt, ...) SB_PRINTF(2, 3);
/* "found ..., want `want`" */
sb_status sb_lex_unexpected(sb_lex *lex, const char *want);
/* The next character that is not space or comment; '\0' at the end. */
char sb_lex_peek(sb_lex *lex);
/* Skips `text` if it comes next. */
bool sb_lex_accept(sb_lex *lex, const char *text);
SB_MUST_USE sb_status sb_lex_expect(sb_lex *lex, const char *text);
/* Is the next word exactly this one?  Nothing is skipped. */
bool sb_lex_at_word(sb_lex *lex, const char *word);
/* A plain or back-quoted name into lex->word. */
SB_MUST_USE sb_status sb_lex_name(sb_lex *lex);
/* A string in double quotes into lex->word. */
SB_MUST_USE sb_status sb_lex_string(sb_lex *lex);
SB_MUST_USE sb_status sb_lex_number_read(sb_lex *lex, sb_lex_number *out);

/* ---- parts of the parser that the files share --------------------------- */

/* A type such as f32[N,3]. */
SB_MUST_USE sb_status sb_text_type(sb_lex *lex, sb_graph *g, sb_type *out);
/* The elements of a constant of that type: a list, a number, random(7), ... */
SB_MUST_USE sb_status sb_text_elements(sb_lex *lex, const sb_type *type,
                                       sb_tensor *out);
/* `a=1, b=[2]` up to, not including, `end`. */
SB_MUST_USE sb_status sb_text_attrs(sb_lex *lex, sb_graph *g, char end,
                                    sb_attr **attrs, size_t *n);
/* NAME(...) -> (...) {...} into the empty graph `g`; the name was read. */
SB_MUST_USE sb_status sb_text_graph(sb_lex *lex, sb_graph *g);

#endif
