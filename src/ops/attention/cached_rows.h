/* cached_rows.h - what attention over a cache does with rows of keys and of
 * values.  Sums are taken in the same order everywhere: elements i, i + 16, ...
 * of a product into one of 16 sums, which are then halved until one is left;
 * weighed values row by row. */
#ifndef SB_OPS_ATTENTION_CACHED_ROWS_H
#define SB_OPS_ATTENTION_CACHED_ROWS_H

#include <stdint.h>

typedef struct sb_cached_rows {
    /* out[r] = scale * (q times row r of k), rows are `step` apart. */
    void (*dot)(const float *q, const float *k, int64_t step, int64_t rows,
                int64_t n, float scale, float *out);
    /* y = the sum of p[r] times row r of v. */
    void (*sum)(const float *p, const float *v, int64_t step, int64_t rows,
                int64_t n, float *y);
} sb_cached_rows;

const sb_cached_rows *sb_cached_rows_plain(void);
/* NULL on processors without AVX-512. */
const sb_cached_rows *sb_cached_rows_avx512(void);

#endif
