/* read_json.h - parts of the reader of tokenizer.json. */
#ifndef SB_LLM_TOKENIZER_READ_JSON_H
#define SB_LLM_TOKENIZER_READ_JSON_H

#include "base/json.h"
#include "llm/tokenizer/tokenizer.h"

bool sb_json_type_is(const sb_json *node, const char *type);
bool sb_json_flag(const sb_json *node, const char *key, bool absent);
/* Adds the steps of a normalizer, a pre-tokenizer (NULL: none); `depth` counts
 * sequences in sequences. */
SB_MUST_USE sb_status sb_json_normalizer(sb_tokenizer *t,
                                         const sb_json_doc *doc,
                                         const sb_json *n, int depth);
SB_MUST_USE sb_status sb_json_pre_tokenizer(sb_tokenizer *t,
                                            const sb_json_doc *doc,
                                            const sb_json *p, int depth);

#endif
