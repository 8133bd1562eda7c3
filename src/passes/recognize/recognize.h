/* recognize.h - what the passes share that turn arithmetic back into the
 * activation function that the author wrote.
 *
 * Their patterns call the argument "x" and replace the root by one node. */
#ifndef SB_PASSES_RECOGNIZE_RECOGNIZE_H
#define SB_PASSES_RECOGNIZE_RECOGNIZE_H

#include "passes/matcher.h"

/* The joint check: a float tensor, and no constant of the pattern widens it
 * ([1,1,1] + [4] has rank 3, the function of [4] has rank 1). */
bool sb_recognize_check(const sb_match *m);
/* The same, for operators that runtimes have in single and half precision
 * only. */
bool sb_recognize_check_f32(const sb_match *m);
/* Puts `op`(x) in place of the root and sets *done. */
SB_MUST_USE sb_status sb_recognize_as(sb_match *m, const char *op,
                                      sb_node_id *node, bool *done);

#endif
