/* --calibrate self: a language model is calibrated on what it writes itself. */
#include <stdlib.h>

#include "quantize_job.h"

enum { SELF_SAMPLES = 64, SELF_WINDOW = 256 };

/* One window at a time; other ranks take the others. */
static sb_status self_feed(quantize_job *j, const int64_t *ids, size_t n,
                           size_t window)
{
    const int64_t dims[] = {1, (int64_t)window};
    const sb_ctx *ctx = j->env->ctx;
    sb_status status = SB_OK;

    for (size_t i = (size_t)sb_ctx_rank(ctx); i < n && status == SB_OK;
         i += (size_t)sb_ctx_ranks(ctx)) {
        sb_tensor *t = NULL;

        status = sb_tensor_create(j->env->ctx, SB_DTYPE_I64, 2, dims, &t);
        if (status != SB_OK)
            break;
        memcpy(sb_tensor_data_mutable(t), ids + i * window,
               window * sizeof *ids);
        const sb_tensor *const inputs[] = {t};
        status = sb_quant_model_forward(j->qm, inputs, 1, NULL, 0);
        sb_tensor_free(t);
        j->samples += status == SB_OK;
    }
    return status;
}

sb_status quantize_feed_self(quantize_job *j)
{
    const quantize_args *a = j->args;
    size_t n = a->data.samples ? a->data.samples : SELF_SAMPLES;
    size_t most = sb_model_positions(j->model);
    size_t window = most > 0 && most < SELF_WINDOW ? most : SELF_WINDOW;
    int64_t *ids = cli_alloc(n * window, sizeof *ids);
    sb_tokenizer *tokenizer = NULL;
    cli_progress progress;

    j->subject = a->tokenizer ? a->tokenizer : a->model;
    sb_status status = sb_tokenizer_open(j->env->ctx, j->subject, &tokenizer);
    cli_progress_begin(&progress, j->env, "writing", 0);
    if (status == SB_OK) {
        j->subject = a->model;
        status = sb_model_sample_tokens(j->model, tokenizer, n, window,
                                        a->data.skip, ids);
    }
    (void)cli_progress_end(&progress);
    if (status == SB_OK)
        status = self_feed(j, ids, n, window);
    sb_tokenizer_free(tokenizer);
    free(ids);
    return status;
}
