/* config.json from the numbers of a network whose file had none. */
#include <math.h>

#include "llm/llm_config.h"

static void add_whole(sb_str *out, const char *key, int64_t x)
{
    sb_str_addf(out, ",\n  \"%s\": %lld", key, (long long)x);
}

static void add_number(sb_str *out, const char *key, double x)
{
    sb_str_addf(out, ",\n  \"%s\": ", key);
    sb_json_add_number(out, x);
}

static void add_rope(sb_str *out, const sb_rope *r)
{
    add_number(out, "rope_theta", r->theta);
    if (r->scaling == SB_ROPE_PLAIN)
        return;
    sb_str_addf(out, ",\n  \"rope_scaling\": {\"rope_type\": \"%s\"",
                r->scaling == SB_ROPE_LINEAR   ? "linear"
                : r->scaling == SB_ROPE_LLAMA3 ? "llama3"
                                               : "tensor of a GGUF file");
    add_number(out, "factor", r->factor);
    if (r->scaling == SB_ROPE_LLAMA3) {
        add_number(out, "low_freq_factor", r->low_factor);
        add_number(out, "high_freq_factor", r->high_factor);
        add_number(out, "original_max_position_embeddings",
                   r->original_positions);
    }
    sb_str_add(out, "}");
}

static void add_layer_types(sb_str *out, const sb_llm_config *c)
{
    sb_str_add(out, ",\n  \"layer_types\": [");
    for (int64_t i = 1; i <= c->layers; i++)
        sb_str_addf(out, "%s\"%s_attention\"", i > 1 ? ", " : "",
                    i % c->window_pattern ? "sliding" : "full");
    sb_str_add(out, "]");
}

static void add_window(sb_str *out, const sb_llm_config *c)
{
    if (c->window > 0)
        add_whole(out, "sliding_window", c->window);
    if (c->window > 0 && (c->arch->flags & SB_LLM_WINDOW_ASKED)) {
        sb_str_add(out, ",\n  \"use_sliding_window\": true");
        add_whole(out, "max_window_layers", 0);
    }
    if (!(c->arch->flags & SB_LLM_GEMMA)) {
        if (c->window > 0 && c->window_pattern > 0)
            add_layer_types(out, c);
        return;
    }
    double scale = c->attention_scale;
    add_whole(out, "sliding_window_pattern", c->window_pattern);
    add_number(out, "rope_local_base_freq", c->local_rope.theta);
    add_number(out, "query_pre_attn_scalar",
               scale > 0 ? 1 / (scale * scale) : (double)c->head_size);
    sb_str_add(out, ",\n  \"hidden_activation\": \"gelu_pytorch_tanh\"");
}

/* Whether embeddings are tied is known when the weights are written. */
void sb_llm_config_write_hf(const sb_llm_config *c, sb_str *out)
{
    bool gpt2 = (c->arch->flags & SB_LLM_TRANSPOSED) != 0;

    sb_str_addf(out,
                "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\"",
                c->arch->hf_class, c->arch->hf);
    add_whole(out, gpt2 ? "n_embd" : "hidden_size", c->hidden);
    add_whole(out, gpt2 ? "n_inner" : "intermediate_size", c->feed_forward);
    add_whole(out, gpt2 ? "n_layer" : "num_hidden_layers", c->layers);
    add_whole(out, gpt2 ? "n_head" : "num_attention_heads", c->heads);
    add_whole(out, "vocab_size", c->vocabulary);
    add_whole(out, gpt2 ? "n_positions" : "max_position_embeddings",
              c->positions);
    add_number(out, gpt2 ? "layer_norm_epsilon" : "rms_norm_eps",
               c->norm_epsilon);
    if (!gpt2) {
        add_whole(out, "num_key_value_heads", c->kv_heads);
        add_whole(out, "head_dim", c->head_size);
        if (c->rope_size != c->head_size)
            add_number(out, "partial_rotary_factor",
                       (double)c->rope_size / (double)c->head_size);
        add_rope(out, &c->rope);
        add_window(out, c);
        if (!(c->arch->flags & SB_LLM_GEMMA))
            sb_str_add(out, ",\n  \"hidden_act\": \"silu\"");
    }
    sb_str_add(out, "\n}\n");
}
