/* Tokenizers and generators as programs see them. */
#include <string.h>

#include "api/model.h"
#include "base/options.h"
#include "llm/generate/self_text.h"
#include "llm/generator.h"
#include "llm/write/llm_write.h"
#include "quant/model/quant_model.h"

enum { CONTEXT_DEFAULT = 4096 };

size_t sb_tokenizer_size(const sb_tokenizer *t)
{
    return t->n_real;
}

sb_status sb_tokenizer_encode(const sb_tokenizer *t, const char *text,
                              size_t len, int special, int64_t **ids, size_t *n)
{
    sb_ids list = {0};
    int64_t *out = NULL;
    sb_status status = sb_tokenize(t, text, len, special != 0, &list);

    if (status == SB_OK)
        status = sb_memory_create(t->ctx, NULL, list.n * sizeof *out, &out);
    for (size_t i = 0; status == SB_OK && i < list.n; i++)
        out[i] = list.v[i];
    if (status == SB_OK) {
        *ids = out;
        *n = list.n;
    }
    sb_free(t->ctx, list.v);
    return status;
}

sb_status sb_tokenizer_decode(const sb_tokenizer *t, const int64_t *ids,
                              size_t n, char **text)
{
    sb_str out;
    sb_status status = SB_OK;

    sb_str_init(&out, t->ctx);
    for (size_t i = 0; i < n && status == SB_OK; i++) {
        if (ids[i] < 0 || ids[i] >= UINT32_MAX)
            status = sb_fail(t->ctx, SB_BAD_ARG, "token %lld, want 0 or more",
                             (long long)ids[i]);
        else
            status = sb_detokenize(t, (uint32_t)ids[i], out.len == 0, &out);
    }
    if (status == SB_OK)
        status = sb_str_copy_out(&out, text);
    sb_str_free(&out);
    return status;
}

size_t sb_model_positions(const sb_model *model)
{
    const char *text = sb_graph_prop(model->graph, "sparsebit.positions");
    size_t n = 0;

    for (; text && *text >= '0' && *text <= '9' && n < 1 << 28; text++)
        n = 10 * n + (size_t)(*text - '0');
    return n;
}

sb_status sb_generator_create(const sb_model *model,
                              const sb_tokenizer *tokenizer, size_t context,
                              sb_generator **out)
{
    size_t most = sb_model_positions(model);

    SB_TRY(sb_ctx_check(model->ctx, tokenizer->ctx, "the tokenizer"));
    if (context == 0)
        context = most > 0 && most < CONTEXT_DEFAULT ? most : CONTEXT_DEFAULT;
    if (most > 0 && context > most)
        return sb_fail(model->ctx, SB_BAD_ARG,
                       "a context of %zu tokens, the model has %zu positions",
                       context, most);
    return sb_generator_make(model->graph, tokenizer, (int64_t)context, out);
}

sb_status sb_model_sample_tokens(const sb_model *model,
                                 const sb_tokenizer *tokenizer, size_t n,
                                 size_t window, uint64_t seed, int64_t *ids)
{
    size_t most = sb_model_positions(model);

    SB_TRY(sb_ctx_check(model->ctx, tokenizer->ctx, "the tokenizer"));
    if (window == 0 || (most > 0 && window > most))
        return sb_fail(model->ctx, SB_BAD_ARG,
                       "texts of %zu tokens, want 1 to %zu", window, most);
    return sb_self_text(model->graph, tokenizer, n, window, seed, ids);
}

static sb_status read_options(sb_ctx *ctx, const sb_language_options *options,
                              sb_llm_write_options *out)
{
    static const sb_llm_file files[] = {SB_LLM_FILE_GGUF, SB_LLM_FILE_FLOAT,
                                        SB_LLM_FILE_GPTQ, SB_LLM_FILE_GENAI};
    const sb_language_options defaults = SB_LANGUAGE_OPTIONS_INIT;
    sb_language_options opt;

    SB_TRY(sb_options_read(ctx, "sb_language_options", options, &defaults,
                           sizeof opt, &opt));
    if ((unsigned)opt.format >= SB_COUNT(files))
        return sb_fail(ctx, SB_BAD_ARG, "format %d of language models",
                       (int)opt.format);
    *out = (sb_llm_write_options){.file = files[opt.format],
                                  .tokenizer = opt.tokenizer,
                                  .float_as = opt.float_as,
                                  .round = opt.round != 0,
                                  .shard_bytes = opt.shard_bytes,
                                  .gptq_version = opt.gptq_version};
    return SB_OK;
}

sb_status sb_model_save_language(const sb_model *model, const char *path,
                                 const sb_language_options *options)
{
    sb_llm_write_options opt;

    SB_TRY(read_options(model->ctx, options, &opt));
    SB_TRY(sb_graph_check_whole(model->graph));
    return sb_llm_write(model->graph, path, &opt);
}

/* GGUF files hold columns in their own order only. */
static sb_status check_order(const sb_quant_model *qm, const sb_quantizer *q,
                             const sb_node *node)
{
    const sb_node *pick = sb_graph_producer(qm->graph, sb_node_in(node, 0));

    if (!pick || !sb_node_is(pick, "Gather") ||
        sb_node_int(pick, "axis", 0) != 1)
        return SB_OK;
    return sb_fail(qm->ctx, SB_UNSUPPORTED,
                   "'%s': its columns are in the order of g_idx, which GGUF "
                   "does not hold; convert --format float multiplies out",
                   q->name);
}

/* Packed weights of folders have sides that 32 divides, those of GGUF files
 * rows and groups. */
static sb_status check_sides(const sb_quant_model *qm, const sb_quantizer *q,
                             bool folder)
{
    const sb_tensor *w = &sb_graph_value(qm->graph, q->value)->constant;

    if (w->rank != 2 || q->block == 0)
        return SB_OK;
    bool fits = folder ? w->dims[0] % 32 == 0 && w->dims[1] % 32 == 0
                       : q->block % 32 == 0 && w->dims[q->axis] % 32 == 0;
    if (fits)
        return SB_OK;
    return sb_fail(qm->ctx, SB_UNSUPPORTED,
                   "'%s' is [%lld, %lld] in groups of %lld: want %s that 32 "
                   "divides, or --exclude it",
                   q->name, (long long)w->dims[0], (long long)w->dims[1],
                   (long long)q->block, folder ? "sides" : "rows and groups");
}

sb_status sb_quant_model_check_language(const sb_quant_model *qm,
                                        const sb_model *model,
                                        const sb_language_options *options)
{
    sb_llm_write_options opt;

    SB_TRY(read_options(model->ctx, options, &opt));
    if (opt.file == SB_LLM_FILE_GENAI)
        return SB_OK; /* takes types as they are */
    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        const sb_quantizer *q = &qm->place.quantizers[i];
        const sb_node *node =
            q->n_uses ? sb_graph_node(qm->graph, q->uses[0].node) : NULL;

        if (!node || q->blocks || sb_quantizer_is_off(qm, q) ||
            !sb_quantizer_is_constant(qm, q))
            continue;
        if (sb_node_is(node, "Gather"))
            return sb_fail(
                qm->ctx, SB_UNSUPPORTED,
                "'%s': embeddings stay in float, --exclude '%s'", q->name,
                node->module ? node->module : sb_node_label(qm->graph, node));
        SB_TRY(check_sides(qm, q, opt.file == SB_LLM_FILE_GPTQ));
        if (opt.file == SB_LLM_FILE_GGUF)
            SB_TRY(check_order(qm, q, node));
    }
    /* The graph without what an earlier quantization has put there. */
    return sb_llm_write_check(qm->graph, &opt);
}
