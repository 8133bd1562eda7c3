/* A folder that onnxruntime-genai runs: model.onnx, genai_config.json and the
 * tokenizer. */
#define _POSIX_C_SOURCE 200809L
#include <string.h>
#include <unistd.h>

#include "llm/tokenizer/tokenizer.h"
#include "llm/write/llm_write.h"
#include "llm/write/shards.h"
#include "onnx/onnx.h"
#include "ops/op_registry.h"
#include "passes/deploy/three_bits.h"

/* Names by which it knows architectures; others are decoders like any. */
static const char *genai_type(const sb_llm_config *c)
{
    static const char *const known[] = {"llama", "mistral", "qwen2", "qwen3",
                                        "gemma3_text"};

    for (size_t i = 0; i < SB_COUNT(known); i++)
        if (strcmp(known[i], c->arch->hf) == 0)
            return known[i];
    return "decoder";
}

static void put_tokens(const sb_tokenizer *t, sb_str *out)
{
    uint32_t end = t->n_eos > 0 ? t->eos[0] : 0;

    if (t->bos < t->n_real)
        sb_str_addf(out, "    \"bos_token_id\": %u,\n", t->bos);
    sb_str_add(out, "    \"eos_token_id\": [");
    for (size_t i = 0; i < t->n_eos; i++)
        sb_str_addf(out, "%s%u", i ? ", " : "", t->eos[i]);
    sb_str_addf(out, "],\n    \"pad_token_id\": %u,\n", end);
}

static void put_model(const sb_parts *p, const sb_tokenizer *t, bool positions,
                      sb_str *out)
{
    const sb_llm_config *c = &p->config;

    sb_str_add(out, "{\n  \"model\": {\n");
    put_tokens(t, out);
    sb_str_addf(out,
                "    \"context_length\": %lld,\n    \"type\": \"%s\",\n"
                "    \"vocab_size\": %lld,\n    \"decoder\": {\n",
                (long long)c->positions, genai_type(c),
                (long long)c->vocabulary);
    sb_str_addf(out,
                "      \"session_options\": {\"provider_options\": []},\n"
                "      \"filename\": \"model.onnx\",\n"
                "      \"head_size\": %lld,\n      \"hidden_size\": %lld,\n"
                "      \"num_attention_heads\": %lld,\n"
                "      \"num_hidden_layers\": %lld,\n"
                "      \"num_key_value_heads\": %lld,\n",
                (long long)c->head_size, (long long)c->hidden,
                (long long)c->heads, (long long)c->layers,
                (long long)c->kv_heads);
    sb_str_add(out, "      \"inputs\": {\n"
                    "        \"input_ids\": \"input_ids\",\n");
    if (positions)
        sb_str_add(out, "        \"position_ids\": \"position_ids\",\n");
    sb_str_add(out,
               "        \"attention_mask\": \"attention_mask\",\n"
               "        \"past_key_names\": \"past_key_values.%d.key\",\n"
               "        \"past_value_names\": \"past_key_values.%d.value\"\n"
               "      },\n      \"outputs\": {\n"
               "        \"logits\": \"logits\",\n"
               "        \"present_key_names\": \"present.%d.key\",\n"
               "        \"present_value_names\": \"present.%d.value\"\n"
               "      }\n    }\n  },\n");
    sb_str_addf(out,
                "  \"search\": {\n    \"do_sample\": false,\n"
                "    \"max_length\": %lld,\n"
                "    \"past_present_share_buffer\": true\n  }\n}\n",
                (long long)c->positions);
}

static sb_status put_settings(sb_shards *s, const sb_parts *p,
                              const char *tokenizer, bool positions)
{
    sb_tokenizer *t = NULL;
    sb_str text;

    SB_TRY(sb_tokenizer_open(p->ctx, tokenizer, &t));
    sb_str_init(&text, p->ctx);
    put_model(p, t, positions, &text);
    sb_tokenizer_free(t);
    sb_status status = sb_str_status(&text);
    if (status == SB_OK)
        status = sb_shards_file(s, "genai_config.json", sb_str_text(&text),
                                text.len);
    sb_str_free(&text);
    return status;
}

static sb_status put_folder(sb_shards *s, const sb_parts *p, sb_graph *g,
                            const char *path, const char *tokenizer)
{
    bool positions = false;
    char *model;

    SB_TRY(sb_genai_graph(p, g, &positions));
    SB_TRY(sb_hf_tokenizer(s, tokenizer));
    SB_TRY(put_settings(s, p, tokenizer, positions));
    model = sb_path_join(p->ctx, path, "model.onnx");
    if (!model)
        return SB_NO_MEMORY;
    sb_status status = sb_onnx_save(g, model, NULL);
    if (status == SB_OK) {
        status = sb_shards_commit(s);
        if (status != SB_OK)
            (void)unlink(model);
    }
    sb_free(p->ctx, model);
    return status;
}

sb_status sb_genai_write(const sb_parts *p, const sb_graph *from,
                         const char *path, const sb_llm_write_options *opt)
{
    sb_graph *g = NULL;
    sb_shards s = {0};

    if (!opt->tokenizer)
        return sb_fail(p->ctx, SB_BAD_ARG,
                       "a folder for onnxruntime-genai holds the tokenizer as "
                       "well: --tokenizer names it");
    for (size_t i = 0; i < p->n; i++)
        if (p->v[i].m.order)
            return sb_fail(p->ctx, SB_UNSUPPORTED,
                           "'%s': its columns are in the order of g_idx, which "
                           "onnxruntime-genai does not take",
                           p->v[i].name);
    SB_TRY(sb_graph_clone(from, &g));
    sb_status status = sb_graph_widen_three_bits(g);
    if (status == SB_OK)
        status = sb_graph_infer(g);
    if (status == SB_OK)
        status = sb_shards_open(&s, p->ctx, path, 0);
    if (status == SB_OK)
        status = put_folder(&s, p, g, path, opt->tokenizer);
    sb_shards_free(&s);
    sb_graph_free(g);
    return status;
}
