/* int8_matmul.h - matrix products of 8-bit tensors, for the operators that
 * differ only in what they do with the int32 sums.
 *
 * Use: sb_int8_matmul_infer() for the shape; in prepare()
 * sb_int8_matmul_create() into k->state, adding its `scratch` to
 * k->scratch_size; in forward() sb_int8_matmul_run(). */
#ifndef SB_OPS_INT8_INT8_MATMUL_H
#define SB_OPS_INT8_INT8_MATMUL_H

#include "ops/int8/int8_gemm.h"
#include "ops/quantized/quant_util.h"

/* Which inputs of the node are the operands. */
typedef struct sb_int8_operands {
    uint32_t a, b, a_zero, b_zero;
    bool trans_a, trans_b;
    bool a_is_float; /* A is quantized on the fly to uint8 */
} sb_int8_operands;

typedef struct sb_int8_matmul {
    int64_t n_batch, m, k, n;
    int64_t rows, products; /* m and n_batch, before matrices were merged */
    /* Leading dimensions of the result; the steps count whole matrices. */
    int rank;
    int64_t batch[SB_MAX_RANK], a_step[SB_MAX_RANK], b_step[SB_MAX_RANK];
    int64_t n_b; /* matrices in B */
    sb_int8_operands in;
    bool a_signed, b_signed;
    int64_t n_a_zero, n_b_zero;
    uint8_t *packed; /* all of B, if it is known; the executor's */
    struct sb_int8_conv *rows_conv; /* int8_matmul_rows.c; or NULL */
    /* Scratch bytes wanted and where in it things lie. */
    size_t scratch, at_a_zero, at_b_zero, at_a, at_b;
} sb_int8_matmul;

/* The int32 sums become, by type of the output:
 *   int32        sum + bias
 *   float        (sum + bias) * (alpha * row_scale * col_scale) + bias_float
 *   uint8, int8  saturate(round_half_even((sum + bias) * multiplier) + zero),
 *                multiplier = alpha * row_scale * col_scale / y.scale
 *
 * in float32, in this order, as ONNX Runtime's CPU kernels do. */
typedef struct sb_int8_epilogue {
    sb_dtype dtype;
    void *y;
    float alpha;
    const float *row_scale, *col_scale;
    int64_t n_row_scale, n_col_scale; /* one, or one for each row / column */
    sb_qparam out;
    const int32_t *bias;        /* NULL: none */
    int64_t bias_row, bias_col; /* its strides: 0 where it is broadcast */
    const float *bias_float;    /* one per column; NULL: none */
} sb_int8_epilogue;

SB_MUST_USE sb_status sb_int8_matmul_infer(sb_infer *in,
                                           const sb_int8_operands *ops,
                                           sb_dtype dtype);
/* Allocates the state with sb_alloc; packs B if it and its zero point are
 * constant, and says so in k->packed.  `alike`: all rows of the result have the
 * same scales and bias. */
SB_MUST_USE sb_status sb_int8_matmul_create(sb_kernel *k,
                                            const sb_int8_operands *ops,
                                            bool alike, sb_int8_matmul **out);
/* Runs with the node's own A. */
void sb_int8_matmul_run(const sb_kernel *k, const sb_int8_matmul *mm,
                        const sb_int8_epilogue *end);
/* Runs with uint8 elements made by the caller. */
void sb_int8_matmul_run_u8(const sb_kernel *k, const sb_int8_matmul *mm,
                           const uint8_t *a, int32_t a_zero,
                           const sb_int8_epilogue *end);
double sb_int8_matmul_macs(const sb_kernel *k, const sb_int8_operands *ops);
/* Frees k->state, a matmul or NULL. */
void sb_int8_matmul_release(sb_kernel *k);
/* Refuses scales that are not one float, or one for each of the `lines` (rows
 * or columns) of a matrix, or of several of the `matrices`. */
SB_MUST_USE sb_status sb_int8_scales_check(const sb_kernel *k, uint32_t input,
                                           int64_t lines, int64_t matrices);

/* ---- int8_matmul_rows.c, for int8_matmul.c ------------------------------ */

bool sb_int8_rows_fit(const sb_kernel *k, const sb_int8_matmul *mm);
/* Makes mm->rows_conv; bytes of the packed matrix, and of memory at mm->at_a.
 */
SB_MUST_USE sb_status sb_int8_rows_create(sb_kernel *k, sb_int8_matmul *mm,
                                          size_t *weights, size_t *scratch);
void sb_int8_rows_pack(const sb_int8_matmul *mm, const void *b, uint8_t *out);
/* Bytes of memory at mm->at_b. */
size_t sb_int8_rows_lines(const sb_int8_matmul *mm);
void sb_int8_rows_run(const sb_kernel *k, const sb_int8_matmul *mm,
                      const void *a, int32_t a_zero, const sb_int8_epilogue *e);
void sb_int8_rows_release(sb_ctx *ctx, sb_int8_matmul *mm);

#endif
