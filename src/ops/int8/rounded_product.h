/* rounded_product.h - products of what FakeQuant made of two float matrices.
 *
 *     y = a b (+ bias) (+ y),  a [m, k], b [k, n]
 *
 * All elements of `a` are whole numbers times one scale, those of a column of
 * `b` times another: the sums are computed exactly, with integers of 8 bits,
 * four times as many at once as floats.  Only where the processor has VNNI;
 * and numbers that do not fit are refused before anything is written. */
#ifndef SB_OPS_INT8_ROUNDED_PRODUCT_H
#define SB_OPS_INT8_ROUNDED_PRODUCT_H

#include "base/ctx.h"

/* A FakeQuant: scales, zero points, and how many of both. */
typedef struct sb_rounding {
    const float *scale, *zero;
    int64_t n;
    float qmin, qmax;
} sb_rounding;

typedef struct sb_rounded_product {
    int64_t m, n, k;
    const float *a, *b;
    int64_t b_row, b_col; /* strides; the rows of a are dense */
    sb_rounding a_from, b_from;
    const float *bias; /* NULL: none */
    float *y;
    bool add; /* to what y holds */
    void *scratch;
    size_t lanes; /* threads that there is scratch for */
} sb_rounded_product;

/* Whether it pays, here and for these sizes. */
bool sb_rounded_product_suits(int64_t m, int64_t n, int64_t k);
/* Bytes of scratch. */
size_t sb_rounded_product_scratch(size_t lanes, int64_t n, int64_t k);
/* False, and y as it was, if the numbers do not fit. */
bool sb_rounded_product_run(sb_ctx *ctx, const sb_rounded_product *p);

#endif
