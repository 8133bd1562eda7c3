/* Any bytes as the safetensors file of a GPTQ folder: whatever its tensors say,
 * repacking stays inside them. */
#define _POSIX_C_SOURCE 200809L
#include "fuzz_file.h"
#include "llm/arch.h"

static void use(sb_ctx *ctx, const char *path)
{
    static const char config[] =
        "{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":96,"
        "\"num_hidden_layers\":1,\"num_attention_heads\":4,"
        "\"num_key_value_heads\":2,\"vocab_size\":64,"
        "\"max_position_embeddings\":64,\"quantization_config\":"
        "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32}}";
    sb_llm_config c = {0};
    sb_json_doc *doc = NULL;
    sb_checkpoint weights;
    sb_graph *g = NULL;

    sb_checkpoint_init(&weights, ctx, path);
    if (sb_json_read(ctx, "config", config, sizeof config - 1, &doc) == SB_OK &&
        sb_llm_config_read_hf(&c, doc) == SB_OK &&
        sb_safetensors_load(&weights, path) == SB_OK)
        for (int awq = 0; awq < 2; awq++) {
            c.awq = awq;
            if (sb_arch_build(ctx, &weights, &c, NULL, &g) == SB_OK)
                sb_graph_free(g);
        }
    sb_json_free(doc);
    sb_checkpoint_free(&weights);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return with_file(data, size, use);
}
