/* The functions of experimental.h. */
#include <string.h>

#include <sparsebit/experimental.h>

#include "api/peak.h"
#include "api/session.h"
#include "base/file.h"
#include "quant/model/quant_model.h"
#include "report/profile_page.h"

size_t sb_utf8_length(const char *text, size_t size)
{
    return sb_utf8_size(text, size);
}

sb_status sb_output_check(sb_ctx *ctx, const char *path)
{
    sb_writer *w = NULL;

    SB_TRY(sb_writer_open(ctx, path, &w));
    sb_writer_abort(w);
    return SB_OK;
}

void sb_make_printable(char *text)
{
    sb_text_make_printable(text);
}

void sb_tensor_fill_random(sb_tensor *tensor, uint64_t seed)
{
    sb_tensor_randomize(tensor, seed);
}

double sb_peak_measure(sb_ctx *ctx, const char **how)
{
    const char *unused = NULL;

    return sb_peak_gflops(ctx, how ? how : &unused);
}

static sb_status save_text(sb_ctx *ctx, const char *path, const char *text,
                           size_t len)
{
    sb_writer *w = NULL;

    SB_TRY(sb_writer_open(ctx, path, &w));
    sb_writer_put(w, text, len);
    return sb_writer_commit(w);
}

sb_status sb_text_save(sb_ctx *ctx, const char *path, const char *text)
{
    return save_text(ctx, path, text, strlen(text));
}

sb_status sb_session_profile_save(sb_session *s, const char *title,
                                  const char *subtitle, double peak_gflops,
                                  const char *path)
{
    const sb_profile *profile = NULL;
    sb_str page;

    SB_TRY(sb_exec_profile(s->exec, &profile));
    sb_str_init(&page, s->ctx);
    sb_report_profile(profile, title, subtitle, peak_gflops, &page);
    sb_status status = sb_str_status(&page);
    if (status == SB_OK)
        status = save_text(s->ctx, path, sb_str_text(&page), page.len);
    sb_str_free(&page);
    return status;
}

sb_status sb_quant_model_dump_mermaid(const sb_quant_model *qm,
                                      const char *path)
{
    char *text = NULL;

    SB_TRY(sb_quant_model_print(qm, SB_GRAPH_FORMAT_MERMAID, &text));
    sb_status status = save_text(qm->ctx, path, text, strlen(text));
    sb_memory_free(text);
    return status;
}
