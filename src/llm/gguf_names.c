/* What GGUF calls weights, and what Hugging Face calls them. */
#include <string.h>

#include "llm/llm_config.h"

/* Of the whole network. */
static const char *const outer[][2] = {
    {"token_embd", "model.embed_tokens"}, {"position_embd", "wpe"},
    {"output_norm", "model.norm"},        {"output", "lm_head"},
    {"rope_freqs", "rope_freqs"},
};

/* Of a block; GPT-2 joins q, k and v and has no norm of the same place. */
static const char *const inner[][2] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"post_attention_norm", "post_attention_norm"},
    {"ffn_norm", "ffn_norm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"post_ffw_norm", "post_ffw_norm"},
};

static const char *name_in(const char *const (*table)[2], size_t n,
                           const char *stem, size_t len)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(table[i][0]) == len && memcmp(table[i][0], stem, len) == 0)
            return table[i][1];
    return NULL;
}

/* `blk.12.attn_q.weight` is block 12, stem `attn_q`, ending `.weight`. */
sb_status sb_gguf_rename(sb_arena *arena, const char *name, const char **out)
{
    const char *dot = strrchr(name, '.'), *stem = name;
    size_t digits = 0;

    if (strncmp(name, "blk.", 4) == 0) {
        digits = strspn(name + 4, "0123456789");
        stem = name + 4 + digits + 1;
    }
    if (!dot || dot < stem || (stem != name && stem[-1] != '.')) {
        *out = name;
        return SB_OK;
    }
    size_t len = (size_t)(dot - stem);
    const char *known = stem == name
                            ? name_in(outer, SB_COUNT(outer), stem, len)
                            : name_in(inner, SB_COUNT(inner), stem, len);
    if (!known)
        *out = name;
    else if (stem == name)
        *out = sb_arena_printf(arena, "%s%s", known, dot);
    else
        *out = sb_arena_printf(arena, "model.layers.%.*s.%s%s", (int)digits,
                               name + 4, known, dot);
    return *out ? SB_OK : SB_NO_MEMORY;
}

/* ---- the other way round ------------------------------------------------ */

/* Names of modules that the tables above do not have: norms change theirs
 * between architectures, GPT-2 has its own for everything. */
static const char *const llama_modules[][2] = {
    {"ffn_norm", "post_attention_layernorm"},
};
static const char *const gemma_modules[][2] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};
static const char *const gpt2_modules[][2] = {
    {"attn_norm", "ln_1"},          {"attn_qkv", "attn.c_attn"},
    {"attn_output", "attn.c_proj"}, {"ffn_norm", "ln_2"},
    {"ffn_up", "mlp.c_fc"},         {"ffn_down", "mlp.c_proj"},
    {"token_embd", "wte"},          {"output_norm", "ln_f"},
};

static const char *stem_in(const char *const (*table)[2], size_t n,
                           const char *module)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(table[i][1], module) == 0)
            return table[i][0];
    return NULL;
}

static const char *stem_of(unsigned flags, const char *module)
{
    const char *stem = NULL;

    if (flags & SB_LLM_TRANSPOSED)
        stem = stem_in(gpt2_modules, SB_COUNT(gpt2_modules), module);
    else if (flags & SB_LLM_GEMMA)
        stem = stem_in(gemma_modules, SB_COUNT(gemma_modules), module);
    else
        stem = stem_in(llama_modules, SB_COUNT(llama_modules), module);
    if (!stem)
        stem = stem_in(inner, SB_COUNT(inner), module);
    return stem ? stem : stem_in(outer, SB_COUNT(outer), module);
}

sb_status sb_gguf_name_of(sb_arena *arena, unsigned flags, const char *module,
                          const char *ending, const char **out)
{
    static const char *const blocks[] = {"model.layers.", "h."};
    const char *number = NULL, *rest = module;
    size_t digits = 0;

    for (size_t i = 0; i < SB_COUNT(blocks) && !number; i++) {
        size_t n = strlen(blocks[i]);

        if (strncmp(module, blocks[i], n) != 0)
            continue;
        number = module + n;
        digits = strspn(number, "0123456789");
        rest = number[digits] == '.' ? number + digits + 1 : "";
    }
    const char *stem = stem_of(flags, rest);
    *out = NULL;
    if (!stem)
        return SB_OK;
    *out = number ? sb_arena_printf(arena, "blk.%.*s.%s.%s", (int)digits,
                                    number, stem, ending)
                  : sb_arena_printf(arena, "%s.%s", stem, ending);
    return *out ? SB_OK : SB_NO_MEMORY;
}
