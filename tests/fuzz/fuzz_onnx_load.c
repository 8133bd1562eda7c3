/* Any bytes as an ONNX file: load, verify, print, clone, save, and load what
 * was saved.  Only src/onnx and src/graph are at work here; fuzz_onnx runs the
 * model too.
 *
 * What must never happen: a crash, a hang, a leak, and a file of ours that we
 * cannot read. */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "graph/text.h"
#include "onnx/onnx.h"

static void print(const sb_graph *g)
{
    sb_str text;

    sb_str_init(&text, g->ctx);
    if (sb_graph_print(g, &text) != SB_OK)
        abort();
    sb_str_free(&text);
}

static void save_and_load(const sb_graph *g)
{
    const char *folder = getenv("TMPDIR");
    char path[512], data[520];
    sb_graph *again = NULL;
    /* A small limit sends weights to a second file. */
    const sb_onnx_save_options opt = {.min_opset = 25, .external_above = 2048};

    (void)snprintf(path, sizeof path, "%s/fuzz-%ld.onnx",
                   folder ? folder : "/tmp", (long)getpid());
    (void)snprintf(data, sizeof data, "%s.data", path);
    if (sb_onnx_save(g, path, &opt) != SB_OK)
        return;
    sb_status status = sb_onnx_load(g->ctx, path, &again);
    if (status != SB_OK) {
        fprintf(stderr, "%s\n", sb_ctx_error(g->ctx));
        abort();
    }
    print(again);
    sb_graph_free(again);
    (void)unlink(path);
    (void)unlink(data);
}

static void use(const sb_graph *g)
{
    sb_graph *copy = NULL;

    if (sb_graph_verify(g) != SB_OK)
        abort();
    print(g);
    if (sb_graph_clone(g, &copy) != SB_OK || sb_graph_verify(copy) != SB_OK)
        abort();
    sb_graph_free(copy);
    save_and_load(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sb_ctx *ctx = NULL;
    sb_graph *g = NULL;

    if (sb_ctx_create(NULL, &ctx) != SB_OK)
        return 0;
    if (sb_onnx_load_memory(ctx, "input", NULL, data, size, &g) == SB_OK)
        use(g);
    sb_graph_free(g);
    sb_ctx_free(ctx);
    return 0;
}
