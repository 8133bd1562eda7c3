/* roundtest.h - what tests of rounding methods share: a layer of random
 * weights with inputs that depend on each other. */
#ifndef SB_TESTS_ROUNDTEST_H
#define SB_TESTS_ROUNDTEST_H

#include "quanttest.h"

#include "quant/quantize/rounding.h"

enum { ROUND_ROWS = 5, ROUND_COLS = 12, ROUND_SEEN = 40 };

typedef struct test_rounding {
    float w[ROUND_ROWS * ROUND_COLS], before[ROUND_ROWS * ROUND_COLS];
    float gram[ROUND_COLS * ROUND_COLS];
    float scale[ROUND_ROWS * 3], zero[ROUND_ROWS * 3];
    sb_rounding r;
} test_rounding;

/* With groups of four columns and four bits. */
static inline void test_rounding_make(test_rounding *t, uint64_t seed)
{
    const sb_tensor *w = test_random(SB_DTYPE_F32, "5x12", seed);
    const sb_tensor *x = test_random(SB_DTYPE_F32, "40x12", seed + 1);

    *t = (test_rounding){.r = {.ctx = test_ctx(),
                               .rows = ROUND_ROWS,
                               .cols = ROUND_COLS,
                               .count = ROUND_SEEN,
                               .group = 4,
                               .qmin = -8,
                               .qmax = 7}};
    for (int i = 0; i < ROUND_ROWS * ROUND_COLS; i++)
        t->w[i] = t->before[i] = ((const float *)w->data)[i];
    for (int i = 0; i < ROUND_ROWS * 3; i++) {
        t->scale[i] = 0.15F + 0.01F * (float)i;
        t->zero[i] = (float)(i % 2);
    }
    for (int s = 0; s < ROUND_SEEN; s++) {
        float v[ROUND_COLS];
        for (int i = 0; i < ROUND_COLS; i++)
            v[i] = ((const float *)x->data)[s * ROUND_COLS + i] +
                   (i > 0 ? 0.8F * v[i - 1] : 0);
        for (int i = 0; i < ROUND_COLS * ROUND_COLS; i++)
            t->gram[i] += v[i / ROUND_COLS] * v[i % ROUND_COLS];
    }
    t->r.w = t->w;
    t->r.gram = t->gram;
    t->r.scale = t->scale;
    t->r.zero_point = t->zero;
}

/* The squared error of the layer's results, from the definition. */
static inline double test_rounding_error(const test_rounding *t, const float *w)
{
    double sum = 0;

    for (int r = 0; r < ROUND_ROWS; r++)
        for (int i = 0; i < ROUND_COLS; i++)
            for (int j = 0; j < ROUND_COLS; j++)
                sum += (double)(w[r * ROUND_COLS + i] -
                                t->before[r * ROUND_COLS + i]) *
                       (double)t->gram[i * ROUND_COLS + j] *
                       (double)(w[r * ROUND_COLS + j] -
                                t->before[r * ROUND_COLS + j]);
    return sum;
}

#endif
