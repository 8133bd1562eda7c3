/* sb_model: loading, saving, and the life of its graph. */
#define _POSIX_C_SOURCE 200809L
#include "api/model.h"

#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/options.h"
#include "graph/text.h"
#include "llm/llm_load.h"
#include "onnx/onnx.h"
#include "ops/op_registry.h"
#include "passes/deploy/three_bits.h"
#include "passes/pass.h"

enum { OPSET_LEAST = 7 }; /* that files are read and written in */

/* ---- life --------------------------------------------------------------- */

void sb_model_free(sb_model *model)
{
    if (!model)
        return;
    sb_graph_free(model->graph);
    sb_model_io_free(&model->io);
    for (size_t i = 0; i < SB_QUESTIONS; i++)
        sb_arena_free(&model->answers[i]);
    sb_free(model->ctx, model->path);
    sb_free(model->ctx, model);
}

/* Takes the graph, also on failure. */
static sb_status wrap_graph(sb_graph *graph, sb_model **out)
{
    sb_ctx *ctx = graph->ctx;
    sb_model *model = sb_alloc(ctx, 1, sizeof *model);

    if (!model) {
        sb_graph_free(graph);
        return SB_NO_MEMORY;
    }
    model->ctx = ctx;
    model->graph = graph;
    sb_arena_init(&model->io.arena, ctx);
    for (size_t i = 0; i < SB_QUESTIONS; i++)
        sb_arena_init(&model->answers[i], ctx);
    *out = model;
    return SB_OK;
}

sb_status sb_model_wrap(sb_graph *graph, sb_model **out)
{
    sb_model *model = NULL;

    SB_TRY(wrap_graph(graph, &model));
    sb_status status = sb_graph_infer(graph);
    if (status == SB_OK)
        status = sb_model_refresh(model);
    if (status == SB_OK)
        *out = model;
    else
        sb_model_free(model);
    return status;
}

sb_status sb_model_refresh(sb_model *model)
{
    sb_model_io_free(&model->io);
    return sb_model_io_fill(&model->io, model->graph);
}

sb_status sb_model_replace(sb_model *model, sb_graph *graph)
{
    sb_model_io io = {.n_inputs = 0};
    sb_status status = sb_model_io_fill(&io, graph);

    if (status != SB_OK) {
        sb_model_io_free(&io);
        sb_graph_free(graph);
        return status;
    }
    sb_model_io_free(&model->io);
    sb_graph_free(model->graph);
    model->io = io;
    model->graph = graph;
    return SB_OK;
}

sb_arena *sb_model_answer(sb_model *model, sb_model_question question)
{
    sb_arena *arena = &model->answers[question];

    sb_arena_free(arena);
    sb_arena_init(arena, model->ctx);
    return arena;
}

/* ---- loading ------------------------------------------------------------ */

sb_status sb_model_load(sb_ctx *ctx, const char *path, sb_model **out)
{
    return sb_model_load_with(ctx, path, NULL, out);
}

/* Frees the graph on failure. */
static sb_status read_windows(sb_graph *graph)
{
    sb_status status = sb_graph_find_windows(graph);

    if (status != SB_OK)
        sb_graph_free(graph);
    return status;
}

/* Language models are told by their names and first bytes; all else is ONNX. */
static sb_status load_graph(sb_ctx *ctx, const char *path,
                            const sb_load_options *opt, sb_graph **out,
                            uint64_t *bytes)
{
    const sb_onnx_load_options onnx = {.keep_inputs = opt->keep_inputs != 0};
    struct stat st;

    if (sb_llm_is(path))
        return sb_llm_load(ctx, path, opt->part, opt->parts, out, bytes);
    if (sb_is_folder(path))
        return sb_fail(ctx, SB_IO,
                       "%s: a folder without config.json, want an ONNX file or "
                       "a language model",
                       path);
    SB_TRY(sb_onnx_load_with(ctx, path, &onnx, out));
    SB_TRY(read_windows(*out));
    if (stat(path, &st) == 0)
        *bytes = (uint64_t)st.st_size + (*out)->external_bytes;
    return SB_OK;
}

sb_status sb_model_load_with(sb_ctx *ctx, const char *path,
                             const sb_load_options *options, sb_model **out)
{
    const sb_load_options defaults = SB_LOAD_OPTIONS_INIT;
    sb_load_options opt;
    sb_graph *graph = NULL;
    uint64_t bytes = 0;

    SB_TRY(sb_options_read(ctx, "sb_load_options", options, &defaults,
                           sizeof opt, &opt));
    if (opt.parts > 0 && opt.part >= opt.parts)
        return sb_fail(ctx, SB_BAD_ARG, "there is no part %zu of %zu", opt.part,
                       opt.parts);
    SB_TRY(sb_progress(ctx, "load", 0, 2));
    SB_TRY(load_graph(ctx, path, &opt, &graph, &bytes));
    sb_status status = sb_progress(ctx, "load", 1, 2);
    if (status != SB_OK) {
        sb_graph_free(graph);
        return status;
    }
    char *kept = sb_alloc(ctx, strlen(path) + 1, 1);
    if (!kept) {
        sb_graph_free(graph);
        return SB_NO_MEMORY;
    }
    memcpy(kept, path, strlen(path) + 1);
    status = sb_model_wrap(graph, out);
    if (status != SB_OK) {
        sb_free(ctx, kept);
        return status;
    }
    (*out)->file_bytes = bytes;
    (*out)->path = kept;
    return SB_OK;
}

sb_status sb_model_load_memory(sb_ctx *ctx, const void *data, size_t size,
                               const char *folder, sb_model **out)
{
    sb_graph *graph = NULL;

    SB_TRY(sb_progress(ctx, "load", 0, 2));
    SB_TRY(sb_onnx_load_memory(ctx, "model in memory", folder, data, size,
                               &graph));
    SB_TRY(read_windows(graph));
    return sb_model_wrap(graph, out);
}

sb_status sb_model_parse(sb_ctx *ctx, const char *text, sb_model **out)
{
    sb_graph *graph = NULL;

    SB_TRY(sb_graph_parse(ctx, text, &graph));
    return sb_model_wrap(graph, out);
}

sb_status sb_model_create(sb_ctx *ctx, const char *name, sb_model **out)
{
    sb_graph *graph = NULL;

    SB_TRY(sb_graph_create(ctx, name, &graph));
    return wrap_graph(graph, out);
}

sb_status sb_model_clone(sb_ctx *ctx, const sb_model *model, sb_model **out)
{
    sb_model *copy = NULL;
    sb_graph *graph = NULL;

    SB_TRY(sb_graph_clone_into(ctx, model->graph, &graph));
    SB_TRY(wrap_graph(graph, &copy));
    copy->file_bytes = model->file_bytes;
    sb_status status = sb_model_refresh(copy);
    if (status == SB_OK)
        *out = copy;
    else
        sb_model_free(copy);
    return status;
}

/* ---- saving ------------------------------------------------------------- */

sb_status sb_model_write(const sb_graph *graph, int64_t min_opset,
                         const char *path, void **out, size_t *size)
{
    const sb_onnx_save_options opt = {.min_opset = min_opset};
    sb_graph *older = NULL;

    SB_TRY(sb_graph_check_whole(graph));
    SB_TRY(sb_progress(graph->ctx, "save", 0, 1));
    int64_t opset = sb_onnx_save_opset(graph, &opt);
    if (sb_graph_wants_older(graph, opset)) {
        SB_TRY(sb_graph_clone(graph, &older));
        sb_status status = sb_graph_use_older(older, opset);
        if (status != SB_OK) {
            sb_graph_free(older);
            return status;
        }
    }
    const sb_graph *g = older ? older : graph;
    sb_status status = path ? sb_onnx_save(g, path, &opt)
                            : sb_onnx_save_memory(g, &opt, out, size);
    sb_graph_free(older);
    return status;
}

sb_status sb_model_check_opset(sb_ctx *ctx, int64_t opset)
{
    if (opset < OPSET_LEAST || opset > SB_CANONICAL_OPSET)
        return sb_fail(ctx, SB_BAD_ARG, "opset %lld, want %d to %d",
                       (long long)opset, OPSET_LEAST, SB_CANONICAL_OPSET);
    return SB_OK;
}

sb_status sb_model_set_opset(sb_model *model, int64_t opset)
{
    sb_graph *copy = NULL;

    SB_TRY(sb_model_check_opset(model->ctx, opset));
    SB_TRY(sb_graph_clone(model->graph, &copy));
    sb_status status = sb_graph_decompose(copy, opset);
    if (status == SB_OK)
        status = sb_graph_check_opset(copy, opset);
    if (status != SB_OK) {
        sb_graph_free(copy);
        return status;
    }
    copy->file_opset = opset;
    return sb_model_replace(model, copy);
}

void sb_model_set_sparse(sb_model *model, int on)
{
    model->graph->file_sparse = on != 0;
}

/* Operators that simplifying brought in and that would lift the file to a much
 * newer opset are written out, and 3-bit codes as 4, in a copy. */
static sb_status model_save(const sb_model *model, const char *path, void **out,
                            size_t *size)
{
    const sb_graph *graph = model->graph;
    sb_graph *copy = NULL;

    if (!sb_graph_wants_decompose(graph) && !sb_graph_has_three_bits(graph))
        return sb_model_write(graph, sb_graph_min_opset(graph), path, out,
                              size);
    SB_TRY(sb_graph_clone(graph, &copy));
    sb_status status = sb_graph_widen_three_bits(copy);
    if (status == SB_OK && sb_graph_wants_decompose(graph))
        status = sb_passes_run(copy, "decompose", NULL, NULL, NULL);
    if (status == SB_OK)
        status =
            sb_model_write(copy, sb_graph_min_opset(copy), path, out, size);
    sb_graph_free(copy);
    return status;
}

sb_status sb_model_save(const sb_model *model, const char *path)
{
    return model_save(model, path, NULL, NULL);
}

sb_status sb_model_save_memory(const sb_model *model, void **out, size_t *size)
{
    return model_save(model, NULL, out, size);
}

uint64_t sb_model_file_bytes(const sb_model *model)
{
    return model->file_bytes;
}
