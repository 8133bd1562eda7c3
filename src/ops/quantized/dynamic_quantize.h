/* dynamic_quantize.h - uint8 parameters from the range of the data itself. */
#ifndef SB_OPS_QUANTIZED_DYNAMIC_QUANTIZE_H
#define SB_OPS_QUANTIZED_DYNAMIC_QUANTIZE_H

#include "ops/quantized/quant_util.h"

/* Scale and zero point so that [min(0, x), max(0, x)] fills [0, 255]. */
sb_qparam sb_dynamic_qparam(const float *x, int64_t n);
/* y = saturate(round_half_even(x / scale) + zero), on all threads. */
void sb_quantize_u8(sb_ctx *ctx, const float *x, int64_t n, sb_qparam q,
                    uint8_t *y);

#endif
