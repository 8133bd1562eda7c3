/* The matrix products of Einsum: large ones of floats by oneDNN, others by
 * plain loops. */
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"
#include "ops/matmul/einsum.h"

enum {
    EINSUM_GRAIN = 32 * 1024, /* multiplications worth a thread */
    EINSUM_GEMM = 16 * 1024,  /* the same worth a call of oneDNN */
};

/* ---- loops -------------------------------------------------------------- */

/* Rows of all batches are the items; the inner loop runs along a row of b. */
#define PRODUCT(id, T)                                                         \
    SB_HOT static void id(const sb_einsum_product *p, size_t begin,            \
                          size_t end)                                          \
    {                                                                          \
        for (size_t row = begin; row < end; row++) {                           \
            const T *a = (const T *)p->a + row * p->inner;                     \
            const T *b = (const T *)p->b + row / p->rows * p->inner * p->cols; \
            T *c = (T *)p->c + row * p->cols;                                  \
            memset(c, 0, p->cols * sizeof *c);                                 \
            for (size_t k = 0; k < p->inner; k++, b += p->cols) {              \
                const T x = a[k];                                              \
                SB_SIMD                                                        \
                for (size_t j = 0; j < p->cols; j++)                           \
                    c[j] += x * b[j];                                          \
            }                                                                  \
        }                                                                      \
    }

PRODUCT(product_f32, float)
PRODUCT(product_f64, double)
PRODUCT(product_i64, uint64_t)

static void product_rows(void *arg, size_t begin, size_t end)
{
    const sb_einsum_product *p = arg;

    if (p->as == SB_DTYPE_F32)
        product_f32(p, begin, end);
    else if (p->as == SB_DTYPE_F64)
        product_f64(p, begin, end);
    else
        product_i64(p, begin, end);
}

/* ---- oneDNN ------------------------------------------------------------- */

sb_status sb_einsum_gemm_create(sb_ctx *ctx, const sb_einsum_product *p,
                                sb_einsum_gemm *out)
{
    double work = (double)p->rows * (double)p->inner * (double)p->cols;
    size_t batch = p->batch;

    if (p->as != SB_DTYPE_F32 || work < EINSUM_GEMM || batch == 0 ||
        p->rows > INT32_MAX || p->cols > INT32_MAX || p->inner > INT32_MAX)
        return SB_OK;
    sb_dnn_gemm_desc desc = {.what = "Einsum",
                             .m = (int64_t)p->rows,
                             .n = (int64_t)p->cols,
                             .k = (int64_t)p->inner,
                             .a_row = (int64_t)p->inner,
                             .a_col = 1,
                             .b_row = (int64_t)p->cols,
                             .b_col = 1,
                             .c_row = (int64_t)p->cols};
    SB_TRY(sb_dnn_gemm_create(ctx, &desc, &out->gemm));
    out->at = sb_alloc(ctx, 3 * batch, sizeof *out->at);
    if (!out->at)
        return SB_NO_MEMORY;
    for (size_t b = 0; b < batch; b++) {
        out->at[b] = (int64_t)(b * p->rows * p->inner);
        out->at[batch + b] = (int64_t)(b * p->inner * p->cols);
        out->at[2 * batch + b] = (int64_t)(b * p->rows * p->cols);
    }
    return SB_OK;
}

void sb_einsum_gemm_free(sb_ctx *ctx, sb_einsum_gemm *gemm)
{
    if (gemm->gemm)
        sb_dnn_gemm_free(gemm->gemm);
    sb_free(ctx, gemm->at);
}

sb_status sb_einsum_product_run(sb_ctx *ctx, const sb_einsum_product *p,
                                const sb_einsum_gemm *gemm, void *scratch)
{
    sb_einsum_product own = *p;
    size_t row = 0; /* multiplications of one row */

    if (gemm->gemm) {
        sb_dnn_gemm_args args = {.a = p->a,
                                 .b = p->b,
                                 .c = p->c,
                                 .n_batch = (int64_t)p->batch,
                                 .a_at = gemm->at,
                                 .b_at = gemm->at + p->batch,
                                 .c_at = gemm->at + 2 * p->batch,
                                 .scratch = scratch};
        return sb_dnn_gemm_run(gemm->gemm, &args);
    }
    if (!sb_mul_size(p->inner, p->cols, &row) || row > EINSUM_GRAIN)
        row = EINSUM_GRAIN;
    sb_parallel_for(ctx, p->batch * p->rows, EINSUM_GRAIN / (row + 1) + 1,
                    product_rows, &own);
    return SB_OK;
}
