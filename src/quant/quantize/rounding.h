/* rounding.h - deciding for the elements of a weight which way to round, by
 * what the layer multiplies them with. */
#ifndef SB_QUANT_QUANTIZE_ROUNDING_H
#define SB_QUANT_QUANTIZE_ROUNDING_H

#include "base/ctx.h"

/* Rows that lie side by side where they are computed together. */
enum { SB_TILE = 16 };

/* One matrix of a layer: each row makes one output channel of what is
 * multiplied with it.  Scales are decided before: those of row r are
 * [r, cols / group], a column's own at c / group. */
typedef struct sb_rounding {
    sb_ctx *ctx;
    const void *params; /* of the quantizer; NULL if it has none */
    int64_t rows, cols;
    float *w;          /* [rows, cols]; out: numbers that scales represent */
    const float *gram; /* [cols, cols]: sums of x x^T over what was seen */
    double count;      /* of terms in these sums */
    int64_t group;     /* columns that share a scale */
    const float *scale, *zero_point;
    int32_t qmin, qmax;
    /* NULL, or where the method keeps what it made of `gram`, for other rows:
     * NULL at first, sb_free() it at the end. */
    void **kept;
    /* Out: columns whose input is always zero, and NULL or why all was rounded
     * to nearest instead. */
    int64_t dead;
    const char *why_not;
} sb_rounding;

static inline int64_t sb_rounding_groups(const sb_rounding *r)
{
    return (r->cols + r->group - 1) / r->group;
}

/* The nearest number that is represented. */
float sb_rounded(float w, float scale, float zero, int32_t qmin, int32_t qmax);
/* The nearest number that is represented in row `row`, column `col`. */
float sb_rounding_nearest(const sb_rounding *r, int64_t row, int64_t col,
                          float w);
/* The same in one column of some rows, SB_TILE or fewer; `x` and `out` are of
 * SB_TILE. */
void sb_rounding_tile(const sb_rounding *r, int64_t row, int64_t rows,
                      int64_t col, const float *x, float *out);
/* Every element to nearest. */
void sb_rounding_all_nearest(const sb_rounding *r);

#endif
