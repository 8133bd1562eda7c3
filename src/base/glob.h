/* glob.h - patterns as shells write them. */
#ifndef SB_BASE_GLOB_H
#define SB_BASE_GLOB_H

#include <stdbool.h>

/* Does the text match the whole pattern?  `*` is any text, `?` any character,
 * `[a-z]` one of a set, `[!a-z]` one outside; as Python's fnmatch. */
bool sb_glob_match(const char *pattern, const char *text);
/* The same, with `dot` in place of every dot of the text. */
bool sb_glob_match_dot(const char *pattern, const char *text, char dot);

#endif
