/* matmul_util.h - batched matrix products as NumPy's matmul defines them. */
#ifndef SB_OPS_MATMUL_MATMUL_UTIL_H
#define SB_OPS_MATMUL_MATMUL_UTIL_H

#include "dnn/dnn.h"
#include "ops/conv/epilogue.h"
#include "ops/infer_util.h"
#include "ops/packed_input.h"

/* Infers a [..., M, K] x b [..., K, N] = [..., M, N]; a vector counts as one
 * row or one column, which the result then lacks.  A matrix may be read
 * transposed; vectors never are. */
SB_MUST_USE sb_status sb_matmul_infer(sb_infer *in, bool trans_a, bool trans_b,
                                      sb_shape *out);

/* A product with all sizes known. */
typedef struct sb_matmul {
    int64_t m, n, k, n_batch;
    int64_t a_row, a_col, b_row, b_col;
    int64_t *at; /* n_batch starts each for a, b and c; NULL if one item */
    sb_dnn_gemm *gemm; /* NULL for integers */
    sb_packed_input b;
} sb_matmul;

/* Plans a x b of the kernel's inputs 0 and 1 into output 0; floats get a gemm,
 * which packs b if it lasts (what is new at each run is faster read as it is),
 * and adds to `k->scratch_size`.  Free in any case. */
SB_MUST_USE sb_status sb_matmul_plan(sb_kernel *k, bool trans_a, bool trans_b,
                                     sb_matmul *out);
/* The same with a bias in input 2 (if there) and work behind it; floats only.
 * The addend of a sum is what output 0 holds. */
SB_MUST_USE sb_status sb_matmul_plan_fused(sb_kernel *k, bool trans_b,
                                           const sb_epilogue *posts,
                                           sb_matmul *out);
SB_MUST_USE sb_status sb_matmul_run(sb_kernel *k, const sb_matmul *mm);
void sb_matmul_free(sb_kernel *k, sb_matmul *mm);

/* c = a x b for int32, uint32, int64, uint64, wrapping; strides as in mm. */
void sb_matmul_integers(sb_ctx *ctx, const sb_matmul *mm, sb_dtype dtype,
                        const void *a, const void *b, void *c);
bool sb_matmul_dtype_ok(sb_dtype dtype);

/* For `weight_axis` of operator rows: B is [..., K, N]; or a matrix, [N, K]
 * with transB. */
int sb_last_weight_axis(const sb_node *node);
int sb_gemm_weight_axis(const sb_node *node);

/* m * n * k * n_batch for a kernel with the inputs of a matmul. */
double sb_matmul_macs(const sb_kernel *k);

#endif
