/* Every allocation fails once: language models read from each kind of file,
 * tokenizers, a text that is written, and adapters. */
#define _DEFAULT_SOURCE
#include "sbtest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIXTURES "tests/fixtures/llm/"

static char adapter_path[64], adapter_weights[128], adapter_config[128];

static sb_status load(sb_ctx *ctx, const char *path)
{
    sb_model *model = NULL;
    sb_status s = sb_model_load(ctx, path, &model);

    sb_model_free(model);
    return s;
}

static sb_status load_folder(sb_ctx *ctx)
{
    return load(ctx, FIXTURES "qwen3");
}

static sb_status load_shards(sb_ctx *ctx)
{
    return load(ctx, FIXTURES "mistral");
}

static sb_status load_gguf(sb_ctx *ctx)
{
    return load(ctx, FIXTURES "tiny.gguf");
}

static sb_status tokenize(sb_ctx *ctx, const char *path)
{
    static const char text[] = "The quick  brown fox, 123 \xc3\xa4";
    sb_tokenizer *t = NULL;
    int64_t *ids = NULL;
    char *back = NULL;
    size_t n = 0;
    sb_status s = sb_tokenizer_open(ctx, path, &t);

    if (s == SB_OK)
        s = sb_tokenizer_encode(t, text, sizeof text - 1, 1, &ids, &n);
    if (s == SB_OK)
        s = sb_tokenizer_decode(t, ids, n, &back);
    sb_memory_free(back);
    sb_memory_free(ids);
    sb_tokenizer_free(t);
    return s;
}

static sb_status tokenize_bytes(sb_ctx *ctx)
{
    return tokenize(ctx, FIXTURES "tok_gpt2.json");
}

static sb_status tokenize_unigram(sb_ctx *ctx)
{
    return tokenize(ctx, FIXTURES "spm_unigram.model");
}

static sb_status tokenize_gguf(sb_ctx *ctx)
{
    return tokenize(ctx, FIXTURES "tiny.gguf");
}

static sb_status generate(sb_ctx *ctx)
{
    static const char *const stop[] = {"never in the text"};
    sb_generate_options opt = SB_GENERATE_OPTIONS_INIT;
    const sb_generation *made = NULL;
    sb_tokenizer *t = NULL;
    sb_model *model = NULL;
    sb_generator *g = NULL;
    sb_status s = sb_model_load(ctx, FIXTURES "tiny.gguf", &model);

    opt.max_tokens = 3;
    opt.temperature = 0.8;
    opt.top_k = 5;
    opt.stop = stop;
    opt.n_stop = 1;
    opt.ignore_end = 1;
    if (s == SB_OK)
        s = sb_tokenizer_open(ctx, FIXTURES "tiny.gguf", &t);
    if (s == SB_OK)
        s = sb_generator_create(model, t, 24, &g);
    if (s == SB_OK)
        s = sb_generator_run(g, "the", &opt, &made);
    sb_generator_free(g);
    sb_tokenizer_free(t);
    sb_model_free(model);
    return s;
}

/* Adapters beside packed weights: added, written, read again, merged. */
static sb_status adapt(sb_ctx *ctx)
{
    sb_lora_options opt = SB_LORA_OPTIONS_INIT;
    sb_model *model = NULL, *other = NULL;
    sb_status s = sb_model_load(ctx, FIXTURES "tiny.gguf", &model);

    opt.layers = "q_proj|*.mlp.down_proj";
    opt.rank = 2;
    if (s == SB_OK)
        s = sb_model_add_lora(model, &opt);
    if (s == SB_OK)
        s = sb_model_save_lora(model, adapter_path);
    if (s == SB_OK)
        s = sb_model_load(ctx, FIXTURES "tiny.gguf", &other);
    if (s == SB_OK)
        s = sb_model_load_lora(other, adapter_path);
    if (s == SB_OK)
        s = sb_model_merge_lora(other);
    sb_model_free(other);
    sb_model_free(model);
    (void)unlink(adapter_weights);
    (void)unlink(adapter_config);
    (void)rmdir(adapter_path);
    return s;
}

/* A step of training with them. */
static sb_status adapt_step(sb_ctx *ctx)
{
    static const char *const train[] = {"*.lora_?.weight"};
    const int64_t dims[] = {1, 4};
    const int64_t tokens[] = {1, 3, 5, 2}, labels[] = {3, 5, 2, -100};
    sb_lora_options opt = SB_LORA_OPTIONS_INIT;
    sb_learn_options learn = SB_LEARN_OPTIONS_INIT;
    sb_tensor *ids = NULL, *target = NULL;
    sb_model *model = NULL;
    sb_learner *l = NULL;
    double loss = 0;
    sb_status s = sb_model_load(ctx, FIXTURES "tiny.gguf", &model);

    opt.layers = "*.layers.1.self_attn.v_proj"; /* the last: little goes back */
    opt.rank = 1;
    learn.class_axis = -1;
    learn.train = train;
    learn.n_train = 1;
    if (s == SB_OK)
        s = sb_tensor_create(ctx, SB_DTYPE_I64, 2, dims, &ids);
    if (s == SB_OK)
        s = sb_tensor_create(ctx, SB_DTYPE_I64, 2, dims, &target);
    if (s == SB_OK) {
        memcpy(sb_tensor_data_mutable(ids), tokens, sizeof tokens);
        memcpy(sb_tensor_data_mutable(target), labels, sizeof labels);
        s = sb_model_add_lora(model, &opt);
    }
    if (s == SB_OK)
        s = sb_learner_create(model, &learn, &l);
    if (s == SB_OK)
        s = sb_learner_step(l, (const sb_tensor *const[]){ids}, 1, target,
                            &loss);
    sb_learner_free(l);
    sb_tensor_free(ids);
    sb_tensor_free(target);
    sb_model_free(model);
    return s;
}

static void test_adapters(void **state)
{
    char folder[] = "/tmp/sparsebit-oom-XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(adapter_path, sizeof adapter_path, "%s/a", folder);
    (void)snprintf(adapter_weights, sizeof adapter_weights,
                   "%s/a/adapter_model.safetensors", folder);
    (void)snprintf(adapter_config, sizeof adapter_config,
                   "%s/a/adapter_config.json", folder);
    test_every_allocation("adapters", adapt);
    test_every_allocation("a step with adapters", adapt_step);
    assert_int_equal(rmdir(folder), 0); /* nothing else was left in it */
}

static void test_every_failed_allocation_is_reported(void **state)
{
    (void)state;
    test_every_allocation("a folder", load_folder);
    test_every_allocation("several files", load_shards);
    test_every_allocation("GGUF", load_gguf);
    test_every_allocation("byte-level tokens", tokenize_bytes);
    test_every_allocation("unigram tokens", tokenize_unigram);
    test_every_allocation("tokens of GGUF", tokenize_gguf);
    test_every_allocation("generate", generate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_failed_allocation_is_reported),
        cmocka_unit_test(test_adapters),
    };

    return cmocka_run_group_tests_name("oom_llm", tests, NULL, NULL);
}
