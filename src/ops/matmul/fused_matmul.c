/* FusedMatMul: activation(a x b + bias + z), b one matrix, in one pass over the
 * output.
 *
 * Comes from the pass fuse_linear.  The sum adds to what the output holds, so
 * the output takes the place of z where the executor can arrange it.  Where a
 * and b are results of FakeQuant, the pass fuse_rounded brings scales and zero
 * points of both (inputs 4 to 7), and integers are multiplied if they fit. */
#include <string.h>

#include "ops/int8/rounded_product.h"
#include "ops/matmul/matmul_util.h"

typedef struct {
    int64_t trans_b, a_qmin, a_qmax, b_qmin, b_qmax;
    sb_epilogue_op_attrs post;
} fused_matmul_attrs;

typedef struct {
    sb_matmul mm;
    bool rounded;    /* by integers, if these fit */
    size_t lanes;    /* that there is scratch for then */
    sb_epilogue act; /* behind those */
} fused_matmul_state;

static const sb_attr_def attrs[] = {
    {"transB", SB_ATTR_INT, offsetof(fused_matmul_attrs, trans_b), .i = 0,
     .flag = true},
    {"a_qmin", SB_ATTR_INT, offsetof(fused_matmul_attrs, a_qmin), .i = 0},
    {"a_qmax", SB_ATTR_INT, offsetof(fused_matmul_attrs, a_qmax), .i = 0},
    {"b_qmin", SB_ATTR_INT, offsetof(fused_matmul_attrs, b_qmin), .i = 0},
    {"b_qmax", SB_ATTR_INT, offsetof(fused_matmul_attrs, b_qmax), .i = 0},
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

/* One scale for a, one for b or for each of its columns. */
static sb_status fused_matmul_plan_rounded(sb_kernel *k, fused_matmul_state *s)
{
    const fused_matmul_attrs *a = k->attrs;
    const sb_matmul *mm = &s->mm;

    for (uint32_t i = 4; i < 8; i++) {
        int64_t n = sb_kernel_in(k, i) ? sb_tensor_count(k->in[i]) : 0;

        if (n != 1 && (i < 6 || n != mm->n))
            return sb_kernel_fail(k, SB_BAD_MODEL,
                                  "%lld scales or zero points in input %u",
                                  (long long)n, i);
    }
    if (sb_tensor_count(k->in[6]) != sb_tensor_count(k->in[7]))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "%lld scales and %lld zero points",
                              (long long)sb_tensor_count(k->in[6]),
                              (long long)sb_tensor_count(k->in[7]));
    s->lanes = (size_t)sb_ctx_threads(k->ctx);
    s->rounded =
        mm->n_batch == 1 && sb_rounded_product_suits(mm->m, mm->n, mm->k);
    size_t scratch = sb_rounded_product_scratch(s->lanes, mm->n, mm->k);
    if (s->rounded && k->scratch_size < scratch)
        k->scratch_size = scratch;
    return sb_epilogue_make(k, &a->post, false, &s->act);
}

static sb_status fused_matmul_prepare(sb_kernel *k)
{
    const fused_matmul_attrs *a = k->attrs;
    fused_matmul_state *s = sb_alloc(k->ctx, 1, sizeof *s);
    sb_epilogue posts;

    if (!s)
        return SB_NO_MEMORY;
    k->state = s;
    SB_TRY(fused_matmul_check(k));
    SB_TRY(sb_epilogue_make(k, &a->post, sb_kernel_in(k, 3) != NULL, &posts));
    if (sb_kernel_in(k, 4))
        k->lasting &= ~(1u << 1); /* integers need b as it is, not packed */
    SB_TRY(sb_matmul_plan_fused(k, a->trans_b, &posts, &s->mm));
    return sb_kernel_in(k, 4) ? fused_matmul_plan_rounded(k, s) : SB_OK;
}

static sb_rounding fused_matmul_rounding(const sb_kernel *k, uint32_t at,
                                         int64_t qmin, int64_t qmax)
{
    return (sb_rounding){.scale = k->in[at]->data,
                         .zero = k->in[at + 1]->data,
                         .n = sb_tensor_count(k->in[at]),
                         .qmin = (float)qmin,
                         .qmax = (float)qmax};
}

/* By integers; false if they do not fit. */
static bool fused_matmul_rounded(const sb_kernel *k)
{
    const fused_matmul_attrs *a = k->attrs;
    const fused_matmul_state *s = k->state;
    const sb_tensor *bias = sb_kernel_in(k, 2);
    const sb_rounded_product p = {
        .m = s->mm.m,
        .n = s->mm.n,
        .k = s->mm.k,
        .a = k->in[0]->data,
        .b = k->in[1]->data,
        .b_row = s->mm.b_row,
        .b_col = s->mm.b_col,
        .a_from = fused_matmul_rounding(k, 4, a->a_qmin, a->a_qmax),
        .b_from = fused_matmul_rounding(k, 6, a->b_qmin, a->b_qmax),
        .bias = bias ? bias->data : NULL,
        .y = k->out[0]->data,
        .add = sb_kernel_in(k, 3) != NULL,
        .scratch = k->scratch,
        .lanes = s->lanes,
    };

    if (!sb_rounded_product_run(k->ctx, &p))
        return false;
    if (s->act.n)
        sb_epilogue_apply(k->ctx, &s->act, p.y, NULL,
                          (size_t)sb_tensor_count(k->out[0]));
    return true;
}

static sb_status fused_matmul_forward(sb_kernel *k)
{
    const fused_matmul_state *s = k->state;
    const sb_tensor *z = sb_kernel_in(k, 3);

    if (z && z->data != k->out[0]->data)
        memcpy(k->out[0]->data, z->data, sb_tensor_bytes(z));
    if (s->rounded && fused_matmul_rounded(k))
        return SB_OK;
    return sb_matmul_run(k, &s->mm);
}

static void fused_matmul_release(sb_kernel *k)
{
    fused_matmul_state *s = k->state;

    if (s)
        sb_matmul_free(k, &s->mm);
    sb_free(k->ctx, s);
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
    .in_max = 8,
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
