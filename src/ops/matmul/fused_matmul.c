/* FusedMatMul: activation(a x b + bias + z), b one matrix, in one pass over the
 * output.
 *
 * Comes from the pass fuse_linear.  The sum adds to what the output holds, so
 * the output takes the place of z where the executor can arrange it. */
#include <string.h>

#include "ops/matmul/matmul_util.h"

typedef struct {
    int64_t trans_b;
    sb_epilogue_op_attrs post;
} fused_matmul_attrs;

static const sb_attr_def attrs[] = {
    {"transB", SB_ATTR_INT, offsetof(fused_matmul_attrs, trans_b), .i = 0,
     .flag = true},
    SB_POST_ATTRS(fused_matmul_attrs, post),
    {0},
};

static sb_status fused_matmul_infer(sb_infer *in)
{
    const fused_matmul_attrs *a = in->attrs;
    sb_shape shape;

    SB_TRY(sb_matmul_infer(in, false, a->trans_b, &shape));
    sb_infer_set(in, 0, in->in[0]->type.dtype, &shape);
    return SB_OK;
}

/* The pass made the node, but shapes may have come only now. */
static sb_status fused_matmul_check(const sb_kernel *k)
{
    const sb_tensor *bias = sb_kernel_in(k, 2), *z = sb_kernel_in(k, 3);
    const sb_tensor *y = k->out[0];

    if (bias && (y->rank < 1 || sb_tensor_count(bias) != y->dims[y->rank - 1]))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "the bias does not have one element a column");
    bool same = !z || z->rank == y->rank;
    for (int i = 0; z && same && i < y->rank; i++)
        same = z->dims[i] == y->dims[i];
    if (!same)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "the addend does not have the output's shape");
    return SB_OK;
}

static sb_status fused_matmul_prepare(sb_kernel *k)
{
    const fused_matmul_attrs *a = k->attrs;
    sb_matmul *mm = sb_alloc(k->ctx, 1, sizeof *mm);
    sb_epilogue posts;

    if (!mm)
        return SB_NO_MEMORY;
    k->state = mm;
    SB_TRY(fused_matmul_check(k));
    SB_TRY(sb_epilogue_make(k, &a->post, sb_kernel_in(k, 3) != NULL, &posts));
    return sb_matmul_plan_fused(k, a->trans_b, &posts, mm);
}

static sb_status fused_matmul_forward(sb_kernel *k)
{
    const sb_tensor *z = sb_kernel_in(k, 3);

    if (z && z->data != k->out[0]->data)
        memcpy(k->out[0]->data, z->data, sb_tensor_bytes(z));
    return sb_matmul_run(k, k->state);
}

static void fused_matmul_release(sb_kernel *k)
{
    if (k->state)
        sb_matmul_free(k, k->state);
    sb_free(k->ctx, k->state);
}

static void fused_matmul_label(const sb_kernel *k, char *out, size_t size)
{
    const fused_matmul_attrs *a = k->attrs;

    sb_epilogue_label(sb_kernel_in(k, 2) ? "MatMul+Bias" : "MatMul", &a->post,
                      sb_kernel_in(k, 3) != NULL, out, size);
}

const sb_op_def sb_op_fused_matmul = {
    .name = "FusedMatMul",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 2,
    .in_max = 4,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_INPLACE_SUM,
    .attrs_size = sizeof(fused_matmul_attrs),
    .attrs = attrs,
    .infer = fused_matmul_infer,
    .prepare = fused_matmul_prepare,
    .forward = fused_matmul_forward,
    .release = fused_matmul_release,
    .macs = sb_matmul_macs,
    .label = fused_matmul_label,
};
