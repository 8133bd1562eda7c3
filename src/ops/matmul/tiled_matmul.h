/* tiled_matmul.h - products with weights that are stored in another form.
 *
 * Some rows of the weights [n, k] at a time become floats, in memory that stays
 * in the cache, and are multiplied at once; so weights never are floats as a
 * whole. */
#ifndef SB_OPS_MATMUL_TILED_MATMUL_H
#define SB_OPS_MATMUL_TILED_MATMUL_H

#include "dnn/dnn.h"
#include "graph/op.h"

/* Writes rows [first, first + count) as floats. */
typedef void (*sb_weight_rows_fn)(const void *arg, int64_t first, int64_t count,
                                  float *out);

typedef struct sb_tiled_matmul {
    int64_t m, n, k, tile;
    sb_dnn_gemm *gemm, *rest; /* of whole tiles, and of the last */
    size_t at_gemm, scratch;
} sb_tiled_matmul;

/* y [m, n] = a [m, k] x weights' (+ bias).  Free it in any case. */
SB_MUST_USE sb_status sb_tiled_matmul_plan(const sb_kernel *k, bool bias,
                                           int64_t m, int64_t n, int64_t width,
                                           sb_tiled_matmul *out);
SB_MUST_USE sb_status sb_tiled_matmul_run(sb_ctx *ctx, const sb_tiled_matmul *t,
                                          sb_weight_rows_fn rows,
                                          const void *arg, const float *a,
                                          const float *bias, float *y,
                                          void *scratch);
void sb_tiled_matmul_free(sb_tiled_matmul *t);

#endif
