/* channel_mean.h - how far the mean of a layer's results is to be shifted. */
#ifndef SB_OPS_QUANTIZED_CHANNEL_MEAN_H
#define SB_OPS_QUANTIZED_CHANNEL_MEAN_H

#include <stdbool.h>
#include <stdint.h>

/* For a channel, from what CorrectMean has seen, [2, channels] sums over
 * `count` samples: the mean of what was missing; with `sure` less of it the
 * less sure that mean is.  Its variance is taken off its square, as James and
 * Stein do; what is all chance is not corrected. */
float sb_correct_mean_shift(const float *seen, int64_t channels, int64_t c,
                            double count, bool sure);

#endif
