/* text_common.h - what printing and parsing of graphs must agree on. */
#ifndef SB_GRAPH_TEXT_COMMON_H
#define SB_GRAPH_TEXT_COMMON_H

#include <stdbool.h>

/* Of these characters a name may consist that needs no quotes. */
static inline bool sb_text_word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '/';
}

#endif
