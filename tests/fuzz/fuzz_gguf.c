/* Any bytes as a GGUF file: load, and run one token through the network.
 * Statuses are not looked at. */
#define _POSIX_C_SOURCE 200809L
#include "fuzz_file.h"

static void run(sb_ctx *ctx, const sb_model *model)
{
    const int64_t dims[2] = {1, 1};
    sb_tensor *ids = NULL;
    sb_session *session = NULL;

    if (sb_tensor_create(ctx, SB_DTYPE_I64, 2, dims, &ids) == SB_OK &&
        sb_session_create(model, NULL, &session) == SB_OK)
        (void)!sb_session_run(session, (const sb_tensor *const[]){ids}, 1, NULL,
                              0);
    sb_session_free(session);
    sb_tensor_free(ids);
}

static void use(sb_ctx *ctx, const char *path)
{
    sb_model *model = NULL;

    if (sb_model_load(ctx, path, &model) == SB_OK)
        run(ctx, model);
    sb_model_free(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Without the magic number it would be taken for another kind of file. */
    if (size < 4 || data[0] != 'G' || data[1] != 'G' || data[2] != 'U' ||
        data[3] != 'F')
        return 0;
    return with_file(data, size, use);
}
