/* Any bytes as an ONNX file: load, count, print, simplify, run, save.
 *
 * What must never happen: a crash, a hang, a read outside, a leak.  Statuses
 * are not looked at. */
#include "fuzz_model.h"

static void run(sb_ctx *ctx, const sb_model *model)
{
    sb_tensor *in[MOST_INPUTS] = {0};
    sb_session *session = NULL;

    if (make_inputs(ctx, model, in) &&
        sb_session_create(model, NULL, &session) == SB_OK)
        (void)!sb_session_run(session, (const sb_tensor *const *)in,
                              sb_model_input_count(model), NULL, 0);
    sb_session_free(session);
    free_inputs(in);
}

static void use(sb_ctx *ctx, sb_model *model, size_t size)
{
    static const sb_graph_format formats[] = {
        SB_GRAPH_FORMAT_TEXT, SB_GRAPH_FORMAT_DOT, SB_GRAPH_FORMAT_MERMAID};
    const sb_model_info *info = NULL;

    (void)size;
    if (sb_model_info_get(model, &info) != SB_OK)
        return;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        char *text = NULL;

        if (sb_model_print(model, formats[i], &text) == SB_OK)
            sb_memory_free(text);
    }
    if (info->macs > 1e8 || info->nodes > 2000)
        return;
    run(ctx, model);
    if (sb_model_simplify(model, NULL, NULL, NULL) == SB_OK)
        run(ctx, model);
    if (sb_model_save(model, "/dev/null/nowhere") == SB_OK)
        abort(); /* there is no such folder */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return with_model(data, size, use);
}
