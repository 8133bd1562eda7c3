/* llama2c.h - checkpoints of llama2.c: seven numbers and all weights. */
#ifndef SB_LLM_LLAMA2C_H
#define SB_LLM_LLAMA2C_H

#include "llm/llm_config.h"

/* Are the first bytes sizes of a network that fit each other?  There is no
 * magic number; the tags that ONNX files begin with are larger numbers. */
bool sb_llama2c_is(const void *head, size_t n);
/* Reads the header and adds the weights under Hugging Face's names. */
SB_MUST_USE sb_status sb_llama2c_load(sb_checkpoint *c, const char *path,
                                      sb_llm_config *config);

#endif
