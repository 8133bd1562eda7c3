/* Numbers of a language model: the keys of a GGUF file, read as llama.cpp reads
 * them. */
#include <stdio.h>
#include <string.h>

#include "llm/llm_config.h"

/* Lists hold a number for each layer, and we have one for all of them. */
static sb_status check_lists(const sb_gguf *g, const char *arch)
{
    size_t n = strlen(arch);

    for (size_t i = 0; i < g->n_values; i++) {
        const sb_gguf_value *v = &g->values[i];
        bool same = v->type != SB_GGUF_BOOL;

        if (!v->is_array || !sb_gguf_is_numeric(v) ||
            strncmp(v->key, arch, n) != 0 || v->key[n] != '.')
            continue;
        for (uint64_t k = 1; same && k < v->n; k++) {
            double d = sb_gguf_number_at(v, k) - sb_gguf_number_at(v, 0);

            same = !(d < 0 || d > 0);
        }
        if (!same)
            return sb_fail(g->ctx, SB_UNSUPPORTED,
                           "%s: key '%s' differs between layers, want a "
                           "number for all of them",
                           g->path, v->key);
    }
    return SB_OK;
}

/* The number under `arch.name`; of a list, its first. */
static double gguf_key(const sb_gguf *g, const char *arch, const char *name,
                       double absent)
{
    char key[256];

    (void)snprintf(key, sizeof key, "%s.%s", arch, name);
    const sb_gguf_value *v = sb_gguf_find(g, key);
    return sb_gguf_is_numeric(v) && v->n > 0 ? sb_gguf_number_at(v, 0) : absent;
}

static int64_t gguf_whole(const sb_gguf *g, const char *arch, const char *name,
                          int64_t absent)
{
    double x = gguf_key(g, arch, name, (double)absent);

    return x >= -1e15 && x <= 1e15 ? (int64_t)x : 0;
}

/* As llama.cpp has it, scaling is linear where a file does not say how, and has
 * an older name. */
static sb_status gguf_rope(const sb_gguf *g, const char *arch, sb_llm_config *c)
{
    sb_gguf_text type = {"linear", 6};
    char key[256];

    c->rope.theta = gguf_key(g, arch, "rope.freq_base", c->rope.theta);
    c->local_rope.theta =
        gguf_key(g, arch, "rope.freq_base_swa", c->local_rope.theta);
    c->rope_size = gguf_whole(g, arch, "rope.dimension_count", 0);
    double factor = gguf_key(g, arch, "rope.scaling.factor",
                             gguf_key(g, arch, "rope.scale_linear", 1));
    (void)snprintf(key, sizeof key, "%s.rope.scaling.type", arch);
    (void)sb_gguf_string(g, key, &type);
    if (type.len == 4 && memcmp(type.data, "none", 4) == 0)
        return SB_OK;
    if (type.len != 6 || memcmp(type.data, "linear", 6) != 0)
        return sb_fail(g->ctx, SB_UNSUPPORTED,
                       "%s: rope scaling '%.*s'; known are none, linear",
                       g->path, (int)(type.len < 64 ? type.len : 64),
                       type.data);
    c->rope.factor = factor;
    if (!(factor >= 1 && factor <= 1))
        c->rope.scaling = SB_ROPE_LINEAR;
    return SB_OK;
}

int64_t sb_llm_gguf_pattern(const sb_llm_config *c)
{
    return c->arch->flags & SB_LLM_GEMMA ? 6 : 0;
}

sb_status sb_llm_config_read_gguf(sb_llm_config *c, const sb_gguf *g)
{
    sb_gguf_text text = {"", 0};
    char arch[64];

    *c = (sb_llm_config){.rope = {.theta = 10000, .factor = 1},
                         .local_rope = {.theta = 10000, .factor = 1}};
    if (!sb_gguf_string(g, "general.architecture", &text) ||
        text.len >= sizeof arch)
        return sb_fail(g->ctx, SB_BAD_DATA,
                       "%s: there is no general.architecture", g->path);
    memcpy(arch, text.data, text.len);
    arch[text.len] = '\0';
    SB_TRY(sb_llm_arch_find(g->ctx, g->path, arch, true, &c->arch));
    SB_TRY(check_lists(g, arch));
    const sb_gguf_value *tokens = sb_gguf_find(g, "tokenizer.ggml.tokens");
    c->layers = gguf_whole(g, arch, "block_count", 0);
    c->hidden = gguf_whole(g, arch, "embedding_length", 0);
    c->feed_forward = gguf_whole(g, arch, "feed_forward_length", 0);
    c->heads = gguf_whole(g, arch, "attention.head_count", 0);
    c->kv_heads = gguf_whole(g, arch, "attention.head_count_kv", c->heads);
    c->head_size = gguf_whole(g, arch, "attention.key_length", 0);
    c->positions = gguf_whole(g, arch, "context_length", 0);
    c->vocabulary = gguf_whole(g, arch, "vocab_size",
                               tokens ? (int64_t)(tokens->n % (1 << 28)) : 0);
    c->norm_epsilon =
        gguf_key(g, arch, "attention.layer_norm_rms_epsilon",
                 gguf_key(g, arch, "attention.layer_norm_epsilon", 0));
    c->interleaved = (c->arch->flags & SB_LLM_GGUF_INTERLEAVED) != 0;
    if (!(c->arch->flags & SB_LLM_NO_WINDOW))
        c->window = gguf_whole(g, arch, "attention.sliding_window", 0);
    c->window_pattern = gguf_whole(g, arch, "attention.sliding_window_pattern",
                                   sb_llm_gguf_pattern(c));
    SB_TRY(gguf_rope(g, arch, c));
    if (!(c->arch->flags & SB_LLM_GEMMA))
        c->local_rope = c->rope;
    return sb_llm_config_check(g->ctx, g->path, c);
}
