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
