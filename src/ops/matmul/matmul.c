/* MatMul: NumPy's matmul, floats by oneDNN, integers by loops.
 * FusedMatMul (com.microsoft): alpha * a x b with operands read transposed. */
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/matmul/matmul_util.h"
#include "ops/tie/tie_rules.h"

#include "base/threads.h"

typedef struct {
    float alpha;
    int64_t trans_a, trans_b, trans_batch_a, trans_batch_b;
} fused_attrs;

static const sb_attr_def attrs[] = {
    {"alpha", SB_ATTR_FLOAT, offsetof(fused_attrs, alpha), .f = 1.0f},
    {"transA", SB_ATTR_INT, offsetof(fused_attrs, trans_a), .i = 0,
     .flag = true},
    {"transB", SB_ATTR_INT, offsetof(fused_attrs, trans_b), .i = 0,
     .flag = true},
    {"transBatchA", SB_ATTR_INT, offsetof(fused_attrs, trans_batch_a), .i = 0,
     .flag = true},
    {"transBatchB", SB_ATTR_INT, offsetof(fused_attrs, trans_batch_b), .i = 0,
     .flag = true},
    {0},
};

static sb_status matmul_infer(sb_infer *in)
{
    sb_shape shape;

    SB_TRY(sb_matmul_infer(in, false, false, &shape));
    sb_infer_set(in, 0, in->in[0]->type.dtype, &shape);
    return SB_OK;
}

static sb_status fused_infer(sb_infer *in)
{
    const fused_attrs *a = in->attrs;
    sb_shape shape = sb_shape_unknown();

    if (!a->trans_batch_a && !a->trans_batch_b)
        SB_TRY(sb_matmul_infer(in, a->trans_a, a->trans_b, &shape));
    sb_infer_set(in, 0, in->in[0]->type.dtype, &shape);
    return SB_OK;
}

static sb_status matmul_prepare(sb_kernel *k)
{
    const fused_attrs *a = k->op->attrs_size ? k->attrs : NULL;

    if (a && (a->trans_batch_a || a->trans_batch_b))
        return sb_kernel_fail(k, SB_UNSUPPORTED, "transBatchA or transBatchB");
    sb_matmul *mm = sb_alloc(k->ctx, 1, sizeof *mm);
    if (!mm)
        return SB_NO_MEMORY;
    k->state = mm;
    return sb_matmul_plan(k, a && a->trans_a, a && a->trans_b, mm);
}

static sb_status matmul_forward(sb_kernel *k)
{
    return sb_matmul_run(k, k->state);
}

static void scale_range(void *arg, size_t begin, size_t end)
{
    const sb_kernel *k = arg;
    const fused_attrs *a = k->attrs;
    float *y = k->out[0]->data;

    for (size_t i = begin; i < end; i++)
        y[i] *= a->alpha;
}

static sb_status fused_forward(sb_kernel *k)
{
    const fused_attrs *a = k->attrs;

    if (k->out[0]->dtype != SB_DTYPE_F32)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "type %s",
                              sb_dtype_name(k->out[0]->dtype));
    SB_TRY(sb_matmul_run(k, k->state));
    if (a->alpha < 1.0f || a->alpha > 1.0f)
        sb_parallel_for(k->ctx, (size_t)sb_tensor_count(k->out[0]), 65536,
                        scale_range, k);
    return SB_OK;
}

static void matmul_release(sb_kernel *k)
{
    if (k->state)
        sb_matmul_free(k, k->state);
    sb_free(k->ctx, k->state);
}

const sb_op_def sb_op_matmul = {
    .name = "MatMul",
    .since = 1,
    .quant = SB_ROLE_WEIGHTED,
    .integer = "MatMulInteger",
    .weight_axis = sb_last_weight_axis,
    .parameters = 1u << 0 | 1u << 1,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .any_type = 1u << 0 | 1u << 1,
    .batch = sb_batch_matmul,
    .infer = matmul_infer,
    .prepare = matmul_prepare,
    .forward = matmul_forward,
    .release = matmul_release,
    .macs = sb_matmul_macs,
    .grad = sb_grad_matmul,
    .tie = sb_tie_matmul,
};

const sb_op_def sb_op_ms_fused_matmul = {
    .name = "FusedMatMul",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .attrs_size = sizeof(fused_attrs),
    .attrs = attrs,
    .batch = sb_batch_matmul,
    .infer = fused_infer,
    .prepare = matmul_prepare,
    .forward = fused_forward,
    .release = matmul_release,
    .macs = sb_matmul_macs,
    .tie = sb_tie_matmul,
};
