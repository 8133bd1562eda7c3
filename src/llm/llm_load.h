/* llm_load.h - language models from files: what is it, and its graph. */
#ifndef SB_LLM_LLM_LOAD_H
#define SB_LLM_LLM_LOAD_H

#include "graph/graph.h"

/* Is it a Hugging Face folder, a GGUF file or a llama2.c checkpoint?  Looks at
 * the name and the first bytes only. */
bool sb_llm_is(const char *path);

/* The graph, input_ids [batch, sequence] -> logits [batch, sequence, tokens],
 * over weights that stay in the mapped files where they can.  With `parts`
 * (else 0) only weights of that part are unpacked, the others are zeros that
 * take no memory. */
SB_MUST_USE sb_status sb_llm_load(sb_ctx *ctx, const char *path, size_t part,
                                  size_t parts, sb_graph **out,
                                  uint64_t *file_bytes);
/* Tokens that a language model knows, the last size of its output `logits`;
 * 0: it does not say. */
size_t sb_llm_vocabulary(const sb_graph *g);

#endif
