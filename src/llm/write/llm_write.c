/* Language models as files. */
#include "llm/write/llm_write.h"

sb_status sb_llm_write(const sb_graph *g, const char *path,
                       const sb_llm_write_options *opt)
{
    sb_parts p;
    sb_status status = sb_parts_take(&p, g);

    if (status == SB_OK)
        status = opt->file == SB_LLM_FILE_GGUF ? sb_gguf_write(&p, path, opt)
                 : opt->file == SB_LLM_FILE_GENAI
                     ? sb_genai_write(&p, g, path, opt)
                     : sb_hf_write(&p, path, opt);
    sb_parts_free(&p);
    return status == SB_OK ? SB_OK
                           : sb_note(g->ctx, status, "writing %s", path);
}
