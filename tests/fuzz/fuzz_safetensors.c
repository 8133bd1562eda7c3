/* Any bytes as a safetensors file: whatever the header says, weights lie inside
 * the file.  Every byte of them is read. */
#define _POSIX_C_SOURCE 200809L
#include "fuzz_file.h"
#include "llm/llm_checkpoint.h"

static void use(sb_ctx *ctx, const char *path)
{
    sb_checkpoint c;
    unsigned sum = 0;

    sb_checkpoint_init(&c, ctx, path);
    (void)!sb_safetensors_load(&c, path);
    for (size_t i = 0; i < c.n; i++)
        for (size_t k = 0; k < c.weights[i].bytes; k++)
            sum += ((const unsigned char *)sb_weight_data(&c.weights[i]))[k];
    sb_checkpoint_free(&c);
    if (sum == 1)
        (void)fflush(NULL); /* so that the bytes are really read */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return with_file(data, size, use);
}
