/* Quantizer "lsq": learns the scale (S. Esser et al., Learned step size
 * quantization, arXiv 1902.08153).
 *
 * It starts at 2 mean|x| / sqrt(qmax), and its gradient, the sum over all n
 * elements that share it, is multiplied by 1 / sqrt(n qmax), so that it takes
 * steps as large, for its size, as those of weights.  The scale is used by its
 * magnitude. */
#include <math.h>

#include "quant/quantize/quantizer.h"

static const float lsq_least = 1e-6F; /* of values that are all zero */

static void lsq_start(const sb_quant_seen *seen, float *out)
{
    double qmax = seen->qmax > 1 ? (double)seen->qmax : 1;

    out[0] = fmaxf(
        sb_quant_start_magnitude(seen, 2 * seen->mean_abs / sqrt(qmax), 1),
        lsq_least);
}

static sb_value_id lsq_add(const sb_quant_nodes *n)
{
    return sb_quant_add_fake(n, n->x,
                             sb_quant_add_magnitude(n, n->learned[0], 1),
                             n->zero_point, SB_FAKE_LEARNED);
}

static void lsq_settle(const sb_quant_seen *seen, const float *learned,
                       float *scale, float *zero_point)
{
    *scale = sb_quant_magnitude(seen, learned[0], 1);
    *zero_point = seen->zero_point;
}

static const sb_quant_training lsq_training = {
    .learned = {"scale"},
    .no_zero_point = true,
    .start = lsq_start,
    .add = lsq_add,
    .settle = lsq_settle,
};

const sb_quantizer_def sb_quantizer_lsq = {
    .name = "lsq",
    .summary = "learns the scale; needs training",
    .uses = {[SB_QUANT_WEIGHT] = {.schemes = SB_SCHEMES_PER_TENSOR |
                                             SB_SCHEMES_PER_CHANNEL},
             [SB_QUANT_ACTIVATION] = {.schemes = SB_SCHEMES_PER_TENSOR |
                                                 SB_SCHEMES_PER_CHANNEL}},
    .training = {&lsq_training, &lsq_training},
    .needs_training = true,
};
