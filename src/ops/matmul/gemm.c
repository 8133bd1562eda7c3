/* Gemm: y = alpha a' b' + beta c, with a' = a or its transpose, and c
 * broadcast to y.
 *
 * A row vector c is added by the matrix product itself; any other c is laid
 * into y first and the product added to it, or added afterwards if alpha is
 * not 1.  Integers are computed by loops.
 * FusedGemm (com.microsoft): the same with an activation behind. */
#include <string.h>

#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/matmul/matmul_util.h"
#include "ops/tie/tie_rules.h"

#include "base/threads.h"

typedef struct {
    float alpha, beta;
    int64_t trans_a, trans_b;
    const char *activation;
    float activation_alpha, activation_beta;
} gemm_attrs;

/* clang-format off */
#define GEMM_ATTRS                                                             \
    {"alpha", SB_ATTR_FLOAT, offsetof(gemm_attrs, alpha), .f = 1.0f},          \
    {"beta", SB_ATTR_FLOAT, offsetof(gemm_attrs, beta), .f = 1.0f},            \
    {"transA", SB_ATTR_INT, offsetof(gemm_attrs, trans_a), .i = 0, .flag = true},            \
    {"transB", SB_ATTR_INT, offsetof(gemm_attrs, trans_b), .i = 0, .flag = true}
/* clang-format on */

static const sb_attr_def attrs[] = {
    GEMM_ATTRS,
    {0},
};

static const sb_attr_def fused_attrs[] = {
    GEMM_ATTRS,
    {"activation", SB_ATTR_STRING, offsetof(gemm_attrs, activation), .s = ""},
    {"activation_alpha", SB_ATTR_FLOAT, offsetof(gemm_attrs, activation_alpha),
     .f = 0.01f},
    {"activation_beta", SB_ATTR_FLOAT, offsetof(gemm_attrs, activation_beta),
     .f = 0},
    {0},
};

/* How c enters. */
typedef enum { C_NONE, C_BIAS, C_BEFORE, C_AFTER } gemm_c;

typedef struct {
    sb_dnn_gemm *gemm; /* NULL for integers */
    sb_packed_input b;
    sb_matmul mm; /* sizes and strides */
    gemm_c how;
    int64_t c_row, c_col; /* strides of c, 0 where it is broadcast */
} gemm_state;

static sb_status gemm_infer(sb_infer *in)
{
    const gemm_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape, *w = &in->in[1]->type.shape;
    const sb_fact *c = sb_infer_in(in, 2);
    sb_shape y;

    if ((x->rank >= 0 && x->rank != 2) || (w->rank >= 0 && w->rank != 2))
        return sb_infer_fail(in, "inputs of rank %d and %d, want 2", x->rank,
                             w->rank);
    SB_TRY(sb_matmul_infer(in, a->trans_a, a->trans_b, &y));
    if (c && y.rank == 2 && c->type.shape.rank >= 0) {
        sb_shape both = y;
        if (c->type.shape.rank > 2 ||
            !sb_shape_broadcast(&both, &c->type.shape))
            return sb_infer_fail(in, "c does not broadcast to the product");
        for (int i = 0; i < 2; i++)
            if (y.dim[i] == 1 && sb_dim_known(both.dim[i]) && both.dim[i] != 1)
                return sb_infer_fail(in, "c is larger than the product");
    }
    sb_infer_set(in, 0, in->in[0]->type.dtype, &y);
    return SB_OK;
}

static gemm_c choose_c(const sb_kernel *k, gemm_state *s)
{
    const gemm_attrs *a = k->attrs;
    const sb_tensor *c = sb_kernel_in(k, 2);

    if (!c || (a->beta >= 0 && a->beta <= 0))
        return C_NONE;
    int64_t cols = c->rank > 0 ? c->dims[c->rank - 1] : 1;
    int64_t rows = c->rank > 1 ? c->dims[c->rank - 2] : 1;
    s->c_col = cols == 1 ? 0 : 1;
    s->c_row = rows == 1 ? 0 : cols;
    bool ones = a->alpha >= 1 && a->alpha <= 1;
    if (!ones || k->in[0]->dtype != SB_DTYPE_F32)
        return C_AFTER;
    return rows == 1 && cols == s->mm.n && a->beta >= 1 && a->beta <= 1
               ? C_BIAS
               : C_BEFORE;
}

static sb_status gemm_prepare(sb_kernel *k)
{
    const gemm_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0], *w = k->in[1];
    gemm_state *s = sb_alloc(k->ctx, 1, sizeof *s);

    if (!s)
        return SB_NO_MEMORY;
    k->state = s;
    if (x->dtype != w->dtype || !sb_matmul_dtype_ok(x->dtype))
        return sb_kernel_fail(k, SB_UNSUPPORTED, "inputs of types %s and %s",
                              sb_dtype_name(x->dtype), sb_dtype_name(w->dtype));
    if (sb_kernel_in(k, 2) && k->in[2]->dtype != x->dtype)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "inputs of types %s and %s",
                              sb_dtype_name(x->dtype),
                              sb_dtype_name(k->in[2]->dtype));
    bool ta = a->trans_a, tb = a->trans_b;
    s->mm = (sb_matmul){
        .m = x->dims[ta], .k = x->dims[!ta], .n = w->dims[!tb], .n_batch = 1};
    s->mm.a_row = ta ? 1 : s->mm.k;
    s->mm.a_col = ta ? s->mm.m : 1;
    s->mm.b_row = tb ? 1 : s->mm.n;
    s->mm.b_col = tb ? s->mm.k : 1;
    s->how = choose_c(k, s);
    if (x->dtype != SB_DTYPE_F32)
        return SB_OK;
    sb_dnn_gemm_desc d = {
        .what = sb_node_label(k->graph, k->node),
        .m = s->mm.m,
        .n = s->mm.n,
        .k = s->mm.k,
        .a_row = s->mm.a_row,
        .a_col = s->mm.a_col,
        .b_row = s->mm.b_row,
        .b_col = s->mm.b_col,
        .c_row = s->mm.n,
        .has_bias = s->how == C_BIAS,
        .n_posts = s->how == C_BEFORE ? 1 : 0,
        .posts = {{SB_DNN_SUM, 1, 0}},
        .pack = k->lasting >> 1 & 1,
        .alone = true,
        .brief = k->brief,
    };
    SB_TRY(sb_dnn_gemm_create(k->ctx, &d, &s->gemm));
    SB_TRY(sb_packed_input_gemm(k, 1, 0, s->gemm, &s->b));
    k->scratch_size = sb_dnn_gemm_scratch(s->gemm);
    if (k->scratch_size < s->b.scratch)
        k->scratch_size = s->b.scratch;
    return SB_OK;
}

/* ---- c ------------------------------------------------------------------ */

/* y = beta c, row by row. */
static void lay_c(void *arg, size_t begin, size_t end)
{
    const sb_kernel *k = arg;
    const gemm_attrs *a = k->attrs;
    const gemm_state *s = k->state;

    for (size_t i = begin; i < end; i++) {
        const float *c = (const float *)k->in[2]->data + (int64_t)i * s->c_row;
        float *y = (float *)k->out[0]->data + (int64_t)i * s->mm.n;
        for (int64_t j = 0; j < s->mm.n; j++)
            y[j] = a->beta * c[j * s->c_col];
    }
}

/* y = alpha y + beta c. */
static void add_c(void *arg, size_t begin, size_t end)
{
    const sb_kernel *k = arg;
    const gemm_attrs *a = k->attrs;
    const gemm_state *s = k->state;
    bool has_c = s->how == C_AFTER;

    for (size_t i = begin; i < end; i++) {
        const float *c =
            has_c ? (const float *)k->in[2]->data + (int64_t)i * s->c_row
                  : NULL;
        float *y = (float *)k->out[0]->data + (int64_t)i * s->mm.n;
        for (int64_t j = 0; j < s->mm.n; j++)
            y[j] = a->alpha * y[j] + (c ? a->beta * c[j * s->c_col] : 0);
    }
}

/* The same for integers, through double: small factors times small sums. */
static void add_integers(const sb_kernel *k)
{
    const gemm_attrs *a = k->attrs;
    const gemm_state *s = k->state;
    sb_tensor *y = k->out[0];
    int64_t n = s->mm.m * s->mm.n;
    bool plain = a->alpha >= 1 && a->alpha <= 1 && a->beta >= 1 && a->beta <= 1;

    if (plain && s->how == C_NONE)
        return;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i / s->mm.n * s->c_row + i % s->mm.n * s->c_col;
        int64_t c = s->how == C_AFTER ? sb_tensor_get_i64(k->in[2], at) : 0;
        int64_t sum = sb_tensor_get_i64(y, i);
        uint64_t r = (uint64_t)sum + (uint64_t)c;
        if (!plain) {
            double v =
                (double)a->alpha * (double)sum + (double)a->beta * (double)c;
            int64_t whole = 0;
            sb_convert(SB_DTYPE_F64, &v, SB_DTYPE_I64, &whole, 1);
            r = (uint64_t)whole;
        }
        if (sb_dtype_size(y->dtype) == 4)
            ((uint32_t *)y->data)[i] = (uint32_t)r;
        else
            ((uint64_t *)y->data)[i] = r;
    }
}

static sb_status gemm_forward(sb_kernel *k)
{
    const gemm_attrs *a = k->attrs;
    const gemm_state *s = k->state;
    size_t rows = (size_t)s->mm.m;
    size_t grain = (size_t)(65536 / (s->mm.n + 1) + 1);

    if (!s->gemm) {
        sb_matmul_integers(k->ctx, &s->mm, k->in[0]->dtype, k->in[0]->data,
                           k->in[1]->data, k->out[0]->data);
        add_integers(k);
        return SB_OK;
    }
    if (s->how == C_BEFORE)
        sb_parallel_for(k->ctx, rows, grain, lay_c, k);
    sb_dnn_gemm_args args = {
        .a = k->in[0]->data,
        .bias = s->how == C_BIAS ? k->in[2]->data : NULL,
        .c = k->out[0]->data,
        .scratch = k->scratch,
    };
    SB_TRY(sb_packed_input_get(k, &s->b, k->scratch, &args.b));
    SB_TRY(sb_dnn_gemm_run(s->gemm, &args));
    if (s->how == C_AFTER || a->alpha < 1 || a->alpha > 1)
        sb_parallel_for(k->ctx, rows, grain, add_c, k);
    return SB_OK;
}

static sb_status fused_forward(sb_kernel *k)
{
    const gemm_attrs *a = k->attrs;
    const float params[] = {a->activation_alpha, a->activation_beta};
    bool slope = strcmp(a->activation, "LeakyRelu") == 0;
    sb_epilogue_op_attrs post = {a->activation, {params, slope ? 1 : 0}, 0};
    sb_epilogue posts;

    if (k->out[0]->dtype != SB_DTYPE_F32)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "type %s",
                              sb_dtype_name(k->out[0]->dtype));
    SB_TRY(sb_epilogue_make(k, &post, false, &posts));
    SB_TRY(gemm_forward(k));
    sb_epilogue_apply(k->ctx, &posts, k->out[0]->data, NULL,
                      (size_t)sb_tensor_count(k->out[0]));
    return SB_OK;
}

static void gemm_release(sb_kernel *k)
{
    gemm_state *s = k->state;

    if (s)
        sb_dnn_gemm_free(s->gemm);
    sb_free(k->ctx, s);
}

static double gemm_macs(const sb_kernel *k)
{
    const gemm_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0], *y = k->out[0];

    return x->rank == 2 && y->rank == 2
               ? (double)x->dims[a->trans_a ? 0 : 1] * (double)y->dims[0] *
                     (double)y->dims[1]
               : 0;
}

const sb_op_def sb_op_gemm = {
    .name = "Gemm",
    .since = 7,
    .quant = SB_ROLE_WEIGHTED,
    .integer = "MatMulInteger",
    .weight_axis = sb_gemm_weight_axis,
    .parameters = 1u << 0 | 1u << 1 | 1u << 2,
    .in_min = 2,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .any_type = 1u << 0 | 1u << 1 | 1u << 2,
    .attrs_size = sizeof(gemm_attrs),
    .attrs = attrs,
    .batch = sb_batch_gemm,
    .infer = gemm_infer,
    .prepare = gemm_prepare,
    .forward = gemm_forward,
    .release = gemm_release,
    .macs = gemm_macs,
    .grad = sb_grad_gemm,
    .tie = sb_tie_gemm,
};

const sb_op_def sb_op_ms_fused_gemm = {
    .name = "FusedGemm",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 2,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .attrs_size = sizeof(gemm_attrs),
    .attrs = fused_attrs,
    .batch = sb_batch_gemm,
    .infer = gemm_infer,
    .prepare = gemm_prepare,
    .forward = fused_forward,
    .release = gemm_release,
    .macs = gemm_macs,
    .tie = sb_tie_gemm,
};
