/* matrix.h - a weight of a language model as files hold it: rows are outputs,
 * elements of a row are floats, or codes with a scale for each group.
 *
 *     element = (code - zero) * scale
 *
 * It borrows the constants of a graph. */
#ifndef SB_LLM_WRITE_MATRIX_H
#define SB_LLM_WRITE_MATRIX_H

#include <math.h>

#include "tensor/tensor.h"

typedef struct sb_matrix {
    int64_t rows, cols;
    const sb_tensor *t;      /* floats, or packed codes, low bits first */
    bool turned;             /* floats are [cols, rows] */
    int bits;                /* of a code; 0: floats */
    int64_t group;           /* elements of a row that share a scale */
    const sb_tensor *scales; /* [rows, groups] floats */
    const sb_tensor *zeros; /* the same, or packed codes, or NULL: the middle */
    const int64_t *order; /* NULL, or [cols]: the column that each code is of */
    /* Heads whose rows are to be taken in another order; 0: as they are.
     * Rotary embeddings turn pairs: neighbors, or element i of the first and
     * of the second half of a head. */
    int64_t heads, rotated;
    bool to_neighbors; /* else to halves */
} sb_matrix;

static inline int64_t sb_matrix_groups(const sb_matrix *m)
{
    return (m->cols + m->group - 1) / m->group;
}

/* Floats whose elements are whole bytes. */
bool sb_is_plain_float(const sb_tensor *t);
/* Are there all elements that the sizes speak of?  Files may say anything: only
 * kernels, which are not made for writing, check it. */
bool sb_matrix_fits(const sb_matrix *m);
void sb_matrix_floats(const sb_matrix *m, int64_t row, float *to);
/* Of codes: [cols] codes; [groups] scales and zero points. */
void sb_matrix_codes(const sb_matrix *m, int64_t row, uint8_t *codes);
void sb_matrix_scales(const sb_matrix *m, int64_t row, float *scales,
                      float *zeros);

/* Room for one row of codes. */
typedef struct sb_matrix_row {
    uint8_t *codes;
    float *scales, *zeros;
} sb_matrix_row;

SB_MUST_USE sb_status sb_matrix_row_make(sb_ctx *ctx, const sb_matrix *m,
                                         sb_matrix_row *out);
void sb_matrix_row_free(sb_ctx *ctx, sb_matrix_row *row);

/* From here on floats become infinite as float16. */
#define SB_BEYOND_HALF 65520.0F

/* The size of the larger one; infinite if x is no number. */
static inline float sb_larger_size(float most, float x)
{
    return isnan(x) ? INFINITY : fmaxf(most, fabsf(x));
}

/* What the codes of all rows are like, to choose a format that holds them. */
typedef struct sb_matrix_facts {
    bool whole; /* zero points are whole numbers */
    float zero_lo, zero_hi;
    int code_lo, code_hi;
    float lo, hi;      /* of code - zero */
    bool half;         /* scales are float16 */
    float odd;         /* if not: the first that is not */
    float lost;        /* a scale that would be 0 as float16; 0: none */
    bool half_offsets; /* products of zero and scale are float16 */
    float scale_most;  /* sizes of the largest; infinite if one is no number */
    float offset_most;
} sb_matrix_facts;

SB_MUST_USE sb_status sb_matrix_look(sb_ctx *ctx, const sb_matrix *m,
                                     sb_matrix_facts *out);
/* Do both hold the same numbers in the same way?  In that case only one need be
 * written. */
SB_MUST_USE sb_status sb_matrix_same(sb_ctx *ctx, const sb_matrix *a,
                                     const sb_matrix *b, bool *same);

#endif
