/* llama2c.h - checkpoints of llama2.c: seven numbers and all weights. */
#ifndef SB_LLM_LLAMA2C_H
#define SB_LLM_LLAMA2C_H

#include "llm/llm_config.h"

/* Do the first bytes and the size of a file fit?  There is no magic number. */
bool sb_llama2c_is(const void *head, size_t n, uint64_t file_size);
/* Reads the header and adds the weights under Hugging Face's names. */
SB_MUST_USE sb_status sb_llama2c_load(sb_checkpoint *c, const char *path,
                                      sb_llm_config *config);

#endif
