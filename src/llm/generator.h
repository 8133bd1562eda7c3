/* generator.h - what is behind the public sb_generator. */
#ifndef SB_LLM_GENERATOR_H
#define SB_LLM_GENERATOR_H

#include "llm/generate/sampler.h"
#include "llm/kv_cache.h"
#include "llm/tokenizer/tokenizer.h"

struct sb_generator {
    sb_ctx *ctx;
    const sb_tokenizer *tokenizer;
    int64_t context;   /* tokens */
    size_t vocabulary; /* of the model; 0: it does not say */
    sb_kv_cache cache;
    sb_sampler sampler;
    sb_ids ids; /* of the prompt */
    sb_str text;
    size_t shown; /* bytes of it that the caller has seen */
    sb_generation result;
};

SB_MUST_USE sb_status sb_generator_make(const sb_graph *graph,
                                        const sb_tokenizer *tokenizer,
                                        int64_t context, sb_generator **out);

#endif
