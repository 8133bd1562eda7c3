/* Inputs fixed, and passes: on a copy of the graph, which takes the place of
 * the old one only if all went well.  The copy shares the weights, and leaves
 * behind what earlier passes dropped. */
#include <string.h>

#include "api/model.h"
#include "base/options.h"
#include "ops/op_registry.h"
#include "passes/batch/dynamic_batch.h"
#include "passes/pass.h"

/* A copy of the model's graph takes its place, shapes inferred anew.  Takes the
 * copy, also on failure. */
static sb_status fix_done(sb_model *model, sb_graph *copy, sb_status status)
{
    if (status == SB_OK)
        status = sb_graph_infer(copy);
    if (status == SB_OK)
        return sb_model_replace(model, copy);
    sb_graph_free(copy);
    return status;
}

/* The place of an input, with or without default. */
static sb_status find_graph_input(const sb_graph *g, const char *name,
                                  size_t *out)
{
    for (size_t i = 0; i < g->n_inputs; i++) {
        const sb_value *v = sb_graph_value(g, g->inputs[i]);

        if (strcmp(v->name, name) == 0) {
            *out = i;
            return SB_OK;
        }
    }
    return sb_fail(g->ctx, SB_BAD_ARG, "the model has no input '%s'", name);
}

/* Do these dimensions agree with those that the file gives the input? */
static sb_status check_shape(const sb_graph *g, const sb_value *v, int rank,
                             const int64_t *dims)
{
    const sb_shape *shape = &v->type.shape;
    sb_tensor got = sb_tensor_make(v->type.dtype, rank, dims);
    bool fits = shape->rank < 0 || shape->rank == rank;
    char text[128];

    for (int i = 0; fits && i < shape->rank; i++)
        fits = !sb_dim_known(shape->dim[i]) || shape->dim[i] == dims[i];
    if (fits)
        return SB_OK;
    return sb_fail(g->ctx, SB_BAD_ARG,
                   "input '%s': shape of %s does not fit the one in the file",
                   v->name, sb_tensor_describe(&got, text, sizeof text));
}

static sb_status fix_shape(sb_graph *g, const char *name, int rank,
                           const int64_t *dims)
{
    size_t at = 0;

    SB_TRY(find_graph_input(g, name, &at));
    sb_value *v = sb_graph_value(g, g->inputs[at]);
    SB_TRY(check_shape(g, v, rank, dims));
    v->type.shape.rank = rank;
    for (int i = 0; i < rank; i++)
        v->type.shape.dim[i] = dims[i];
    return SB_OK;
}

sb_status sb_model_fix_shape(sb_model *model, const char *name, int rank,
                             const int64_t *dims)
{
    sb_graph *copy = NULL;

    if (rank < 0 || rank > SB_MAX_RANK)
        return sb_fail(model->ctx, SB_BAD_ARG,
                       "input '%s': %d dimensions, want at most %d", name, rank,
                       SB_MAX_RANK);
    for (int i = 0; i < rank; i++)
        if (dims[i] < 0)
            return sb_fail(model->ctx, SB_BAD_ARG,
                           "input '%s': dimension %d is %lld, want 0 or more",
                           name, i, (long long)dims[i]);
    SB_TRY(sb_graph_clone(model->graph, &copy));
    return fix_done(model, copy, fix_shape(copy, name, rank, dims));
}

static sb_status fix_value(sb_graph *g, const char *name, const sb_tensor *t)
{
    size_t at = 0;
    char got[128];

    SB_TRY(find_graph_input(g, name, &at));
    sb_value *v = sb_graph_value(g, g->inputs[at]);
    if (v->type.dtype != SB_DTYPE_NONE && v->type.dtype != t->dtype)
        return sb_fail(g->ctx, SB_BAD_ARG, "input '%s': got %s, want %s", name,
                       sb_tensor_describe(t, got, sizeof got),
                       sb_dtype_get(v->type.dtype)->onnx);
    SB_TRY(check_shape(g, v, t->rank, t->dims));
    sb_value_id id = g->inputs[at];
    sb_graph_remove_input(g, at);
    return sb_graph_set_constant(g, id, t);
}

sb_status sb_model_fix_value(sb_model *model, const char *name,
                             const sb_tensor *value)
{
    sb_graph *copy = NULL;
    sb_tensor *own = NULL;

    SB_TRY(sb_tensor_copy(model->ctx, value, &own));
    sb_status status = sb_graph_clone(model->graph, &copy);
    if (status == SB_OK)
        status = fix_done(model, copy, fix_value(copy, name, own));
    sb_tensor_free(own);
    return status;
}

static sb_status simplify_graph(sb_graph *g, const sb_simplify_options *opt,
                                sb_pass_result **results, size_t *n)
{
    SB_TRY(sb_passes_run(g, opt->passes, opt->dump_after, results, n));
    return sb_graph_infer(g);
}

/* Moves the results to where the caller finds them. */
static sb_status keep_results(sb_model *model, const sb_pass_result *rows,
                              size_t n, const sb_pass_result *const **out)
{
    sb_arena *arena = sb_model_answer(model, SB_QUESTION_PASSES);
    sb_pass_result *copy = sb_arena_alloc(arena, n, sizeof *copy);
    const sb_pass_result **list = sb_arena_alloc(arena, n, sizeof(*list));

    if (!copy || !list)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        copy[i] = rows[i];
        list[i] = &copy[i];
    }
    *out = list;
    return SB_OK;
}

sb_status sb_model_simplify(sb_model *model, const sb_simplify_options *options,
                            const sb_pass_result *const **results,
                            size_t *n_results)
{
    const sb_simplify_options defaults = SB_SIMPLIFY_OPTIONS_INIT;
    sb_graph *copy = NULL, *compact = NULL;
    const sb_pass_result *const *list = NULL;
    sb_pass_result *rows = NULL;
    sb_simplify_options opt;
    size_t n = 0;

    SB_TRY(sb_options_read(model->ctx, "sb_simplify_options", options,
                           &defaults, sizeof opt, &opt));
    SB_TRY(sb_graph_clone(model->graph, &copy));
    sb_status status = simplify_graph(copy, &opt, &rows, &n);
    if (status == SB_OK)
        status = keep_results(model, rows, n, &list);
    if (status == SB_OK)
        status = sb_graph_clone(copy, &compact);
    sb_graph_free(copy);
    sb_free(model->ctx, rows);
    if (status == SB_OK)
        status = sb_model_replace(model, compact);
    if (status == SB_OK && results) {
        *results = list;
        *n_results = n;
    }
    return status;
}

sb_status sb_model_make_batch_dynamic(sb_model *model, int *done)
{
    sb_graph *dynamic = NULL;

    SB_TRY(sb_graph_make_batch_dynamic(model->graph, &dynamic));
    if (dynamic)
        SB_TRY(sb_model_replace(model, dynamic));
    *done = dynamic != NULL;
    return SB_OK;
}
