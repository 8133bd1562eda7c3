/* Keys of a GGUF file: how they are stored, and those of the network. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "llm/write/llm_write.h"

void sb_gguf_put_number(sb_str *out, uint64_t x, int bytes)
{
    char raw[8];

    for (int i = 0; i < bytes; i++)
        raw[i] = (char)(x >> (8 * i) & 255);
    sb_str_addn(out, raw, (size_t)bytes);
}

void sb_gguf_put_text(sb_str *out, const char *text, size_t len)
{
    sb_gguf_put_number(out, len, 8);
    sb_str_addn(out, text, len);
}

void sb_gguf_put_key(sb_str *out, const char *key, uint32_t type, uint64_t *n)
{
    sb_gguf_put_text(out, key, strlen(key));
    sb_gguf_put_number(out, type, 4);
    ++*n;
}

void sb_gguf_key_u32(sb_str *out, const char *key, uint64_t x, uint64_t *n)
{
    sb_gguf_put_key(out, key, SB_GGUF_U32, n);
    sb_gguf_put_number(out, x, 4);
}

void sb_gguf_key_f32(sb_str *out, const char *key, double x, uint64_t *n)
{
    float f = (float)x;
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    sb_gguf_put_key(out, key, SB_GGUF_F32, n);
    sb_gguf_put_number(out, u, 4);
}

void sb_gguf_key_bool(sb_str *out, const char *key, bool x, uint64_t *n)
{
    sb_gguf_put_key(out, key, SB_GGUF_BOOL, n);
    sb_gguf_put_number(out, x, 1);
}

void sb_gguf_key_text(sb_str *out, const char *key, const char *x, uint64_t *n)
{
    sb_gguf_put_key(out, key, SB_GGUF_STRING, n);
    sb_gguf_put_text(out, x, strlen(x));
}

/* ---- of the network ----------------------------------------------------- */

typedef struct keys {
    sb_str *out;
    uint64_t *n;
    const char *arch;
} keys;

static void arch_u32(const keys *k, const char *name, int64_t x)
{
    char key[128];

    (void)snprintf(key, sizeof key, "%s.%s", k->arch, name);
    sb_gguf_key_u32(k->out, key, (uint64_t)x, k->n);
}

static void arch_f32(const keys *k, const char *name, double x)
{
    char key[128];

    (void)snprintf(key, sizeof key, "%s.%s", k->arch, name);
    sb_gguf_key_f32(k->out, key, x, k->n);
}

static void put_rope(const keys *k, const sb_llm_config *c)
{
    char key[128];

    arch_u32(k, "rope.dimension_count", c->rope_size);
    arch_f32(k, "rope.freq_base", c->rope.theta);
    if (c->window_pattern > 0)
        arch_f32(k, "rope.freq_base_swa", c->local_rope.theta);
    if (c->rope.scaling != SB_ROPE_LINEAR)
        return;
    (void)snprintf(key, sizeof key, "%s.rope.scaling.type", k->arch);
    sb_gguf_key_text(k->out, key, "linear", k->n);
    arch_f32(k, "rope.scaling.factor", c->rope.factor);
}

/* llama.cpp runs Mistral's networks as LLaMA's. */
static const char *gguf_arch(const sb_llm_config *c)
{
    return c->arch->gguf ? c->arch->gguf : "llama";
}

/* What readers of GGUF take for granted. */
static sb_status check_config(const sb_parts *p)
{
    const sb_llm_config *c = &p->config;
    double plain = 1 / sqrt((double)c->head_size);

    if (c->attention_scale > 0 &&
        fabs(c->attention_scale - plain) > 1e-6 * plain)
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "attention is scaled by %g, and GGUF has no key for "
                       "another than 1 / sqrt(%lld)",
                       c->attention_scale, (long long)c->head_size);
    if ((c->arch->flags & SB_LLM_GEMMA) && c->window_pattern > 0 &&
        c->local_rope.scaling != SB_ROPE_PLAIN)
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "layers with a window have a rope scaling of their own, "
                       "and GGUF has no key for it");
    /* It reads the key of a window for Gemma, of these architectures. */
    if (c->window > 0 && !(c->arch->flags & SB_LLM_GEMMA) && !p->early)
        sb_warn(p->ctx,
                "%s: llama.cpp does not know the window of %lld positions and "
                "lets tokens see all before them",
                c->arch->hf, (long long)c->window);
    return SB_OK;
}

sb_status sb_gguf_put_config(sb_parts *p, int file_type, sb_str *out,
                             uint64_t *n)
{
    const sb_llm_config *c = &p->config;
    const keys k = {out, n, gguf_arch(c)};
    bool gpt2 = (c->arch->flags & SB_LLM_TRANSPOSED) != 0;

    SB_TRY(check_config(p));
    sb_gguf_key_text(out, "general.architecture", k.arch, n);
    sb_gguf_key_u32(out, "general.file_type", (uint64_t)file_type, n);
    sb_gguf_key_u32(out, "general.quantization_version", 2, n);
    arch_u32(&k, "context_length", c->positions);
    arch_u32(&k, "embedding_length", c->hidden);
    arch_u32(&k, "block_count", c->layers);
    arch_u32(&k, "feed_forward_length", c->feed_forward);
    arch_u32(&k, "attention.head_count", c->heads);
    arch_u32(&k, "attention.head_count_kv", c->kv_heads);
    arch_u32(&k, "vocab_size", c->vocabulary);
    arch_f32(&k,
             gpt2 ? "attention.layer_norm_epsilon"
                  : "attention.layer_norm_rms_epsilon",
             c->norm_epsilon);
    if (gpt2)
        return SB_OK;
    arch_u32(&k, "attention.key_length", c->head_size);
    arch_u32(&k, "attention.value_length", c->head_size);
    if (c->arch->gguf && c->window > 0)
        arch_u32(&k, "attention.sliding_window", c->window);
    if (c->window_pattern != sb_llm_gguf_pattern(c))
        arch_u32(&k, "attention.sliding_window_pattern", c->window_pattern);
    put_rope(&k, c);
    return SB_OK;
}
