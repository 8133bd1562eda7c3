/* bf16_product.h - matrix products of floats that are rounded to bfloat16
 * first, and summed up in float32: twice as fast, on processors that have them,
 * where three digits of each factor are enough. */
#ifndef SB_DNN_BF16_PRODUCT_H
#define SB_DNN_BF16_PRODUCT_H

#include "dnn/dnn.h"

/* Has the processor such products? */
bool sb_bf16_is_fast(void);

/* Factors lie in pairs along k, two in 32 bits.  Of b, columns lie in panels
 * of SB_BF16_PANEL, a pair of each after the other. */
enum { SB_BF16_PANEL = 64 };

static inline int64_t sb_bf16_pairs(int64_t k)
{
    return (k + 1) / 2;
}

/* Of the panels of [k, n]; false if there are too many. */
SB_MUST_USE bool sb_bf16_bytes(int64_t k, int64_t n, size_t *bytes);

typedef struct sb_bf16_source {
    const float *x;
    int64_t row, col; /* steps between rows and columns */
    int64_t k, n;
} sb_bf16_source;

/* Panels of the columns. */
void sb_bf16_pack(sb_ctx *ctx, const sb_bf16_source *from, uint32_t *to);
/* [m, k] with elements one after the other, as rows of pairs. */
void sb_bf16_rows(sb_ctx *ctx, const float *x, int64_t row, int64_t m,
                  int64_t k, uint32_t *to);

typedef struct sb_bf16_product {
    int64_t m, n, k;
    const uint32_t *a; /* rows of pairs; or panels, whose columns are rows */
    bool a_panels;
    const uint32_t *b; /* panels */
    float *c;
    int64_t c_row;
    bool add;          /* to what c holds */
    const float *bias; /* [n], or NULL */
    const sb_dnn_post *posts;
    size_t n_posts;
    bool upper; /* c[i, j] with i > j are not wanted */
} sb_bf16_product;

void sb_bf16_multiply(sb_ctx *ctx, const sb_bf16_product *p);

#endif
