/* LLaMA and its relatives: RMS norms before attention and feed-forward, rotary
 * positions, grouped key heads, gated feed-forward.
 *
 * What differs between them is seen in the files: biases of q, k, v (Qwen2) and
 * norms of q and k (Qwen3, Gemma 3) are there or not.  Gemma 3 also has norms
 * behind its layers, tanh-Gelu, scaled embeddings, and layers that see only a
 * window, with rotary frequencies of their own. */
#include <math.h>

#include "llm/arch.h"

/* cos and sin of every position. */
typedef struct rope_tables {
    sb_value_id cos, sin;
} rope_tables;

double sb_rope_frequency(const sb_llm_config *c, const sb_rope *r,
                         const float *divisors, int64_t i)
{
    double f = 1 / pow(r->theta, (double)(2 * i) / (double)c->rope_size);

    if (divisors)
        return f / (double)divisors[i];
    if (r->scaling == SB_ROPE_LINEAR)
        return f / r->factor;
    if (r->scaling != SB_ROPE_LLAMA3)
        return f;
    double wave = 2 * 3.14159265358979323846 / f;
    double turns = r->original_positions / wave;
    double ramp = (turns - r->low_factor) / (r->high_factor - r->low_factor);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    return f * (ramp + (1 - ramp) / r->factor);
}

/* In floats, as all other programs compute them: positions times frequencies
 * are rounded before the cosine. */
static void fill_tables(const sb_llm_config *c, const sb_rope *r,
                        const float *divisors, int64_t rows, float *cosines,
                        float *sines)
{
    int64_t half = c->rope_size / 2;

    for (int64_t i = 0; i < half; i++) {
        float f = (float)sb_rope_frequency(c, r, divisors, i);

        for (int64_t p = 0; p < rows; p++) {
            double angle = (double)((float)p * f);

            cosines[p * half + i] = (float)cos(angle);
            sines[p * half + i] = (float)sin(angle);
        }
    }
}

static sb_status rope_constant(sb_arch *a, const char *name, sb_tensor *t,
                               sb_value_id *out)
{
    SB_TRY(sb_graph_add_value(a->g, name, out));
    return sb_graph_set_constant(a->g, *out, t);
}

/* What a GGUF file divides frequencies by; *out stays NULL if it has none. */
static sb_status rope_divisors(const sb_arch *a, float **out)
{
    const sb_weight *w = sb_checkpoint_find(a->weights, "rope_freqs.weight");
    int64_t half = a->config->rope_size / 2;

    if (!w)
        return SB_OK;
    if (sb_weight_count(w) != half || w->format->dtype == SB_DTYPE_I32)
        return sb_fail(a->ctx, SB_BAD_DATA,
                       "%s: tensor '%s' has %lld elements of %s, want %lld "
                       "floats",
                       a->weights->path, w->name, (long long)sb_weight_count(w),
                       w->format->name, (long long)half);
    *out = sb_alloc(a->ctx, (size_t)half, sizeof **out);
    if (!*out)
        return SB_NO_MEMORY;
    sb_weight_to_f32(w->format, sb_weight_data(w), *out, (size_t)half);
    for (int64_t i = 0; i < half; i++)
        if (!((*out)[i] > 0))
            return sb_fail(a->ctx, SB_BAD_DATA,
                           "%s: tensor '%s' has %g at place %lld, want numbers "
                           "above 0",
                           a->weights->path, w->name, (double)(*out)[i],
                           (long long)i);
    return SB_OK;
}

static rope_tables llama_rope(sb_arch *a, const sb_rope *r,
                              const char *cos_name, const char *sin_name)
{
    const sb_llm_config *c = a->config;
    int64_t rows = c->positions;
    sb_tensor cosines =
        sb_tensor_make(SB_DTYPE_F32, 2, (int64_t[]){rows, c->rope_size / 2});
    sb_tensor sines = cosines;
    rope_tables t = {SB_NONE, SB_NONE};
    float *divisors = NULL;

    if (a->status != SB_OK)
        return t;
    sb_status status = rope_divisors(a, &divisors);
    if (status == SB_OK)
        status = sb_tensor_alloc_raw(a->ctx, &cosines);
    if (status == SB_OK)
        status = sb_tensor_alloc_raw(a->ctx, &sines);
    if (status == SB_OK) {
        fill_tables(c, r, divisors, rows, cosines.data, sines.data);
        status = rope_constant(a, cos_name, &cosines, &t.cos);
    }
    if (status == SB_OK)
        status = rope_constant(a, sin_name, &sines, &t.sin);
    sb_free(a->ctx, divisors);
    sb_tensor_drop(&cosines);
    sb_tensor_drop(&sines);
    a->status = status;
    return t;
}

/* ---- pieces ------------------------------------------------------------- */

static sb_value_id llama_norm(sb_arch *a, sb_module m, sb_value_id x, int64_t n)
{
    const sb_attr eps = {.name = "epsilon",
                         .type = SB_ATTR_FLOAT,
                         .f = (float)a->config->norm_epsilon};
    sb_value_id w =
        sb_arch_vector(a, m, "weight", n, a->config->norm_plus_one ? 1 : 0);

    return sb_arch_node(a, m.name, "RMSNormalization", SB_ARCH_IN(x, w), &eps,
                        1);
}

static sb_module llama_module(sb_arch *a, int64_t layer, const char *name,
                              const char *other)
{
    return (sb_module){
        sb_arch_name(a, "model.layers.%lld.%s", (long long)layer, name),
        other ? sb_arch_name(a, "model.layers.%lld.%s", (long long)layer, other)
              : NULL};
}

/* q or k: product, norm of each head if there is one, rotation. */
static sb_value_id llama_rotated(sb_arch *a, sb_module proj, sb_module norm,
                                 sb_value_id x, int64_t heads,
                                 const rope_tables *rope)
{
    const sb_llm_config *c = a->config;
    int64_t n = heads * c->head_size;
    sb_value_id y = sb_arch_linear(a, proj, x, c->hidden, n);
    const sb_attr attrs[] = {
        {.name = "num_heads", .type = SB_ATTR_INT, .i = heads},
        {.name = "interleaved", .type = SB_ATTR_INT, .i = c->interleaved},
        {.name = "rotary_embedding_dim",
         .type = SB_ATTR_INT,
         .i = c->rope_size},
    };
    bool whole = c->rope_size == c->head_size;

    if (sb_arch_has(a, norm)) {
        y = sb_arch_join_rows(a, norm.name, y, c->head_size);
        y = llama_norm(a, norm, y, c->head_size);
    }
    y = sb_arch_split_rows(a, proj.name, y, n);
    return sb_arch_node(a, proj.name, "RotaryEmbedding",
                        SB_ARCH_IN(y, rope->cos, rope->sin, a->positions),
                        attrs, whole ? 2 : 3);
}

static sb_value_id llama_attention(sb_arch *a, int64_t layer, sb_value_id x,
                                   const rope_tables *rope, int64_t window)
{
    const sb_llm_config *c = a->config;
    int64_t kv = c->kv_heads * c->head_size, all = c->heads * c->head_size;
    sb_value_id q = llama_rotated(
        a, llama_module(a, layer, "self_attn.q_proj", NULL),
        llama_module(a, layer, "self_attn.q_norm", NULL), x, c->heads, rope);
    sb_value_id k = llama_rotated(
        a, llama_module(a, layer, "self_attn.k_proj", NULL),
        llama_module(a, layer, "self_attn.k_norm", NULL), x, c->kv_heads, rope);
    sb_module value = llama_module(a, layer, "self_attn.v_proj", NULL);
    sb_value_id v = sb_arch_linear(a, value, x, c->hidden, kv);
    const char *name =
        sb_arch_name(a, "model.layers.%lld.self_attn", (long long)layer);

    v = sb_arch_split_rows(a, value.name, v, kv);
    sb_value_id y = sb_arch_attention(a, name, q, k, v, window);
    y = sb_arch_join_rows(a, name, y, all);
    return sb_arch_linear(a, llama_module(a, layer, "self_attn.o_proj", NULL),
                          y, all, c->hidden);
}

static sb_value_id llama_mlp(sb_arch *a, int64_t layer, sb_value_id x)
{
    const sb_llm_config *c = a->config;
    const char *name =
        sb_arch_name(a, "model.layers.%lld.mlp", (long long)layer);
    sb_value_id gate =
        sb_arch_linear(a, llama_module(a, layer, "mlp.gate_proj", NULL), x,
                       c->hidden, c->feed_forward);
    sb_value_id up =
        sb_arch_linear(a, llama_module(a, layer, "mlp.up_proj", NULL), x,
                       c->hidden, c->feed_forward);
    const sb_attr tanh_gelu = {
        .name = "approximate", .type = SB_ATTR_STRING, .s = {"tanh", 4}};

    if (c->arch->flags & SB_LLM_GEMMA)
        gate = sb_arch_node(a, name, "Gelu", &gate, 1, &tanh_gelu, 1);
    else
        gate = sb_arch_binary(a, name, "Mul", gate,
                              sb_arch_unary(a, name, "Sigmoid", gate));
    return sb_arch_linear(a, llama_module(a, layer, "mlp.down_proj", NULL),
                          sb_arch_binary(a, name, "Mul", gate, up),
                          c->feed_forward, c->hidden);
}

/* ---- the network -------------------------------------------------------- */

static sb_value_id llama_layer(sb_arch *a, int64_t layer, sb_value_id x,
                               const rope_tables *rope, int64_t window)
{
    int64_t n = a->config->hidden;
    bool gemma = (a->config->arch->flags & SB_LLM_GEMMA) != 0;
    const char *name = sb_arch_name(a, "model.layers.%lld", (long long)layer);
    sb_value_id y =
        llama_norm(a, llama_module(a, layer, "input_layernorm", NULL), x, n);

    y = llama_attention(a, layer, y, rope, window);
    if (gemma)
        y = llama_norm(a,
                       llama_module(a, layer, "post_attention_layernorm",
                                    "post_attention_norm"),
                       y, n);
    x = sb_arch_binary(a, name, "Add", x, y);
    y = llama_norm(
        a,
        gemma ? llama_module(a, layer, "pre_feedforward_layernorm", "ffn_norm")
              : llama_module(a, layer, "post_attention_layernorm", "ffn_norm"),
        x, n);
    y = llama_mlp(a, layer, y);
    if (gemma)
        y = llama_norm(a,
                       llama_module(a, layer, "post_feedforward_layernorm",
                                    "post_ffw_norm"),
                       y, n);
    return sb_arch_binary(a, name, "Add", x, y);
}

sb_status sb_arch_llama(sb_arch *a)
{
    const sb_llm_config *c = a->config;
    const sb_module embed = {"model.embed_tokens", NULL};

    sb_arch_find_prefix(a, "model.embed_tokens.weight", NULL);
    sb_value_id x = sb_arch_embed(a, embed, a->ids, c->vocabulary, c->hidden);
    x = sb_arch_join_rows(a, embed.name, x, c->hidden);
    if (c->arch->flags & SB_LLM_SCALED_EMBEDDING)
        x = sb_arch_binary(a, embed.name, "Mul", x,
                           sb_arch_float(a, sqrt((double)c->hidden)));
    rope_tables all = llama_rope(a, &c->rope, "rope.cos", "rope.sin");
    rope_tables local = all;
    if (c->window_pattern > 0)
        local =
            llama_rope(a, &c->local_rope, "rope.local_cos", "rope.local_sin");
    for (int64_t i = 0; i < c->layers && a->status == SB_OK; i++) {
        bool sees_all =
            c->window_pattern > 0 && (i + 1) % c->window_pattern == 0;

        a->status = sb_ctx_poll(a->ctx);
        if (a->status == SB_OK)
            x = llama_layer(a, i, x, sees_all ? &all : &local,
                            sees_all ? 0 : c->window);
    }
    x = llama_norm(a, (sb_module){"model.norm", NULL}, x, c->hidden);
    sb_arch_logits(a, (sb_module){"lm_head", NULL}, embed, x);
    return a->status;
}
