/* Every allocation fails once: language models read from each kind of file,
 * tokenizers, and a text that is written. */
#include "sbtest.h"

#define FIXTURES "tests/fixtures/llm/"

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
        cmocka_unit_test(test_every_failed_allocation_is_reported)};

    return cmocka_run_group_tests_name("oom_llm", tests, NULL, NULL);
}
