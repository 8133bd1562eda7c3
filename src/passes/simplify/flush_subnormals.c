/* Pass "flush_subnormals": weights below 2^-126 become zero.
 *
 * Next to ordinary weights they change nothing that a float could show, and
 * processors take a hundred times longer over them unless a runtime asks for
 * zeros, which few do.  Counted are elements. */
#include "passes/pass.h"
#include "tensor/mapped.h"

static sb_status flush_constant(sb_graph *g, sb_value_id id, size_t *changes)
{
    const sb_value *v = sb_graph_value(g, id);
    sb_tensor zeroed = {0};

    if (!v->is_constant || v->n_uses == 0 || v->constant.dtype != SB_DTYPE_F32)
        return SB_OK;
    size_t count = (size_t)sb_tensor_count(&v->constant);
    size_t n = sb_f32_subnormals(v->constant.data, count);
    sb_tensor_release_pages(&v->constant);
    if (n == 0)
        return SB_OK;
    SB_TRY(sb_tensor_clone(g->ctx, &v->constant, &zeroed));
    sb_f32_flush(zeroed.data, count);
    sb_status status = sb_graph_set_constant(g, id, &zeroed);
    sb_tensor_drop(&zeroed);
    *changes += n;
    return status;
}

static sb_status flush_subnormals_run(sb_graph *g, size_t *changes)
{
    for (size_t i = 0; i < g->n_values; i++)
        SB_TRY(flush_constant(g, (sb_value_id)i, changes));
    return SB_OK;
}

const sb_pass_def sb_pass_flush_subnormals = {
    .name = "flush_subnormals",
    .summary = "weights too small for full precision become zero",
    .run = flush_subnormals_run,
    .last = true,
};
