/* einsum.h - the equation of Einsum, read into labels, and the batched matrix
 * products that it comes down to. */
#ifndef SB_OPS_MATMUL_EINSUM_H
#define SB_OPS_MATMUL_EINSUM_H

#include "dnn/dnn.h"
#include "ops/infer_util.h"

enum {
    SB_EINSUM_MAX_IN = 16,
    SB_EINSUM_LETTERS = 52,
    /* The dimensions of the ellipsis come first, then the letters. */
    SB_EINSUM_LABELS = SB_MAX_RANK + SB_EINSUM_LETTERS,
};

/* The label of each dimension of one operand. */
typedef struct sb_einsum_term {
    int n;
    uint8_t label[SB_MAX_RANK];
} sb_einsum_term;

typedef struct sb_einsum_terms {
    sb_einsum_term in[SB_EINSUM_MAX_IN], out;
    sb_dim size[SB_EINSUM_LABELS]; /* of each label; 1 where it is not used */
    uint64_t used;                 /* bit i: label i appears in an input */
} sb_einsum_terms;

/* Reads `equation` for operands of these shapes, whose ranks are known.  False,
 * with a reason in *why, if it does not fit them. */
bool sb_einsum_parse(const char *equation, uint32_t n_in,
                     const sb_shape *shapes, sb_einsum_terms *terms,
                     const char **why);

/* c[batch, rows, cols] = sum over inner of a[batch, rows, inner] times
 * b[batch, inner, cols], all packed, of type F32, F64 or I64 (which wraps). */
typedef struct sb_einsum_product {
    size_t batch, rows, inner, cols;
    const void *a, *b;
    void *c;
    sb_dtype as;
} sb_einsum_product;

/* The same by oneDNN. */
typedef struct sb_einsum_gemm {
    sb_dnn_gemm *gemm; /* NULL: not worth it, or not floats */
    int64_t *at;       /* starts of a, b and c for each batch */
} sb_einsum_gemm;

/* Looks at the sizes and the type only. */
SB_MUST_USE sb_status sb_einsum_gemm_create(sb_ctx *ctx,
                                            const sb_einsum_product *p,
                                            sb_einsum_gemm *out);
void sb_einsum_gemm_free(sb_ctx *ctx, sb_einsum_gemm *gemm);
/* `scratch` is what sb_dnn_gemm_scratch() asks for, if there is a gemm. */
SB_MUST_USE sb_status sb_einsum_product_run(sb_ctx *ctx,
                                            const sb_einsum_product *p,
                                            const sb_einsum_gemm *gemm,
                                            void *scratch);

#endif
