/* config.json of language models: what is refused by name, and which layers
 * have a window, as transformers' configuration classes have it; keys of GGUF
 * files, as llama.cpp reads them. */
#define _POSIX_C_SOURCE 200809L
#include "ggufbytes.h"
#include "sbtest.h"

#include <sparsebit/sparsebit.h>

#include "base/alloc.h"
#include "llm/llm_config.h"

static sb_status read_config(const char *json)
{
    sb_json_doc *doc = NULL;
    sb_llm_config c;

    assert_ok(
        sb_json_read(test_ctx(), "config.json", json, strlen(json), &doc));
    sb_status status = sb_llm_config_read_hf(&c, doc);
    sb_json_free(doc);
    return status;
}

static const struct {
    sb_status status;
    const char *json, *want;
} refused_configs[] = {
    {SB_UNSUPPORTED, "{\"model_type\":\"mamba\"}",
     "architecture 'mamba'; known are llama, mistral, qwen2, qwen3"},
    {SB_BAD_DATA, "{}", "there is no model_type"},
    {SB_BAD_DATA, "{\"model_type\":\"llama\"}", "0 layers, want 1 to"},
    {SB_BAD_DATA, "{\"model_type\":\"llama\",\"hidden_size\":\"8\"}",
     "hidden_size is no number"},
    {SB_BAD_DATA,
     "{\"model_type\":\"llama\",\"num_hidden_layers\":1,"
     "\"hidden_size\":8,\"intermediate_size\":8,\"vocab_size\":9,"
     "\"num_attention_heads\":3,\"num_key_value_heads\":2}",
     "3 attention heads for 2 key heads"},
    {SB_BAD_DATA,
     "{\"model_type\":\"llama\",\"num_hidden_layers\":1,"
     "\"hidden_size\":8e99,\"intermediate_size\":8,\"vocab_size\":9,"
     "\"num_attention_heads\":3}",
     "hidden_size is out of range"},
    {SB_BAD_DATA, "{\"model_type\":\"llama\",\"num_key_value_heads\":2.5}",
     "num_key_value_heads is no whole number"},
    {SB_BAD_DATA, "{\"model_type\":\"llama\",\"hidden_act\":5}",
     "hidden_act is no text"},
    {SB_BAD_DATA,
     "{\"model_type\":\"gemma3_text\",\"query_pre_attn_scalar\":-1}",
     "query_pre_attn_scalar -1, want a number above 0"},
    {SB_BAD_DATA,
     "{\"model_type\":\"gemma3_text\",\"num_hidden_layers\":2,"
     "\"sliding_window\":8,\"layer_types\":[\"sliding_attention\"]}",
     "layer_types: 1 of 2 layers"},
    {SB_BAD_DATA, "{\"model_type\":\"gpt2\",\"n_embd\":9e14}",
     "intermediate_size is out of range"},
    {SB_BAD_DATA, "{\"model_type\":\"gpt2\",\"n_layer\":1e30}",
     "n_layer is out of range"},
    {SB_UNSUPPORTED,
     "{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"yarn\"}}",
     "rope scaling 'yarn'; known are default, linear, llama3"},
    {SB_UNSUPPORTED,
     "{\"model_type\":\"gemma3_text\",\"rope_parameters\":{"
     "\"full_attention\":{\"rope_type\":\"default\"},"
     "\"sliding_attention\":{\"rope_type\":\"yarn\"}}}",
     "rope scaling 'yarn'; known are default, linear, llama3"},
    {SB_BAD_DATA,
     "{\"model_type\":\"llama\",\"rope_scaling\":{\"rope_type\":5}}",
     "rope_type is no text"},
    {SB_UNSUPPORTED, "{\"model_type\":\"llama\",\"hidden_act\":\"relu\"}",
     "hidden_act 'relu'; known for llama are silu, swish"},
    {SB_UNSUPPORTED,
     "{\"model_type\":\"gpt2\",\"activation_function\":\"gelu\"}",
     "activation_function 'gelu'; known for gpt2 are gelu_pytorch_tanh, "
     "gelu_new, gelu_fast"},
    {SB_BAD_DATA,
     "{\"model_type\":\"gpt2\",\"activation_function\":\"gelu_fast\"}",
     "0 layers, want 1 to"},
    {SB_UNSUPPORTED,
     "{\"model_type\":\"gpt2\",\"scale_attn_by_inverse_layer_idx\":true}",
     "scale_attn_by_inverse_layer_idx is true, want false"},
    {SB_UNSUPPORTED, "{\"model_type\":\"gpt2\",\"scale_attn_weights\":false}",
     "scale_attn_weights is false, want true"},
    {SB_UNSUPPORTED,
     "{\"model_type\":\"gemma3_text\","
     "\"use_bidirectional_attention\":true}",
     "use_bidirectional_attention is true, want false"},
    {SB_UNSUPPORTED,
     "{\"model_type\":\"gemma3_text\",\"final_logit_softcapping\":30}",
     "final_logit_softcapping is 30, want null"},
    {SB_UNSUPPORTED,
     "{\"model_type\":\"qwen2\",\"num_hidden_layers\":4,"
     "\"use_sliding_window\":true,\"sliding_window\":8,"
     "\"max_window_layers\":2}",
     "max_window_layers 2 of 4 layers, want 0, or all of them"},
};

static void test_configs_that_cannot_be_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(refused_configs); i++) {
        assert_status(read_config(refused_configs[i].json),
                      refused_configs[i].status);
        assert_error_has(refused_configs[i].want);
    }
}

/* Heads of 5 elements cannot be rotated in pairs; GPT-2 rotates nothing. */
static void test_odd_heads_where_nothing_is_rotated(void **state)
{
    (void)state;
    assert_ok(read_config("{\"model_type\":\"gpt2\",\"n_layer\":1,"
                          "\"n_embd\":10,\"n_head\":2,\"vocab_size\":9}"));
    assert_status(
        read_config("{\"model_type\":\"llama\",\"num_hidden_layers\":1,"
                    "\"hidden_size\":10,\"intermediate_size\":8,"
                    "\"vocab_size\":9,\"num_attention_heads\":2}"),
        SB_BAD_DATA);
    assert_error_has("5 rotated elements of a head of 5");
}

/* A whole file with some more members. */
static sb_llm_config read_whole(const char *members)
{
    sb_json_doc *doc = NULL;
    sb_llm_config c;
    char json[1024];

    (void)snprintf(json, sizeof json,
                   "{\"num_hidden_layers\":2,\"hidden_size\":8,"
                   "\"intermediate_size\":8,\"vocab_size\":9,"
                   "\"num_attention_heads\":2,\"model_type\":%s}",
                   members);
    assert_ok(
        sb_json_read(test_ctx(), "config.json", json, strlen(json), &doc));
    assert_ok(sb_llm_config_read_hf(&c, doc));
    sb_json_free(doc);
    return c;
}

/* What a scaling needs has no default in transformers 5.23 either. */
static void test_scaling_says_its_numbers(void **state)
{
    static const char *const scalings[] = {
        "\"linear\"", "\"llama3\",\"factor\":8",
        "\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
        "\"high_freq_factor\":4"};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(scalings); i++) {
        char json[512];

        (void)snprintf(json, sizeof json,
                       "{\"model_type\":\"llama\",\"num_hidden_layers\":1,"
                       "\"hidden_size\":8,\"intermediate_size\":8,"
                       "\"vocab_size\":9,\"num_attention_heads\":2,"
                       "\"rope_scaling\":{\"rope_type\":%s}}",
                       scalings[i]);
        assert_status(read_config(json), SB_BAD_DATA);
        assert_error_has("rope");
    }
}

/* Layers with a window have a scaling of their own. */
static void test_each_kind_of_layer_is_scaled(void **state)
{
    sb_llm_config c = read_whole(
        "\"gemma3_text\",\"num_key_value_heads\":1,\"rope_parameters\":{"
        "\"full_attention\":{\"rope_type\":\"default\",\"rope_theta\":1e6},"
        "\"sliding_attention\":{\"rope_type\":\"linear\",\"factor\":4,"
        "\"rope_theta\":1e3}}");

    (void)state;
    assert_int_equal(c.rope.scaling, SB_ROPE_PLAIN);
    assert_close("theta", c.rope.theta, 1e6, 0);
    assert_int_equal(c.local_rope.scaling, SB_ROPE_LINEAR);
    assert_close("local theta", c.local_rope.theta, 1e3, 0);
    assert_close("factor", c.local_rope.factor, 4, 0);
}

/* What LlamaConfig, MistralConfig, Qwen3Config and Gemma3TextConfig of
 * transformers 5.23 have where a file says nothing. */
static void test_members_that_are_not_there(void **state)
{
    static const char gemma[] = /* the 4B file */
        "{\"model_type\":\"gemma3\",\"text_config\":{\"hidden_size\":2560,"
        "\"intermediate_size\":10240,\"model_type\":\"gemma3_text\","
        "\"num_hidden_layers\":34,\"rope_scaling\":{\"factor\":8.0,"
        "\"rope_type\":\"linear\"},\"sliding_window\":1024}}";
    sb_llm_config c = read_whole("\"llama\"");
    sb_json_doc *doc = NULL;

    (void)state;
    assert_close("epsilon", c.norm_epsilon, 1e-6, 0);
    assert_int_equal(c.window, 0);
    assert_int_equal(read_whole("\"mistral\"").window, 4096);
    assert_int_equal(read_whole("\"mistral\",\"sliding_window\":null").window,
                     0);
    assert_int_equal(read_whole("\"qwen3\"").head_size, 128);
    assert_ok(
        sb_json_read(test_ctx(), "config.json", gemma, strlen(gemma), &doc));
    assert_ok(sb_llm_config_read_hf(&c, doc));
    sb_json_free(doc);
    assert_int_equal(c.heads, 8);
    assert_int_equal(c.kv_heads, 4);
    assert_int_equal(c.head_size, 256);
    assert_int_equal(c.vocabulary, 262208);
    assert_close("epsilon", c.norm_epsilon, 1e-6, 0);
    assert_close("theta", c.rope.theta, 1e6, 0);
    assert_close("local theta", c.local_rope.theta, 1e4, 0);
    assert_close("scale", c.attention_scale, 1.0 / 16, 0);
    assert_int_equal(c.window_pattern, 6);
}

/* Which layers have a window: what transformers 5 says of such files
 * (Qwen2Config, MistralConfig; LLaMA has none). */
static void test_windows_of_configs(void **state)
{
    static const struct {
        const char *json;
        int64_t window, pattern;
        double theta; /* of layers with a window */
    } cases[] = {
        {"\"mistral\",\"sliding_window\":8,\"rope_theta\":1e6", 8, 0, 1e6},
        {"\"llama\",\"sliding_window\":8,\"layer_types\":["
         "\"sliding_attention\",\"full_attention\"]",
         0, 0, 1e4},
        {"\"qwen2\",\"sliding_window\":8", 0, 0, 1e4},
        {"\"qwen2\",\"sliding_window\":8,\"use_sliding_window\":true", 0, 0,
         1e4},
        {"\"qwen2\",\"sliding_window\":8,\"use_sliding_window\":true,"
         "\"max_window_layers\":0",
         8, 0, 1e4},
        {"\"qwen2\",\"sliding_window\":8,\"use_sliding_window\":true,"
         "\"rope_theta\":1e6,\"layer_types\":[\"sliding_attention\","
         "\"full_attention\"]",
         8, 2, 1e6},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_llm_config c = read_whole(cases[i].json);

        assert_int_equal(c.window, cases[i].window);
        assert_int_equal(c.window_pattern, cases[i].pattern);
        assert_close(cases[i].json, c.local_rope.theta, cases[i].theta, 0);
    }
}

static void put_key(gguf_bytes *b, const char *key, uint32_t type,
                    uint32_t value)
{
    put_text(b, key);
    put(b, type, 4);
    put(b, value, 4);
}

static uint32_t float_bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    return u;
}

/* All keys that llama.cpp asks for, and those that follow. */
static gguf_bytes gguf_llama(uint64_t more)
{
    gguf_bytes b = gguf_start(0, 8 + more);

    put_text(&b, "general.architecture");
    put(&b, SB_GGUF_STRING, 4);
    put_text(&b, "llama");
    put_key(&b, "llama.block_count", SB_GGUF_U32, 2);
    put_key(&b, "llama.embedding_length", SB_GGUF_U32, 8);
    put_key(&b, "llama.feed_forward_length", SB_GGUF_U32, 8);
    put_key(&b, "llama.attention.head_count", SB_GGUF_U32, 2);
    put_key(&b, "llama.context_length", SB_GGUF_U32, 16);
    put_key(&b, "llama.vocab_size", SB_GGUF_U32, 9);
    put_key(&b, "llama.attention.layer_norm_rms_epsilon", SB_GGUF_F32,
            float_bits(1e-5F));
    return b;
}

static sb_status gguf_config(const gguf_bytes *b, sb_llm_config *c)
{
    sb_gguf g = {0};
    sb_status status = sb_gguf_open(&g, test_ctx(), write_file(b->data, b->n));

    if (status == SB_OK)
        status = sb_llm_config_read_gguf(c, &g);
    sb_gguf_free(&g);
    (void)remove(tmp_path);
    return status;
}

/* llama.cpp's loader: linear unless the file says how; an older name. */
static void test_gguf_scaling_without_a_type(void **state)
{
    static const char *const keys[] = {"llama.rope.scaling.factor",
                                       "llama.rope.scale_linear"};
    gguf_bytes b = gguf_llama(0);
    sb_llm_config c;

    (void)state;
    assert_ok(gguf_config(&b, &c));
    assert_int_equal(c.rope.scaling, SB_ROPE_PLAIN);
    for (size_t i = 0; i < SB_COUNT(keys); i++) {
        b = gguf_llama(1);
        put_key(&b, keys[i], SB_GGUF_F32, float_bits(4));
        assert_ok(gguf_config(&b, &c));
        assert_int_equal(c.rope.scaling, SB_ROPE_LINEAR);
        assert_close(keys[i], c.rope.factor, 4, 0);
    }
}

/* Numbers of layers that are not the same, which have only the first one's
 * shapes in common. */
static void test_gguf_lists_of_layers(void **state)
{
    static const struct {
        uint32_t type;
        uint64_t second;
        sb_status status;
    } cases[] = {{SB_GGUF_U32, 1, SB_OK},
                 {SB_GGUF_U32, 2, SB_UNSUPPORTED},
                 {SB_GGUF_BOOL, 1, SB_UNSUPPORTED}};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        int size = cases[i].type == SB_GGUF_BOOL ? 1 : 4;
        gguf_bytes b = gguf_llama(1);
        sb_llm_config c;

        put_text(&b, "llama.attention.head_count_kv");
        put(&b, SB_GGUF_ARRAY, 4);
        put(&b, cases[i].type, 4);
        put(&b, 2, 8);
        put(&b, 1, size);
        put(&b, cases[i].second, size);
        assert_status(gguf_config(&b, &c), cases[i].status);
        if (cases[i].status != SB_OK)
            assert_error_has("key 'llama.attention.head_count_kv' differs");
    }
}

/* Scores and types are one for each token, or not there. */
static void test_gguf_tokens_have_as_many_scores(void **state)
{
    static const struct {
        const char *key;
        uint32_t type;
    } cases[] = {{"tokenizer.ggml.scores", SB_GGUF_F32},
                 {"tokenizer.ggml.token_type", SB_GGUF_I32}};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        gguf_bytes b = gguf_start(0, 3);
        sb_tokenizer *t = NULL;

        put_text(&b, "tokenizer.ggml.model");
        put(&b, SB_GGUF_STRING, 4);
        put_text(&b, "llama");
        put_text(&b, "tokenizer.ggml.tokens");
        put(&b, SB_GGUF_ARRAY, 4);
        put(&b, SB_GGUF_STRING, 4);
        put(&b, 2, 8);
        put_text(&b, "a");
        put_text(&b, "b");
        put_text(&b, cases[i].key);
        put(&b, SB_GGUF_ARRAY, 4);
        put(&b, cases[i].type, 4);
        put(&b, 1, 8);
        put(&b, 0, 4);
        assert_status(
            sb_tokenizer_open(test_ctx(), write_file(b.data, b.n), &t),
            SB_BAD_DATA);
        assert_error_has("has 1 values, want a number for each of 2 tokens");
        (void)remove(tmp_path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_configs_that_cannot_be_are_refused),
        cmocka_unit_test(test_odd_heads_where_nothing_is_rotated),
        cmocka_unit_test(test_scaling_says_its_numbers),
        cmocka_unit_test(test_each_kind_of_layer_is_scaled),
        cmocka_unit_test(test_members_that_are_not_there),
        cmocka_unit_test(test_windows_of_configs),
        cmocka_unit_test(test_gguf_scaling_without_a_type),
        cmocka_unit_test(test_gguf_lists_of_layers),
        cmocka_unit_test(test_gguf_tokens_have_as_many_scores),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
