/* qattest.h - one linear layer with quantizers that are trained, and the same
 * by its definition in double precision:
 *
 *     y = Qx(x) Qw(w),   loss = mean (y - t)^2
 *
 * A test says what Qx and Qw do to each element and what they add to the
 * gradients; the rest is the same for all kinds. */
#ifndef SB_TESTS_QATTEST_H
#define SB_TESTS_QATTEST_H

#include "quanttest.h"

#include "learn/learner.h"
#include "quant/train/qat.h"

enum { QAT_N = 24, QAT_K = 6, QAT_M = 5 }; /* x [N, K], w [K, M] */

typedef struct test_qat {
    sb_quant_model *qm;
    sb_qat *qat;
    sb_learner *learner;
    double x[QAT_N * QAT_K], w[QAT_K * QAT_M], t[QAT_N * QAT_M];
    /* By the definition: quantized, and gradients of these. */
    double xq[QAT_N * QAT_K], wq[QAT_K * QAT_M];
    double dxq[QAT_N * QAT_K], dwq[QAT_K * QAT_M];
} test_qat;

/* The model of a configuration, calibrated on x; `lowest` is the least of x,
 * the greatest is 2. */
void test_qat_open(test_qat *q, const char *yaml, double lowest);
/* Loss and gradients of the learner, and of the definition from xq and wq; the
 * output must be that of the definition. */
void test_qat_run(test_qat *q);
void test_qat_close(test_qat *q);

/* Element `i` of the value or the gradient of a parameter. */
double test_qat_value(const test_qat *q, const char *name, int64_t i);
double test_qat_gradient(const test_qat *q, const char *name, int64_t i);
/* The parameter is none: it is not learned. */
void test_qat_fixed(const test_qat *q, const char *name);
/* The scales of a quantizer once what is learned now was settled. */
sb_quantizer_info test_qat_settled(const test_qat *q, const char *name);

/* Rounding and its straight-through gradients, by the definition: with
 * v = round(x / s) + z, inside if qmin <= v <= qmax, `g` comes from behind. */
typedef struct test_ste {
    double y, dx, ds, dz;
} test_ste;

test_ste test_ste_of(test_scale q, double x, double g);

#endif
