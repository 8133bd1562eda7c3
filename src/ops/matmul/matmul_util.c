/* Batched matrix products as NumPy's matmul defines them. */
#include "ops/matmul/matmul_util.h"

#include "base/threads.h"

/* ---- shapes ------------------------------------------------------------- */

/* Matrix sizes of an operand: rows and columns as they enter the product. */
static void operand_sizes(const sb_shape *s, bool is_a, bool trans,
                          sb_dim *rows, sb_dim *cols)
{
    if (s->rank == 1) {
        *rows = is_a ? 1 : s->dim[0];
        *cols = is_a ? s->dim[0] : 1;
        return;
    }
    *rows = s->dim[s->rank - (trans ? 1 : 2)];
    *cols = s->dim[s->rank - (trans ? 2 : 1)];
}

static sb_shape batch_of(const sb_shape *s)
{
    sb_shape batch = *s;

    batch.rank = s->rank > 2 ? s->rank - 2 : 0;
    return batch;
}

sb_status sb_matmul_infer(sb_infer *in, bool trans_a, bool trans_b,
                          sb_shape *out)
{
    const sb_shape *a = &in->in[0]->type.shape, *b = &in->in[1]->type.shape;
    sb_dim m, ka, kb, n;

    *out = sb_shape_unknown();
    if (a->rank == 0 || b->rank == 0)
        return sb_infer_fail(in, "an input is a scalar, want rank 1 or more");
    if (a->rank < 0 || b->rank < 0)
        return SB_OK;
    operand_sizes(a, true, trans_a, &m, &ka);
    operand_sizes(b, false, trans_b, &kb, &n);
    if (sb_dim_known(ka) && sb_dim_known(kb) && ka != kb)
        return sb_infer_fail(in, "%lld columns times %lld rows", (long long)ka,
                             (long long)kb);
    sb_shape batch = batch_of(a), batch_b = batch_of(b);
    if (!sb_shape_broadcast(&batch, &batch_b))
        return sb_infer_fail(in, "the batch dimensions do not broadcast");
    *out = batch;
    if (a->rank > 1)
        out->dim[out->rank++] = m;
    if (b->rank > 1)
        out->dim[out->rank++] = n;
    return SB_OK;
}

/* ---- planning ----------------------------------------------------------- */

bool sb_matmul_dtype_ok(sb_dtype dtype)
{
    return dtype == SB_DTYPE_F32 || dtype == SB_DTYPE_I32 ||
           dtype == SB_DTYPE_U32 || dtype == SB_DTYPE_I64 ||
           dtype == SB_DTYPE_U64;
}

/* Where each item of the broadcast batch starts in an operand. */
static void fill_starts(const sb_shape *batch, const sb_shape *own,
                        int64_t size, int64_t *at, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, start = 0, step = size;
        for (int d = batch->rank - 1, o = own->rank - 1; o >= 0; d--, o--) {
            int64_t place = rest % batch->dim[d];
            rest /= batch->dim[d];
            start += own->dim[o] == 1 ? 0 : place * step;
            step *= own->dim[o];
        }
        at[i] = start;
    }
}

static int64_t shape_count(const sb_shape *s)
{
    return sb_dims_product(s->dim, 0, s->rank);
}

/* The batch: folded into the rows of a where b is one matrix, listed item by
 * item otherwise. */
static sb_status plan_batch(sb_kernel *k, const sb_shape *a, const sb_shape *b,
                            bool trans_a, sb_matmul *mm)
{
    sb_shape batch_a = batch_of(a), batch_b = batch_of(b), batch = batch_a;

    if (!sb_shape_broadcast(&batch, &batch_b))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "the batch dimensions do not broadcast");
    mm->n_batch = shape_count(&batch);
    if (mm->n_batch <= 1)
        return SB_OK;
    if (shape_count(&batch_b) == 1 && !trans_a) {
        mm->m *= mm->n_batch; /* so a has the whole batch */
        mm->n_batch = 1;
        return SB_OK;
    }
    mm->at = sb_alloc(k->ctx, (size_t)mm->n_batch * 3, sizeof *mm->at);
    if (!mm->at)
        return SB_NO_MEMORY;
    fill_starts(&batch, &batch_a, mm->m * mm->k, mm->at, mm->n_batch);
    fill_starts(&batch, &batch_b, mm->k * mm->n, mm->at + mm->n_batch,
                mm->n_batch);
    for (int64_t i = 0; i < mm->n_batch; i++)
        mm->at[2 * mm->n_batch + i] = i * mm->m * mm->n;
    return SB_OK;
}

static sb_status plan_gemm(sb_kernel *k, const sb_epilogue *posts,
                           sb_matmul *mm)
{
    sb_dnn_gemm_desc d = {
        .what = sb_node_label(k->graph, k->node),
        .m = mm->m,
        .n = mm->n,
        .k = mm->k,
        .a_row = mm->a_row,
        .a_col = mm->a_col,
        .b_row = mm->b_row,
        .b_col = mm->b_col,
        .c_row = mm->n,
        .pack = mm->n_batch == 1 && (k->lasting >> 1 & 1),
        .alone = mm->n_batch == 1,
        .brief = k->brief,
    };

    if (posts) {
        d.has_bias = sb_kernel_in(k, 2) != NULL;
        d.n_posts = posts->n;
        for (size_t i = 0; i < posts->n; i++)
            d.posts[i] = posts->post[i];
    }
    SB_TRY(sb_dnn_gemm_create(k->ctx, &d, &mm->gemm));
    SB_TRY(sb_packed_input_gemm(k, 1, 0, mm->gemm, &mm->b));
    size_t scratch = sb_dnn_gemm_scratch(mm->gemm);
    k->scratch_size += scratch > mm->b.scratch ? scratch : mm->b.scratch;
    return SB_OK;
}

static sb_status matmul_util_plan(sb_kernel *k, bool trans_a, bool trans_b,
                                  const sb_epilogue *posts, sb_matmul *out)
{
    sb_shape a = sb_shape_of(k->in[0]), b = sb_shape_of(k->in[1]);
    sb_matmul *mm = out;

    *mm = (sb_matmul){.n_batch = 1};
    if (k->in[0]->dtype != k->in[1]->dtype ||
        !sb_matmul_dtype_ok(k->in[0]->dtype))
        return sb_kernel_fail(k, SB_UNSUPPORTED, "inputs of types %s and %s",
                              sb_dtype_name(k->in[0]->dtype),
                              sb_dtype_name(k->in[1]->dtype));
    trans_a = trans_a && a.rank > 1;
    trans_b = trans_b && b.rank > 1;
    operand_sizes(&a, true, trans_a, &mm->m, &mm->k);
    operand_sizes(&b, false, trans_b, &mm->k, &mm->n);
    mm->a_row = trans_a ? 1 : mm->k;
    mm->a_col = trans_a ? mm->m : 1;
    mm->b_row = trans_b ? 1 : mm->n;
    mm->b_col = trans_b ? mm->k : 1;
    SB_TRY(plan_batch(k, &a, &b, trans_a, mm));
    return k->in[0]->dtype == SB_DTYPE_F32 ? plan_gemm(k, posts, mm) : SB_OK;
}

sb_status sb_matmul_plan(sb_kernel *k, bool trans_a, bool trans_b,
                         sb_matmul *out)
{
    return matmul_util_plan(k, trans_a, trans_b, NULL, out);
}

sb_status sb_matmul_plan_fused(sb_kernel *k, bool trans_b,
                               const sb_epilogue *posts, sb_matmul *out)
{
    return matmul_util_plan(k, false, trans_b, posts, out);
}

void sb_matmul_free(sb_kernel *k, sb_matmul *mm)
{
    sb_dnn_gemm_free(mm->gemm);
    sb_free(k->ctx, mm->at);
    *mm = (sb_matmul){0};
}

/* ---- running ------------------------------------------------------------ */

typedef struct integer_job {
    const sb_matmul *mm;
    const void *a, *b;
    void *c;
} integer_job;

/* Unsigned arithmetic wraps as two's complement does, so one function serves
 * both signs. */
#define INTEGER_ROWS(name, type)                                             \
    static void name(void *arg, size_t begin, size_t end)                    \
    {                                                                        \
        const integer_job *job = arg;                                        \
        const sb_matmul *mm = job->mm;                                       \
                                                                             \
        for (size_t i = begin; i < end; i++) {                               \
            int64_t item = (int64_t)i / mm->m, row = (int64_t)i % mm->m;     \
            const type *a = (const type *)job->a +                           \
                            (mm->at ? mm->at[item] : 0) + row * mm->a_row;   \
            const type *b = (const type *)job->b +                           \
                            (mm->at ? mm->at[mm->n_batch + item] : 0);       \
            type *c = (type *)job->c + (int64_t)i * mm->n;                   \
            for (int64_t j = 0; j < mm->n; j++)                              \
                c[j] = 0;                                                    \
            for (int64_t l = 0; l < mm->k; l++)                              \
                for (int64_t j = 0; j < mm->n; j++)                          \
                    c[j] +=                                                  \
                        a[l * mm->a_col] * b[l * mm->b_row + j * mm->b_col]; \
        }                                                                    \
    }

INTEGER_ROWS(integer_rows32, uint32_t)
INTEGER_ROWS(integer_rows64, uint64_t)

void sb_matmul_integers(sb_ctx *ctx, const sb_matmul *mm, sb_dtype dtype,
                        const void *a, const void *b, void *c)
{
    integer_job job = {mm, a, b, c};
    int64_t grain = 30000 / (mm->n * mm->k + 1) + 1;

    sb_parallel_for(ctx, (size_t)(mm->n_batch * mm->m), (size_t)grain,
                    sb_dtype_size(dtype) == 4 ? integer_rows32 : integer_rows64,
                    &job);
}

sb_status sb_matmul_run(sb_kernel *k, const sb_matmul *mm)
{
    if (!mm->gemm) {
        sb_matmul_integers(k->ctx, mm, k->in[0]->dtype, k->in[0]->data,
                           k->in[1]->data, k->out[0]->data);
        return SB_OK;
    }
    if (mm->n_batch == 0)
        return SB_OK;
    sb_dnn_gemm_args args = {
        .a = k->in[0]->data,
        .c = k->out[0]->data,
        .bias = sb_kernel_in(k, 2) ? k->in[2]->data : NULL,
        .n_batch = mm->n_batch,
        .a_at = mm->at,
        .b_at = mm->at ? mm->at + mm->n_batch : NULL,
        .c_at = mm->at ? mm->at + 2 * mm->n_batch : NULL,
        .scratch = k->scratch,
    };
    SB_TRY(sb_packed_input_get(k, &mm->b, k->scratch, &args.b));
    return sb_dnn_gemm_run(mm->gemm, &args);
}

double sb_matmul_macs(const sb_kernel *k)
{
    const sb_tensor *a = k->in[0], *y = k->out[0];
    double macs = a->rank > 0 ? (double)a->dims[a->rank - 1] : 1;

    for (int i = 0; i < y->rank; i++)
        macs *= (double)y->dims[i];
    return macs;
}

int sb_last_weight_axis(const sb_node *node)
{
    (void)node;
    return -1;
}

int sb_gemm_weight_axis(const sb_node *node)
{
    const sb_attr *trans = sb_node_attr(node, "transB");

    return trans && trans->type == SB_ATTR_INT && trans->i != 0 ? 0 : 1;
}
