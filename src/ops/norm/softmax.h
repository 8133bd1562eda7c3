/* softmax.h - one row of softmax or of what it divides by, for operators that
 * contain it. */
#ifndef SB_OPS_NORM_SOFTMAX_H
#define SB_OPS_NORM_SOFTMAX_H

#include <stddef.h>

/* y = exp(x - max(x)) / sum; n at least 1, y may be x. */
void sb_softmax_f32(const float *x, float *y, size_t n);

/* log(sum(exp(x))); n at least 1. */
float sb_log_sum_exp_f32(const float *x, size_t n);

#endif
