/* GPT-2: layer norms, learned positions, one product for q, k and v,
 * feed-forward with tanh-Gelu. */
#include "llm/arch.h"

static sb_module gpt2_module(sb_arch *a, int64_t layer, const char *name,
                             const char *gguf)
{
    return (sb_module){
        sb_arch_name(a, "h.%lld.%s", (long long)layer, name),
        sb_arch_name(a, "model.layers.%lld.%s", (long long)layer, gguf)};
}

static sb_value_id gpt2_norm(sb_arch *a, sb_module m, sb_value_id x)
{
    int64_t n = a->config->hidden;
    const sb_attr eps = {.name = "epsilon",
                         .type = SB_ATTR_FLOAT,
                         .f = (float)a->config->norm_epsilon};
    sb_value_id w = sb_arch_vector(a, m, "weight", n, 0);
    sb_value_id b = sb_arch_vector(a, m, "bias", n, 0);

    return sb_arch_node(a, m.name, "LayerNormalization", SB_ARCH_IN(x, w, b),
                        &eps, 1);
}

/* Columns [begin, begin + n) of x [batch, sequence, 3 n]. */
static sb_value_id gpt2_part(sb_arch *a, const char *module, sb_value_id x,
                             int64_t begin, int64_t n)
{
    const int64_t end = begin + n, axis = 2;

    return sb_arch_node(a, module, "Slice",
                        SB_ARCH_IN(x, sb_arch_ints(a, &begin, 1),
                                   sb_arch_ints(a, &end, 1),
                                   sb_arch_ints(a, &axis, 1)),
                        NULL, 0);
}

static sb_value_id gpt2_attention(sb_arch *a, int64_t layer, sb_value_id x)
{
    int64_t n = a->config->hidden;
    const char *name = sb_arch_name(a, "h.%lld.attn", (long long)layer);
    sb_value_id y = sb_arch_linear(
        a, gpt2_module(a, layer, "attn.c_attn", "self_attn.qkv_proj"), x, n,
        3 * n);

    y = sb_arch_split_rows(a, name, y, 3 * n);
    sb_value_id q = gpt2_part(a, name, y, 0, n);
    sb_value_id k = gpt2_part(a, name, y, n, n);
    sb_value_id v = gpt2_part(a, name, y, 2 * n, n);
    y = sb_arch_attention(a, name, q, k, v, 0);
    y = sb_arch_join_rows(a, name, y, n);
    return sb_arch_linear(
        a, gpt2_module(a, layer, "attn.c_proj", "self_attn.o_proj"), y, n, n);
}

static sb_value_id gpt2_mlp(sb_arch *a, int64_t layer, sb_value_id x)
{
    const sb_llm_config *c = a->config;
    const sb_attr tanh_gelu = {
        .name = "approximate", .type = SB_ATTR_STRING, .s = {"tanh", 4}};
    sb_module up = gpt2_module(a, layer, "mlp.c_fc", "mlp.up_proj");
    sb_value_id y = sb_arch_linear(a, up, x, c->hidden, c->feed_forward);

    y = sb_arch_node(a, up.name, "Gelu", &y, 1, &tanh_gelu, 1);
    return sb_arch_linear(a,
                          gpt2_module(a, layer, "mlp.c_proj", "mlp.down_proj"),
                          y, c->feed_forward, c->hidden);
}

static sb_value_id gpt2_layer(sb_arch *a, int64_t layer, sb_value_id x)
{
    const char *name = sb_arch_name(a, "h.%lld", (long long)layer);
    sb_value_id y =
        gpt2_norm(a, gpt2_module(a, layer, "ln_1", "input_layernorm"), x);

    x = sb_arch_binary(a, name, "Add", x, gpt2_attention(a, layer, y));
    y = gpt2_norm(a, gpt2_module(a, layer, "ln_2", "ffn_norm"), x);
    return sb_arch_binary(a, name, "Add", x, gpt2_mlp(a, layer, y));
}

sb_status sb_arch_gpt2(sb_arch *a)
{
    const sb_llm_config *c = a->config;
    const sb_module words = {"wte", "model.embed_tokens"};
    const sb_module places = {"wpe", NULL};

    sb_arch_find_prefix(a, "wte.weight", "model.embed_tokens.weight");
    sb_value_id x = sb_arch_embed(a, words, a->ids, c->vocabulary, c->hidden);
    sb_value_id p =
        sb_arch_embed(a, places, a->positions, c->positions, c->hidden);
    x = sb_arch_binary(a, "wpe", "Add", x, p);
    x = sb_arch_join_rows(a, "wpe", x, c->hidden);
    for (int64_t i = 0; i < c->layers && a->status == SB_OK; i++) {
        a->status = sb_ctx_poll(a->ctx);
        if (a->status == SB_OK)
            x = gpt2_layer(a, i, x);
    }
    x = gpt2_norm(a, (sb_module){"ln_f", "model.norm"}, x);
    sb_arch_logits(a, (sb_module){"lm_head", NULL}, words, x);
    return a->status;
}
