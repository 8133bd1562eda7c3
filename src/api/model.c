/* sb_model: loading, saving, and what its inputs and outputs are. */
#define _POSIX_C_SOURCE 200809L
#include "api/model.h"

#include <sys/stat.h>

#include "graph/text.h"
#include "onnx/onnx.h"
#include "ops/op_registry.h"
#include "passes/pass.h"

const char *sb_version(void)
{
    return SB_VERSION;
}

void sb_model_free(sb_model *model)
{
    if (!model)
        return;
    sb_graph_free(model->graph);
    sb_arena_free(&model->io_arena);
    sb_arena_free(&model->info_arena);
    sb_arena_free(&model->lint_arena);
    sb_free(model->ctx, model->results);
    sb_free(model->ctx, model);
}

/* Takes the graph, also on failure. */
static sb_status wrap(sb_ctx *ctx, sb_graph *graph, sb_model **out)
{
    sb_model *model = sb_alloc(ctx, 1, sizeof *model);

    if (!model) {
        sb_graph_free(graph);
        return SB_NO_MEMORY;
    }
    model->ctx = ctx;
    model->graph = graph;
    sb_arena_init(&model->io_arena, ctx);
    sb_arena_init(&model->info_arena, ctx);
    sb_arena_init(&model->lint_arena, ctx);
    *out = model;
    return SB_OK;
}

/* The same for a graph that is complete: shapes are inferred. */
static sb_status wrap_complete(sb_ctx *ctx, sb_graph *graph, sb_model **out)
{
    sb_model *model = NULL;

    SB_TRY(wrap(ctx, graph, &model));
    sb_status status = sb_graph_infer(graph);
    if (status == SB_OK)
        status = sb_model_refresh(model);
    if (status == SB_OK)
        *out = model;
    else
        sb_model_free(model);
    return status;
}

sb_status sb_model_load(sb_ctx *ctx, const char *path, sb_model **out)
{
    sb_graph *graph = NULL;
    struct stat st;

    SB_TRY(sb_onnx_load(ctx, path, &graph));
    sb_status status = wrap_complete(ctx, graph, out);
    if (status == SB_OK && stat(path, &st) == 0)
        (*out)->file_bytes = (uint64_t)st.st_size + graph->external_bytes;
    return status;
}

sb_status sb_model_load_memory(sb_ctx *ctx, const void *data, size_t size,
                               sb_model **out)
{
    sb_graph *graph = NULL;

    SB_TRY(sb_onnx_load_memory(ctx, "model in memory", data, size, &graph));
    return wrap_complete(ctx, graph, out);
}

sb_status sb_model_parse(sb_ctx *ctx, const char *text, sb_model **out)
{
    sb_graph *graph = NULL;

    SB_TRY(sb_graph_parse(ctx, text, &graph));
    return wrap_complete(ctx, graph, out);
}

sb_status sb_model_create(sb_ctx *ctx, const char *name, sb_model **out)
{
    sb_graph *graph = NULL;

    SB_TRY(sb_graph_create(ctx, name, &graph));
    return wrap(ctx, graph, out);
}

static sb_status save_graph(const sb_graph *graph, const char *path)
{
    const sb_onnx_save_options opt = {.min_opset = sb_graph_min_opset(graph)};

    return sb_onnx_save(graph, path, &opt);
}

/* Operators that simplifying brought in and that would lift the file to a much
 * newer opset are written out, in a copy. */
static sb_status save_expanded(sb_ctx *ctx, const sb_graph *graph,
                               const char *path)
{
    sb_graph *copy = NULL;
    sb_pass_result *results = NULL;
    size_t n_results = 0;

    SB_TRY(sb_graph_clone(graph, &copy));
    sb_status status =
        sb_passes_run(copy, "expand", NULL, &results, &n_results);
    if (status == SB_OK)
        status = save_graph(copy, path);
    sb_free(ctx, results);
    sb_graph_free(copy);
    return status;
}

sb_status sb_model_save(sb_ctx *ctx, const sb_model *model, const char *path)
{
    if (sb_graph_wants_expand(model->graph))
        return save_expanded(ctx, model->graph, path);
    return save_graph(model->graph, path);
}

/* ---- inputs and outputs ------------------------------------------------- */

/* "float[N,3,224,224]" */
static sb_status type_text(const sb_graph *g, const sb_value *v, sb_str *out)
{
    const sb_shape *shape = &v->type.shape;

    if (v->opaque_type.len) {
        sb_str_add(out, "not a tensor");
        return sb_str_status(out);
    }
    sb_str_add(out, v->type.dtype == SB_DTYPE_NONE
                        ? "unknown"
                        : sb_dtype_get(v->type.dtype)->onnx);
    if (shape->rank < 0)
        sb_str_add(out, "[*]");
    for (int i = 0; i < shape->rank; i++) {
        const char *symbol = sb_graph_symbol_name(g, shape->dim[i]);

        sb_str_add(out, i ? "," : "[");
        if (sb_dim_known(shape->dim[i]))
            sb_str_addf(out, "%lld", (long long)shape->dim[i]);
        else
            sb_str_add(out, symbol ? symbol : "?");
    }
    if (shape->rank >= 0)
        sb_str_add(out, shape->rank == 0 ? "[]" : "]");
    return sb_str_status(out);
}

static sb_status fill_info(sb_model *model, sb_value_id id, sb_value_info *out)
{
    const sb_value *v = sb_graph_value(model->graph, id);
    const sb_shape *shape = &v->type.shape;
    size_t n = shape->rank > 0 ? (size_t)shape->rank : 0;
    int64_t *dims = sb_arena_alloc(&model->io_arena, n, sizeof *dims);
    sb_str text;

    if (!dims)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        dims[i] = sb_dim_known(shape->dim[i]) ? shape->dim[i] : -1;
    sb_str_init(&text, model->ctx);
    sb_status status = type_text(model->graph, v, &text);
    *out = (sb_value_info){
        .name = sb_arena_str(&model->io_arena, v->name),
        .dtype = v->type.dtype,
        .rank = shape->rank,
        .dims = dims,
        .text = sb_arena_str(&model->io_arena, sb_str_text(&text))};
    sb_str_free(&text);
    if (status == SB_OK && (!out->name || !out->text))
        status = SB_NO_MEMORY;
    return status;
}

sb_status sb_model_refresh(sb_model *model)
{
    const sb_graph *g = model->graph;

    sb_arena_free(&model->io_arena);
    sb_arena_init(&model->io_arena, model->ctx);
    model->n_inputs = model->n_outputs = 0;
    model->inputs =
        sb_arena_alloc(&model->io_arena, g->n_inputs, sizeof(sb_value_info));
    model->outputs =
        sb_arena_alloc(&model->io_arena, g->n_outputs, sizeof(sb_value_info));
    if (!model->inputs || !model->outputs)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < g->n_inputs; i++) {
        if (sb_graph_value(g, g->inputs[i])->is_constant)
            continue;
        SB_TRY(fill_info(model, g->inputs[i], &model->inputs[model->n_inputs]));
        model->n_inputs++;
    }
    for (size_t i = 0; i < g->n_outputs; i++) {
        SB_TRY(fill_info(model, g->outputs[i], &model->outputs[i]));
        model->n_outputs++;
    }
    return SB_OK;
}

size_t sb_model_input_count(const sb_model *model)
{
    return model->n_inputs;
}

size_t sb_model_output_count(const sb_model *model)
{
    return model->n_outputs;
}

sb_value_info sb_model_input(const sb_model *model, size_t i)
{
    return model->inputs[i];
}

sb_value_info sb_model_output(const sb_model *model, size_t i)
{
    return model->outputs[i];
}
