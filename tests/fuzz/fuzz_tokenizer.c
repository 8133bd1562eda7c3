/* Any bytes as a tokenizer, told apart by the first: tokenizer.json,
 * tokenizer.model, GGUF or tokenizer.bin; then a text goes through it. */
#define _POSIX_C_SOURCE 200809L
#include "fuzz_file.h"

static void use(sb_ctx *ctx, const char *path)
{
    static const char text[] = "Hello w\xc3\xb6rld <s> 123\n \xe2\x96\x81 ab";
    sb_tokenizer *t = NULL;
    int64_t *ids = NULL;
    size_t n = 0;
    char *back = NULL;

    if (sb_tokenizer_open(ctx, path, &t) != SB_OK)
        return;
    if (sb_tokenizer_encode(t, text, sizeof text - 1, 1, &ids, &n) == SB_OK &&
        sb_tokenizer_decode(t, ids, n, &back) == SB_OK)
        sb_memory_free(back);
    sb_memory_free(ids);
    sb_tokenizer_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return with_file(data, size, use);
}
