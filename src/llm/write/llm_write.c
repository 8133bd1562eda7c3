/* Language models as files. */
#include "llm/write/llm_write.h"

#include "llm/write/shards.h"

/* The keys that a GGUF file will have, to see whether they can be made. */
static sb_status check_keys(sb_parts *p, const sb_llm_write_options *opt)
{
    sb_str keys;
    uint64_t n = 0;

    SB_TRY(sb_gguf_check(p, opt));
    sb_str_init(&keys, p->ctx);
    sb_status status = sb_gguf_put_config(p, 0, &keys, &n);
    if (status == SB_OK)
        status = sb_gguf_put_tokenizer(p->ctx, opt->tokenizer,
                                       p->config.vocabulary, &keys, &n);
    sb_str_free(&keys);
    return status;
}

static sb_status check_folder(const sb_parts *p,
                              const sb_llm_write_options *opt)
{
    SB_TRY(sb_hf_check(p, opt));
    return opt->tokenizer ? sb_hf_tokenizer_check(p->ctx, opt->tokenizer)
                          : SB_OK;
}

sb_status sb_llm_write_check(const sb_graph *g, const sb_llm_write_options *opt)
{
    sb_parts p;
    sb_status status = sb_parts_take(&p, g, true);

    if (status == SB_OK)
        status = opt->file == SB_LLM_FILE_GGUF ? check_keys(&p, opt)
                                               : check_folder(&p, opt);
    sb_parts_free(&p);
    return status;
}

sb_status sb_llm_write(const sb_graph *g, const char *path,
                       const sb_llm_write_options *opt)
{
    sb_parts p;
    sb_status status = sb_parts_take(&p, g, false);

    if (status == SB_OK)
        status = opt->file == SB_LLM_FILE_GGUF ? sb_gguf_write(&p, path, opt)
                 : opt->file == SB_LLM_FILE_GENAI
                     ? sb_genai_write(&p, g, path, opt)
                     : sb_hf_write(&p, path, opt);
    sb_parts_free(&p);
    return status == SB_OK ? SB_OK
                           : sb_note(g->ctx, status, "writing %s", path);
}
