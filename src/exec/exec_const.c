/* Constants as kernels want them: aligned to their element size, and in f32
 * where the operator computes so.  Weights that need neither stay where the
 * file mapping has them. */
#include "exec/plan.h"

#include <string.h>

#include "tensor/mapped.h"

sb_status sb_const_copy(sb_ctx *ctx, const sb_tensor *from, sb_dtype dtype,
                        sb_tensor *out)
{
    sb_tensor t = sb_tensor_make(dtype, from->rank, from->dims);

    if (!sb_tensor_size_ok(&t))
        return sb_fail(ctx, SB_NO_MEMORY, "a constant is too large");
    SB_TRY(sb_buf_create_raw(ctx, sb_tensor_bytes(&t), &t.buf));
    t.data = sb_buf_data(t.buf);
    if (dtype == from->dtype)
        memcpy(t.data, from->data, sb_tensor_bytes(from));
    else
        sb_convert(from->dtype, from->data, dtype, t.data,
                   (size_t)sb_tensor_count(from));
    sb_tensor_release_pages(from);
    *out = t;
    return SB_OK;
}

sb_status sb_exec_const(sb_exec *exec, sb_value_id v, bool as_f32,
                        const sb_tensor **out)
{
    sb_const_entry *e = &exec->consts[v];

    if (!e->aligned.data) {
        const sb_tensor *t = &sb_graph_value(exec->graph, v)->constant;
        if (sb_tensor_is_aligned(t))
            e->aligned = sb_tensor_share(t);
        else
            SB_TRY(sb_const_copy(exec->ctx, t, t->dtype, &e->aligned));
    }
    if (as_f32 && !e->f32.data)
        SB_TRY(sb_const_copy(exec->ctx, &e->aligned, SB_DTYPE_F32, &e->f32));
    *out = as_f32 ? &e->f32 : &e->aligned;
    return SB_OK;
}

void sb_exec_const_drop(sb_exec *exec, sb_value_id v)
{
    sb_const_entry *e = &exec->consts[v];

    sb_tensor_release_pages(&e->aligned);
    sb_tensor_drop(&e->aligned);
    sb_tensor_drop(&e->f32);
    *e = (sb_const_entry){0};
}

/* ---- what runs read ------------------------------------------------------ */

static void const_keep_read(bool *keep, const sb_step *st)
{
    const sb_node *node = st->k.node;

    for (uint32_t j = 0; j < node->n_in + node->n_implicit; j++)
        if (node->inputs[j] != SB_NONE && (j >= 32 || !(st->k.packed >> j & 1)))
            keep[node->inputs[j]] = true;
}

sb_status sb_plan_find_kept(sb_plan_builder *b)
{
    const sb_exec *exec = b->exec;
    const sb_graph *g = exec->graph;

    b->keep = sb_arena_alloc(&b->plan->arena, g->n_values + 1, sizeof *b->keep);
    if (!b->keep)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < g->n_outputs; i++)
        b->keep[g->outputs[i]] = true;
    for (size_t p = 0; p < exec->n_plans; p++)
        for (size_t i = 0; i < exec->plans[p]->n_steps; i++)
            const_keep_read(b->keep, exec->plans[p]->steps[i]);
    return SB_OK;
}

void sb_plan_drop_packed(sb_plan_builder *b, const sb_node *node,
                         const sb_step *st)
{
    sb_exec *exec = b->exec;

    if (st) {
        const_keep_read(b->keep, st);
        sb_step_release_pages(st);
    }
    for (uint32_t j = 0; j < node->n_in + node->n_implicit; j++) {
        sb_value_id v = node->inputs[j];

        if (v != SB_NONE && !b->keep[v] && !exec->opt.dump &&
            exec->last_use[v] <= b->position && exec->consts[v].aligned.data)
            sb_exec_const_drop(exec, v);
    }
}
