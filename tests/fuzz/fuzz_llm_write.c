/* Any bytes as an ONNX file: if it says that it is a language model, it is
 * written as one.  No kernel has looked at its nodes before, so all that they
 * say must be checked on the way. */
#define _POSIX_C_SOURCE 200809L
#include "fuzz_file.h"
#include "llm/write/llm_write.h"
#include "onnx/onnx.h"

static void remove_folder(const char *folder)
{
    static const char *const names[] = {"model.safetensors", "config.json",
                                        "quantize_config.json"};
    char path[1024];

    for (size_t i = 0; i < SB_COUNT(names); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(folder);
}

static void use(sb_ctx *ctx, const char *path)
{
    static const sb_llm_file files[] = {SB_LLM_FILE_FLOAT, SB_LLM_FILE_GPTQ};
    char folder[600];
    sb_graph *g = NULL;

    if (sb_onnx_load(ctx, path, &g) != SB_OK)
        return;
    (void)snprintf(folder, sizeof folder, "%s.out", path);
    for (size_t i = 0; i < 2 * SB_COUNT(files); i++) {
        const sb_llm_write_options opt = {.file = files[i / 2],
                                          .round = i % 2 == 1};

        (void)!sb_llm_write(g, folder, &opt);
        remove_folder(folder);
    }
    sb_graph_free(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return with_file(data, size, use);
}
