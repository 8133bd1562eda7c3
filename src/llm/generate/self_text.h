/* self_text.h - texts that a language model writes by itself, to calibrate it
 * on where there are no others. */
#ifndef SB_LLM_SELF_TEXT_H
#define SB_LLM_SELF_TEXT_H

#include "graph/graph.h"
#include "llm/tokenizer/tokenizer.h"

/* ids [n, window]; each token by its probability. */
SB_MUST_USE sb_status sb_self_text(const sb_graph *graph,
                                   const sb_tokenizer *tokenizer, size_t n,
                                   size_t window, uint64_t seed, int64_t *ids);

#endif
